// Listings in, the rows of a tree out, and where a key leads among them.
import type { Kind, Listed, Page } from "./server.ts";

/** Something that a listing names. */
export interface Entry {
  readonly id: string;
  readonly path: string;
  readonly name: string;
  readonly kind: Kind;
  readonly bytes: number | undefined;
  /** No tool opens it by this name. */
  readonly odd: boolean;
  readonly level: number;
  readonly parent: Entry | undefined;
  readonly position: number;
  folder?: Folder;
}

/** What is known of what a directory holds. */
export interface Folder {
  open: boolean;
  state: "fresh" | "loading" | "ready" | "failed";
  readonly entries: Entry[];
  total: number;
  next?: string | undefined;
  failure?: unknown;
  /** Ends with the page that is being read. */
  coming?: Promise<void>;
  readonly note: Note;
}

/** A row that speaks of a folder: that it is empty, goes on, or cannot be listed. */
export interface Note {
  readonly id: string;
  readonly kind?: undefined;
  readonly path?: undefined;
  readonly parent: Entry;
  readonly level: number;
}

export type Row = Entry | Note;

let made = 0;

export function entry({ name, kind, bytes, odd = false }: Listed, path: string, parent?: Entry): Entry {
  made += 1;
  const level = parent ? parent.level + 1 : 0;
  const position = (parent?.folder?.entries.length ?? 0) + 1;
  const at: Entry = { id: `row-${made}`, path, name, kind, bytes, odd, level, parent, position };
  if (kind === "directory" && !odd) {
    const note: Note = { id: `note-${made}`, parent: at, level: level + 1 };
    at.folder = { open: level === 0, state: "fresh", entries: [], total: 0, note };
  }
  return at;
}

const byName = new Intl.Collator(undefined, { numeric: true });

/** Puts a page into the folder; what fits one page is sorted for people, folders first. */
export function take(at: Entry, folder: Folder, { items, total, next }: Page<Listed>): void {
  const whole = folder.entries.length === 0 && !next;
  const rank = (one: Listed): number => Number(one.kind !== "directory");
  const sorted = whole ? [...items].sort((a, b) => rank(a) - rank(b) || byName.compare(a.name, b.name)) : items;
  for (const one of sorted) {
    // Two odd names can look the same; no path holds a NUL.
    const end = one.odd ? `\0${folder.entries.length}` : "";
    folder.entries.push(entry(one, `${at.path === "/" ? "" : at.path}/${one.name}${end}`, at));
  }
  filled(folder, total, next);
}

/** Says how far a folder is known. */
export function filled(folder: Folder, total: number, next?: string): void {
  folder.total = Math.max(total, folder.entries.length);
  folder.next = next;
  folder.state = "ready";
  folder.failure = undefined;
}

/** Every row that is open, top to bottom. */
export function flatten(folder: Folder, rows: Row[] = []): Row[] {
  for (const one of folder.entries) {
    rows.push(one);
    if (one.folder?.open) flatten(one.folder, rows);
  }
  const { state, entries, next, note } = folder;
  if (state !== "ready" || entries.length === 0 || next) rows.push(note);
  return rows;
}

/** The rows whose name holds `text`, and the folders that lead to them, of what was loaded so far. */
export function filtered(folder: Folder, text: string, rows: Row[] = []): Row[] {
  for (const one of folder.entries) {
    const at = rows.push(one);
    if (one.folder) filtered(one.folder, text, rows);
    if (rows.length === at && !one.name.toLowerCase().includes(text)) rows.pop();
  }
  return rows;
}

/** Whether a key is for something else. */
export const isOther = (event: KeyboardEvent): boolean => event.ctrlKey || event.metaKey || event.altKey;

/** Where a key leads from `index` among `count` rows; nowhere if it is no such key. */
export function stepped(key: string, index: number, count: number, page: number): number | undefined {
  const to: Readonly<Record<string, number>> = {
    ArrowDown: index + 1,
    ArrowUp: index - 1,
    PageDown: index + page,
    PageUp: index - page,
    Home: 0,
    End: count,
  };
  const wanted = to[key];
  return wanted === undefined ? undefined : Math.max(0, Math.min(count - 1, wanted));
}

/** The next row whose name begins with what was typed, from `index` on and round. */
export function typed(rows: readonly Row[], index: number, text: string): number {
  const from = Math.max(0, text.length > 1 ? index : index + 1);
  const begins = (row: Row): boolean => row.kind !== undefined && row.name.toLowerCase().startsWith(text.toLowerCase());
  const after = rows.slice(from).findIndex(begins);
  return after < 0 ? rows.findIndex(begins) : from + after;
}

/** The names that lead from `root` to `path`; none if it does not lie there. */
export function way(root: string, path: string): string[] | undefined {
  if (path === root) return [];
  const base = root === "/" ? "/" : `${root}/`;
  return path.startsWith(base) ? path.slice(base.length).split("/") : undefined;
}

/** A number of bytes for people. */
export function size(bytes: number): string {
  const unit = Math.min(4, Math.floor(Math.log10(Math.max(1, bytes)) / 3));
  const shown = bytes / 1000 ** unit;
  return `${unit === 0 || shown >= 100 ? Math.round(shown) : shown.toFixed(1)} ${["B", "kB", "MB", "GB", "TB"][unit] ?? ""}`;
}
