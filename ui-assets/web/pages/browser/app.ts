// Page layout of the file browser: a toolbar, the tree and the open file, or one pane at a time on narrow screens.
import { h } from "../../lib/h.ts";
import { effect, signal } from "../../lib/signals.ts";
import { oneLine, visible } from "../../lib/visible.ts";
import { changes, enter, failure, filter, find, leave, mode, onFile, reload, root, roots, rows, said, showChanged, start } from "./browser.ts";
import { button, fileView, signed, state } from "./fileview.ts";
import { icon } from "./icon.ts";
import { lookAs, worker, workers } from "./rights.ts";
import { treeView } from "./treeview.ts";
import type { Sight } from "./window.ts";

const [NARROWEST, WIDEST, STEP] = [180, 640, 24];

const choice = (label: string, all: readonly string[], now: () => string | undefined, set: (one: string) => void): HTMLElement =>
  h(
    "select",
    { "aria-label": label, onchange: ({ currentTarget }: Event) => set((currentTarget as HTMLSelectElement).value) },
    ...all.map((one) => h("option", { value: one, selected: () => one === now() }, oneLine(one, 80))),
  );

function toolbar(): HTMLElement {
  const box = h("input", {
    type: "search",
    "aria-label": "Filter names; Enter finds in all folders",
    placeholder: "Filter; Enter finds everywhere",
    oninput() {
      const text = box.value;
      leave();
      filter(text);
    },
    onkeydown(event: KeyboardEvent) {
      if (event.key === "Enter") void find(box.value);
      else if (event.key === "Escape") {
        box.value = "";
        leave();
      }
    },
  });
  const changed = (): boolean => mode() === "changed";
  const toggle = (): HTMLElement =>
    h(
      "button",
      {
        "aria-pressed": () => String(changed()),
        onclick() {
          box.value = "";
          void (changed() ? leave() : showChanged());
        },
      },
      "Changed ",
      h("span.badge", () => String(changes()?.size ?? 0)),
    );
  return h("header.bar",
    h("h1.seen-by-ear", "Files"),
    () =>
      roots().length > 1
        ? choice("Root", roots(), () => root().path, (path) => void enter(path))
        : h("p.root", { title: visible(root().path) }, icon("directory"), h("bdi", oneLine(root().path, 120))),
    h("span.search", icon("find"), box),
    () => changes() && toggle(),
    () =>
      workers().length > 1 &&
      h("label", h("span.quiet", "As "), choice("Show permissions of this worker", workers(), worker, lookAs)),
    signed("again", "Refresh list", () => void reload()),
  );
}

function splitter(width: ReturnType<typeof signal<number>>): HTMLElement {
  const set = (wanted: number): void => width(Math.max(NARROWEST, Math.min(WIDEST, Math.round(wanted))));
  const bar = h("div.splitter", {
    role: "separator",
    tabindex: 0,
    "aria-orientation": "vertical",
    "aria-label": "Width of the tree",
    "aria-valuenow": width,
    "aria-valuemin": NARROWEST,
    "aria-valuemax": WIDEST,
    onkeydown(event: KeyboardEvent) {
      const to: Readonly<Record<string, number>> = { ArrowLeft: width() - STEP, ArrowRight: width() + STEP, Home: NARROWEST, End: WIDEST };
      const wanted = to[event.key];
      if (wanted === undefined) return;
      set(wanted);
      event.preventDefault();
    },
    onpointerdown(event: PointerEvent) {
      bar.setPointerCapture(event.pointerId);
      event.preventDefault();
    },
    onpointermove(event: PointerEvent) {
      if (bar.hasPointerCapture(event.pointerId)) set(event.clientX);
    },
  });
  return bar;
}

export function app(): readonly [HTMLElement, Sight] {
  const width = signal(320);
  const [tree, sight] = treeView();
  const told = (): string => {
    const count = rows().filter((row) => row.kind).length;
    return `${count.toLocaleString()} ${mode() === "tree" ? (filter() === "" ? "shown" : "of what is loaded; Enter finds all") : mode()}`;
  };
  const side = h("section.side", { "aria-label": "Folders" }, tree, h("p.foot", told));
  const file = fileView();
  // If only one pane fits, move the keyboard focus with it.
  effect(() => {
    const [to, other] = onFile() ? [file, tree] : [tree, file];
    requestAnimationFrame(() => other.offsetParent === null && to.focus());
  });
  const all = h("main.files",
    toolbar(),
    h("div", { class: () => (onFile() ? "panes on-file" : "panes"), style: () => `--side:${width()}px` }, side, splitter(width), file),
    () => failure() && h("div.failure", { role: "alert" }, state("lock", oneLine(failure(), 600), button("Try again", () => void start()))),
    h("p.said", { role: "status" }, said),
  );
  return [all, sight];
}
