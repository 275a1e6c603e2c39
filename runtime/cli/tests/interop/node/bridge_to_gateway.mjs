// A client that reaches the gateway through a bridge.
//
// node bridge_to_gateway.mjs BRIDGE PROGRAM ARGUMENT...
//
// BRIDGE is `mcp-remote`, `supergateway` or the path of `mcp-proxy`.
import { spawn } from "node:child_process";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

import { freePort, listening, mcpRemote, servedAt, supergateway } from "./bridge.mjs";
import { ARGUMENTS, PROGRAM, run } from "./gateway_calls.mjs";

const bridge = process.argv[2];
const token = "0123456789abcdef0123456789abcdef";

function start(command, args) {
  const env = { ...process.env, BAILIWICK_TOKEN: token };
  return spawn(command, args, { stdio: ["ignore", "ignore", "pipe"], env });
}

let child;
try {
  let transport;
  if (bridge === "mcp-remote") {
    child = start(PROGRAM, [...ARGUMENTS, "--http", "127.0.0.1:0"]);
    const url = await servedAt(child);
    transport = new StdioClientTransport({ command: process.execPath, args: mcpRemote(url, token) });
  } else {
    const port = await freePort();
    child =
      bridge === "supergateway"
        ? start(process.execPath, supergateway([PROGRAM, ...ARGUMENTS], port))
        : start(bridge, ["--port", `${port}`, "--host", "127.0.0.1", PROGRAM, "--", ...ARGUMENTS]);
    const url = new URL(`http://127.0.0.1:${port}/mcp`);
    child.stderr.resume();
    await listening(url, 120);
    transport = new StreamableHTTPClientTransport(url);
  }
  const client = new Client({ name: "client", version: "1" });
  await client.connect(transport, { timeout: 120_000 });
  await run(async (_, steps) => {
    const { tools } = await client.listTools();
    const schemas = Object.fromEntries(tools.map((tool) => [tool.name, tool]));
    await steps(schemas, (name, args) => client.callTool({ name, arguments: args }));
  });
  await client.close();
} finally {
  child?.kill();
}
process.exit(0);
