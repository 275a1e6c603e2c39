// Values that change in, what is made of them made again out.

export interface Signal<T> {
  (value: T): void;
  // The last, so that what takes a function that reads a `T` knows the `T`.
  (): T;
}

interface Source {
  readonly jobs: Set<Job>;
  /** Its value, without reading it for anybody. */
  readonly now: () => unknown;
}
interface Job {
  /** What it read, and what that was then. */
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

/** Says that something changed that is counted. */
export const bump = (count: Signal<number>): void => count(untracked<number>(count) + 1);

/** A value made of others, made anew when it is read after one of them changed; who reads it hears of it if it changed, too. */
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

/** What `act` makes, and what ends the effects that it began. */
export function owned<T>(act: () => T): readonly [T, () => void] {
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

/** Does `act` when what is being made is taken away. */
export const onEnd = (act: () => void): void => void ends.push(act);

/** Does what waits to be done. */
export function flush(): void {
  try {
    // What is done can make more to do.
    for (let next; (next = queue.shift()); ) next();
  } finally {
    // One that fails takes no other along.
    if (queue.length > 0) queueMicrotask(flush);
  }
}
