// Virtualized list that renders only the rows in view.
import { each, h } from "../../lib/h.ts";
import { type Signal, flush, onEnd, signal } from "../../lib/signals.ts";

/** The rendered rows: from `first` up to, but not including, `last`. */
export interface Sight {
  readonly first: () => number;
  readonly last: () => number;
  /** Number of rows that fit into the view. */
  readonly page: () => number;
  /** Scrolls by the smallest distance that makes the row visible. */
  reveal(index: number): void;
}

interface Windowed<T> {
  /** Height of a row in pixels. */
  readonly height: number;
  readonly count: () => number;
  readonly at: (index: number) => T;
  readonly row: (item: T) => HTMLElement;
  /** Width of the widest row, in characters. */
  readonly width?: () => number;
}

const OVER = 6;
// Maximum number of rendered rows, regardless of the window height.
const MOST = 58;

/** Renders the rows in view, and a few around them, into `scroller`, inside a box with the height of all rows. */
export function windowed<T>(scroller: HTMLElement, { height, count, at, row, width = () => 0 }: Windowed<T>): Sight {
  const scrolled = signal(0);
  const tall: Signal<number> = signal(0);
  const first = (): number => Math.max(0, Math.min(Math.floor(scrolled() / height), count() - 1) - OVER);
  const last = (): number => Math.min(count(), first() + Math.min(Math.ceil(tall() / height) + 2 * OVER, MOST));
  const inSight = (): T[] => Array.from({ length: last() - first() }, (_, n) => at(first() + n));
  const some = h("div.some", { style: () => `top:${first() * height}px` }, each(inSight, row));
  scroller.append(h("div.all", { style: () => `height:${count() * height}px;min-width:${width()}ch` }, some));
  const measure = (): void => {
    scrolled(scroller.scrollTop);
    tall(scroller.clientHeight);
  };
  scroller.addEventListener("scroll", measure, { passive: true });
  const observer = new ResizeObserver(measure);
  observer.observe(scroller);
  onEnd(() => observer.disconnect());
  return {
    first,
    last,
    page: () => Math.max(1, Math.floor(tall() / height) - 1),
    reveal(index) {
      // Apply pending height changes first.
      flush();
      const [above, below] = [index * height, (index + 1) * height - scroller.clientHeight];
      if (scroller.scrollTop > above) scroller.scrollTop = above;
      else if (scroller.scrollTop < below) scroller.scrollTop = below;
      measure();
    },
  };
}
