// Tests of cross-origin access to the program's HTTP server from a browser.
import { spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

import type { Page } from "@playwright/test";

import { expect, test } from "../fixtures.ts";

const TOKEN = "0123456789abcdef0123456789abcdef";

interface Reply {
  readonly status: number;
  readonly session: string | null;
  readonly messages: readonly { readonly id?: unknown; readonly method?: string; readonly result?: { readonly content?: readonly { readonly text: string }[] } }[];
}

/** Starts the program over `root` on a free port. */
async function serve(root: string, ...args: string[]) {
  const child = spawn(process.env["BAILIWICK_PROGRAM"] ?? "", ["serve", "--http", "127.0.0.1:0", ...args, root], {
    stdio: ["ignore", "inherit", "pipe"],
    env: { BAILIWICK_TOKEN: TOKEN },
  });
  const ended = new Promise<void>((done) => child.once("exit", () => done()));
  const lines = createInterface({ input: child.stderr });
  const url = await new Promise<string>((started, failed) => {
    lines.on("line", (line) => {
      const at = /serving (http:\/\/\S+)/.exec(line);
      if (at?.[1] !== undefined) started(at[1]);
    });
    void ended.then(() => failed(new Error("the program ended")));
  });
  return {
    url,
    async close() {
      child.kill();
      await ended;
    },
  };
}

/** Sends one request from the page; returns the response, or the browser's error. */
async function ask(page: Page, url: string, method: string, headers: Record<string, string>, body?: unknown): Promise<Reply | string> {
  return page.evaluate(
    async ({ url, method, headers, body }) => {
      try {
        const json = { "content-type": "application/json", accept: "application/json, text/event-stream" };
        const answer = await fetch(url, { method, headers: { ...json, ...headers }, body: body === undefined ? null : JSON.stringify(body) });
        const texts = (await answer.text()).split("\n").map((line) => line.replace(/^data:/, "").trim());
        const messages = texts.filter((text) => text.startsWith("{")).map((text) => JSON.parse(text));
        return { status: answer.status, session: answer.headers.get("mcp-session-id"), messages };
      } catch (error) {
        return String(error);
      }
    },
    { url, method, headers, body },
  );
}

const bearer = { authorization: `Bearer ${TOKEN}` };
const greeting = {
  jsonrpc: "2.0",
  id: 1,
  method: "initialize",
  params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "page", version: "1" } },
};

test("only pages of an allowed origin can use the server", async ({ page, sites }) => {
  const [own, other] = [await sites(), await sites()];
  own.put("/", "<!doctype html><title>own</title>");
  other.put("/", "<!doctype html><title>other</title>");
  const root = await mkdtemp(join(tmpdir(), "bailiwick-"));
  await writeFile(join(root, "a.txt"), "one\n");
  const server = await serve(root, "--allow-origin", own.origin);
  try {
    await page.goto(`${own.origin}/`);
    const greeted = (await ask(page, server.url, "POST", bearer, greeting)) as Reply;
    expect(greeted.status).toBe(200);
    const session = { ...bearer, "mcp-session-id": greeted.session ?? "", "mcp-protocol-version": "2025-11-25" };
    const ready = (await ask(page, server.url, "POST", session, { jsonrpc: "2.0", method: "notifications/initialized" })) as Reply;
    expect(ready.status).toBe(202);
    // The notification stream reports a changed file.
    const listening = page.evaluate(
      async ({ url, headers }) => {
        const answer = await fetch(url, { headers: { accept: "text/event-stream", ...headers } });
        const reader = answer.body?.getReader();
        let text = "";
        while (reader !== undefined && !text.includes("notifications/resources/updated")) {
          const { done, value } = await reader.read();
          if (done) break;
          text += new TextDecoder().decode(value);
        }
        await reader?.cancel();
        return { status: answer.status, type: answer.headers.get("content-type"), text };
      },
      { url: server.url, headers: session },
    );
    const call = (id: number, name: string, input: unknown) => ({ jsonrpc: "2.0", id, method: "tools/call", params: { name, arguments: input } });
    const read = (await ask(page, server.url, "POST", session, call(2, "read_file", { path: `${root}/a.txt` }))) as Reply;
    expect(read.messages.find(({ id }) => id === 2)?.result?.content?.[0]?.text).toBe("one\n");
    const subscribe = { jsonrpc: "2.0", id: 3, method: "resources/subscribe", params: { uri: `file://${root}/a.txt` } };
    const subscribed = (await ask(page, server.url, "POST", session, subscribe)) as Reply;
    expect(subscribed.messages.find(({ id }) => id === 3)?.result).toBeDefined();
    await writeFile(join(root, "a.txt"), "two\n");
    const heard = await listening;
    expect(heard.status).toBe(200);
    expect(heard.type).toContain("text/event-stream");
    expect(heard.text).toContain("notifications/resources/updated");
    const deleted = (await ask(page, server.url, "DELETE", session)) as Reply;
    expect(deleted.status).toBe(204);
    const gone = (await ask(page, server.url, "POST", session, call(4, "list_roots", {}))) as Reply;
    expect(gone.status).toBe(404);
    const without = (await ask(page, server.url, "POST", {}, greeting)) as Reply;
    expect(without.status).toBe(401);

    await page.goto(`${other.origin}/`);
    expect(await ask(page, server.url, "POST", bearer, greeting)).toContain("Failed to fetch");
    // Requests without a preflight are rejected before the body is read.
    const plain = await page.evaluate(async ({ url, body }) => {
      const answer = await fetch(url, { method: "POST", mode: "no-cors", body }).catch(String);
      return typeof answer === "string" ? answer : answer.type;
    }, { url: server.url, body: JSON.stringify(greeting) });
    expect(plain).toBe("opaque");
  } finally {
    await server.close();
    await rm(root, { recursive: true });
  }
});
