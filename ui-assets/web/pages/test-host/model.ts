// Typed data model of the host's API.
import { fit } from "../../lib/fit.ts";
import { at, string, text, texts } from "./json.ts";

const ANY: unknown = undefined;

// `tool` is the server's definition; the other fields are computed by the host.
const TOOL = { name: "", intent: "", lints: [""], preview: false, readOnly: false, ui: "", tool: ANY };
const APP = { uri: "", title: "", name: "", description: "" };
const FACTS = { greeting: ANY, badges: [{ name: "", on: false }], tools: [TOOL], apps: [APP], configSchema: ANY, policy: false };
const STATE = { status: "offline", reason: "", target: "", revision: "", configuration: ANY, facts: FACTS };
const ENTRY = { seq: 0, at_ms: 0, side: "", message: ANY, fault: "" };
const CHECK = { check: "", outcome: "", detail: "" };

export type App = typeof APP;
export type Entry = typeof ENTRY;
export type Check = typeof CHECK;
export type Tool = ReturnType<typeof toolOf>;
export type State = ReturnType<typeof stateOf>;

function toolOf(facts: typeof TOOL) {
  const { tool, name } = facts;
  const annotations = at(tool, "annotations");
  return {
    ...facts,
    title: text(tool, "title") ?? text(annotations, "title") ?? name,
    description: string(tool, "description"),
    inputSchema: at(tool, "inputSchema"),
    annotations,
    scopes: texts(at(annotations, "scopes") ?? at(tool, "_meta", "scopes")),
    visibility: texts(tool, "_meta", "ui", "visibility"),
  };
}

/** Whether a resource or resource link is an MCP Apps page. */
export const isApp = (resource: unknown): boolean => at(resource, "mimeType") === "text/html;profile=mcp-app";

export function stateOf(value: unknown) {
  const { facts, ...state } = fit(STATE, value);
  const { greeting, tools } = facts;
  const info = at(greeting, "serverInfo") ?? at(greeting, "_meta", "io.modelcontextprotocol/serverInfo");
  return {
    ...state,
    ...facts,
    tools: tools.map(toolOf),
    name: text(info, "title") ?? string(info, "name"),
    version: string(info, "version"),
    spoken: text(greeting, "protocolVersion") ?? state.revision,
  };
}

export const entriesOf = (value: unknown): Entry[] => fit([ENTRY], value);
export const checksOf = (value: unknown): Check[] => fit([CHECK], value);
