// Virtual ARIA tree of the file browser.
import { computed } from "@preact/signals-core";

import { own, watch } from "../../lib/component.ts";
import { List, Rows } from "../../lib/list.tsx";
import { oneLine, visible } from "../../lib/visible.ts";
import { active, changes, load, mode, open, root, rows, setOpen, version } from "./browser.ts";
import { Icon } from "./icon.tsx";
import { badge, rightsOf, wantRights, worker } from "./rights.ts";
import { isOther, size, stepped, typed } from "./tree.ts";
import type { Entry, Note, Row } from "./tree.ts";
import { explained } from "./wire.ts";

const HEIGHT = 28;
/** Maximum number of rendered rows, regardless of the window height. */
const MOST = 58;
/** Maximum number of folders that `*` opens. */
const AT_ONCE = 50;

export const treeRows = new Rows();

function NoteText({ parent }: { readonly parent: Entry }) {
  version.value;
  const { folder } = parent;
  if (!folder) return null;
  const isFailed = folder.state === "failed";
  const text = isFailed
    ? `${oneLine(explained(folder.failure))} Try again`
    : folder.state !== "ready"
      ? "Loading…"
      : mode.value === "tree"
        ? "Empty folder"
        : "Nothing";
  return (
    <span class="note" title={text}>
      {isFailed && <Icon name="again" />}
      {text}
    </span>
  );
}

function Rights({ path }: { readonly path: string }) {
  const rights = rightsOf(path);
  if (!rights) return null;
  const [sign, words, tone] = badge(rights);
  return (
    <span class={`right ${tone}`} role="img" aria-label={words} title={words}>{sign}</span>
  );
}

const OPERATIONS: Readonly<Record<string, string>> = { create: "new", delete: "deleted", move: "moved", copy: "copied" };

function Changes({ entry: { path, folder } }: { readonly entry: Entry }) {
  const change = changes.value?.get(path);
  if (change) {
    const { op } = change;
    return (
      <span>{op !== "modify" && <span class="badge">{OPERATIONS[op]}</span>} <ins>+{change.added}</ins> <del>−{change.removed}</del></span>
    );
  }
  const holds = folder && [...(changes.value?.keys() ?? [])].some((one) => one.startsWith(`${path}/`));
  return holds ? <span class="holds" role="img" aria-label="holds changes" /> : null;
}

function EntryText({ entry }: { readonly entry: Entry }) {
  const shown = visible(entry.name);
  const cut = shown.lastIndexOf("/") + 1;
  return (
    <>
      <Icon name={entry.kind} label={entry.kind} />
      <bdi class="name" title={shown}>
        {shown.slice(cut)}
        {cut > 0 && <small>{shown.slice(0, cut - 1)}</small>}
      </bdi>
      <span class="counts"><Changes entry={entry} /></span>
      <span><Rights path={entry.path} /></span>
      {mode.value === "tree" && <span class="size">{entry.bytes !== undefined && size(entry.bytes)}</span>}
    </>
  );
}

function act(row: Row): void {
  active.value = row;
  if (row.kind) void open(row);
  else void load(row.parent);
}

function TreeRow({ row }: { readonly row: Entry | Note }) {
  version.value;
  const isLocked = row.kind && (row.odd || rightsOf(row.path)?.read === "deny");
  const isGone = row.kind && changes.value?.get(row.path)?.op === "delete";
  return (
    <div
      role="treeitem"
      id={row.id}
      class={`row ${isGone ? "gone" : isLocked ? "locked" : ""}`}
      style={{ "--in": Math.min(row.level - 1, 14) }}
      aria-level={row.level}
      aria-posinset={row.kind ? row.position : (row.parent.folder?.entries.length ?? 0) + 1}
      aria-setsize={Math.max(1, row.parent?.folder?.total ?? 1)}
      aria-expanded={row.kind && row.folder ? row.folder.open : undefined}
      aria-selected={active.value === row}
      onClick={() => act(row)}
    >
      {row.kind ? <EntryText entry={row} /> : <NoteText parent={row.parent} />}
    </div>
  );
}

export function TreeView() {
  const index = own(() => computed(() => rows.value.indexOf(active.value as Row)));
  /** The letters typed so far, and when the last one was typed. */
  const search = own(() => ({ text: "", at: 0 }));
  const shown = rows.value;

  function goTo(wanted: number): void {
    const row = rows.value[wanted];
    if (!row) return;
    active.value = row;
    treeRows.reveal(wanted);
  }

  function sideways(row: Row, isRight: boolean): void {
    const folder = row.kind ? row.folder : undefined;
    if (!isRight && folder?.open !== true) goTo(rows.value.indexOf(row.parent as Row));
    else if (row.kind && folder?.open !== isRight) void setOpen(row, isRight);
    else if (folder && rows.value[index.value + 1]?.parent === row) goTo(index.value + 1);
  }

  function key(event: KeyboardEvent): void {
    if (isOther(event)) return;
    if (event.key.length > 1) search.text = "";
    const row = rows.value[index.value];
    const next = stepped(event.key, index.value, rows.value.length, treeRows.page);
    if (next !== undefined) goTo(next);
    else if (!row) return;
    else if (event.key === "ArrowRight" || event.key === "ArrowLeft") sideways(row, event.key === "ArrowRight");
    else if (event.key === "Enter" || event.key === " ") act(row);
    else if (event.key === "*") {
      const closed = row.parent?.folder?.entries.filter(({ folder }) => folder?.open === false);
      for (const one of closed?.slice(0, AT_ONCE) ?? []) void setOpen(one, true);
    } else if (event.key.length === 1) {
      search.text = event.timeStamp - search.at < 700 ? search.text + event.key : event.key;
      search.at = event.timeStamp;
      goTo(typed(rows.value, index.value, search.text));
    } else return;
    event.preventDefault();
  }

  watch(() => {
    // Reload when another worker is selected.
    worker.value;
    const seen = rows.value.slice(treeRows.first.value, treeRows.last.value);
    wantRights(seen.flatMap((row) => (row.kind && !row.odd ? [row.path] : [])));
    // The row that stands for further entries is visible, so load them.
    for (const { kind, parent } of seen) if (!kind && parent?.folder?.state === "ready" && parent.folder.next) void load(parent);
  });
  const isRendered = index.value >= treeRows.first.value && index.value < treeRows.last.value;
  return (
    <div
      class="tree"
      role="tree"
      tabIndex={0}
      aria-label={`Files in ${visible(root.value.path)}`}
      aria-activedescendant={isRendered ? active.value?.id : undefined}
      onKeyDown={key}
    >
      <List
        rows={treeRows}
        count={shown.length}
        height={HEIGHT}
        most={MOST}
        keyOf={(at) => shown[at]?.id ?? at}
        row={(at) => {
          const row = shown[at];
          return row && <TreeRow row={row} />;
        }}
      />
    </div>
  );
}
