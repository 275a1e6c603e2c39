// A tool and arguments in, what a call of it came to out; whoever must be asked on the way is asked.
import { signal } from "../../lib/signals.ts";
import { request, result } from "./api.ts";
import { at, list, members, reason, text, texts } from "./json.ts";
import { isApp } from "./model.ts";
import type { Tool } from "./model.ts";
import { policy } from "./store.ts";

/** What a person says to a question; `kept` is for as long as this page is open. */
export type Word = "denied" | "once" | "kept";

/** What waits for a person. */
export type Question =
  | {
      readonly kind: "permission";
      readonly tool: Tool;
      readonly intent: string;
      readonly arguments: unknown;
      readonly scopes: readonly string[];
      /** What the call would do, if that is known. */
      readonly shown: unknown;
      readonly answer: (word: Word) => void;
    }
  | { readonly kind: "form"; readonly params: unknown; readonly answer: (result: unknown) => void };

export const question = signal<Question | undefined>(undefined);

/** How one artifact of a preview stands to the same of the call. */
export interface Compared {
  readonly name: string;
  readonly equal: boolean;
  readonly detail: string;
}

export interface Outcome {
  readonly preview?: unknown;
  readonly call?: unknown;
  readonly compared?: readonly Compared[];
  readonly note?: string;
  readonly ms?: number;
}

const MOST_ROUNDS = 10;
/** Tools and exactly what was granted to them for as long as this page is open. */
const kept = new Set<string>();

function asked<T>(make: (answer: (given: T) => void) => Question): Promise<T> {
  return new Promise((settle) => {
    question(
      make((given) => {
        question(undefined);
        settle(given);
      }),
    );
  });
}

/** Sends the call, and sends it again with what the server asks for on the way. */
async function exchanged(params: Record<string, unknown>): Promise<unknown> {
  let more: Record<string, unknown> = {};
  for (let round = 0; round < MOST_ROUNDS; round += 1) {
    const response = await request("tools/call", { ...params, ...more });
    const came = at(response, "result");
    if (at(came, "resultType") !== "input_required") return response;
    const inputResponses: Record<string, unknown> = {};
    for (const [key, wanted] of Object.entries(members(at(came, "inputRequests")))) {
      inputResponses[key] =
        at(wanted, "method") === "elicitation/create"
          ? await asked<unknown>((answer) => ({ kind: "form", params: at(wanted, "params"), answer }))
          : { action: "cancel" };
    }
    const requestState = at(came, "requestState");
    more = requestState === undefined ? { inputResponses } : { inputResponses, requestState };
  }
  throw new Error(`the server asks for more than ${MOST_ROUNDS} rounds of input`);
}

const requested = (response: unknown): string[] => {
  const meta = at(response, "result", "_meta") ?? at(response, "error", "data");
  return texts(at(meta, "requested_scopes") ?? at(meta, "dev.bailiwick/requested_scopes"));
};

/** One attempt to call a tool. */
export class Attempt {
  private granted: readonly string[] = [];
  private readonly tool: Tool;
  private readonly given: unknown;
  private readonly intent: string;

  constructor(tool: Tool, given: unknown, intent: string) {
    this.tool = tool;
    this.given = given;
    this.intent = intent;
  }

  /** Calls; what the call lacks is asked for once, and the call is sent once more with what was granted. */
  private async made(meta: Record<string, unknown>): Promise<{ response: unknown; denied: boolean }> {
    const sent = () => {
      const narrowed = policy() === undefined ? {} : { policy: policy() };
      const granted = this.granted.length === 0 ? {} : { granted_scopes: this.granted };
      const _meta = { ...meta, ...narrowed, ...granted };
      const params = { name: this.tool.name, arguments: this.given };
      return exchanged(Object.keys(_meta).length === 0 ? params : { ...params, _meta });
    };
    const response = await sent();
    const scopes = requested(response);
    if (scopes.length === 0 || this.granted.length > 0) return { response, denied: false };
    if (!(await this.permitted(scopes, undefined))) return { response, denied: true };
    this.granted = scopes;
    return { response: await sent(), denied: false };
  }

  /** Asks, unless exactly this was granted before; a preview is always looked at. */
  private async permitted(scopes: readonly string[], shown: unknown): Promise<boolean> {
    const { tool, intent, given } = this;
    const key = JSON.stringify([tool.name, scopes]);
    if (shown === undefined && kept.has(key)) return true;
    const word = await asked<Word>((answer) => ({ kind: "permission", tool, intent, arguments: given, scopes, shown, answer }));
    if (word === "kept") kept.add(key);
    return word !== "denied";
  }

  async call(): Promise<Outcome> {
    const { response, denied } = await this.made({});
    return { call: response, ...(denied ? { note: "Not granted, so the call was not made again." } : {}) };
  }

  async preview(): Promise<Outcome> {
    const { response, denied } = await this.made({ preview: true });
    const noted = denied
      ? "Not granted, so the preview was not made again."
      : at(response, "result", "_meta", "preview") === true || at(response, "error") !== undefined
        ? undefined
        : "The server does not say that this is a preview: the call may have been made.";
    return { preview: response, ...(noted === undefined ? {} : { note: noted }) };
  }

  /** Previews, asks, and carries out the very preview that was shown. */
  async approved(show: (outcome: Outcome) => void): Promise<Outcome> {
    const before = await this.preview();
    const preview = before.preview;
    const failed = at(preview, "error") !== undefined || at(preview, "result", "isError") === true;
    if (failed || before.note !== undefined) return before;
    show(before);
    const scopes = this.granted.length > 0 ? this.granted : this.tool.scopes;
    if (!(await this.permitted(scopes, at(preview, "result")))) {
      return { ...before, note: "Denied: nothing was done." };
    }
    const token = text(at(preview, "result", "_meta", "preview_token"));
    const { response } = await this.made(token === undefined ? {} : { preview_token: token });
    return { preview, call: response, compared: await compared(at(preview, "result"), at(response, "result")) };
  }
}

interface Artifact {
  readonly name: string;
  readonly uri: string;
}

/** A page says of itself whether it shows a preview, so it is none of them. */
const artifacts = (came: unknown): Artifact[] =>
  list(at(came, "content"))
    .filter((block) => at(block, "type") === "resource_link" && !isApp(block))
    .map((block) => ({ name: text(at(block, "name")) ?? "", uri: text(at(block, "uri")) ?? "" }));

/** The name of an artifact is new each time, and must not count. */
const without = (body: string, { uri }: Artifact): string => {
  const id = uri.slice(uri.lastIndexOf("/") + 1).split(".")[0] ?? "";
  return id === "" ? body : body.replaceAll(id, "ID");
};

async function body(artifact: Artifact): Promise<string> {
  const read = await result("resources/read", { uri: artifact.uri });
  return without(text(at(list(at(read, "contents"))[0], "text")) ?? "", artifact);
}

/** Compares what a preview and its call left behind: they must be the same but for their names. */
async function compared(preview: unknown, call: unknown): Promise<Compared[]> {
  const after = artifacts(call);
  const pairs = artifacts(preview).map(async (one): Promise<Compared> => {
    const other = after.find((found) => found.name === one.name);
    if (other === undefined) return { name: one.name, equal: false, detail: "the call has none" };
    try {
      const [shown, made] = await Promise.all([body(one), body(other)]);
      const equal = shown === made;
      return { name: one.name, equal, detail: equal ? "the same in preview and call" : difference(shown, made) };
    } catch (error) {
      return { name: one.name, equal: false, detail: reason(error) };
    }
  });
  return Promise.all(pairs);
}

function difference(shown: string, made: string): string {
  const lines = made.split("\n");
  const at = shown.split("\n").findIndex((line, index) => line !== lines[index]);
  return `differs in line ${at + 1}`;
}
