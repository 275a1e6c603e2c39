// Computes the lines of a change's table, before their text is loaded.
import type { Change } from "./change.ts";
import type { Kind } from "./hunks.ts";

/**
 * One side of a line: kind, line numbers in the old and the new file, and index among the rows of the hunks, if any.
 */
export type Cell = readonly [Kind, old: number, now: number, row?: number];

/** Unchanged lines between two hunks: the range, the offset of the new line numbers, and the part still collapsed. */
export interface Gap {
  readonly start: number;
  readonly end: number;
  readonly shift: number;
  readonly from: number;
  readonly to: number;
}

/**
 * Both sides of a line, either of which may be empty (a line across both columns has no second side), and the index of
 * its hunk; or a gap and the index of the hunk after it.
 */
export interface Line {
  readonly left?: Cell | undefined;
  readonly right?: Cell | undefined;
  readonly gap?: Gap;
  readonly hunk?: number | undefined;
}

interface Hunk {
  readonly old: number;
  readonly now: number;
  readonly runs: readonly number[];
}

/** The hunks, and the gaps before, between and after them. */
export function parts(change: Change): { hunks: readonly Hunk[]; gaps: readonly Gap[] } {
  const gaps: Gap[] = [];
  let start = 1;
  let shift = 0;
  const gap = (end: number): void => void gaps.push({ start, end, shift, from: start, to: end });
  const hunks = change.hunks.map(([from = 0, lines = 0, to = 0, added = 0, ...runs]) => {
    // The position of an empty side is given as the line before it.
    const hunk = { old: from + (lines > 0 ? 0 : 1), now: to + (added > 0 ? 0 : 1), runs };
    gap(hunk.old - 1);
    start = hunk.old + lines;
    shift = hunk.now + added - start;
    return hunk;
  });
  gap(hunks.length > 0 ? Math.max(change.old_lines, start - 1) : 0);
  return { hunks, gaps };
}

/** The lines of the table, and the indexes at which changes start. With `heads`, every hunk has a header line. */
export function layout({ hunks, gaps }: ReturnType<typeof parts>, split: boolean, heads: boolean): { lines: readonly Line[]; starts: readonly number[] } {
  const lines: Line[] = [];
  const starts: number[] = [];
  let row = 0;
  const cells = (count: number, kind: Kind, old: number, now: number): Cell[] =>
    Array.from({ length: count }, (_, at) => [kind, kind === "+" ? 0 : old + at, kind === "-" ? 0 : now + at, row++]);
  const context = (from: number, to: number, shift: number): void => {
    for (let old = from; old <= to; old += 1) {
      const cell: Cell = [" ", old, old + shift];
      lines.push({ left: cell, right: cell });
    }
  };
  for (const [at, gap] of gaps.entries()) {
    const hunk = hunks[at];
    context(gap.start, gap.from - 1, gap.shift);
    if (gap.from <= gap.to || (heads && hunk)) lines.push({ gap, hunk: at });
    context(gap.to + 1, gap.end, gap.shift);
    let { old, now } = hunk ?? { old: 0, now: 0 };
    for (let run = 0; hunk && run < hunk.runs.length; run += 3) {
      const [kept = 0, gone = 0, come = 0] = hunk.runs.slice(run, run + 3);
      for (const cell of cells(kept, " ", old, now)) lines.push({ left: cell, right: cell, hunk: at });
      const left = cells(gone, "-", (old += kept), (now += kept));
      const right = cells(come, "+", old, now);
      if (gone + come > 0) starts.push(lines.length);
      if (split) {
        for (let pair = 0; pair < Math.max(gone, come); pair += 1) lines.push({ left: left[pair], right: right[pair], hunk: at });
      } else for (const cell of [...left, ...right]) lines.push({ left: cell, hunk: at });
      old += gone;
      now += come;
    }
  }
  return { lines, starts };
}
