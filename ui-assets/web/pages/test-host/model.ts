// What the host answers in, values of known shape out.
import { at, list, members, string, text, texts } from "./json.ts";
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
  const name = string(facts, "name");
  const scopes = at(raw, "annotations", "scopes") ?? at(raw, "_meta", "scopes");
  const visibility = texts(raw, "_meta", "ui", "visibility");
  return {
    name,
    title: text(raw, "title") ?? text(raw, "annotations", "title") ?? name,
    description: string(raw, "description"),
    inputSchema: at(raw, "inputSchema"),
    annotations: members(raw, "annotations"),
    scopes: texts(scopes),
    intent: text(facts, "intent"),
    lints: texts(facts, "lints"),
    preview: at(facts, "preview") === true,
    readOnly: at(facts, "readOnly") === true,
    ui: text(facts, "ui"),
    visibility: visibility.length > 0 ? visibility : ["model", "app"],
    raw,
  };
}

/** Whether a resource, or a link to one, is a page for a frame. */
export const isApp = (resource: unknown): boolean => at(resource, "mimeType") === "text/html;profile=mcp-app";

function appOf(resource: unknown): App {
  const uri = string(resource, "uri");
  return {
    uri,
    name: text(resource, "title") ?? text(resource, "name") ?? uri,
    description: string(resource, "description"),
  };
}

const STATUSES: readonly Status[] = ["connecting", "ready", "failed", "ended"];

export function stateOf(value: unknown): State {
  const facts = at(value, "facts");
  const greeting = at(facts, "greeting");
  const info = at(greeting, "serverInfo") ?? at(greeting, "_meta", "io.modelcontextprotocol/serverInfo");
  const status = STATUSES.find((known) => known === at(value, "status"));
  const revision = string(value, "revision");
  return {
    status: status ?? "offline",
    reason: text(value, "reason"),
    target: string(value, "target"),
    revision,
    configuration: at(value, "configuration") ?? undefined,
    name: text(info, "title") ?? string(info, "name"),
    version: string(info, "version"),
    greeting,
    spoken: text(greeting, "protocolVersion") ?? revision,
    badges: list(facts, "badges").map((badge) => ({
      name: string(badge, "name"),
      on: at(badge, "on") === true,
    })),
    tools: list(facts, "tools").map(toolOf),
    apps: list(facts, "apps").map(appOf),
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
    fault: text(value, "fault"),
  };
}

const OUTCOMES = ["pass", "warn", "fail", "skip"] as const;

export function checkOf(value: unknown): Check {
  return {
    check: string(value, "check"),
    outcome: OUTCOMES.find((known) => known === at(value, "outcome")) ?? "fail",
    detail: string(value, "detail"),
  };
}
