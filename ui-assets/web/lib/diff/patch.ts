// Parses unified diffs.
import type { Change } from "./change.ts";
import { laid } from "./hunks.ts";
import type { Kind } from "./hunks.ts";

const UNKNOWN = { kind: "", hash: "", bytes: 0 };

interface Patched {
  old: string;
  now: string;
  readonly notes: string[];
  readonly hunks: { readonly old_start: number; readonly new_start: number; readonly lines: { readonly op: Kind; text: string }[] }[];
}

/** The path in a line such as `--- a/path`; empty for a file that does not exist. */
function named(line: string): string {
  const [path = ""] = line.slice(4).split("\t");
  return path === "/dev/null" ? "" : path.replace(/^("?)[ab]\//, "$1").replace(/^"(.*)"$/, "$1");
}

/** Splits a unified diff into files with their hunks. Other lines between hunks become notes. */
function files(patch: string): Patched[] {
  const all: Patched[] = [];
  // Lines of the current hunk that are still to come. An added line such as `++ x` is not mistaken for a file header.
  let old = 0;
  let now = 0;
  let file: Patched | undefined;
  const begin = (): Patched => {
    all.push((file = { old: "", now: "", notes: [], hunks: [] }));
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
      (file ?? begin()).hunks.push({ old_start: Number(from), new_start: Number(to), lines: [] });
    } else if (line.startsWith("diff ")) begin();
    else if (line.startsWith("--- ")) (file && !file.old && !file.hunks.length && !file.notes.some((note) => note.startsWith("#")) ? file : begin()).old = named(line);
    else if (line.startsWith("+++ ")) (file ?? begin()).now = named(line);
    else if (!line.startsWith("index ")) (file && !/^# \S/.test(line) ? file : begin()).notes.push(line);
  }
  return all;
}

/** The facts of a file's header that its paths do not say; a change of the mode in one sentence. */
function wordsOf(notes: readonly string[]): string[] {
  const mode = (which: string): string => notes.find((note) => note.startsWith(`${which} mode `))?.slice(9) ?? "";
  const others = notes.filter((note) => !/^((old|new) mode|(dis)?similarity|(rename|copy) (from|to)) /.test(note)).map((note) => note.replace(/^# ?/, ""));
  return mode("new") && mode("old") ? [`Mode: ${mode("old")} → ${mode("new")}.`, ...others] : others;
}

/** Parses a unified diff. */
export const fromPatch = (patch: string): Change[] =>
  files(patch).map(({ old, now, notes, hunks }) => {
    const lines = hunks.flatMap((hunk) => hunk.lines);
    const sum = (kind: Kind): number => lines.filter(({ op }) => op === kind).length;
    const op = old === now ? "modify" : !old ? "create" : !now ? "delete" : "move";
    const none = { before: UNKNOWN, after: UNKNOWN, binary: false, binary_type: undefined, contents: undefined, large: false, hidden: false };
    return { ...none, notes: wordsOf(notes), path: old || now, to: op === "move" ? now : "", op: old || now ? op : "", added: sum("+"), removed: sum("-"), ...laid(hunks), old_lines: 0, around: [] };
  });
