// What the host answers in, values of known shape out.
import { at, list, members, text, texts } from "./json.ts";
import type { Members } from "./json.ts";

export interface Tool {
  readonly name: string;
  readonly title: string;
  readonly description: string;
  readonly inputSchema: unknown;
  readonly annotations: Members;
  readonly scopes: readonly string[];
  readonly intent: string | undefined;
  readonly lints: readonly string[];
  readonly preview: boolean;
  readonly readOnly: boolean;
  readonly ui: string | undefined;
  readonly visibility: readonly string[];
  /** As the server listed it. */
  readonly raw: unknown;
}

export interface App {
  readonly uri: string;
  readonly name: string;
  readonly description: string;
}

export type Status = "connecting" | "ready" | "failed" | "ended" | "offline";

export interface State {
  readonly status: Status;
  readonly reason: string | undefined;
  readonly target: string;
  readonly revision: string;
  readonly configuration: unknown;
  readonly name: string;
  readonly version: string;
  /** What the server answered when it was met. */
  readonly greeting: unknown;
  readonly spoken: string;
  readonly badges: readonly { readonly name: string; readonly on: boolean }[];
  readonly tools: readonly Tool[];
  readonly apps: readonly App[];
  readonly configSchema: unknown;
  readonly policy: boolean;
}

export interface Entry {
  readonly seq: number;
  readonly atMs: number;
  readonly side: "sent" | "received" | "said" | "state";
  readonly message: unknown;
  readonly fault: string | undefined;
}

export interface Check {
  readonly check: string;
  readonly outcome: "pass" | "warn" | "fail" | "skip";
  readonly detail: string;
}

function toolOf(facts: unknown): Tool {
  const raw = at(facts, "tool");
  const name = text(at(facts, "name")) ?? "";
  const scopes = at(raw, "annotations", "scopes") ?? at(raw, "_meta", "scopes");
  const visibility = texts(at(raw, "_meta", "ui", "visibility"));
  return {
    name,
    title: text(at(raw, "title")) ?? text(at(raw, "annotations", "title")) ?? name,
    description: text(at(raw, "description")) ?? "",
    inputSchema: at(raw, "inputSchema"),
    annotations: members(at(raw, "annotations")),
    scopes: texts(scopes),
    intent: text(at(facts, "intent")),
    lints: texts(at(facts, "lints")),
    preview: at(facts, "preview") === true,
    readOnly: at(facts, "readOnly") === true,
    ui: text(at(facts, "ui")),
    visibility: visibility.length > 0 ? visibility : ["model", "app"],
    raw,
  };
}

/** Whether a resource, or a link to one, is a page for a frame. */
export const isApp = (resource: unknown): boolean => at(resource, "mimeType") === "text/html;profile=mcp-app";

function appOf(resource: unknown): App {
  const uri = text(at(resource, "uri")) ?? "";
  return {
    uri,
    name: text(at(resource, "title")) ?? text(at(resource, "name")) ?? uri,
    description: text(at(resource, "description")) ?? "",
  };
}

const STATUSES: readonly Status[] = ["connecting", "ready", "failed", "ended"];

export function stateOf(value: unknown): State {
  const facts = at(value, "facts");
  const greeting = at(facts, "greeting");
  const info = at(greeting, "serverInfo") ?? at(greeting, "_meta", "io.modelcontextprotocol/serverInfo");
  const status = STATUSES.find((known) => known === at(value, "status"));
  const revision = text(at(value, "revision")) ?? "";
  return {
    status: status ?? "offline",
    reason: text(at(value, "reason")),
    target: text(at(value, "target")) ?? "",
    revision,
    configuration: at(value, "configuration") ?? undefined,
    name: text(at(info, "title")) ?? text(at(info, "name")) ?? "",
    version: text(at(info, "version")) ?? "",
    greeting,
    spoken: text(at(greeting, "protocolVersion")) ?? revision,
    badges: list(at(facts, "badges")).map((badge) => ({
      name: text(at(badge, "name")) ?? "",
      on: at(badge, "on") === true,
    })),
    tools: list(at(facts, "tools")).map(toolOf),
    apps: list(at(facts, "apps")).map(appOf),
    configSchema: at(facts, "configSchema") ?? undefined,
    policy: at(facts, "policy") === true,
  };
}

const SIDES = ["sent", "received", "said", "state"] as const;

export function entryOf(value: unknown): Entry {
  const seq = at(value, "seq");
  const atMs = at(value, "at_ms");
  return {
    seq: typeof seq === "number" ? seq : 0,
    atMs: typeof atMs === "number" ? atMs : 0,
    side: SIDES.find((known) => known === at(value, "side")) ?? "state",
    message: at(value, "message"),
    fault: text(at(value, "fault")),
  };
}

const OUTCOMES = ["pass", "warn", "fail", "skip"] as const;

export function checkOf(value: unknown): Check {
  return {
    check: text(at(value, "check")) ?? "",
    outcome: OUTCOMES.find((known) => known === at(value, "outcome")) ?? "fail",
    detail: text(at(value, "detail")) ?? "",
  };
}
