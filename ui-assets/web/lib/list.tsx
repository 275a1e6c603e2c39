// Virtual list: renders only the rows in view.
import { signal } from "@preact/signals-core";
import type { ComponentChild, TargetedFocusEvent } from "preact";

import { Fragment, Reactive } from "./component.ts";

/** Height in pixels of the rows that are rendered on each side of the view. */
const MARGIN = 240;

/** The rendered rows of a list, and ways to scroll it. */
export class Rows {
  /** The rendered rows: from `first` up to, but not including, `last`. */
  readonly first = signal(0);
  readonly last = signal(0);
  /** Number of rows that fit into the view. */
  page = 1;
  /** A row that stays rendered outside of the view, because it has the focus. */
  readonly kept = signal(-1);
  /** Rows to scroll to after the next render. */
  readonly wanted = signal<readonly number[]>([]);

  /** Scrolls by the smallest distance that makes the row visible. */
  reveal(index: number): void {
    this.wanted.value = [...this.wanted.peek(), index];
  }
}

interface ListProps {
  readonly rows: Rows;
  readonly count: number;
  /** Height of a row in pixels, before it is measured. */
  readonly height: number;
  /** Whether rows can be taller than `height`. */
  readonly varies?: boolean;
  /** Maximum number of rendered rows, regardless of the window height. */
  readonly most?: number;
  /** Width of the widest row, in characters. */
  readonly width?: number;
  /** Renders a row as one element. */
  readonly row: (index: number) => ComponentChild;
  /** The key of a row, by default its index. */
  readonly keyOf?: (index: number) => string | number;
}

/** The ancestors that can scroll their content, innermost first. */
function scrollersOf(node: HTMLElement): HTMLElement[] {
  const all: HTMLElement[] = [];
  for (let at = node.parentElement; at && at !== document.body; at = at.parentElement) {
    if (/auto|scroll/.test(getComputedStyle(at).overflowY)) all.push(at);
  }
  return all;
}

/** Renders the rows in view, and a few around them, into a box with the height of all rows. */
export class List extends Reactive<ListProps> {
  #node: HTMLElement | null = null;
  #scrollers: readonly HTMLElement[] = [];
  /** How much taller than `height` a row is, by index. */
  #extra: (readonly [index: number, pixels: number])[] = [];
  #width = 0;
  /** The rendered children: the index of a row, or -1 for the space of the rows that are not rendered. */
  #children: readonly number[] = [];
  readonly #version = signal(0);
  readonly #removed = new AbortController();
  readonly #observer = new ResizeObserver(() => {
    if (this.props.varies) this.#measureRows();
    this.#measure();
  });

  override componentDidMount(): void {
    super.componentDidMount();
    if (!this.#node) return;
    this.#scrollers = scrollersOf(this.#node);
    for (const one of [this.#node, ...this.#scrollers, document.body]) this.#observer.observe(one);
    const { signal } = this.#removed;
    for (const event of ["scroll", "toggle", "resize"]) addEventListener(event, this.#measure, { capture: true, passive: true, signal });
    this.#measure();
  }

  override componentWillUnmount(): void {
    super.componentWillUnmount();
    this.#observer.disconnect();
    this.#removed.abort();
  }

  override componentDidUpdate(): void {
    const { rows, varies } = this.props;
    if (varies) this.#measureRows();
    this.#measure();
    const wanted = rows.wanted.peek();
    if (wanted.length === 0) return;
    rows.wanted.value = [];
    for (const index of wanted) this.#scrollTo(index);
  }

  /** The distance of the row from the start of the list. */
  #top(index: number): number {
    let top = index * this.props.height;
    for (const [row, extra] of this.#extra) {
      if (row >= index) break;
      top += extra;
    }
    return top;
  }

  /** The row at a distance from the start of the list. */
  #at(top: number): number {
    const { height } = this.props;
    let shift = 0;
    for (const [row, extra] of this.#extra) {
      const start = row * height + shift;
      if (top < start) break;
      if (top < start + height + extra) return row;
      shift += extra;
    }
    return Math.floor((top - shift) / height);
  }

  /** The part of the window in which the list is visible. */
  #clip(): { top: number; bottom: number } {
    const clips = this.#scrollers.map((one) => one.getBoundingClientRect());
    return { top: Math.max(0, ...clips.map(({ top }) => top)), bottom: Math.min(innerHeight, ...clips.map(({ bottom }) => bottom)) };
  }

  readonly #measure = (): void => {
    const node = this.#node;
    if (!node) return;
    const { rows, count, height, most = 500 } = this.props;
    const { top: start, width } = node.getBoundingClientRect();
    if (width !== this.#width && this.#extra.length > 0) {
      this.#extra = [];
      this.#version.value += 1;
    }
    this.#width = width;
    const { top, bottom } = this.#clip();
    rows.page = Math.max(1, Math.floor((bottom - top) / height) - 1);
    const isVisible = bottom + 2 * MARGIN > top && node.checkVisibility();
    const from = Math.max(0, Math.min(this.#at(top - MARGIN - start), count));
    const to = isVisible ? this.#at(bottom + MARGIN - start) + 1 : from;
    rows.first.value = from;
    rows.last.value = Math.max(from, Math.min(count, to, from + most));
  };

  #measureRows(): void {
    const known = new Map(this.#extra);
    let changed = false;
    for (const [at, index] of this.#children.entries()) {
      if (index < 0) continue;
      const extra = (this.#node?.children[at]?.getBoundingClientRect().height ?? 0) - this.props.height;
      if (Math.abs(extra - (known.get(index) ?? 0)) < 0.5) continue;
      known.set(index, extra);
      changed = true;
    }
    if (!changed) return;
    this.#extra = [...known].sort(([one], [other]) => one - other);
    this.#version.value += 1;
  }

  #scrollTo(index: number): void {
    const node = this.#node;
    if (!node) return;
    const { top, bottom } = this.#clip();
    const start = node.getBoundingClientRect().top + this.#top(index);
    const end = start + this.props.height;
    const scroller = this.#scrollers.find((one) => one.scrollHeight > one.clientHeight) ?? document.documentElement;
    if (start < top) scroller.scrollTop -= top - start;
    else if (end > bottom) scroller.scrollTop += end - bottom;
    this.#measure();
  }

  /** Keeps the row that has the focus. */
  readonly #focused = ({ target }: TargetedFocusEvent<HTMLElement>): void => {
    const at = [...(this.#node?.children ?? [])].findIndex((child) => child.contains(target as Node));
    this.props.rows.kept.value = this.#children[at] ?? -1;
  };

  protected override view(): ComponentChild {
    const { rows, count, width, row, keyOf = (index) => index } = this.props;
    void [this.#version.value, rows.wanted.value];
    const from = Math.min(rows.first.value, count);
    const to = Math.min(rows.last.value, count);
    const kept = rows.kept.value;
    const shown = Array.from({ length: Math.max(0, to - from) }, (_, at) => from + at);
    if (kept >= 0 && kept < from) shown.unshift(kept);
    else if (kept >= to && kept < count) shown.push(kept);
    const children: number[] = [];
    const content: ComponentChild[] = [];
    let next = 0;
    const space = (until: number): void => {
      if (until <= next) return;
      children.push(-1);
      content.push(<div key={`-${next}`} style={{ height: `${this.#top(until) - this.#top(next)}px` }} />);
    };
    for (const index of shown) {
      space(index);
      children.push(index);
      content.push(<Fragment key={keyOf(index)}>{row(index)}</Fragment>);
      next = index + 1;
    }
    space(count);
    this.#children = children;
    return (
      <div role="presentation" class="list" style={width === undefined ? undefined : { minWidth: `${width}ch` }} ref={(node) => void (this.#node = node)} onFocusIn={this.#focused}>
        {content}
      </div>
    );
  }
}
