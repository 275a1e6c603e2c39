// Section of one file change: its summary and the table of its lines.
import { binary, counts as wholeOf, listing } from "../../lib/contents.ts";
import { visible } from "../../lib/visible.ts";
import { rows } from "./data.ts";
import type { Change, Row } from "./data.ts";
import { isGap, layout, parts } from "./layout.ts";
import type { Cell } from "./layout.ts";
import { copy, counts, message, part, say } from "./part.ts";
import { rowOf } from "./rows.ts";
import type { Table } from "./rows.ts";
import { virtual } from "./virtual.ts";
import type { Virtual } from "./virtual.ts";

const SAYS: Readonly<Record<string, string>> = { create: "New", modify: "Changed", delete: "Deleted", move: "Moved", copy: "Copied", make_directory: "New directory" };

export interface File {
  readonly node: HTMLElement;
  readonly change: Change;
  /** Indexes of the excluded hunks. */
  readonly out: ReadonlySet<number>;
  /** Number of changed places. */
  places(): number;
  /** The element of a changed place. */
  place(at: number): Element | undefined;
  look(split: boolean, asked: boolean): void;
}

/** The name of the message that explains why no lines are shown. */
function reason({ op, before, hidden, large, binary, hunks }: Change): string {
  if (op === "make_directory") return op;
  if (before.kind === "directory" && op === "delete") return "goes";
  if (hidden) return "hidden";
  if (large) return "large";
  if (binary) return "binary";
  if (hunks.length > 0) return "";
  return op === "create" || op === "delete" ? "empty" : "same";
}

export function file(change: Change, load: (query: string) => Promise<unknown>, left: () => void): File {
  const node = part(copy("file"), "details") as HTMLDetailsElement;
  const table = part(node, ".rows");
  const failed = part(node, ".notice");
  const { hunks, gaps } = parts(change);
  // Loaded rows of the hunks by index, and loaded lines of the old file by line number.
  const held = new Map<number, Row>();
  const lines = new Map<number, Row>();
  const asking = new Set<string>();
  const out = new Set<number>();
  let split = false;
  let busy = false;
  // The range to load after the pending request.
  let next: Cell | undefined;
  let laid: ReturnType<typeof layout> = { lines: [], starts: [] };
  let drawn: Virtual | undefined;

  const keep = (values: unknown, from?: number): number => rows(values).map((row, at) => (from === undefined ? lines.set(row[1], row) : held.set(from + at, row))).length;

  /** Loads rows from an index or line number; skips ranges that are loaded or pending. */
  async function fetch(cell: Cell, rest: string): Promise<void> {
    const [, old, , at] = cell;
    const query = `${at === undefined ? `old=${old}` : `from=${at}`}&${rest}`;
    if (asking.has(query)) return;
    asking.add(query);
    failed.hidden = true;
    try {
      const page = await load(query);
      if (!keep((page as { rows?: unknown } | null)?.rows, at)) throw new Error("they are no longer kept");
      failed.hidden = true;
      busy = false;
      next = undefined;
      drawn?.redraw();
    } catch (error) {
      asking.delete(query);
      busy = false;
      say(part(failed, "span"), `Cannot load more lines: ${message(error)}`);
      part(failed, "button").onclick = () => {
        table.focus();
        asking.delete(query);
        void fetch(cell, rest);
      };
      failed.hidden = false;
      if (next) wants(next);
    }
  }

  /** Loads one full page at a time; adjacent rows are likely to be needed next. */
  function wants(first: Cell): void {
    next = busy ? first : undefined;
    if (busy) return;
    busy = true;
    void fetch(first, "count=500");
  }

  const lay = (): void => {
    drawn?.stop();
    laid = layout({ hunks, gaps }, split, acts.asks);
    table.setAttribute("aria-rowcount", String(laid.lines.length));
    drawn = virtual(table, laid.lines.length, draw);
  };
  const acts: Table & { asks: boolean } = {
    row: ([, old, , at]) => (at === undefined ? lines.get(old) : held.get(at)),
    whole: (cell) => void fetch(cell, "whole=1"),
    opens: change.old_lines > 0,
    hunks: hunks.length,
    asks: false,
    out,
    more(gap, where) {
      if (where === 0) gap.from += 20;
      else if (where === 1) gap.to -= 20;
      else gap.from = gap.to + 1;
      const top = scrollY;
      table.focus();
      lay();
      scrollTo(0, top);
    },
    leave(hunk, leave) {
      if (leave) out.add(hunk);
      else out.delete(hunk);
      left();
    },
  };

  function draw(from: number, to: number): HTMLElement[] {
    const shown = laid.lines.slice(from, to);
    const away = shown.flatMap((line) => (isGap(line) ? [] : line)).filter((cell) => cell !== undefined).filter((cell) => !acts.row(cell));
    const least = (some: readonly Cell[], by: 1 | 3): Cell | undefined => some.toSorted((a, b) => (a[by] ?? 0) - (b[by] ?? 0))[0];
    for (const first of [least(away.filter((cell) => cell[3] !== undefined), 3), least(away.filter((cell) => cell[3] === undefined), 1)]) if (first) wants(first);
    return shown.map((line, at) => rowOf(line, from + at + 1, split, acts));
  }

  keep(change.rows, 0);
  keep(change.around);
  const badge = part(node, ".badge");
  const to = part(node, ".to");
  const hashes = part(node, ".hashes");
  const says = reason(change);
  badge.classList.add(change.op);
  say(badge, SAYS[change.op] ?? change.op);
  say(part(node, "bdi"), change.path);
  if (change.to) say(part(to, "bdi"), change.to);
  else to.remove();
  const both = [change.before.hash, change.after.hash];
  const short = both.map((hash) => hash.slice(0, 12) || "nothing");
  hashes.title = both.join(" → ");
  hashes.querySelectorAll("code").forEach((code, at) => say(code, short[at] ?? ""));
  if (change.hidden || short[0] === short[1]) hashes.remove();
  counts(node, change);
  table.ariaLabel = visible(`Lines of ${change.path}`);
  const { contents } = change;
  const entries = listing(contents);
  const note = part(node, ".note");
  if (entries.length) {
    say(note, `With everything in it: ${wholeOf(contents)}${change.hidden ? ", and what this worker may not read" : ""}`);
    const all = document.createElement("ul");
    for (const entry of entries) say(all.appendChild(document.createElement("li")), entry);
    note.after(all);
    table.remove();
  } else if (says === "binary") {
    say(note, binary(change.binary_type, change.before, change.after));
    table.remove();
  } else if (says) {
    note.replaceWith(part(copy("says"), `.${says}`));
    table.remove();
  } else note.remove();

  return {
    node,
    change,
    out,
    places: () => laid.starts.length,
    place(at) {
      node.open = true;
      const line = laid.starts[at];
      return line === undefined ? undefined : drawn?.reveal(line);
    },
    look(beSplit, asked) {
      split = beSplit;
      acts.asks = asked && change.op === "modify";
      if (!says && !entries.length) lay();
    },
  };
}
