// Parses the change of one file.
import { count, flag, items, listOf, maybe, maybeText, object, oneOf, or, string, text } from "../json.ts";
import type { Parsed } from "../json.ts";
import { laid } from "./hunks.ts";
import type { Row } from "./hunks.ts";

const zero = or(count, 0);
const no = or(flag, false);
const ABSENT = { kind: "", bytes: 0 };
const entry = or(object({ kind: string, bytes: zero }), ABSENT);
/** A file or directory before or after the change. */
export type Entry = Parsed<typeof entry>;
/** The valid rows of a list. */
export const rows = (value: unknown): readonly Row[] => listOf(value).filter((row): row is Row => Array.isArray(row) && typeof row[3] === "string");

const contents = object({
  files: zero,
  directories: zero,
  others: zero,
  bytes: zero,
  first: items(object({ path: string, kind: string, bytes: zero })),
});
/** The contents of a directory. */
export type Contents = Parsed<typeof contents>;

const facts = {
  path: string,
  to: string,
  op: string,
  before: entry,
  after: entry,
  added: zero,
  removed: zero,
  binary: no,
  binary_type: maybeText,
  contents: or(maybe(contents), undefined),
  large: no,
  hidden: no,
};

const paged = /* @__PURE__ */ (() => object({
  ...facts,
  // Old start, old line count, new start, new line count, followed by repeated run lengths of kept, removed and added
  // lines.
  hunks: items(items(count)),
  /** 0 if the lines between hunks are not available. */
  old_lines: zero,
  rows,
  around: rows,
}))();
const whole = object({
  ...facts,
  hunks: items(object({ old_start: zero, new_start: zero, lines: items(object({ op: oneOf(" ", "-", "+"), text })) })),
});

/** A change with the layout of its lines, of which `rows` and `around` hold those that are known. */
export type Change = Parsed<typeof paged> & {
  /** Further facts, such as a change of the file's mode. */
  readonly notes?: readonly string[];
};

/** What a call changes that is not a file, such as what a command may do. */
export const resources = items(object({ resource: string, summary: string, before: maybeText, after: maybeText, detail: maybeText }));

/** Maximum number of lines of a file in the layout. */
const MOST_LINES = 1_000_000;

/** Parses a change of a review; a layout with too many lines is replaced by none. */
export function reviewed(value: unknown, path?: string): Change {
  const change = paged(value, path);
  const { hunks, old_lines } = change;
  const tooLong = [old_lines, ...hunks.flat()].some((lines) => lines > MOST_LINES);
  const total = hunks.flatMap((hunk) => hunk.slice(4)).reduce((sum, run) => sum + run, 0);
  if (total > MOST_LINES) return { ...change, old_lines: 0, hunks: [], large: true };
  return tooLong ? { ...change, old_lines: 0 } : change;
}

/** Parses a change whose hunks contain their lines. */
export function planned(value: unknown, path?: string): Change {
  const change = whole(value, path);
  return { ...change, ...laid(change.hunks), old_lines: 0, around: [] };
}
