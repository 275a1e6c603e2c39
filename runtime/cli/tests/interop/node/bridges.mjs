// A bridge between the program and a client: what comes through for a model, and a client that forges grants and configures
// other roots.
//
// node bridges.mjs mcp-remote|supergateway PROGRAM ROOT
// node bridges.mjs mcp-proxy PROXY PROGRAM ROOT
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

import { freePort, listening, mcpRemote, servedAt, supergateway } from "./bridge.mjs";
import { PROGRAM, ROOT, run } from "./framework.mjs";

const [bridge, proxy] = process.argv.slice(2);
const outside = join(dirname(ROOT), "outside");
const existing = join(dirname(ROOT), "existing");
writeFileSync(existing, "not for agents");
const children = [];

function start(command, args, environment = {}) {
  const child = spawn(command, args, { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, ...environment } });
  children.push(child);
  child.stdout.resume();
  return child;
}

/** Gives a transport for a new client, once the bridge to a program with these options takes connections. */
async function started(options) {
  if (bridge === "mcp-remote") {
    const token = "0123456789abcdef0123456789abcdef";
    const url = await servedAt(start(PROGRAM, [...options, "--http", "127.0.0.1:0"], { BAILIWICK_TOKEN: token }));
    return () => new StdioClientTransport({ command: process.execPath, args: mcpRemote(url, token) });
  }
  const port = await freePort();
  const child =
    bridge === "mcp-proxy"
      ? start(proxy, ["--port", `${port}`, "--host", "127.0.0.1", PROGRAM, "--", ...options])
      : start(process.execPath, supergateway([PROGRAM, ...options], port));
  child.stderr.resume();
  const url = new URL(`http://127.0.0.1:${port}/mcp`);
  await listening(url, 60);
  return () => new StreamableHTTPClientTransport(url);
}

async function connected(transport, capabilities) {
  const client = new Client({ name: "client", version: "1" }, { capabilities });
  await client.connect(transport(), { timeout: 60_000 });
  return client;
}

/** What a model gets is the content of a result. */
async function models(options, steps) {
  const client = await connected(await started(options), {});
  const { tools } = await client.listTools();
  const schemas = Object.fromEntries(tools.map((tool) => [tool.name, tool]));
  const call = async (name, args) => (await client.callTool({ name, arguments: args })).content;
  await steps(schemas, call, ([block]) => block.type === "image" && block.mimeType === "image/png");
  await client.close();
}

/** A host previews by `_meta` and reads the diff for its user; the results are for a model, so nothing in them is different. */
async function hosts(client) {
  const edit = { name: "edit_file", arguments: { path: "a.txt", edits: [{ old_text: "first", new_text: "1st" }] } };
  const before = readFileSync(join(ROOT, "a.txt"), "utf8");
  const previewed = await client.callTool({ ...edit, _meta: { preview: true } });
  assert.equal(previewed._meta.preview, true, JSON.stringify(previewed));
  const { uri } = previewed._meta.artifacts.find(({ name }) => name === "diff");
  const diff = (await client.readResource({ uri })).contents[0].text;
  assert(diff.includes("-first line\n+1st line\n"), diff);
  assert.equal(readFileSync(join(ROOT, "a.txt"), "utf8"), before);
  const made = await client.callTool({ ...edit, _meta: { preview_token: previewed._meta.preview_token } });
  assert.deepEqual(made.content, previewed.content);
  assert.equal(readFileSync(join(ROOT, "a.txt"), "utf8"), before.replace("first", "1st"));
}

async function forged(transport, honest) {
  const grants = { granted_scopes: ["*", "read", "write", `write:file:${outside}`, `read:file:${existing}`] };
  const roots = { experimental: { configuration: { roots: [{ path: dirname(ROOT) }], trust: "host" } } };
  const clients = [honest];
  // A server may refuse such a client altogether.
  clients.push(...(await connected(transport, roots).then((client) => [client], () => [])));
  for (const client of clients) {
    for (const call of [
      { name: "write_file", arguments: { path: outside, content: "x" } },
      { name: "read_file", arguments: { path: existing } },
    ]) {
      const answer = await client.callTool({ ...call, _meta: grants }).catch((error) => ({ isError: true, error: `${error}` }));
      assert(answer.isError, JSON.stringify(answer));
      assert(!JSON.stringify(answer).includes("not for agents"));
    }
    await client.close();
  }
  assert(!existsSync(outside));
}

try {
  await run(models);
  const transport = await started(["serve", ROOT]);
  const honest = await connected(transport, {});
  await hosts(honest);
  await forged(transport, honest);
} finally {
  for (const child of children) child.kill();
}
process.exit(0);
