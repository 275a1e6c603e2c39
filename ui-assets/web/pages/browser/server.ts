// Typed client for the server's file tools.
import { count, items, maybeCount, maybeText, object, oneOf, or, string, texts } from "../../lib/json.ts";
import type { Fields } from "../../lib/json.ts";
import { type Change as Reviewed, reviewed, rows } from "../../lib/diff/change.ts";
import type { Row as DiffRow } from "../../lib/diff/hunks.ts";
import { ask as askHost } from "./host.ts";
import { told } from "./wire.ts";
import type { Told } from "./wire.ts";

export type Kind = "file" | "directory" | "link" | "special";
export type Verdict = "allow" | "ask" | "deny";
export interface Rights {
  readonly read: Verdict;
  readonly write: Verdict;
}
export interface Listed {
  readonly name: string;
  readonly kind: Kind;
  readonly bytes?: number | undefined;
  /** The displayed name is escaped, so no tool can open it. */
  readonly odd?: boolean;
}
export interface Page<T> {
  readonly items: readonly T[];
  readonly total: number;
  readonly next: string | undefined;
}
export interface Change {
  readonly path: string;
  /** The operation of the last call. */
  readonly op: string;
  readonly added: number;
  readonly removed: number;
  /** Resource URI of the review page for the last call that changed the file. */
  readonly review: string | undefined;
}
export interface Facts {
  readonly bytes: number | undefined;
  readonly lines?: number | undefined;
  readonly first?: number | undefined;
  readonly more?: boolean;
  readonly unchanged?: boolean;
  readonly hash?: string | undefined;
}

const kind = or(oneOf("file", "directory", "link", "special"), "special" as const);
// Treat an unknown verdict as denied.
const verdict = or(oneOf("allow", "ask", "deny"), "deny" as const);

function page<T>(fields: Fields, all: readonly T[]): Page<T> {
  return { items: all, total: maybeCount(fields["total"]) ?? all.length, next: maybeText(fields["next_cursor"]) };
}

/** The text itself if it is a glob, otherwise a case-insensitive glob for names that contain it. */
export function globFor(text: string): string {
  if (/[*?[{]/.test(text)) return text;
  return `*${text.replace(/[\\\]}]/g, "\\$&").replace(/[a-z]/gi, (letter) => `[${letter.toLowerCase()}${letter.toUpperCase()}]`)}*`;
}

// The functions below reject with the reason of a failure.
const ask = async (name: string, input: Record<string, unknown> = {}): Promise<Told> => told(await askHost("tools/call", { name, arguments: input }));

/** The base of relative paths. */
let base: string | undefined;

/** The absolute form of a path, made as the file tools make it. Paths that they reject are unchanged. */
export function absolute(path: string): string {
  const names: string[] = [];
  const isAbsolute = path.startsWith("/");
  if (!path || !(isAbsolute || base)) return path;
  for (const name of (isAbsolute ? path : `${base}/${path}`).split("/")) {
    if (name === "..") {
      if (names.pop() === undefined) return path;
    } else if (name && name !== ".") names.push(name);
  }
  return `/${names.join("/")}`;
}

export async function rootsGiven() {
  const { fields } = await ask("list_roots");
  base = maybeText(fields["default_root"]);
  return { roots: texts(fields["roots"]), first: base };
}

const listed = items(object({ name: string, kind, bytes: maybeCount, raw: (raw) => raw !== undefined }));

export async function list(path: string, cursor: string | undefined): Promise<Page<Listed>> {
  const { fields } = await ask("list_directory", { path, limit: 1000, cursor, sizes: true });
  return page(fields, listed(fields["entries"]).map(({ raw, ...entry }) => ({ ...entry, odd: raw })));
}

export async function stat(path: string) {
  const { fields } = await ask("stat", { path });
  return { path: maybeText(fields["path"]) ?? path, kind: kind(fields["kind"]), bytes: maybeCount(fields["bytes"]), modified: maybeText(fields["modified"]) };
}

export async function find(text: string, path: string, cursor: string | undefined): Promise<Page<string>> {
  const { fields } = await ask("find", { pattern: globFor(text), path, limit: 500, cursor });
  return page(fields, texts(fields["paths"]));
}

const matching = items(object({ path: string, matches: maybeCount }));

export async function grep(pattern: string, path: string, limit: number) {
  const { fields, blocks } = await ask("grep", { pattern, path, literal: true, case: "smart", limit });
  return { files: matching(fields["files"]), text: blocks[0]?.type === "text" ? blocks[0].text : "", more: fields["next_offset"] !== undefined };
}

const facts = items(object({ bytes: maybeCount, lines: maybeCount, first_line: maybeCount, next_offset: (next) => next !== undefined, unchanged: (is) => is === true, hash: maybeText }));

export async function read(input: { path: string; offset?: number; limit?: number; known_hash?: string; binary?: boolean }): Promise<{ facts: Facts; block: Told["blocks"][number] | undefined }> {
  const { fields, blocks } = await ask("read_file", input);
  const [file] = facts(fields["files"]);
  if (!file) return { facts: { bytes: undefined }, block: blocks[0] };
  const { first_line: first, next_offset: more, ...rest } = file;
  return { facts: { ...rest, first, more }, block: blocks[0] };
}

const allowed = items(object({ path: string, read: verdict, write: verdict }));

export async function authority(paths: readonly string[], worker: string | undefined) {
  const { fields } = await ask("authority", { paths, worker });
  const rights = allowed(fields["paths"]).map(({ path, ...rights }): [string, Rights] => [path, rights]);
  return { worker: string(fields["worker"]), workers: texts(fields["workers"]), unlisted: texts(fields["unlisted"]), rights };
}

const changes = items(object({ path: string, op: string, added: or(count, 0), removed: or(count, 0), review: maybeText }));

export const changesMade = async (): Promise<Change[]> => changes((await ask("changed_files")).fields["changes"]);

/** The changes of a review. */
export const changesOf = async (review: string): Promise<Reviewed[]> => items(reviewed)((await ask("review_rows", { uri: `${review}.rows` })).fields["changes"]);

/** Further rows of a review. */
export const rowsOf = async (uri: string): Promise<readonly DiffRow[]> => rows((await ask("review_rows", { uri })).fields["rows"]);
