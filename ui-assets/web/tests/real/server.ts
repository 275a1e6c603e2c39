// MCP client over stdio for tests with the real program.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

type Fields = Readonly<Record<string, unknown>>;

export interface Server {
  ask(method: string, params?: Fields): Promise<Fields>;
  call(name: string, input?: Fields): Promise<Fields>;
  close(): Promise<void>;
}

/** Starts the program named by `BAILIWICK_PROGRAM`. */
export async function server(...args: string[]): Promise<Server> {
  // Do not pass the tests' environment to the program.
  const child = spawn(process.env["BAILIWICK_PROGRAM"] ?? "", ["serve", ...args], { stdio: ["pipe", "pipe", "inherit"], env: {} });
  const waiting = new Map<unknown, (message: Fields) => void>();
  createInterface({ input: child.stdout }).on("line", (line) => {
    const message = JSON.parse(line) as Fields;
    waiting.get(message["id"])?.(message);
  });
  const send = (message: Fields): void => void child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
  let last = 0;
  async function ask(method: string, params: Fields = {}): Promise<Fields> {
    const id = ++last;
    const answer = new Promise<Fields>((done) => waiting.set(id, done));
    send({ id, method, params });
    const { result, error } = await answer;
    if (result === undefined) throw new Error(JSON.stringify(error));
    return result as Fields;
  }
  const extensions = { "io.modelcontextprotocol/ui": { mimeTypes: ["text/html;profile=mcp-app"] } };
  await ask("initialize", { protocolVersion: "2025-11-25", capabilities: { extensions }, clientInfo: { name: "host", version: "1" } });
  send({ method: "notifications/initialized" });
  return {
    ask,
    call: (name, input = {}) => ask("tools/call", { name, arguments: input }),
    async close() {
      const ended = new Promise((done) => child.once("exit", done));
      child.stdin.end();
      await ended;
    },
  };
}
