// The layout and the rows of hunks whose lines are known.
import type { Change } from "./change.ts";

export type Kind = " " | "-" | "+";
/**
 * A displayed line: kind, line number in the old and in the new file, text, ranges of changed words (start and length
 * in UTF-16 units), full length if truncated, and whether the file ends here without a newline.
 */
export type Row = readonly [Kind, number, number, string, (readonly (readonly [number, number])[] | undefined)?, (number | undefined)?, (0 | 1 | boolean | undefined)?];

/** A hunk with its lines, which keep their line ends. */
export interface Lines {
  readonly old_start: number;
  readonly new_start: number;
  readonly lines: readonly { readonly op: Kind; readonly text: string }[];
}

/**
 * The changed part of each of two lines, extended to whole words and given by start and length; `undefined` if the
 * lines have little in common.
 */
function changedWords(one: string, other: string): readonly [readonly [number, number], readonly [number, number]] | undefined {
  const shorter = Math.min(one.length, other.length);
  const inWord = (text: string, at: number): boolean => /[\w\ud800-\udfff]/.test(text[at] ?? "");
  let start = 0;
  while (start < shorter && one[start] === other[start]) start += 1;
  let end = 0;
  while (end < shorter - start && one.at(-1 - end) === other.at(-1 - end)) end += 1;
  if (3 * (start + end) < Math.max(one.length, other.length)) return undefined;
  while (start > 0 && inWord(one, start - 1) && (inWord(one, start) || inWord(other, start))) start -= 1;
  while (end > 0 && inWord(one, one.length - end) && (inWord(one, one.length - end - 1) || inWord(other, other.length - end - 1))) end -= 1;
  return [[start, one.length - end - start], [start, other.length - end - start]];
}

type Marked = [Kind, number, number, string, (readonly [number, number])[], number, boolean];

/** Converts hunks with lines to the layout and the rows of a review. */
export function laid(hunks: readonly Lines[]): Pick<Change, "hunks" | "rows"> {
  const rows: Row[] = [];
  const layout = hunks.map(({ old_start, new_start, lines }) => {
    const removed = lines.filter(({ op }) => op !== "+").length;
    const added = lines.filter(({ op }) => op !== "-").length;
    let old = old_start + (removed > 0 ? 0 : 1);
    let now = new_start + (added > 0 ? 0 : 1);
    const runs: number[] = [];
    let kept = 0;
    let gone: Marked[] = [];
    let come: Marked[] = [];
    const close = (): void => {
      runs.push(kept, gone.length, come.length);
      gone.forEach((row, at) => {
        const other = come[at];
        const words = other && changedWords(row[3].replace(/\r$/, ""), other[3].replace(/\r$/, ""));
        if (words?.[0][1]) row[4].push(words[0]);
        if (words?.[1][1]) other?.[4].push(words[1]);
      });
      for (const row of [...gone, ...come]) rows.push(row);
      kept = 0;
      gone = [];
      come = [];
    };
    for (const { op, text } of lines) {
      const open = !text.endsWith("\n");
      const row: Marked = [op, op === "+" ? 0 : old++, op === "-" ? 0 : now++, open ? text : text.slice(0, -1), [], 0, open];
      if (op === " ") {
        if (gone.length + come.length > 0) close();
        kept += 1;
        rows.push(row);
      } else (op === "-" ? gone : come).push(row);
    }
    close();
    return [old_start, removed, new_start, added, ...runs];
  });
  return { hunks: layout, rows };
}
