// Values that change in, what is made of them out, and made again when they do.

interface Scope {
  run(): void;
  /** The followers of each value that it read, and so among whom it is. */
  sources: Set<Set<Scope>>;
  /** What was made in it, which ends when it is made again. */
  owned: Scope[];
  over: boolean;
}

let scope: Scope | undefined;
let tracking = true;

function clear(one: Scope): void {
  for (const inner of one.owned.splice(0)) {
    inner.over = true;
    clear(inner);
  }
  for (const followers of one.sources) followers.delete(one);
  one.sources.clear();
}

function within<T>(inner: Scope | undefined, tracks: boolean, act: () => T): T {
  const before = [scope, tracking] as const;
  scope = inner;
  tracking = tracks;
  try {
    return act();
  } finally {
    [scope, tracking] = before;
  }
}

/** Does something now, and again whenever a value changes that it read. */
export function effect(act: () => void): void {
  const own: Scope = {
    sources: new Set(),
    owned: [],
    over: false,
    run() {
      if (own.over) return;
      clear(own);
      within(own, true, act);
    },
  };
  scope?.owned.push(own);
  own.run();
}

/** A value: how to read it, and how to change it. */
export function signal<T>(value: T): readonly [() => T, (next: T) => void] {
  const followers = new Set<Scope>();
  const get = () => {
    if (scope !== undefined && tracking) {
      followers.add(scope);
      scope.sources.add(followers);
    }
    return value;
  };
  const set = (next: T) => {
    if (Object.is(next, value)) return;
    value = next;
    for (const follower of [...followers]) follower.run();
  };
  return [get, set];
}

/** What is computed of values; its own followers hear of it only if it changed. */
export function memo<T>(compute: () => T): () => T {
  const [get, set] = signal<T | undefined>(undefined);
  effect(() => set(compute()));
  return get as () => T;
}

/** Reads values without following them. */
export const untrack = <T>(act: () => T): T => within(scope, false, act);

/** Makes something that stays as it is when whatever it is made in is made again. */
export const apart = <T>(act: () => T): T => within(undefined, false, act);
