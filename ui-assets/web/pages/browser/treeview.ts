// Virtualized ARIA tree of the file browser.
import { h, set } from "../../lib/h.ts";
import { effect, memo, untracked } from "../../lib/signals.ts";
import { oneLine, visible } from "../../lib/visible.ts";
import { active, changes, load, mode, open, root, rows, setOpen, version } from "./browser.ts";
import { icon } from "./icon.ts";
import { badge, rightsOf, wantRights, worker } from "./rights.ts";
import { type Entry, type Note, type Row, isOther, size, stepped, typed } from "./tree.ts";
import { type Sight, windowed } from "./window.ts";
import { explained } from "./wire.ts";

const HEIGHT = 28;
/** Maximum number of folders that `*` opens. */
const AT_ONCE = 50;

function noteRow({ parent }: Note): readonly Node[] {
  version();
  const { folder } = parent;
  if (!folder) return [];
  const say = (text: string, ...before: Node[]): Node[] => [h("span.note", { title: text }, ...before, text)];
  if (folder.state === "failed") {
    return say(`${oneLine(explained(folder.failure))} Try again`, icon("again"));
  }
  // The row that stands for further entries became visible, so load them.
  if (folder.state === "ready" && folder.next) untracked(() => void load(parent));
  return say(folder.state !== "ready" ? "Loading…" : mode() === "tree" ? "Empty folder" : "Nothing");
}

function entryRow(at: Entry): readonly (HTMLElement | false)[] {
  const shown = visible(at.name);
  const cut = shown.lastIndexOf("/") + 1;
  const rights = memo(() => rightsOf(at.path));
  const mark = (): HTMLElement | false => {
    const known = rights();
    if (!known) return false;
    const [sign, words, tone] = badge(known);
    return h("span", { class: `right ${tone}`, role: "img", "aria-label": words, title: words }, sign);
  };
  const counts = (): HTMLElement | false => {
    const change = changes()?.get(at.path);
    if (change) return h("span", h("ins", `+${change.added}`), " ", h("del", `−${change.removed}`));
    const holds = at.folder && [...(changes()?.keys() ?? [])].some((path) => path.startsWith(`${at.path}/`));
    return holds === true && h("span.holds", { role: "img", "aria-label": "holds changes" });
  };
  return [
    h(`i.icon ${at.kind}`, { role: "img", "aria-label": at.kind }),
    h("bdi.name", { title: shown }, shown.slice(cut), cut > 0 && h("small", shown.slice(0, cut - 1))),
    h("span.counts", counts),
    h("span", mark),
    mode() === "tree" && h("span.size", at.bytes === undefined ? "" : size(at.bytes)),
  ];
}

export function treeView(): readonly [HTMLElement, Sight] {
  const index = memo(() => rows().indexOf(active() as Row));
  let before = "";
  let at = 0;

  function goTo(wanted: number): void {
    const row = rows()[wanted];
    if (!row) return;
    active(row);
    sight.reveal(wanted);
  }

  function act(row: Row): void {
    active(row);
    if (row.kind) void open(row);
    else void load(row.parent);
  }

  function sideways(row: Row, isRight: boolean): void {
    const folder = row.kind ? row.folder : undefined;
    if (!isRight && folder?.open !== true) goTo(rows().indexOf(row.parent as Row));
    else if (row.kind && folder?.open !== isRight) void setOpen(row, isRight);
    else if (folder && rows()[index() + 1]?.parent === row) goTo(index() + 1);
  }

  function key(event: KeyboardEvent): void {
    if (isOther(event)) return;
    if (event.key.length > 1) before = "";
    const row = rows()[index()];
    const next = stepped(event.key, index(), rows().length, sight.page());
    if (next !== undefined) goTo(next);
    else if (!row) return;
    else if (event.key === "ArrowRight" || event.key === "ArrowLeft") sideways(row, event.key === "ArrowRight");
    else if (event.key === "Enter" || event.key === " ") act(row);
    else if (event.key === "*") {
      const closed = row.parent?.folder?.entries.filter(({ folder }) => folder?.open === false);
      for (const one of closed?.slice(0, AT_ONCE) ?? []) void setOpen(one, true);
    } else if (event.key.length === 1) {
      before = event.timeStamp - at < 700 ? before + event.key : event.key;
      at = event.timeStamp;
      goTo(typed(rows(), index(), before));
    } else return;
    event.preventDefault();
  }

  const tree = h("div.tree", {
    role: "tree",
    tabindex: 0,
    "aria-label": () => `Files in ${visible(root().path)}`,
    onkeydown: key,
  });
  const sight: Sight = windowed<Row>(tree, {
    height: HEIGHT,
    count: () => rows().length,
    at: (n) => rows()[n] as Row,
    row: (row) =>
      h(
        "div",
        {
          role: "treeitem",
          id: row.id,
          class: () => (row.kind && (row.odd || rightsOf(row.path)?.read === "deny") ? "row locked" : "row"),
          style: `--in:${Math.min(row.level - 1, 14)}`,
          "aria-level": row.level,
          "aria-posinset": () => (version(), row.kind ? row.position : (row.parent.folder?.entries.length ?? 0) + 1),
          "aria-setsize": () => (version(), Math.max(1, row.parent?.folder?.total ?? 1)),
          "aria-expanded": () => (version(), row.kind && row.folder ? String(row.folder.open) : undefined),
          "aria-selected": () => String(active() === row),
          onclick: () => act(row),
        },
        ...(row.kind ? entryRow(row) : [() => noteRow(row)]),
      ),
  });
  effect(() => set(tree, "aria-activedescendant", index() >= sight.first() && index() < sight.last() ? active()?.id : undefined));
  effect(() => {
    // Reload when another worker is selected.
    worker();
    const seen = rows().slice(sight.first(), sight.last());
    wantRights(seen.flatMap((row) => (row.kind && !row.odd ? [row.path] : [])));
  });
  return [tree, sight];
}
