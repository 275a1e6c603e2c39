// Runs tool calls, including previews, permission prompts and elicitation.
import { computed, signal } from "@preact/signals-core";

import { errorOf, request, result } from "./api.ts";
import { at, list, members, reason, string, text, texts } from "./json.ts";
import type { MessageName } from "./messages.tsx";
import { isApp } from "./model.ts";
import type { Entry, Tool } from "./model.ts";
import { elicitations, policy } from "./store.ts";

/** A call to make. */
export interface Call {
  readonly tool: Tool;
  readonly given: unknown;
  readonly intent: string;
}

/** A request to allow a call with these scopes. */
export interface Permission extends Call {
  readonly scopes: readonly string[];
  /** The preview of the call, if available. */
  readonly shown?: unknown;
  /** Name of the message that describes what is allowed, unless it is just the call. */
  readonly about?: MessageName | undefined;
  readonly answer: (allows: boolean) => void;
}

/** An elicitation form of a pending call. */
export interface Asked {
  readonly params: unknown;
  readonly answer: (result: unknown) => void;
}

const questions = signal<readonly (Permission | Asked)[]>([]);

/** Pending questions, shown one at a time. */
export const waiting = computed((): readonly (Permission | Asked | Entry)[] => [...questions.value, ...elicitations.value]);

/** Comparison of an artifact from the preview with the same artifact from the call. */
export interface Compared {
  readonly name: string;
  /** Description of the difference; empty if there is none. */
  readonly differs: string;
}

export interface Outcome {
  readonly preview?: unknown;
  readonly call?: unknown;
  readonly compared?: readonly Compared[];
  /** Name of the message that describes the outcome. */
  readonly note?: MessageName | undefined;
  readonly fault?: string;
  readonly ms?: number;
}

const MOST_ROUNDS = 10;

function asked<T>(make: (answer: (given: T) => void) => Permission | Asked): Promise<T> {
  return new Promise((settle) => {
    const made = make((given) => {
      questions.value = questions.value.filter((one) => one !== made);
      settle(given);
    });
    questions.value = [...questions.value, made];
  });
}

/** Sends the call, and repeats it with the input that the server requests. */
async function exchanged(params: unknown): Promise<unknown> {
  let more: unknown;
  for (let round = 0; round < MOST_ROUNDS; round += 1) {
    const response = await request("tools/call", { ...members(params), ...members(more) });
    const came = at(response, "result");
    if (at(came, "resultType") !== "input_required") return response;
    const inputResponses: Record<string, unknown> = {};
    for (const [name, wanted] of Object.entries(members(came, "inputRequests"))) {
      inputResponses[name] =
        at(wanted, "method") === "elicitation/create"
          ? await asked<unknown>((answer) => ({ params: at(wanted, "params"), answer }))
          : { action: "cancel" };
    }
    more = { inputResponses, requestState: at(came, "requestState") };
  }
  throw new Error(`more than ${MOST_ROUNDS} input rounds`);
}

function requested(response: unknown): string[] {
  const meta = at(response, "result", "_meta") ?? at(response, "error", "data");
  return texts(at(meta, "requested_scopes") ?? at(meta, "dev.bailiwick/requested_scopes"));
}

const permitted = (call: Call, question: Pick<Permission, "scopes" | "shown" | "about">): Promise<boolean> =>
  asked((answer) => ({ ...call, ...question, answer }));

interface Made {
  readonly response: unknown;
  readonly granted?: readonly string[] | undefined;
  readonly note?: MessageName;
}

interface Permissions {
  /** The scopes that the person has allowed for this call. */
  readonly allowed?: readonly string[];
  readonly about?: MessageName;
}

/** Whether the scope is one of `allowed`, or narrower than one of them. */
const isCovered = (scope: string, allowed: readonly string[]): boolean => allowed.some((one) => scope === one || scope.startsWith(`${one}:`));

/** Makes the call. If it lacks scopes, retries once with them; asks for them unless the person has allowed them. */
async function made(one: Call, meta: object, { allowed = [], about }: Permissions = {}, granted?: readonly string[]): Promise<Made> {
  const all = Object.entries({ ...meta, policy: policy.value, granted_scopes: granted }).filter(([, value]) => value !== undefined);
  const params = { name: one.tool.name, arguments: one.given };
  const response = await exchanged(all.length > 0 ? { ...params, _meta: Object.fromEntries(all) } : params);
  const scopes = requested(response);
  if (scopes.length === 0 || granted) return { response, granted };
  if (scopes.every((scope) => isCovered(scope, allowed)) || (await permitted(one, { scopes, about }))) return made(one, meta, {}, scopes);
  return { response, note: "denied" };
}

export async function call(one: Call): Promise<Outcome> {
  const { response, note } = await made(one, {});
  return { call: response, note };
}

async function previewed(one: Call, about: MessageName): Promise<Outcome & Made> {
  const { response, granted, note } = await made(one, { preview: true }, { about });
  const told = at(response, "result", "_meta", "preview") === true || errorOf(response) !== undefined;
  return { response, preview: response, granted, ...(note || !told ? { note: note ?? "unsaid" } : {}) };
}
export const preview = (one: Call): Promise<Outcome> => previewed(one, "preview-only");

/** Previews the call, asks for permission once and commits exactly that preview. */
export async function approved(one: Call, show: (outcome: Outcome) => void): Promise<Outcome> {
  const before = await previewed(one, "preview-and-call");
  const { response, granted, note } = before;
  if (note || failed(response)) return before;
  show(before);
  const shown = at(response, "result");
  const { scopes } = one.tool;
  if (!granted && !(await permitted(one, { scopes, shown }))) return { ...before, note: "refused" };
  const came = await made(one, { preview_token: text(shown, "_meta", "preview_token") }, { allowed: scopes }, granted);
  return { preview: response, call: came.response, compared: await compared(shown, at(came.response, "result")), note: came.note };
}

/** Whether a call failed. */
export const failed = (response: unknown): boolean => errorOf(response) !== undefined || at(response, "result", "isError") === true;

/** The artifacts of a preview or call: linked resources, and those in the `_meta` of a link or of the result. */
export function artifacts(came: unknown): unknown[] {
  const links = list(came, "content").filter((block) => at(block, "type") === "resource_link");
  return [...links, ...[came, ...links].flatMap((one) => list(at(one, "_meta"), "artifacts"))];
}

/** The first content of a resource. */
export const first = async (uri: unknown): Promise<unknown> => list(await result("resources/read", { uri }), "contents")[0];

/** The content of an artifact, without its generated name. */
async function body(artifact: unknown): Promise<string> {
  const uri = string(artifact, "uri");
  const held = string(await first(uri), "text");
  const id = uri.slice(uri.lastIndexOf("/") + 1).split(".")[0];
  return id ? held.replaceAll(id, "ID") : held;
}

/** Compares the artifacts of a preview and its call, ignoring their names. */
async function compared(preview: unknown, call: unknown): Promise<Compared[]> {
  // Views differ by design: they show whether they belong to a preview.
  const data = (came: unknown) => artifacts(came).filter((one) => !isApp(one));
  const after = data(call);
  const pairs = data(preview).map(async (one): Promise<Compared> => {
    const name = string(one, "name");
    const other = after.find((found) => at(found, "name") === name);
    if (!other) return { name, differs: "the call has none" };
    try {
      const [shown, made] = await Promise.all([body(one), body(other)]);
      return { name, differs: shown === made ? "" : difference(shown, made) };
    } catch (error) {
      return { name, differs: reason(error) };
    }
  });
  return Promise.all(pairs);
}

function difference(shown: string, made: string): string {
  const lines = made.split("\n");
  return `differs in line ${shown.split("\n").findIndex((line, at) => line !== lines[at]) + 1}`;
}
