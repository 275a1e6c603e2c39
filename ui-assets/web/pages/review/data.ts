// Parses the JSON of a review.
import { fit } from "../../lib/fit.ts";

export type Kind = " " | "-" | "+";
/**
 * A displayed line: kind, line number in the old and in the new file, text, ranges of changed words (start and length
 * in UTF-16 units), full length if truncated, and whether the file ends here without a newline.
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
  // Old start, old line count, new start, new line count, followed by repeated run lengths of kept, removed and added
  // lines.
  hunks: [[0]],
  // 0 if the lines between hunks are not available.
  old_lines: 0,
  rows: [],
  around: [],
};
const REVIEW = { version: 0, uri: "", tool: "", agent: "", intent: "", preview: false, added: 0, removed: 0, changes: [CHANGE] };

export type Change = typeof CHANGE;
export type Review = typeof REVIEW;

/** Maximum number of lines of a file in the layout. */
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

/** The valid rows of a list. */
export function rows(values: unknown): readonly Row[] {
  return Array.isArray(values) ? values.filter((value): value is Row => Array.isArray(value) && typeof value[3] === "string") : [];
}
