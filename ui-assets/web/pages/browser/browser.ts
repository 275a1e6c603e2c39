// State of the file browser.
import { batch, computed, effect, signal } from "@preact/signals-core";

import { openDoc, showDiff } from "./document.ts";
import { lookAs, wantRights, worker } from "./rights.ts";
import { type Change, type Page, type Listed, absolute, authority, changesMade, find as findPaths, list, rootsGiven, stat } from "./server.ts";
import { type Entry, type Folder, type Row, entry, filled, filtered, flatten, take, way } from "./tree.ts";
import { explained } from "./wire.ts";

/** The entry of a root directory. */
const top = (path: string): Entry => entry({ name: path, kind: "directory" }, path);

export const roots = signal<readonly string[]>([]);
export const root = signal<Entry>(top(""));
/** Search results or changes: a flat list that replaces the tree. */
const results = signal<Entry | undefined>(undefined);
export const mode = signal<"tree" | "found" | "changed">("tree");
export const filter = signal("");
export const active = signal<Row | undefined>(undefined);
export const changes = signal<ReadonlyMap<string, Change> | undefined>(undefined);
export const selection = signal<{ readonly from: number; readonly to: number } | undefined>(undefined);
export const said = signal("");
export const failure = signal("");
/** On narrow screens, whether the file pane is visible. */
export const onFile = signal(false);
/** Incremented on every folder change. */
export const version = signal(0);
const touch = (): void => void (version.value = version.peek() + 1);
let searched = "";

export const rows = computed<readonly Row[]>(() => {
  version.value;
  const { folder } = results.value ?? root.value;
  if (!folder) return [];
  return !results.value && filter.value ? filtered(folder, filter.value.toLowerCase()) : flatten(folder);
});
// Keep the focused row among the visible rows.
effect(() => {
  const now = active.value;
  if (!now || !rows.value.includes(now)) active.value = rows.value[0];
});

function flat(at: Entry, folder: Folder, paths: readonly string[]): void {
  for (const path of paths) {
    const name = way(root.value.path, path)?.join("/") ?? path;
    folder.entries.push(entry({ name, kind: "file" }, path, at));
  }
}

/** Paths that the policies of the session name, but its listings leave out. */
let unlisted: readonly string[] = [];

async function fetch(at: Entry, folder: Folder): Promise<void> {
  if (at !== results.value) {
    const named = unlisted.filter((path) => way(at.path, path)?.length === 1);
    const listed = await list(at.path, folder.next).catch((why: unknown): Page<Listed> => {
      if (named.length === 0) throw why;
      return { items: [], total: 0, next: undefined };
    });
    take(at, folder, listed);
    // A folder that can be listed after all has been granted.
    for (const path of folder.next ? [] : named) {
      const name = path.split("/").at(-1) ?? "";
      if (!folder.entries.some((one) => one.name === name)) folder.total = folder.entries.push(entry({ name, kind: "directory" }, path, at));
    }
    return;
  }
  const { items, total, next } = await findPaths(searched, root.value.path, folder.next);
  flat(at, folder, items);
  filled(folder, total, next);
  said.value = `${total} found`;
}

/** Loads the next page of a folder, or waits for the pending load. */
export async function load(at: Entry): Promise<void> {
  const { folder } = at;
  if (!folder) return;
  if (folder.state !== "loading") {
    folder.state = "loading";
    touch();
    folder.coming = fetch(at, folder).catch((why: unknown) => {
      folder.state = "failed";
      folder.failure = why;
    });
  }
  await folder.coming;
  touch();
}

export async function setOpen(at: Entry, open: boolean): Promise<void> {
  const { folder } = at;
  if (!folder) return;
  folder.open = open;
  touch();
  if (open && (folder.state === "fresh" || folder.state === "loading")) await load(at);
}

/** Returns from a flat list to the tree. */
export function leave(): void {
  batch(() => {
    results.value = undefined;
    mode.value = "tree";
    filter.value = "";
  });
}

export function enter(path: string): Promise<void> {
  leave();
  root.value = top(path);
  return load(root.value);
}

export async function openFile(path: string, line?: number): Promise<void> {
  selection.value = line ? { from: line, to: line } : undefined;
  onFile.value = true;
  wantRights([path]);
  await openDoc(path, line);
}

/** Opens the parent folders of `path`; returns its row if the listings contain it. */
export async function reveal(path: string): Promise<Entry | undefined> {
  const home = roots.value.find((one) => way(one, path) !== undefined);
  if (!home) return undefined;
  if (root.value.path !== home) await enter(home);
  leave();
  let at: Entry | undefined = root.value;
  for (const name of way(home, path) ?? []) {
    const folder: Folder | undefined = at?.folder;
    if (!at || !folder) return undefined;
    await setOpen(at, true);
    const named = (one: Entry): boolean => one.name === name && !one.odd;
    while (!folder.entries.some(named) && folder.state === "ready" && folder.next) await load(at);
    at = folder.entries.find(named);
  }
  if (at && at !== root.value) active.value = at;
  if (at) await setOpen(at, true);
  return at;
}

/** Opens `path`, whether it is a file or a directory. */
export async function openPath(text: string, line?: number): Promise<Entry | undefined> {
  // Relative paths are relative to a root.
  await started;
  const path = absolute(text);
  const at = await reveal(path);
  if (!at?.folder) await openFile(path, line);
  return at;
}

export async function open(at: Entry): Promise<void> {
  const change = mode.value === "changed" ? changes.value?.get(at.path) : undefined;
  if (change) return openDiff(change);
  if (at.folder) return setOpen(at, !at.folder.open);
  if (at.odd) return void (said.value = "No tool can open a file with this name");
  if (at.kind === "link") {
    const led = await stat(at.path).catch(() => undefined);
    if (led?.kind === "directory") return void (await reveal(led.path));
  }
  await openFile(at.path);
}

export async function find(text: string): Promise<void> {
  searched = text.trim();
  if (searched === "") return leave();
  results.value = top(root.value.path);
  mode.value = "found";
  await load(results.value ?? root.value);
}

/** Loads the list of changes; servers without the tool have none. */
const look = async (): Promise<void> => {
  const made = await changesMade().catch(() => undefined);
  changes.value = made && new Map(made.map((change) => [change.path, change]));
};

export async function showChanged(): Promise<void> {
  await look();
  const at = top(root.value.path);
  const paths = [...(changes.value?.keys() ?? [])];
  if (at.folder) {
    flat(at, at.folder, paths);
    filled(at.folder, paths.length);
  }
  results.value = at;
  mode.value = "changed";
}

let started: Promise<void> | undefined;

export const start = (): Promise<void> => (started = begin());

async function begin(): Promise<void> {
  failure.value = "";
  try {
    // Servers without the tool name none.
    const named = authority([], undefined).then((told) => (unlisted = told.unlisted));
    const { roots: all, first = all[0] } = await rootsGiven();
    await named.catch(() => undefined);
    roots.value = all;
    if (!first) return void (failure.value = "No whole directory is open to this session.");
    await Promise.all([enter(first), look()]);
  } catch (why) {
    failure.value = explained(why);
  }
}

/** Shows the last change of a file. */
export function openDiff(change: Change): Promise<void> {
  selection.value = undefined;
  onFile.value = true;
  return showDiff(change);
}

/** Reloads all data. */
export async function reload(): Promise<void> {
  lookAs(worker.value);
  await Promise.all([enter(root.value.path), look()]);
  said.value = "List refreshed";
}
