// The open document, loaded in ranges of lines.
import { signal } from "@preact/signals-core";

import type { FileDiff } from "../../lib/diff/model.ts";
import { PagedDiff } from "../../lib/diff/paged.tsx";
import { string } from "../../lib/json.ts";
import { type Change, type Facts, changesOf, read, rowsOf, stat } from "./server.ts";
import { refusal } from "./wire.ts";

/** Number of lines per request. */
const RANGE = 500;

/** The open document and its loaded content. */
export interface Doc {
  readonly path: string;
  readonly kind: "text" | "image" | "audio" | "binary" | "diff" | "failed";
  readonly facts?: Facts | undefined;
  readonly modified?: string | undefined;
  /** Data URL of an image or audio file. */
  readonly address?: string;
  /** The likely type of a binary file. */
  readonly guess?: string;
  readonly failure?: unknown;
  readonly diff?: readonly FileDiff[];
  /** Loaded lines by line number, starting at 1. */
  readonly lines: Map<number, string>;
  /** Total number of lines, or the number known so far. */
  total: number;
  open: boolean;
  /** Length of the longest line so far. */
  longest: number;
  crlf: boolean;
}

function made(path: string, kind: Doc["kind"], more: Partial<Doc> = {}): Doc {
  return { path, kind, lines: new Map(), total: 0, open: false, longest: 0, crlf: false, ...more };
}

function fill(to: Doc, text: string, first: number): void {
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  lines.forEach((line, n) => {
    to.crlf ||= line.endsWith("\r");
    to.lines.set(first + n, line.replace(/\r$/, ""));
    to.longest = Math.max(to.longest, line.length);
  });
  to.total = Math.max(to.total, first + lines.length - 1);
}

function take(to: Doc, text: string, { first = 1, lines, more = false }: Facts): void {
  fill(to, text, first);
  to.total = lines ?? to.total;
  to.open = lines === undefined && more;
}

/** The open document, if any. */
export const doc = signal<Doc | undefined>(undefined);
/** Incremented when lines are loaded. */
export const docVersion = signal(0);
const touch = (): void => void (docVersion.value = docVersion.peek() + 1);
/** Whether a later read returned a different version of the file. */
export const stale = signal(false);
let turn = 0;
let busy = false;

async function look(path: string, offset: number): Promise<Doc> {
  const about = stat(path).catch(() => undefined);
  try {
    const { facts, block } = await read({ path, offset, limit: RANGE });
    const modified = (await about)?.modified;
    if (block?.type === "image" || block?.type === "audio") return made(path, block.type, { facts, modified, address: block.address });
    const text = made(path, "text", { facts, modified });
    take(text, block?.type === "text" ? block.text : "", facts);
    return text;
  } catch (failure) {
    const { code, guess } = refusal(failure);
    if (code !== "NOT_TEXT") return made(path, "failed", { failure });
    const whole = await read({ path, binary: true }).catch(() => undefined);
    const { bytes, modified } = (await about) ?? {};
    return made(path, "binary", { facts: whole?.facts ?? { bytes }, modified, guess: string(guess) });
  }
}

async function show(coming: Promise<Doc>): Promise<void> {
  turn += 1;
  const mine = turn;
  const shown = await coming;
  if (mine !== turn) return;
  stale.value = false;
  doc.value = shown;
  touch();
}

export const openDoc = (path: string, line = 1): Promise<void> => show(look(path, Math.max(1, line - 100)));

/** Shows a change instead of the file: the part of the review that is about it. */
export function showDiff({ path, review = "" }: Change): Promise<void> {
  const diff = changesOf(review).then((changes) =>
    made(path, "diff", {
      diff: changes.flatMap((change, at) =>
        (change.to || change.path) === path ? [new PagedDiff(change, () => undefined, (query) => rowsOf(`${review}.rows?change=${at}&${query}`))] : [],
      ),
    }),
  );
  return show(diff.catch((failure: unknown) => made(path, "failed", { failure })));
}

/** Loads the missing lines from `first` to `last`. */
export async function need(first: number, last: number): Promise<void> {
  const of = doc.value;
  if (busy || of?.kind !== "text") return;
  const end = of.open ? last : Math.min(last, of.total);
  let offset = first;
  while (offset <= end && of.lines.has(offset)) offset += 1;
  if (offset > end) return;
  busy = true;
  const got = await read({ path: of.path, offset, limit: RANGE }).catch(() => undefined);
  busy = false;
  if (of !== doc.value) return;
  if (got?.block?.type !== "text" || got.facts.hash !== of.facts?.hash) return void (stale.value = true);
  take(of, got.block.text, got.facts);
  touch();
}

/** Reloads the file if it changed on disk; returns whether it did. */
export async function check(): Promise<boolean> {
  const of = doc.value;
  const known_hash = of?.facts?.hash;
  if (!of) return true;
  if (known_hash && !stale.value && (await read({ path: of.path, known_hash, limit: 1 })).facts.unchanged) return true;
  await openDoc(of.path);
  return false;
}
