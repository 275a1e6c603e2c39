// Serves the host page on http://127.0.0.1:8080 and connects it to an MCP server over stdio:
//   node server.mjs COMMAND ARGUMENTS...
// The environment variable PORT sets another port.
import { spawn } from "node:child_process";
import { createReadStream } from "node:fs";
import { createServer } from "node:http";
import { createInterface } from "node:readline";

const MAX_BODY = 1024 * 1024;
const [command, ...args] = process.argv.slice(2);
if (command === undefined) throw new Error("usage: node server.mjs COMMAND ARGUMENTS...");

// The MCP server.
const child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
child.once("error", (error) => fail(`cannot start ${command}: ${error.message}`));
child.once("exit", () => fail("the MCP server has ended"));
const pending = new Map();
let last = 0;
const send = (message) => child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
createInterface({ input: child.stdout }).on("line", (line) => {
  const message = JSON.parse(line);
  // This client declares no capabilities that allow requests of the server.
  if (message.method !== undefined) return;
  pending.get(message.id)?.(message);
  pending.delete(message.id);
});
function rpc(method, params) {
  last += 1;
  send({ id: last, method, params });
  return new Promise((resolve) => pending.set(last, resolve));
}
function fail(text) {
  console.error(text);
  process.exit(1);
}
// Servers send `_meta.ui` only to clients that declare MCP Apps.
const extensions = { "io.modelcontextprotocol/ui": { mimeTypes: ["text/html;profile=mcp-app"] } };
const { error } = await rpc("initialize", { protocolVersion: "2025-11-25", capabilities: { extensions }, clientInfo: { name: "host", version: "1.0.0" } });
if (error) fail(error.message);
send({ method: "notifications/initialized" });

// The page.
const here = (name) => new URL(name, import.meta.url);
const inPackage = (name) => new URL(import.meta.resolve(`@bailiwick/mcp-view${name}`));
const HTML = "text/html; charset=utf-8";
const SCRIPT = "text/javascript; charset=utf-8";
const files = {
  "/": [here("index.html"), HTML, "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; connect-src 'self'; frame-src 'self'"],
  "/host.js": [here("host.js"), SCRIPT],
  "/mcp-view.js": [inPackage(""), SCRIPT],
  // This must be the whole policy, because the pages in `<mcp-view>` inherit it.
  "/sandbox": [inPackage("/sandbox.html"), HTML, "sandbox allow-scripts allow-forms"],
};
const METHODS = ["tools/list", "tools/call", "resources/read", "resources/list"];

async function answer(request) {
  let body = "";
  for await (const chunk of request) {
    body += chunk;
    if (body.length > MAX_BODY) throw new Error("the request is too large");
  }
  const { method, params } = JSON.parse(body);
  if (!METHODS.includes(method)) throw new Error(`\`${method}\` is not allowed`);
  return rpc(method, params);
}

const server = createServer(async (request, response) => {
  const { port } = server.address();
  const { host, origin } = request.headers;
  // Reject requests of other sites, also of those whose name points to this machine.
  if (host !== `127.0.0.1:${port}` || (origin !== undefined && origin !== `http://${host}`)) return response.writeHead(403).end();
  if (request.method === "POST" && request.url === "/rpc" && origin !== undefined) {
    const reply = await answer(request).catch((error) => ({ error: { message: String(error) } }));
    return response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(reply));
  }
  const [file, type, policy] = (request.method === "GET" && Object.hasOwn(files, request.url) && files[request.url]) || [];
  if (file === undefined) return response.writeHead(404).end();
  response.writeHead(200, { "content-type": type, ...(policy && { "content-security-policy": policy }) });
  createReadStream(file).pipe(response);
});
server.listen(Number(process.env.PORT ?? 8080), "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}/`));
