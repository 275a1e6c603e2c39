// Parses unified diffs.
import type { Change } from "./change.ts";
import { laid } from "./hunks.ts";
import type { Kind } from "./hunks.ts";

const UNKNOWN = { kind: "", hash: "", bytes: 0 };

interface Patched {
  old: string;
  now: string;
  isCopy: boolean;
  readonly notes: string[];
  readonly hunks: { readonly old_start: number; readonly new_start: number; readonly lines: { readonly op: Kind; text: string }[] }[];
}

/** The path of a name such as `a/path`, which may be quoted; empty for a file that does not exist. */
const pathOf = (name: string): string => (name === "/dev/null" ? "" : name.replace(/\t.*/, "").replace(/^("?)[ab]\/(.*)\1$/, "$2"));

const BINARY = "Binary file, not shown.";

/** Splits a unified diff into files with their hunks. Other lines between hunks become notes. */
function files(patch: string): Patched[] {
  const all: Patched[] = [];
  // Lines of the current hunk that are still to come. An added line such as `++ x` is not mistaken for a file header.
  let old = 0;
  let now = 0;
  let file: Patched | undefined;
  /** Whether the header of the current file can continue. */
  let isHead = false;
  const begin = (): Patched => {
    isHead = true;
    all.push((file = { old: "", now: "", isCopy: false, notes: [], hunks: [] }));
    return file;
  };
  for (const line of patch.replace(/\n$/, "").split("\n")) {
    const [first = ""] = line;
    const hunk = file?.hunks.at(-1);
    if (old > 0 || now > 0 || (hunk && /^[-+ \\]/.test(line) && !/^(--- |\+\+\+ )/.test(line))) {
      const last = hunk?.lines.at(-1);
      if (first === "\\") {
        if (last) last.text = last.text.slice(0, -1);
        continue;
      }
      const op = first === "+" || first === "-" ? first : " ";
      if (op !== "+") old -= 1;
      if (op !== "-") now -= 1;
      hunk?.lines.push({ op, text: `${op === first ? line.slice(1) : line}\n` });
      continue;
    }
    const [, from, gone = 1, to, come = 1] = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/.exec(line) ?? [];
    if (from !== undefined) {
      [old, now] = [Number(gone), Number(come)];
      isHead = false;
      (file ?? begin()).hunks.push({ old_start: Number(from), new_start: Number(to), lines: [] });
    } else if (line.startsWith("diff ")) {
      const [, one = "", other = ""] = /^diff --git (.+?) ("?b\/.+)$/.exec(line) ?? [];
      Object.assign(begin(), { old: pathOf(one), now: pathOf(other) });
    } else if (file?.notes.at(-1) === BINARY) continue;
    else if (line.startsWith("--- ")) {
      (file && isHead ? file : begin()).old = pathOf(line.slice(4));
      isHead = false;
    } else if (line.startsWith("+++ ")) (file ?? begin()).now = pathOf(line.slice(4));
    else if (/^# \S/.test(line)) begin().notes.push(line);
    else if (file && / file mode /.test(line)) file[first === "n" ? "old" : "now"] = "";
    else if (file && /^(copy|rename) /.test(line)) file.isCopy = first === "c";
    else if (!/^(index|(dis)?similarity) /.test(line)) (file ?? begin()).notes.push(/^(Binary files|GIT binary) /.test(line) ? BINARY : line);
  }
  return all;
}

/** The notes, with a change of the mode in one sentence. */
const wordsOf = (notes: readonly string[]): string[] =>
  notes
    .join("\n")
    .replace(/^old mode (.*)\nnew mode (.*)$/m, "Mode: $1 → $2.")
    .split("\n")
    .flatMap((note) => note.replace(/^# ?/, "") || []);

/** Parses a unified diff. */
export const fromPatch = (patch: string): Change[] =>
  files(patch).map(({ old, now, isCopy, notes, hunks }) => {
    const lines = hunks.flatMap((hunk) => hunk.lines);
    const sum = (kind: Kind): number => lines.filter(({ op }) => op === kind).length;
    const op = old === now ? "modify" : !old ? "create" : !now ? "delete" : isCopy ? "copy" : "move";
    const none = { before: UNKNOWN, after: UNKNOWN, binary: false, binary_type: undefined, contents: undefined, large: false, hidden: false };
    return { ...none, notes: wordsOf(notes), path: old || now, to: old && old !== now ? now : "", op: old || now ? op : "", added: sum("+"), removed: sum("-"), ...laid(hunks), old_lines: 0, around: [] };
  });
