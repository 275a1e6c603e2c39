// Tree model: folders, visible rows and keyboard navigation.
import type { Kind, Listed, Page } from "./server.ts";

/** An entry of a directory listing. */
export interface Entry {
  readonly id: string;
  readonly path: string;
  readonly name: string;
  readonly kind: Kind;
  readonly bytes: number | undefined;
  /** The name is escaped, so no tool can open it. */
  readonly odd: boolean;
  readonly level: number;
  readonly parent: Entry | undefined;
  readonly position: number;
  folder?: Folder;
}

/** The loaded contents of a directory. */
export interface Folder {
  open: boolean;
  state: "fresh" | "loading" | "ready" | "failed";
  readonly entries: Entry[];
  total: number;
  next?: string | undefined;
  failure?: unknown;
  /** Resolves when the pending page is loaded. */
  coming?: Promise<void>;
  readonly note: Note;
}

/** A row that describes a folder's state: empty, incomplete or failed. */
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

/** Adds a page of entries to the folder. A listing with a single page is sorted with folders first. */
export function take(at: Entry, folder: Folder, { items, total, next }: Page<Listed>): void {
  const whole = folder.entries.length === 0 && !next;
  const rank = (one: Listed): number => Number(one.kind !== "directory");
  const sorted = whole ? [...items].sort((a, b) => rank(a) - rank(b) || byName.compare(a.name, b.name)) : items;
  for (const one of sorted) {
    // Escaped names are not unique, so append an index; paths cannot contain NUL.
    const end = one.odd ? `\0${folder.entries.length}` : "";
    folder.entries.push(entry(one, `${at.path === "/" ? "" : at.path}/${one.name}${end}`, at));
  }
  filled(folder, total, next);
}

/** Updates how much of a folder is loaded. */
export function filled(folder: Folder, total: number, next?: string): void {
  folder.total = Math.max(total, folder.entries.length);
  folder.next = next;
  folder.state = "ready";
  folder.failure = undefined;
}

/** All visible rows, from top to bottom. */
export function flatten(folder: Folder, rows: Row[] = []): Row[] {
  for (const one of folder.entries) {
    rows.push(one);
    if (one.folder?.open) flatten(one.folder, rows);
  }
  const { state, entries, next, note } = folder;
  if (state !== "ready" || entries.length === 0 || next) rows.push(note);
  return rows;
}

/** The loaded rows whose names contain `text`, with their parent folders. */
export function filtered(folder: Folder, text: string, rows: Row[] = []): Row[] {
  for (const one of folder.entries) {
    const at = rows.push(one);
    if (one.folder) filtered(one.folder, text, rows);
    if (rows.length === at && !one.name.toLowerCase().includes(text)) rows.pop();
  }
  return rows;
}

/** Whether the key is part of a shortcut. */
export const isOther = (event: KeyboardEvent): boolean => event.ctrlKey || event.metaKey || event.altKey;

/** The row to move to from `index`, or `undefined` for other keys. */
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

/** The next row whose name starts with the typed text, wrapping around. */
export function typed(rows: readonly Row[], index: number, text: string): number {
  const from = Math.max(0, text.length > 1 ? index : index + 1);
  const begins = (row: Row): boolean => row.kind !== undefined && row.name.toLowerCase().startsWith(text.toLowerCase());
  const after = rows.slice(from).findIndex(begins);
  return after < 0 ? rows.findIndex(begins) : from + after;
}

/** The path segments from `root` to `path`, or `undefined` if `path` is outside. */
export function way(root: string, path: string): string[] | undefined {
  if (path === root) return [];
  const base = root === "/" ? "/" : `${root}/`;
  return path.startsWith(base) ? path.slice(base.length).split("/") : undefined;
}

/** Formats a number of bytes. */
export function size(bytes: number): string {
  const unit = Math.min(4, Math.floor(Math.log10(Math.max(1, bytes)) / 3));
  const shown = bytes / 1000 ** unit;
  return `${unit === 0 || shown >= 100 ? Math.round(shown) : shown.toFixed(1)} ${["B", "kB", "MB", "GB", "TB"][unit] ?? ""}`;
}
