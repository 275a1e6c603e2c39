// How many rows there are in, those that are in sight out.
import { each, h } from "../../lib/h.ts";
import { type Signal, flush, onEnd, signal } from "../../lib/signals.ts";

/** The rows that are in the page: from `first` to before `last`. */
export interface Sight {
  readonly first: () => number;
  readonly last: () => number;
  /** How many fit. */
  readonly page: () => number;
  /** Scrolls no further than it must to have the row in sight. */
  reveal(index: number): void;
}

interface Windowed<T> {
  /** The height of a row. */
  readonly height: number;
  readonly count: () => number;
  readonly at: (index: number) => T;
  readonly row: (item: T) => HTMLElement;
  /** The width of the widest row, in characters. */
  readonly width?: () => number;
}

const OVER = 6;
// However tall the window is.
const MOST = 58;

/** Puts the rows in sight, and a few beyond, into `scroller`, in a box as tall as all of them. */
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
      // The box may have grown since.
      flush();
      const [above, below] = [index * height, (index + 1) * height - scroller.clientHeight];
      if (scroller.scrollTop > above) scroller.scrollTop = above;
      else if (scroller.scrollTop < below) scroller.scrollTop = below;
      measure();
    },
  };
}
