// Typed client for the server's file tools.
import { ask as askHost } from "./host.ts";
import { type Fields, type Told, each, maybeCount, maybeText, textOf, textsOf, told } from "./wire.ts";

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
  readonly added: number;
  readonly removed: number;
  /** Resource URI of the review page for the last call that changed the file. */
  readonly review: string | undefined;
  readonly diff: string | undefined;
}
export interface Facts {
  readonly bytes: number | undefined;
  readonly lines?: number | undefined;
  readonly first?: number | undefined;
  readonly more?: boolean;
  readonly unchanged?: boolean;
  readonly hash?: string | undefined;
}

const kindOf = (value: unknown): Kind => (value === "file" || value === "directory" || value === "link" ? value : "special");
// Treat an unknown verdict as denied.
const verdict = (value: unknown): Verdict => (value === "allow" || value === "ask" ? value : "deny");

function page<T>(fields: Fields, items: readonly T[]): Page<T> {
  return { items, total: maybeCount(fields["total"]) ?? items.length, next: maybeText(fields["next_cursor"]) };
}

/** The text itself if it is a glob, otherwise a case-insensitive glob for names that contain it. */
export function globFor(text: string): string {
  if (/[*?[{]/.test(text)) return text;
  return `*${text.replace(/[\\\]}]/g, "\\$&").replace(/[a-z]/gi, (letter) => `[${letter.toLowerCase()}${letter.toUpperCase()}]`)}*`;
}

// The functions below reject with the reason of a failure.
const ask = async (name: string, input: Record<string, unknown> = {}): Promise<Told> => told(await askHost("tools/call", { name, arguments: input }));

export async function rootsGiven() {
  const { fields } = await ask("list_roots");
  return { roots: textsOf(fields["roots"]), first: maybeText(fields["default_root"]) };
}

export async function list(path: string, cursor: string | undefined): Promise<Page<Listed>> {
  const { fields } = await ask("list_directory", { path, limit: 1000, cursor });
  const listed = ({ name, kind, bytes, raw }: Fields): Listed => ({
    name: textOf(name),
    kind: kindOf(kind),
    bytes: maybeCount(bytes),
    odd: raw !== undefined,
  });
  return page(fields, each(fields["entries"], listed));
}

export async function stat(path: string) {
  const { fields } = await ask("stat", { path });
  const { path: led, kind, bytes, modified } = fields;
  return { path: maybeText(led) ?? path, kind: kindOf(kind), bytes: maybeCount(bytes), modified: maybeText(modified) };
}

export async function find(text: string, path: string, cursor: string | undefined): Promise<Page<string>> {
  const { fields } = await ask("find", { pattern: globFor(text), path, limit: 500, cursor });
  return page(fields, textsOf(fields["paths"]));
}

export async function grep(pattern: string, path: string, limit: number) {
  const { fields, blocks } = await ask("grep", { pattern, path, literal: true, case: "smart", limit });
  const files = each(fields["files"], ({ path, matches }) => ({ path: textOf(path), matches: maybeCount(matches) }));
  return { files, text: blocks[0]?.type === "text" ? blocks[0].text : "", more: fields["next_offset"] !== undefined };
}

export async function read(input: { path: string; offset?: number; limit?: number; known_hash?: string; binary?: boolean }) {
  const { fields, blocks } = await ask("read_file", input);
  const file = ({ bytes, lines, first_line, next_offset, unchanged, hash }: Fields): Facts => ({
    bytes: maybeCount(bytes),
    lines: maybeCount(lines),
    first: maybeCount(first_line),
    more: next_offset !== undefined,
    unchanged: unchanged === true,
    hash: maybeText(hash),
  });
  return { facts: each(fields["files"], file)[0] ?? { bytes: undefined }, block: blocks[0] };
}

export async function authority(paths: readonly string[], worker: string | undefined) {
  const { fields } = await ask("authority", { paths, worker });
  const rights = each(fields["paths"], ({ path, read, write }): [string, Rights] => [
    textOf(path),
    { read: verdict(read), write: verdict(write) },
  ]);
  return { worker: textOf(fields["worker"]), workers: textsOf(fields["workers"]), rights };
}

export async function changesMade(): Promise<Change[]> {
  const { fields } = await ask("changed_files");
  return each(fields["changes"], ({ path, added, removed, review, diff }) => ({
    path: textOf(path),
    added: maybeCount(added) ?? 0,
    removed: maybeCount(removed) ?? 0,
    review: maybeText(review),
    diff: maybeText(diff),
  }));
}

/** Reads a text resource. */
export async function text(uri: string): Promise<string> {
  const { contents } = await askHost("resources/read", { uri });
  return each(contents, ({ text }) => textOf(text))[0] ?? "";
}
