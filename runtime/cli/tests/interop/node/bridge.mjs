// What tests of bridges between HTTP and stdio have in common.
import assert from "node:assert/strict";
import { createServer } from "node:net";
import { createInterface } from "node:readline";

/** A port of this machine that is free. */
export async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** The address at which a program says on standard error that it serves. */
export async function servedAt(child) {
  for await (const line of createInterface({ input: child.stderr })) {
    const url = line.match(/http:\/\/\S+\/mcp/)?.[0];
    if (url) {
      child.stderr.resume();
      return url;
    }
  }
  throw new Error("the program did not say where it serves");
}

/** Waits until connections to `url` are accepted. */
export async function listening(url, seconds) {
  const deadline = Date.now() + 1000 * seconds;
  while (!(await fetch(url).catch(() => undefined))) {
    assert(Date.now() < deadline, `${url} takes no connections`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** The arguments of node for mcp-remote. */
export const mcpRemote = (url, token) => ["node_modules/mcp-remote/dist/proxy.js", url, "--transport", "http-only", "--header", `Authorization: Bearer ${token}`];

/** The arguments of node for supergateway before a program with these arguments. */
export const supergateway = (command, port) => [
  "node_modules/supergateway/dist/index.js",
  ...["--stdio", command.map((word) => `'${word}'`).join(" "), "--outputTransport", "streamableHttp", "--stateful", "--port", `${port}`],
];
