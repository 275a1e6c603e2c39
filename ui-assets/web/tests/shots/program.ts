// The real program on real files in a temporary directory, and MCP clients that are its agents.
import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdir, mkdtemp, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const PROGRAM = process.env["BAILIWICK_PROGRAM"] ?? join(process.env["CARGO_TARGET_DIR"] ?? join(import.meta.dirname, "../../../../target"), "debug/bailiwick");

/** The files: the folder `shop` is served, `notes` by a third-party server, and `outside` by nobody. */
const FILES: Record<string, string | Uint8Array> = {
  "shop/README.md": "# Shop\n\nAn example project.\n",
  "shop/Cargo.toml": '[package]\nname = "shop"\nversion = "0.1.0"\nedition = "2024"\n',
  "shop/src/main.rs": 'mod cart;\nmod limits;\n\nfn main() {\n    println!("{}", cart::total(&[]));\n}\n',
  "shop/src/limits.rs":
    "//! Limits of an order.\n\n/// How often a payment is tried again.\npub const RETRIES: u32 = 3;\n\n/// The time limit of a payment, in seconds.\npub const TIMEOUT: u64 = 30;\n",
  "shop/src/cart.rs":
    "//! The shopping cart.\n\npub struct Item {\n    pub name: String,\n    pub price: u64,\n    pub count: u64,\n}\n\n/// The sum of all items, in cents.\npub fn total(items: &[Item]) -> u64 {\n    items.iter().map(|item| item.price).sum()\n}\n",
  "shop/docs/api.md": "# API\n\n`total` returns the sum of all items.\n",
  "shop/docs/style.md": "# Style\n\nShort sentences.\n",
  "shop/.vscode/tasks.json": '{ "version": "2.0.0", "tasks": [] }\n',
  "shop/docs/logo.png": Uint8Array.of(0x89, 0x50, 0x4e, 0x47, 13, 10, 26, 10, 0, 0, 0, 13),
  "notes/today.md": "# Today\n\n- Release 0.2\n",
  "outside/report.md": "# Report\n",
};
for (let n = 1; n <= 12; n += 1) FILES[`shop/old/page-${n}.html`] = `<h1>Page ${n}</h1>\n`;

type Fields = Readonly<Record<string, unknown>>;
export interface Answer {
  readonly content: readonly { readonly type: string; readonly uri?: string; readonly name?: string }[];
  readonly structuredContent?: Fields;
  readonly isError?: boolean;
}

/** An MCP client. */
export interface Agent {
  /** Starts a call. The promise never rejects, since the program may end before the call does. */
  call(tool: string, input?: Fields, signal?: AbortSignal): Promise<Answer | undefined>;
  read(uri: string): Promise<string | undefined>;
}

/** A question of a call that needs approval, as the program's API describes it. */
interface Question {
  readonly tool_call: { readonly id: string };
  readonly bailiwick: { readonly session: string };
}

export interface Project {
  /** The directory with the files. */
  readonly dir: string;
  /** The URL of the approval console, with its secret. */
  readonly console: string;
  agent(name: string): Promise<Agent>;
  /** Waits until this number of calls need approval. Fails if `call`, the last of them, ends before. */
  asked(count: number, call?: Promise<Answer | undefined>): Promise<void>;
  /** Answers the oldest question. */
  answer(answer: "allow" | "deny"): Promise<void>;
  write(path: string, text: string): Promise<void>;
  close(): Promise<void>;
}

/** Ends a program, and deletes its files. */
async function stop(child: ChildProcess, dir?: string): Promise<void> {
  const ended = new Promise((done) => child.once("exit", done));
  child.kill();
  await ended;
  if (dir !== undefined) await rm(dir, { recursive: true, force: true });
}

/** Starts the program; resolves with its first line of output that matches, and its process. */
function start(args: readonly string[], env: Record<string, string>, wanted: RegExp, program = PROGRAM): Promise<readonly [string, ChildProcess]> {
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"], env: { PATH: process.env["PATH"] ?? "", ...env } });
  return new Promise((found, failed) => {
    const lines: string[] = [];
    for (const output of [child.stdout, child.stderr]) {
      createInterface({ input: output }).on("line", (line) => {
        lines.push(line);
        const match = wanted.exec(line)?.[0];
        if (match !== undefined) found([match, child]);
      });
    }
    child.once("error", (error) => failed(new Error(`${program} cannot be started: ${error.message}; \`npm run shots\` builds it`)));
    child.once("exit", () => failed(new Error(`the program ended: ${lines.join("\n")}`)));
  });
}

async function files(): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "shots-"));
  for (const [path, text] of Object.entries(FILES)) {
    await mkdir(dirname(join(dir, path)), { recursive: true });
    await writeFile(join(dir, path), text);
  }
  return dir;
}

/** Serves the project with an approval console; writes need approval. `more` are further options of `bailiwick serve`, where DIR is the directory. */
export async function project(...more: readonly string[]): Promise<Project> {
  const dir = await files();
  const token = randomBytes(32).toString("hex");
  const run = join(dir, "run");
  await mkdir(run);
  await writeFile(join(dir, "mcp.json"), JSON.stringify({ mcpServers: { notes: { command: PROGRAM, args: ["serve", join(dir, "notes")] } } }));
  const env = { BAILIWICK_TOKEN: token, XDG_RUNTIME_DIR: run, XDG_STATE_HOME: run, HOME: run };
  const options = ["--http=127.0.0.1:0", "--ask=page", "--allow-scopes=read:file", "--ask-scopes=write:file,write:mcp", "--grantable=write:mcp", `--grantable=write:file:${join(dir, "outside")}`, `--audit=${join(dir, "audit.jsonl")}`, `--journal=${join(dir, "journal")}`, ...more.map((option) => option.replaceAll("DIR", dir))];
  const [endpoint, child] = await start(["serve", ...options, "--servers", join(dir, "mcp.json"), "--pins", join(dir, "pins"), join(dir, "shop")], env, /http:\S+\/mcp/);
  // The program has written the console's address to a file, because its output is no terminal.
  const address = (await readdir(run)).find((name) => name.endsWith(".html")) ?? "";
  const console = /http:[^"]+/.exec(await readFile(join(run, address), "utf8"))?.[0] ?? "";
  const [origin, secret] = console.split("/#");
  const api = async (path: string, body?: object): Promise<unknown> => {
    const headers = { authorization: `Bearer ${secret}`, "content-type": "application/json" };
    const response = await fetch(`${origin}/api/${path}`, body ? { method: "POST", headers, body: JSON.stringify(body) } : { headers });
    if (!response.ok) throw new Error(`${path}: ${await response.text()}`);
    return response.json();
  };
  const waiting = async (count: number): Promise<void> => {
    for (;;) {
      const { version, questions } = (await api("state")) as { version: number; questions: readonly Question[] };
      if (questions.length === count) return;
      await api(`events/${version}`);
    }
  };
  const clients: Client[] = [];
  return {
    dir,
    console,
    async asked(count, call) {
      const unasked = call?.then((answer) => {
        throw new Error(`the call ended without a question: ${JSON.stringify(answer)}`);
      });
      await Promise.race([waiting(count), ...(unasked ? [unasked] : [])]);
      unasked?.catch(() => undefined);
    },
    async agent(name) {
      const client = new Client({ name, version: "1.0.0" }, { capabilities: { extensions: { "io.modelcontextprotocol/ui": { mimeTypes: ["text/html;profile=mcp-app"] } } } });
      await client.connect(new StreamableHTTPClientTransport(new URL(endpoint), { requestInit: { headers: { authorization: `Bearer ${token}` } } }));
      clients.push(client);
      return {
        call: (tool, input = {}, signal = undefined) => {
          const answer = client.callTool({ name: tool, arguments: { ...input } }, { timeout: 120_000, ...(signal && { signal }) });
          return answer.then((answer) => answer as unknown as Answer, () => undefined);
        },
        async read(uri) {
          const { contents } = await client.readResource({ uri });
          return (contents as { text?: string }[])[0]?.text;
        },
      };
    },
    async answer(answer) {
      const { questions } = (await api("state")) as { questions: readonly Question[] };
      const [first] = questions;
      if (!first) throw new Error("no call needs approval");
      const word = answer === "allow" ? { allow: { lifetime: "once" } } : { deny: {} };
      await api("answer", { question: first.tool_call.id, session: first.bailiwick.session, answer: word });
    },
    write: (path, text) => writeFile(join(dir, path), text),
    close: () => stop(child, dir),
  };
}

/** `bailiwick test-host` with the file tools on the project; resolves with the URL of its page. */
export async function testHost(): Promise<{ readonly url: string; close(): Promise<void> }> {
  const dir = await files();
  const PATH = `${dirname(PROGRAM)}:${process.env["PATH"]}`;
  const [url, child] = await start(["test-host", "bailiwick", "serve", "--ask=replay", join(dir, "shop")], { HOME: dir, PATH }, /http:\S+/);
  return { url, close: () => stop(child, dir) };
}

/** The example `ask_on_a_page` on a terminal, where the call of a sub-agent waits for an answer; resolves with the URL of its console. */
export async function subAgent(): Promise<{ readonly url: string; close(): Promise<void> }> {
  const [url, child] = await start(["-qec", join(dirname(PROGRAM), "examples/ask_on_a_page"), "/dev/null"], {}, /http:\S+/, "script");
  return { url, close: () => stop(child) };
}
