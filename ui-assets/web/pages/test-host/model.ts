// Typed data model of the host's API.
import { anything, flag, items, number, object, or, string } from "../../lib/json.ts";
import type { Parsed } from "../../lib/json.ts";
import { at, string as stringAt, text, texts } from "./json.ts";

const count = or(number, 0);
const is = or(flag, false);
// `tool` is the server's definition; the other fields are computed by the host.
const toolFacts = object({ name: string, intent: string, lints: items(string), preview: is, readOnly: is, ui: string, tool: anything });
const app = object({ uri: string, title: string, name: string, description: string });
const serverFacts = object({
  greeting: anything,
  badges: items(object({ name: string, on: is })),
  tools: items(toolFacts),
  apps: items(app),
  configSchema: anything,
  policy: is,
});
const NONE = serverFacts({});
const hostState = object({ status: or(string, "offline"), reason: string, target: string, revision: string, configuration: anything, facts: or(serverFacts, NONE) });
const entry = object({ seq: count, at_ms: count, side: string, message: anything, fault: string });
const check = object({ check: string, outcome: string, detail: string });

export type App = Parsed<typeof app>;
export type Entry = Parsed<typeof entry>;
export type Check = Parsed<typeof check>;
export type Tool = ReturnType<typeof toolOf>;
export type State = ReturnType<typeof stateOf>;

function toolOf(facts: Parsed<typeof toolFacts>) {
  const { tool, name } = facts;
  const annotations = at(tool, "annotations");
  return {
    ...facts,
    title: text(tool, "title") ?? text(annotations, "title") ?? name,
    description: stringAt(tool, "description"),
    inputSchema: at(tool, "inputSchema"),
    annotations,
    scopes: texts(at(annotations, "scopes") ?? at(tool, "_meta", "scopes")),
    visibility: texts(tool, "_meta", "ui", "visibility"),
  };
}

/** Whether a resource or resource link is an MCP Apps page. */
export const isApp = (resource: unknown): boolean => at(resource, "mimeType") === "text/html;profile=mcp-app";

export function stateOf(value: unknown) {
  const { facts, ...state } = hostState(value);
  const { greeting, tools } = facts;
  const info = at(greeting, "serverInfo") ?? at(greeting, "_meta", "io.modelcontextprotocol/serverInfo");
  return {
    ...state,
    ...facts,
    tools: tools.map(toolOf),
    name: text(info, "title") ?? stringAt(info, "name"),
    version: stringAt(info, "version"),
    spoken: text(greeting, "protocolVersion") ?? state.revision,
  };
}

export const entriesOf = (value: unknown): Entry[] => items(entry)(value);
export const checksOf = (value: unknown): Check[] => items(check)(value);
