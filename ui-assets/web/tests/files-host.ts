// An MCP Apps host for tests that shows the file browser and answers its tool calls.
import type { Frame, Page } from "@playwright/test";

import { type Site, built, expect } from "./fixtures.ts";

type Fields = Readonly<Record<string, unknown>>;
type Answers = Readonly<Record<string, (input: Fields) => unknown>>;

/** Options of the host. */
export interface Given {
  readonly tools: Answers;
  /** Answers calls that are not in `tools`. */
  readonly other?: (name: string, input: Fields) => unknown;
  readonly resources?: (uri: string) => string | undefined | Promise<string | undefined>;
  /** The page's HTML; defaults to the built file browser. */
  readonly html?: string;
  readonly capabilities?: Fields;
  readonly context?: Fields;
}

/** A host with the page in its frame. */
export interface Host {
  readonly frame: Frame;
  /** All tool calls in order. */
  readonly calls: { readonly name: string; readonly input: Fields }[];
  /** Messages of the page that are not tool calls. */
  readonly sent: Fields[];
  ask(method: string, params?: Fields): Promise<Fields>;
  call(name: string, input?: Fields): Promise<Fields>;
  tell(method: string, params: Fields): Promise<void>;
}

const HOST = `<!doctype html><meta charset="utf-8"><title>host</title>
<style>body{margin:0;color-scheme:light dark}iframe{display:block;width:100vw;height:100vh;border:0}</style>
<iframe title="app" sandbox="allow-scripts" src="/browser.html"></iframe>
<script>
const frame = document.querySelector("iframe");
const waiting = new Map();
addEventListener("message", async ({ source, data }) => {
  if (source !== frame.contentWindow) return;
  if (data.method === undefined) return waiting.get(data.id)?.(data);
  const answer = await fetch("/heard", { method: "POST", body: JSON.stringify(data) });
  const reply = await answer.json();
  if (data.id !== undefined) frame.contentWindow.postMessage({ jsonrpc: "2.0", id: data.id, ...reply }, "*");
});
let next = 0;
window.ask = (method, params) => new Promise((done) => {
  const id = "host-" + ++next;
  waiting.set(id, done);
  frame.contentWindow.postMessage({ jsonrpc: "2.0", id, method, params }, "*");
});
window.tell = (method, params) => frame.contentWindow.postMessage({ jsonrpc: "2.0", method, params }, "*");
</script>`;

/** A successful tool result. */
export const done = (structuredContent: Fields, ...content: Fields[]): Fields => ({ content, structuredContent });
/** A failed tool result. */
export const refused = (code: string, message: string, more: Fields = {}): Fields => ({
  isError: true,
  content: [{ type: "text", text: message }],
  structuredContent: { code, message },
  ...more,
});

interface HostWindow {
  ask(method: string, params: Fields): Promise<{ result?: Fields; error?: Fields }>;
  tell(method: string, params: Fields): void;
}

/** Serves the host, whose page can be opened in any browser. */
export async function serve(site: Site, given: Given): Promise<Pick<Host, "calls" | "sent">> {
  const calls: { name: string; input: Fields }[] = [];
  const sent: Fields[] = [];
  async function heard(message: Fields): Promise<Fields> {
    const params = (message["params"] ?? {}) as Fields;
    if (message["method"] === "ui/initialize") {
      const hostCapabilities = { serverTools: {}, serverResources: {}, openLinks: {}, ...given.capabilities };
      const hostInfo = { name: "test", version: "1" };
      return { result: { protocolVersion: "2026-01-26", hostInfo, hostCapabilities, hostContext: given.context ?? {} } };
    }
    if (message["method"] === "tools/call") {
      const [name, input] = [String(params["name"]), (params["arguments"] ?? {}) as Fields];
      calls.push({ name, input });
      const tool = given.tools[name] ?? (given.other && ((input: Fields) => given.other?.(name, input)));
      if (tool === undefined) return { error: { code: -32602, message: `there is no tool \`${name}\`` } };
      return { result: await tool(input) };
    }
    if (message["method"] === "resources/read") {
      const text = await given.resources?.(String(params["uri"]));
      return text === undefined ? { error: { code: -32002, message: "there is no such resource" } } : { result: { contents: [{ uri: params["uri"], text }] } };
    }
    sent.push(message);
    return { result: {} };
  }
  site.put("/", HOST);
  site.put("/browser.html", given.html ?? (await built("browser.html")));
  site.answer("/heard", heard);
  return { calls, sent };
}

export async function host(page: Page, site: Site, given: Given): Promise<Host> {
  const seen = await serve(site, given);
  await page.goto(site.origin);
  await expect.poll(() => page.frames().length).toBe(2);
  const frame = page.frames()[1] as Frame;
  await expect(frame.locator("html")).toHaveAttribute("data-app-status", "ready");
  const ask = async (method: string, params: Fields = {}): Promise<Fields> => {
    const reply = await page.evaluate(([method, params]) => (window as unknown as HostWindow).ask(method, params), [method, params] as const);
    if (reply.result === undefined) throw new Error(JSON.stringify(reply.error));
    return reply.result;
  };
  return {
    ...seen,
    frame,
    ask,
    call: (name, input = {}) => ask("tools/call", { name, arguments: input }),
    tell: (method, params) => page.evaluate(([method, params]) => (window as unknown as HostWindow).tell(method, params), [method, params] as const),
  };
}

export interface Told {
  readonly text?: string;
  readonly bytes?: number;
  readonly answer?: Fields;
  readonly folder?: boolean;
  readonly link?: boolean;
  readonly raw?: string;
  readonly read?: string;
  readonly write?: string;
}

/** File tools over an in-memory tree: maps paths below `/repo` to their content; folders are derived from the paths. */
export function served(tree: Readonly<Record<string, Told>>, more: Answers = {}): Answers {
  const paths = Object.keys(tree);
  const kind = (path: string): string => {
    if (tree[path]?.link) return "link";
    return tree[path]?.folder || paths.some((other) => other.startsWith(`${path}/`)) ? "directory" : "file";
  };
  const list = ({ path, limit = 500, cursor = "0" }: Fields): Fields => {
    const base = `${String(path)}/`;
    const names = [...new Set(paths.filter((one) => one.startsWith(base)).map((one) => one.slice(base.length).split("/")[0] ?? ""))].sort();
    if (names.length === 0 && !tree[String(path)]?.folder) return refused("NOT_FOUND", `there is no \`${String(path)}\` here, or it is not yours`);
    const from = Number(cursor);
    const entries = names.slice(from, from + Number(limit)).map((name) => {
      const told = tree[base + name];
      const what = kind(base + name);
      const bytes = what === "file" ? (told?.bytes ?? told?.text?.length ?? 0) : undefined;
      return { name, kind: what, ...(bytes === undefined ? {} : { bytes }), ...(told?.raw === undefined ? {} : { raw: told.raw }) };
    });
    const next = from + entries.length;
    return done({ path, entries, total: names.length, ...(next < names.length ? { next_cursor: String(next) } : {}) });
  };
  const read = ({ path, offset = 1, limit, known_hash, binary }: Fields): Fields => {
    const told = tree[String(path)];
    if (told?.answer !== undefined && binary !== true) return told.answer;
    if (told?.text === undefined) return refused("NOT_FOUND", `there is no \`${String(path)}\` here, or it is not yours`);
    const { text } = told;
    const hash = `sha256:${text.length}`;
    const lines = text.split("\n");
    if (lines.at(-1) === "") lines.pop();
    const bytes = told.bytes ?? text.length;
    if (known_hash === hash) return done({ files: [{ path, bytes, unchanged: true, hash }] }, { type: "text", text: "[unchanged]" });
    const from = Number(offset);
    const some = lines.slice(from - 1, limit === undefined ? undefined : from - 1 + Number(limit));
    const last = from + some.length - 1;
    const file = { path, bytes, lines: lines.length, first_line: from, last_line: last, hash, ...(last < lines.length ? { next_offset: last + 1 } : {}) };
    return done({ files: [file] }, { type: "text", text: some.map((line) => `${line}\n`).join("") });
  };
  return {
    list_roots: () => done({ roots: ["/repo"], default_root: "/repo" }),
    list_directory: list,
    read_file: read,
    stat: ({ path }) =>
      tree[String(path)] === undefined && kind(String(path)) === "file"
        ? refused("NOT_FOUND", "nothing is there")
        : done({ path, kind: kind(String(path)), bytes: tree[String(path)]?.bytes ?? 0, modified: "2026-11-22T08:30:00Z", mode: "0644", hard_links: 1 }),
    authority: ({ paths: asked, worker = "main" }) =>
      done({
        worker,
        workers: ["main"],
        paths: (asked as string[]).map((path) => ({ path, read: tree[path]?.read ?? "allow", write: tree[path]?.write ?? "allow" })),
      }),
    ...more,
  };
}

type Tree = Readonly<Record<string, Told>>;

/** A small tree with every combination of rights. */
export const TREE: Tree = {
  "/repo/src/lib.rs": { text: "pub mod a;\n" },
  "/repo/src/deep/inner.rs": { text: "fn inner() {}\n" },
  "/repo/docs": { folder: true },
  "/repo/frozen.toml": { text: "a = 1\n", write: "deny" },
  "/repo/guarded.toml": { text: "b = 2\n", write: "ask" },
  "/repo/secret.key": { text: "k", read: "deny", write: "deny" },
  "/repo/asked": { folder: true, read: "ask", write: "ask" },
  "/repo/README.md": { text: "# Read me\nsecond\nthird\n" },
};

export const given = (tree: Tree = TREE, more: Answers = {}): Given => ({ tools: served(tree, more) });
/** The visible names of the tree, from top to bottom. */
export const names = (page: Page): Promise<string[]> => page.frames()[1]?.locator(".row .name").allTextContents() ?? Promise.resolve([]);
export const lines = (count: number): string => Array.from({ length: count }, (_, n) => `line ${n + 1}\n`).join("");
