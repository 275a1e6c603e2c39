// Values that change in, how often and in what order what follows them is made out.
import { apart, effect, memo, signal, untrack } from "../lib/signals.ts";
import { expect, test } from "./fixtures.ts";

test("an effect follows what it read last, and nothing else", () => {
  const [which, setWhich] = signal("a");
  const [a, setA] = signal(1);
  const [b, setB] = signal(10);
  const seen: number[] = [];
  effect(() => seen.push(which() === "a" ? a() : b()));
  setB(11);
  expect(seen).toEqual([1]);
  setA(2);
  setWhich("b");
  setA(3);
  setB(12);
  expect(seen).toEqual([1, 2, 11, 12]);
});

test("the same value is no change, and a memo that stays is none", () => {
  const [n, setN] = signal(1);
  const even = memo(() => n() % 2 === 0);
  const seen: boolean[] = [];
  effect(() => seen.push(even()));
  setN(1);
  setN(3);
  setN(4);
  expect(seen).toEqual([false, true]);
});

test("what was made in an effect ends when it is made anew, but for what is apart", () => {
  const [outer, setOuter] = signal(0);
  const [inner, setInner] = signal(0);
  const seen: string[] = [];
  effect(() => {
    const made = outer();
    effect(() => seen.push(`in ${made}: ${inner()}`));
    apart(() => effect(() => seen.push(`apart ${made}: ${inner()}`)));
  });
  setOuter(1);
  seen.length = 0;
  setInner(1);
  expect(seen.toSorted()).toEqual(["apart 0: 1", "apart 1: 1", "in 1: 1"]);
});

test("what is read without following is not followed, in what it makes either", () => {
  const [n, setN] = signal(0);
  const [m, setM] = signal(0);
  const seen: number[] = [];
  effect(() => seen.push(untrack(() => n()) + m()));
  setN(5);
  expect(seen).toEqual([0]);
  setM(1);
  expect(seen).toEqual([0, 6]);
});

test("an effect that fails takes no other along", () => {
  const [n, setN] = signal(0);
  expect(() => effect(() => { throw new Error("fault"); })).toThrow("fault");
  const seen: number[] = [];
  effect(() => seen.push(n()));
  setN(1);
  expect(seen).toEqual([0, 1]);
});
