// Virtualized list for the review page: a tree of boxes that renders only the lines in view.

const LEAF = 24;
const BRANCH = 20;

interface Box {
  readonly node: HTMLElement;
  readonly from: number;
  readonly to: number;
  kids: readonly Box[];
}

export interface Virtual {
  /** The element of a line, rendered on demand. */
  reveal(line: number): Element | undefined;
  /** Renders the visible lines again. */
  redraw(): void;
  stop(): void;
}

/** Marks the current line; the mark survives a redraw. */
export function stand(row: Element | undefined, focus = false): void {
  if (!(row instanceof HTMLElement)) return;
  row.classList.add("here");
  row.tabIndex = -1;
  if (focus) row.focus({ preventScroll: true });
}

export function virtual(root: HTMLElement, count: number, draw: (from: number, to: number) => readonly HTMLElement[]): Virtual {
  const boxes = new Map<Element, Box>();
  // Observe the real viewport, because a host may size this frame to its document.
  const observer = new IntersectionObserver(
    (seen) => {
      for (const { target, isIntersecting } of seen) {
        const one = boxes.get(target);
        if (one) (isIntersecting ? open : close)(one);
      }
    },
    { rootMargin: "240px" },
  );
  const top = box(0, count);
  root.replaceChildren(top.node);

  function box(from: number, to: number): Box {
    const node = document.createElement("div");
    node.role = "presentation";
    node.style.height = `${(to - from) * 20}px`;
    const made = { node, from, to, kids: [] };
    boxes.set(node, made);
    observer.observe(node);
    return made;
  }

  function open(it: Box): void {
    if (it.node.firstChild) return;
    const size = it.to - it.from;
    it.node.style.height = "auto";
    if (size <= LEAF) return it.node.replaceChildren(...draw(it.from, it.to));
    const step = Math.max(LEAF, Math.ceil(size / BRANCH));
    it.kids = Array.from({ length: Math.ceil(size / step) }, (_, at) => box(it.from + at * step, Math.min(it.from + (at + 1) * step, it.to)));
    it.node.replaceChildren(...it.kids.map(({ node }) => node));
  }

  function forget(kids: readonly Box[]): void {
    for (const { node, kids: beneath } of kids) {
      forget(beneath);
      boxes.delete(node);
      observer.unobserve(node);
    }
  }

  function close(it: Box): void {
    // Hidden boxes keep their height; a box that contains the focus stays rendered.
    if (!it.node.firstChild || it.node.contains(document.activeElement)) return;
    it.node.style.height = `${it.node.getBoundingClientRect().height}px`;
    forget(it.kids);
    it.kids = [];
    it.node.replaceChildren();
  }

  return {
    reveal(line) {
      let at: Box | undefined = top;
      let last = top;
      while (at) {
        open((last = at));
        at = at.kids.find(({ to }) => line < to);
      }
      return last.node.children[line - last.from];
    },
    redraw() {
      for (const { node, from, to, kids } of boxes.values()) {
        if (!node.firstChild || kids.length > 0) continue;
        const at = [...node.children].findIndex((row) => row.matches(".here"));
        const held = node.children[at]?.matches(":focus");
        node.replaceChildren(...draw(from, to));
        stand(node.children[at], held);
      }
    },
    stop: () => observer.disconnect(),
  };
}
