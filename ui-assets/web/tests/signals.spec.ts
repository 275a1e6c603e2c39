// Unit tests of signals, memos and effects.
import { effect, flush, memo, onEnd, owned, signal, untracked } from "../lib/signals.ts";
import { expect, test } from "./fixtures.ts";

test("an effect depends only on what its last run read", () => {
  const which = signal("a");
  const a = signal(1);
  const b = signal(10);
  const seen: number[] = [];
  effect(() => seen.push(which() === "a" ? a() : b()));
  b(11);
  flush();
  expect(seen).toEqual([1]);
  a(2);
  flush();
  which("b");
  flush();
  a(3);
  flush();
  b(12);
  flush();
  expect(seen).toEqual([1, 2, 11, 12]);
});

test("synchronous changes run an effect once, in a microtask", async () => {
  const a = signal(1);
  const b = signal(2);
  const seen: number[] = [];
  effect(() => seen.push(a() + b()));
  a(10);
  b(20);
  expect(seen).toEqual([3]);
  await Promise.resolve();
  expect(seen).toEqual([3, 30]);
});

test("equal values do not rerun effects", () => {
  const n = signal(1);
  let made = 0;
  const even = memo(() => {
    made += 1;
    return n() % 2 === 0;
  });
  const seen: boolean[] = [];
  effect(() => seen.push(even()));
  for (const next of [1, 3, 4, 6]) {
    n(next);
    flush();
  }
  expect(seen).toEqual([false, true]);
  expect(made).toBe(4);
});

test("a memo is always up to date", () => {
  const n = signal(1);
  const twice = memo(() => n() * 2);
  const next = memo(() => twice() + 1);
  expect(next()).toBe(3);
  n(5);
  expect(next()).toBe(11);
});

test("rerunning an effect disposes of its children except owned ones", () => {
  const outer = signal(0);
  const inner = signal(0);
  const seen: string[] = [];
  const ends: (() => void)[] = [];
  effect(() => {
    const made = outer();
    effect(() => seen.push(`in ${made}: ${inner()}`));
    onEnd(() => seen.push(`end ${made}`));
    const [, end] = owned(() => effect(() => seen.push(`apart ${made}: ${inner()}`)));
    ends.push(end);
  });
  seen.length = 0;
  outer(1);
  flush();
  expect(seen).toEqual(["end 0", "in 1: 0", "apart 1: 0"]);
  seen.length = 0;
  inner(1);
  flush();
  expect(seen.toSorted()).toEqual(["apart 0: 1", "apart 1: 1", "in 1: 1"]);
  seen.length = 0;
  ends[0]?.();
  inner(2);
  flush();
  expect(seen.toSorted()).toEqual(["apart 1: 2", "in 1: 2"]);
});

test("untracked reads create no dependency", () => {
  const n = signal(0);
  const m = signal(0);
  const seen: number[] = [];
  effect(() => seen.push(untracked(() => n()) + m()));
  n(5);
  flush();
  expect(seen).toEqual([0]);
  m(1);
  flush();
  expect(seen).toEqual([0, 6]);
});

test("a failing effect does not stop others", async () => {
  const n = signal(0);
  expect(() => effect(() => { throw new Error("fault"); })).toThrow("fault");
  effect(() => {
    if (n() === 1) throw new Error("later");
  });
  const seen: number[] = [];
  effect(() => seen.push(n()));
  n(1);
  expect(() => flush()).toThrow("later");
  await Promise.resolve();
  expect(seen).toEqual([0, 1]);
  n(2);
  flush();
  expect(seen).toEqual([0, 1, 2]);
});
