// What a person wants in, what the host says to it out, as known types.
import { flag, list, maybe, number, object, oneOf, text } from "../../lib/parse.ts";
import type { Parse, Parsed } from "../../lib/parse.ts";

const question = object({
  status: oneOf("pending"),
  tool_call: object({ id: text, name: text }),
  bailiwick: object({
    run: text,
    session: text,
    worker: number,
    agent: list(text),
    intent: text,
    needs: list(text),
    divisible: flag,
    preview: maybe(object({ files: number, added: number, removed: number })),
  }),
});

const holder = object({
  agent: maybe(text),
  worker: maybe(number),
  session: maybe(object({ session: text, worker: number })),
});

const grant = object({
  grant: text,
  pattern: text,
  verb: maybe(text),
  holder,
  descendants: flag,
  uses_left: maybe(number),
  expires_at: maybe(number),
  used: number,
  used_at: maybe(number),
});

const state = object({
  version: number,
  sources: list(
    object({ run: text, server: text, roots: list(text), templates: list(object({ name: text, about: text })), recorded: flag }),
  ),
  questions: list((value: unknown, at: string) => ({ ...question(value, at), raw: value })),
  batches: list(object({ verb: text, resource: text, folder: maybe(text), questions: list(text) })),
  grants: list(grant),
  refusals: list(object({ run: text, refusal: number, agent: text, session: text, needs: list(text) })),
  tallies: list(object({ session: text, allowed: number, denied: number })),
});

export const standing = object({
  question: text,
  status: maybe(oneOf("pending", "granted", "denied", "expired", "cancelled")),
  granted: maybe(list(text)),
  message: maybe(text),
});

const change = object({
  path: text,
  op: text,
  to: maybe(text),
  hunks: list(object({ old_start: number, new_start: number, lines: list(object({ op: text, text })) })),
  added: number,
  removed: number,
  binary: flag,
  hidden: flag,
});

export const review = object({ changes: list(change) });

const entry = object({
  run: number,
  at: number,
  agent: text,
  tool: maybe(text),
  decision: maybe(text),
  by: text,
  entry: text,
  needs: maybe(list(text)),
  patterns: maybe(list(text)),
  pattern: maybe(text),
  note: maybe(text),
  rule: maybe(text),
  grant: maybe(number),
  cause: maybe(text),
});

export const history = object({
  chain: object({ state: oneOf("verified", "torn", "broken", "partial"), records: maybe(number), record: maybe(number), reason: maybe(text) }),
  entries: list(entry),
  total: number,
  tally: object({ granted: number, denied: number, expired: number, cancelled: number, open: number }),
  unused: list(object({ run: number, grant: number, pattern: maybe(text), agent: maybe(text) })),
  agents: list(text),
  tools: list(text),
  sessions: list(text),
  runs: list(number),
});

export type State = Parsed<typeof state>;
export type Question = State["questions"][number];
export type Grant = Parsed<typeof grant>;
export type Change = Parsed<typeof change>;
export type History = Parsed<typeof history>;

/** The host does not know the secret of this address. */
export class Stranger extends Error {}

const KEY = "secret";
const found = location.hash.slice(1);
if (found !== "") {
  // It stays out of what a person copies, and is there after a reload.
  sessionStorage.setItem(KEY, found);
  window.history.replaceState(null, "", "/");
}
const secret = sessionStorage.getItem(KEY) ?? "";

async function fetched(path: string, body?: unknown): Promise<Response> {
  const authorization = `Bearer ${secret}`;
  const response = await fetch(
    `/api/${path}`,
    body === undefined
      ? { headers: { authorization } }
      : { method: "POST", headers: { authorization, "content-type": "application/json" }, body: JSON.stringify(body) },
  );
  if (response.status === 401) throw new Stranger("The host does not know this address any more. Open the one that it printed last.");
  if (!response.ok) {
    const fault: unknown = await response.json().catch(() => undefined);
    throw new Error(object({ message: text })(fault, "fault").message);
  }
  return response;
}

/** Asks the host; with a `body`, tells it something. */
export async function host<T>(read: Parse<T>, path: string, body?: unknown): Promise<T> {
  return read(await (await fetched(path, body)).json(), path);
}

export const look = (): Promise<State> => host(state, "state");

/** A file of the host. */
export async function file(path: string, body: unknown): Promise<Blob> {
  return (await fetched(path, body)).blob();
}
