// Reactive values: signals, memos and effects.

export interface Signal<T> {
  (value: T): void;
  // Declared last, so that TypeScript infers `T` for callers that expect a function returning `T`.
  (): T;
}

interface Source {
  readonly jobs: Set<Job>;
  /** Reads the value without subscribing. */
  readonly now: () => unknown;
}
interface Job {
  /** The sources read by the last run, with the values they had. */
  readonly sources: Map<Source, unknown>;
  notify(): void;
}

let watching: Job | undefined;
let ends: (() => void)[] = [];
const queue: (() => void)[] = [];

const track = (source: Source): void => {
  if (!watching || watching.sources.has(source)) return;
  source.jobs.add(watching);
  watching.sources.set(source, source.now());
};

const forget = (job: Job): void => {
  for (const { jobs } of job.sources.keys()) jobs.delete(job);
  job.sources.clear();
};

const changed = (job: Job): boolean => [...job.sources].some(([source, before]) => !Object.is(source.now(), before));

const tell = ({ jobs }: Source): void => {
  for (const job of [...jobs]) job.notify();
};

/** Runs `act` and subscribes `job` to the sources it reads. */
function watch<T>(job: Job | undefined, act: () => T): T {
  const before = watching;
  watching = job;
  try {
    return act();
  } finally {
    watching = before;
  }
}

/** Runs `act` without subscribing to what it reads. */
export const untracked = <T>(act: () => T): T => watch(undefined, act);

/** A value that notifies its readers when it is set. */
export function signal<T>(value: T): Signal<T> {
  const me: Source = { jobs: new Set(), now: () => value };
  return ((...next: T[]) => {
    if (next.length === 0) track(me);
    else if (!Object.is(next[0], value)) {
      value = next[0] as T;
      tell(me);
    }
    return value;
  }) as Signal<T>;
}

/** Increments a counter. */
export const bump = (count: Signal<number>): void => count(untracked<number>(count) + 1);

/**
 * A cached computed value. It is recomputed when it is read after a source changed, and notifies its readers if its
 * value changed.
 */
export function memo<T>(make: () => T): () => T {
  let made: { readonly value: T } | undefined;
  let stale = false;
  const me = {
    jobs: new Set<Job>(),
    sources: new Map<Source, unknown>(),
    notify() {
      if (stale) return;
      stale = true;
      tell(me);
    },
    now(): T {
      const old = stale && changed(me);
      stale = false;
      if (!made || old) {
        forget(me);
        made = undefined;
        made = { value: watch(me, make) };
      }
      return made.value;
    },
  };
  onEnd(() => {
    forget(me);
    made = undefined;
  });
  return () => {
    track(me);
    return me.now();
  };
}

/** Runs `act`; returns its result and a function that disposes of the effects it created. */
export function owned<T>(act: () => T): readonly [T, () => void] {
  const before = ends;
  const mine: (() => void)[] = (ends = []);
  try {
    return [act(), () => mine.splice(0).forEach((end) => end())];
  } finally {
    ends = before;
  }
}

/** Runs `act` now, and again in a microtask after a value it read has changed. */
export function effect(act: () => void): void {
  let end = (): void => {};
  let waits = false;
  const me: Job = {
    sources: new Map(),
    notify() {
      if (waits) return;
      waits = true;
      if (queue.push(again) === 1) queueMicrotask(flush);
    },
  };
  const stop = (): void => {
    end();
    forget(me);
  };
  const run = (): void => {
    stop();
    [, end] = owned(() => watch(me, act));
  };
  const again = (): void => {
    waits = false;
    if (changed(me)) run();
  };
  onEnd(stop);
  run();
}

/** Runs `act` when the enclosing effect or owner is disposed of. */
export const onEnd = (act: () => void): void => void ends.push(act);

/** Runs all pending effects. */
export function flush(): void {
  try {
    // Effects can queue further effects.
    for (let next; (next = queue.shift()); ) next();
  } finally {
    // If an effect throws, run the remaining ones in another microtask.
    if (queue.length > 0) queueMicrotask(flush);
  }
}
