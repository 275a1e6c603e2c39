// A change in, the lines of its table out: what stands where, whether its text is here or not.
import type { Change, Kind } from "./data.ts";

/** One side of a line: its kind, its numbers in both files, and its place among the rows of the hunks, if it is in one. */
export type Cell = readonly [Kind, old: number, now: number, row?: number];

/** Old lines between two hunks: from which to which, how far the new numbers are off, and which are not shown yet. */
export interface Gap {
  readonly start: number;
  readonly end: number;
  readonly shift: number;
  from: number;
  to: number;
}

/** The two sides of a line, of which one may be empty (of a line across both, the second); or a gap, and which hunk comes after it. */
export type Line = readonly [Cell | undefined, Cell | undefined] | readonly [Gap, number];
export const isGap = (line: Line): line is readonly [Gap, number] => typeof line[1] === "number";

interface Hunk {
  readonly old: number;
  readonly now: number;
  readonly runs: readonly number[];
}

/** The hunks and the gaps before each of them and after the last. */
export function parts(change: Change): { hunks: readonly Hunk[]; gaps: readonly Gap[] } {
  const gaps: Gap[] = [];
  let start = 1;
  let shift = 0;
  const gap = (end: number): void => void gaps.push({ start, end, shift, from: start, to: end });
  const hunks = change.hunks.map(([from = 0, lines = 0, to = 0, added = 0, ...runs]) => {
    // A side without lines is named by the line before it.
    const hunk = { old: from + (lines > 0 ? 0 : 1), now: to + (added > 0 ? 0 : 1), runs };
    gap(hunk.old - 1);
    start = hunk.old + lines;
    shift = hunk.now + added - start;
    return hunk;
  });
  gap(hunks.length > 0 ? Math.max(change.old_lines, start - 1) : 0);
  return { hunks, gaps };
}

/** The lines of the table, and which of them begin a change. With `heads`, a line stands before each hunk in any case. */
export function layout({ hunks, gaps }: ReturnType<typeof parts>, split: boolean, heads: boolean): { lines: readonly Line[]; starts: readonly number[] } {
  const lines: Line[] = [];
  const starts: number[] = [];
  let row = 0;
  const cells = (count: number, kind: Kind, old: number, now: number): Cell[] =>
    Array.from({ length: count }, (_, at) => [kind, kind === "+" ? 0 : old + at, kind === "-" ? 0 : now + at, row++]);
  const context = (from: number, to: number, shift: number): void => {
    for (let old = from; old <= to; old += 1) {
      const cell: Cell = [" ", old, old + shift];
      lines.push([cell, cell]);
    }
  };
  for (const [at, gap] of gaps.entries()) {
    const hunk = hunks[at];
    context(gap.start, gap.from - 1, gap.shift);
    if (gap.from <= gap.to || (heads && hunk)) lines.push([gap, at]);
    context(gap.to + 1, gap.end, gap.shift);
    let { old, now } = hunk ?? { old: 0, now: 0 };
    for (let run = 0; hunk && run < hunk.runs.length; run += 3) {
      const [kept = 0, gone = 0, come = 0] = hunk.runs.slice(run, run + 3);
      for (const cell of cells(kept, " ", old, now)) lines.push([cell, cell]);
      const left = cells(gone, "-", (old += kept), (now += kept));
      const right = cells(come, "+", old, now);
      if (gone + come > 0) starts.push(lines.length);
      if (split) {
        for (let pair = 0; pair < Math.max(gone, come); pair += 1) lines.push([left[pair], right[pair]]);
      } else for (const cell of [...left, ...right]) lines.push([cell, undefined]);
      old += gone;
      now += come;
    }
  }
  return { lines, starts };
}
