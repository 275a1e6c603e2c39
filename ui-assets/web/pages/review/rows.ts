// Renders the lines of a change's table. Text is inserted as text nodes only.
import { visible } from "../../lib/visible.ts";
import type { Row } from "./data.ts";
import { isGap } from "./layout.ts";
import type { Cell, Gap, Line } from "./layout.ts";
import { copy, part, say } from "./part.ts";

/** Options and actions of a table. */
export interface Table {
  row(cell: Cell): Row | undefined;
  /** Loads the full text of a truncated line. */
  whole(cell: Cell): void;
  /** Whether the lines between hunks are available. */
  readonly opens: boolean;
  /** Expands a gap from its start, from its end or completely. */
  more(gap: Gap, where: number): void;
  readonly hunks: number;
  /** Whether a person may exclude hunks. */
  readonly asks: boolean;
  readonly out: ReadonlySet<number>;
  leave(hunk: number, out: boolean): void;
}

function words(node: Element, row: Row | undefined): void {
  if (!row) return say(node, "…");
  const text = row[3];
  let at = 0;
  for (const [start, length] of row[4] ?? []) {
    const mark = document.createElement("mark");
    say(mark, text.slice(start, start + length));
    node.append(visible(text.slice(at, start)), mark);
    at = start + length;
  }
  node.append(visible(text.slice(at)));
}

/** Fills in the line number, sign and text of one side, or leaves it blank. */
function fill([number, sign, text]: readonly Element[], cell: Cell | undefined, shown: number | undefined, table: Table): void {
  if (!number || !sign || !text) return;
  if (!cell) {
    number.remove();
    sign.remove();
    text.classList.add("none");
    return;
  }
  const row = table.row(cell);
  const added = cell[0] === "+";
  if (shown) say(number, shown);
  words(text, row);
  if (row?.[5]) {
    const button = document.createElement("button");
    say(button, `Show all ${row[5]} characters`);
    button.onclick = () => table.whole(cell);
    text.append(button);
  }
  if (row?.[6]) text.classList.add("open");
  if (cell[0] === " ") return sign.remove();
  say(sign, added ? "+" : "−");
  sign.ariaLabel = added ? "added" : "removed";
  for (const node of [number, sign, text]) node.classList.add(added ? "add" : "del");
}

function between(gap: Gap, hunk: number, table: Table): HTMLElement {
  const made = part(copy("gap"), "div");
  const hidden = gap.to - gap.from + 1;
  const below = hunk < table.hunks;
  const label = part(made, "label");
  if (table.asks && below) {
    const box = part<HTMLInputElement>(label, "input");
    box.checked = !table.out.has(hunk);
    box.onchange = () => table.leave(hunk, !box.checked);
    label.append(` (${hunk + 1} of ${table.hunks})`);
  } else label.remove();
  if (hidden > 0) say(part(made, ".count"), `${hidden} unchanged`);
  const shown = [hidden > 20 && gap.start > 1, hidden > 20 && below, hidden > 0];
  made.querySelectorAll("button").forEach((button, where) => {
    button.onclick = () => table.more(gap, where);
    if (!table.opens || !shown[where]) button.remove();
  });
  return made;
}

/** The table row of a line; `index` starts at 1. */
export function rowOf(line: Line, index: number, split: boolean, table: Table): HTMLElement {
  let made: HTMLElement;
  if (isGap(line)) made = between(...line, table);
  else {
    made = part(copy(split ? "pair" : "one"), "div");
    const cells = [...made.children];
    const cell = line[0] ?? line[1];
    if (split) {
      fill(cells.slice(0, 3), line[0], line[0]?.[1], table);
      fill(cells.slice(3), line[1], line[1]?.[2], table);
    } else if (cell) {
      const old = cells.shift();
      if (old && cell[1]) say(old, cell[1]);
      fill(cells, cell, cell[2], table);
    }
  }
  made.ariaRowIndex = String(index);
  return made;
}
