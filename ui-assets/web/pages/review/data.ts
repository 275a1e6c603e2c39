// JSON of a review in, its data as the page uses it out; or nothing, if it is none.
import { fit } from "../../lib/fit.ts";

export type Kind = " " | "-" | "+";
/**
 * A line as people see it: its kind, its numbers in the old and the new file, its text, where the words that differ
 * begin and how long they are (in UTF-16 units), how long the whole line is if it was cut, and whether the file ends
 * here without a line end.
 */
export type Row = readonly [Kind, number, number, string, (readonly (readonly [number, number])[])?, number?, (0 | 1)?];

const ENTRY = { kind: "", hash: "", bytes: 0, entries: 0 };
const CHANGE = {
  path: "",
  to: "",
  op: "",
  before: ENTRY,
  after: ENTRY,
  added: 0,
  removed: 0,
  binary: false,
  binary_type: "",
  contents: { files: 0, directories: 0, others: 0, bytes: 0, first: [{ path: "", kind: "", bytes: 0 }] },
  large: false,
  hidden: false,
  // Where it begins in the old file, how many lines it has there, the same of the new file; then, again and again, how
  // many lines are kept, removed and added.
  hunks: [[0]],
  // 0 if the lines between the hunks cannot be had.
  old_lines: 0,
  rows: [],
  around: [],
};
const REVIEW = { version: 0, uri: "", tool: "", agent: "", intent: "", preview: false, added: 0, removed: 0, changes: [CHANGE] };

export type Change = typeof CHANGE;
export type Review = typeof REVIEW;

/** The most lines of a file that are laid out. */
const MOST_LINES = 1_000_000;

export function review(value: unknown): Review | undefined {
  const found = fit(REVIEW, value);
  for (const change of found.changes) {
    const { hunks, old_lines } = change;
    if ([old_lines, ...hunks.flat()].some((count) => count > MOST_LINES)) change.old_lines = 0;
    if (hunks.flatMap((hunk) => hunk.slice(4)).reduce((sum, run) => sum + Math.abs(run), 0) <= MOST_LINES) continue;
    change.hunks = [];
    change.large = true;
  }
  return found.version === 1 ? found : undefined;
}

/** The rows among the values. */
export function rows(values: unknown): readonly Row[] {
  return Array.isArray(values) ? values.filter((value): value is Row => Array.isArray(value) && typeof value[3] === "string") : [];
}
