// Lines of a client in, answers that are wrong in every way that the checks look for out; `exit` is a tool that ends it.
import { createInterface } from "node:readline";

const tool = (name, more = {}) => ({ name, inputSchema: { type: "object" }, ...more });
const reads = { readOnlyHint: true };
const tools = [
  tool("twice"),
  tool("twice"),
  tool("no such: name"),
  tool("schema", { inputSchema: { type: "strong" } }),
  tool("array", { inputSchema: { type: "array" } }),
  tool("template", {
    annotations: { intentTemplate: "Do {missing} [{a} {b}]" },
    inputSchema: { type: "object", properties: { a: { type: "array", items: {} }, b: { type: "array", items: {} } } },
  }),
  tool("contradiction", { annotations: { readOnlyHint: true, destructiveHint: true, scopes: ["write:file"] } }),
  tool("structured", {
    annotations: reads,
    outputSchema: { type: "object", properties: { n: { type: "integer" } }, required: ["n"] },
  }),
  tool("preview", { annotations: { preview: true } }),
  tool("page", { _meta: { ui: { resourceUri: "ui://wrong/page.html" } } }),
  tool("exit"),
];
const configSchema = { type: "object", properties: { field: { type: "string", scope: "whenever" } } };
let calls = 0;

function call({ name }) {
  calls += 1;
  if (name === "exit") process.exit(3);
  if (name === "structured") return { content: [], structuredContent: { n: "none" } };
  return { content: [{ type: "text", text: "done" }], structuredContent: { calls } };
}

const answers = {
  initialize: () => ({
    protocolVersion: "2025-11-25",
    capabilities: { tools: {}, resources: {}, experimental: { policy: true }, configSchema },
    serverInfo: { name: "wrong", version: "1" },
    dashdash: { specVersion: "0.2.0" },
  }),
  "tools/list": () => ({ tools }),
  "tools/call": call,
  "resources/list": () => ({ resources: [] }),
  "resources/read": ({ uri }) => ({ contents: [{ uri, mimeType: "text/html", text: "<p>page</p>" }] }),
};

// A server that stays though its client is gone.
if (process.env.STAY) setInterval(() => {}, 1_000);

const write = (message) => process.stdout.write(`${JSON.stringify(message)}\n`);
for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) {
    process.stdout.write("this is no JSON\n");
    continue;
  }
  write({ jsonrpc: "2.0", id, result: answers[method]?.(params) ?? {} });
}
