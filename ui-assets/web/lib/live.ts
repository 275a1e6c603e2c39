// Values that change in, what is made of them made again out: the few ideas of Solid that a small page needs.

export interface Signal<T> {
  (): T;
  (value: T): void;
}
interface Job {
  readonly sources: Set<Set<Job>>;
  notify(): void;
}

let watching: Job | undefined;
let ends: (() => void)[] = [];
const queue: (() => void)[] = [];

function track(jobs: Set<Job>): void {
  if (watching === undefined) return;
  jobs.add(watching);
  watching.sources.add(jobs);
}

function forget(job: Job): void {
  for (const jobs of job.sources) jobs.delete(job);
  job.sources.clear();
}

function tell(jobs: Set<Job>): void {
  for (const job of [...jobs]) job.notify();
}

/** Runs `act` so that what it reads is read by `job`. */
function watch<T>(job: Job | undefined, act: () => T): T {
  const before = watching;
  watching = job;
  try {
    return act();
  } finally {
    watching = before;
  }
}

/** Runs `act` without depending on what it reads. */
export const untracked = <T>(act: () => T): T => watch(undefined, act);

/** A value that can be set; who reads it hears of it. */
export function signal<T>(value: T): Signal<T> {
  const jobs = new Set<Job>();
  return ((...next: T[]) => {
    if (next.length === 0) track(jobs);
    else if (next[0] !== value) {
      value = next[0] as T;
      tell(jobs);
    }
    return value;
  }) as Signal<T>;
}

/** Says that something changed that is counted. */
export const bump = (count: Signal<number>): void => count(untracked<number>(count) + 1);

/** A value made of others, made anew when it is read after one of them changed. */
export function memo<T>(make: () => T): () => T {
  const jobs = new Set<Job>();
  let made: { readonly value: T } | undefined;
  const me: Job = {
    sources: new Set(),
    notify() {
      if (made === undefined) return;
      made = undefined;
      tell(jobs);
    },
  };
  return () => {
    track(jobs);
    if (made === undefined) {
      forget(me);
      made = { value: watch(me, make) };
    }
    return made.value;
  };
}

/** Ends the effects that `act` began. */
export function owned<T>(act: () => T): [T, () => void] {
  const before = ends;
  const mine: (() => void)[] = (ends = []);
  try {
    return [act(), () => mine.splice(0).forEach((end) => end())];
  } finally {
    ends = before;
  }
}

/** Does `act` now, and again soon after something that it read has changed. */
export function effect(act: () => void): void {
  let end = (): void => {};
  let waits = false;
  let over = false;
  const me: Job = {
    sources: new Set(),
    notify() {
      if (waits) return;
      waits = true;
      if (queue.push(run) === 1) queueMicrotask(flush);
    },
  };
  function run(): void {
    waits = false;
    if (over) return;
    end();
    forget(me);
    [, end] = owned(() => watch(me, act));
  }
  onEnd(() => {
    over = true;
    end();
    forget(me);
  });
  run();
}

/** Does `act` when what is being made is taken away. */
export const onEnd = (act: () => void): void => void ends.push(act);

/** Does what waits to be done. */
export function flush(): void {
  // What is done can make more to do.
  while (queue.length > 0) for (const job of queue.splice(0)) job();
}

type Plain = string | number | boolean | undefined;
type Props = Readonly<Record<string, Plain | (() => Plain) | ((event: never) => unknown)>>;
export type Child = Node | string | undefined | false | (() => Node | string | readonly (Node | string)[] | undefined | false);

/** Sets an attribute; `undefined` and `false` take it away. */
export function set(node: Element, name: string, value: Plain): void {
  // A page's policy forbids style attributes, not this.
  if (name === "style") (node as HTMLElement).style.cssText = String(value);
  else if (name === "value" || name === "selected") Reflect.set(node, name, value);
  else if (value === undefined || value === false) node.removeAttribute(name);
  else node.setAttribute(name, value === true ? "" : String(value));
}

const nodes = (made: unknown): Node[] =>
  [made]
    .flat()
    .filter((one) => one !== undefined && one !== false)
    .map((one) => (one instanceof Node ? one : document.createTextNode(String(one))));

/** An element, as `name` or `name.class`. Functions among attributes and children are done again when what they read changes; `on...` listens. */
export function h(name: string, props: Props = {}, ...children: Child[]): HTMLElement {
  const [tag = "", style] = name.split(".");
  const node = document.createElement(tag);
  set(node, "class", style);
  for (const [key, value] of Object.entries(props)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value as EventListener);
    else if (typeof value === "function") effect(() => set(node, key, (value as () => Plain)()));
    else set(node, key, value);
  }
  for (const child of children) {
    if (typeof child !== "function") {
      node.append(...nodes(child));
      continue;
    }
    // What it makes stands before this, in place of what it made before.
    const mark = document.createTextNode("");
    let before: Node[] = [];
    node.append(mark);
    effect(() => {
      const made = nodes(child());
      for (const old of before) (old as ChildNode).remove();
      before = made;
      mark.before(...made);
    });
  }
  return node;
}
