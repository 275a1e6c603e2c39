// A displayed change whose lines are loaded when they come into view.
import type { ComponentChild } from "preact";

import { Button } from "../ui.tsx";
import { message } from "../visible.ts";
import type { Change } from "./change.ts";
import type { Row } from "./hunks.ts";
import type { Cell, Gap, Line } from "./layout.ts";
import { FileDiff } from "./model.ts";

/** Requests the rows of a query such as `from=400&count=500`. */
export type Load = (query: string) => Promise<readonly Row[]>;

export class PagedDiff extends FileDiff {
  readonly #load: Load;
  readonly #asked = new Set<string>();
  #busy = false;
  /** The range to load after the pending request. */
  #next: Cell | undefined;

  constructor(change: Change, onExclude: () => void, load: Load) {
    super(change, onExclude);
    this.#load = load;
  }

  /** Loads those of these lines that are missing. */
  override need(lines: readonly Line[]): void {
    const cells = lines.flatMap(({ left, right }) => [left, right]).filter((cell) => cell !== undefined);
    const away = cells.filter((cell) => !this.row(cell));
    const least = (some: readonly Cell[], by: 1 | 3): Cell | undefined => some.toSorted((a, b) => (a[by] ?? 0) - (b[by] ?? 0))[0];
    for (const first of [least(away.filter((cell) => cell[3] !== undefined), 3), least(away.filter((cell) => cell[3] === undefined), 1)]) if (first) this.#want(first);
  }

  override whole(cell: Cell): void {
    if (this.isCut(cell)) void this.#fetch(cell, "whole=1");
    else super.whole(cell);
  }

  /** Buttons that show some or all of the lines of a gap, if they are available. */
  override controls(gap: Gap, isLast: boolean): ComponentChild {
    const hidden = gap.to - gap.from + 1;
    if (this.change.old_lines === 0 || hidden < 1) return undefined;
    const button = (words: string, rest: Partial<Gap>, title?: string): ComponentChild => (
      <Button
        title={title}
        press={({ currentTarget }) => {
          // The button may disappear, so move the focus to the table.
          (currentTarget as Element).closest<HTMLElement>("[role=table]")?.focus({ preventScroll: true });
          this.gaps.value = this.gaps.value.map((one) => (one === gap ? { ...gap, ...rest } : one));
        }}
      >
        {words}
      </Button>
    );
    return (
      <>
        {hidden > 20 && gap.start > 1 && button("↓ 20", { from: gap.from + 20 }, "Show 20 lines below the change above")}
        {hidden > 20 && !isLast && button("↑ 20", { to: gap.to - 20 }, "Show 20 lines above the change below")}
        {button("Show all", { from: gap.to + 1 })}
      </>
    );
  }

  /** Loads one full page at a time; adjacent rows are likely to be needed next. */
  #want(first: Cell): void {
    this.#next = this.#busy ? first : undefined;
    if (this.#busy) return;
    this.#busy = true;
    void this.#fetch(first, "count=500");
  }

  /** Loads rows from an index or line number; skips ranges that are loaded or pending. */
  async #fetch(cell: Cell, rest: string): Promise<void> {
    const [, old, , at] = cell;
    const query = `${at === undefined ? `old=${old}` : `from=${at}`}&${rest}`;
    if (this.#asked.has(query)) return;
    this.#asked.add(query);
    this.failure.value = undefined;
    try {
      if (!this.keep(await this.#load(query), at)) throw new Error("they are no longer kept");
      this.failure.value = undefined;
      this.#busy = false;
      this.#next = undefined;
      this.version.value += 1;
    } catch (error) {
      this.#asked.delete(query);
      this.#busy = false;
      const retry = (): void => {
        this.#asked.delete(query);
        void this.#fetch(cell, rest);
      };
      this.failure.value = { words: `Cannot load more lines: ${message(error)}`, retry };
      if (this.#next) this.#want(this.#next);
    }
  }
}
