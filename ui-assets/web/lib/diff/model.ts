// State of a displayed change: the lines that are loaded, expanded and excluded.
import { computed, signal } from "@preact/signals-core";
import type { Signal } from "@preact/signals-core";
import type { ComponentChild } from "preact";

import { visible } from "../visible.ts";
import type { Change } from "./change.ts";
import type { Row } from "./hunks.ts";
import { layout, parts } from "./layout.ts";
import type { Cell, Gap, Line } from "./layout.ts";

/** Number of characters of a line that are shown at first. */
const LONGEST = 2000;

export class FileDiff {
  readonly change: Change;
  /** Whether the table has a header line for each hunk, with a checkbox to exclude it. */
  readonly divisible = signal(false);
  readonly split = signal(false);
  /** Indexes of the excluded hunks. */
  readonly excluded = signal<ReadonlySet<number>>(new Set());
  /** Why lines could not be loaded. */
  readonly failure = signal<{ readonly words: string; readonly retry: () => void }>();
  readonly isOpen = signal(true);
  /** The index of the changed place that `n` and `p` moved to. */
  readonly place = signal<number>();
  /** Incremented by each move to a place. */
  moves = 0;
  /** The move or copy that replaces the file, if any. */
  from: Change | undefined;
  /** Incremented when lines are loaded. */
  readonly version = signal(0);

  readonly layout = computed(() => layout({ hunks: this.hunks, gaps: this.gaps.value }, this.split.value, this.divisible.value));
  /** What the text of the known lines has. */
  readonly text = computed(() => {
    this.version.value;
    return { ...this.#text };
  });
  /** Facts about the change that its lines do not show. */
  readonly notes = computed((): readonly string[] => {
    const { before, after, notes = [] } = this.change;
    const { hidden, crlf, lf } = this.text.value;
    const isOther = /^(file|directory|link|special)$/.test(before.kind) && after.kind !== before.kind && after.kind && after.kind !== "absent";
    return [
      ...notes,
      ...(isOther ? [`Kind: ${before.kind} → ${after.kind}.`] : []),
      ...(hidden ? ["Invisible characters are shown as codes such as \\u{202e}."] : []),
      ...(crlf ? [lf ? "Some lines end in CRLF." : "Lines end in CRLF."] : []),
    ];
  });

  readonly hunks: ReturnType<typeof parts>["hunks"];
  protected readonly gaps: Signal<readonly Gap[]>;
  readonly #onExclude: () => void;
  // Loaded rows of the hunks by index, and loaded lines of the old file by line number.
  readonly #rows = new Map<number, Row>();
  readonly #context = new Map<number, Row>();
  readonly #whole = new Set<Row>();
  readonly #text = { hidden: false, crlf: false, lf: false };

  constructor(change: Change, onExclude: () => void = () => undefined) {
    this.change = change;
    this.#onExclude = onExclude;
    const { hunks, gaps } = parts(change);
    this.hunks = hunks;
    this.gaps = signal(gaps);
    this.keep(change.rows, 0);
    this.keep(change.around);
  }

  /** The row of a cell, if it is loaded; a long one is truncated. */
  row(cell: Cell): Row | undefined {
    this.version.value;
    const row = this.#full(cell);
    if (!row || row[5] || row[3].length <= LONGEST || this.#whole.has(row)) return row;
    return [row[0], row[1], row[2], row[3].slice(0, LONGEST), row[4], row[3].length, row[6]];
  }

  #full([, old, , at]: Cell): Row | undefined {
    return at === undefined ? this.#context.get(old) : this.#rows.get(at);
  }

  /** Whether the source has sent only the beginning of the line. */
  protected isCut(cell: Cell): boolean {
    return !!this.#full(cell)?.[5];
  }

  /** Shows the full text of a truncated line. */
  whole(cell: Cell): void {
    const row = this.#full(cell);
    if (row) this.#whole.add(row);
    this.version.value += 1;
  }

  /** Excludes or includes a hunk. */
  toggle(hunk: number): void {
    const next = new Set(this.excluded.value);
    if (!next.delete(hunk)) next.add(hunk);
    this.excluded.value = next;
    this.#onExclude();
  }

  /** Tells which lines are in view. */
  need(_lines: readonly Line[]): void {}

  /** The controls of a gap. */
  controls(_gap: Gap, _isLast: boolean): ComponentChild {
    return undefined;
  }

  /** Adds rows from an index, or lines of the old file; returns their number. */
  protected keep(rows: readonly Row[], from?: number): number {
    rows.forEach((row, at) => {
      if (from === undefined) this.#context.set(row[1], row);
      else this.#rows.set(from + at, row);
      const text = row[3].replace(/\r$/, "");
      if (visible(text) !== text) this.#text.hidden = true;
      if (text !== row[3]) this.#text.crlf = true;
      else if (!row[6]) this.#text.lf = true;
    });
    return rows.length;
  }
}
