// Tests of the app-side bridge against a minimal host.
import type { Page } from "@playwright/test";

import { pageOf } from "./bundles.ts";
import { expect, test } from "./fixtures.ts";
import type { Site } from "./fixtures.ts";

type Said = { method?: string; id?: number; params?: Record<string, unknown>; result?: Record<string, unknown>; error?: { code: number; message: string } };

/** A host page: `said` collects the messages of its frame; `answers` maps methods to results. */
const HOST = `<!doctype html><title>host</title><body><script>
  window.said = [];
  window.answers = { "ui/initialize": { protocolVersion: "2026-01-26", hostInfo: { name: "h", version: "1" }, hostCapabilities: {}, hostContext: { theme: "dark", locale: "en-GB", styles: { variables: { "--color-text-primary": "rgb(1, 2, 3)", color: "red" } } } } };
  addEventListener("message", ({ source, data }) => {
    said.push(data);
    const answer = answers[data.method];
    if (data.id !== undefined && data.method && answer !== undefined) source.postMessage({ jsonrpc: "2.0", id: data.id, ...(answer.code ? { error: answer } : { result: answer }) }, "*");
  });
  window.tell = (message) => document.querySelector("iframe").contentWindow.postMessage({ jsonrpc: "2.0", ...message }, "*");
  window.ask = (id, method, params) => { tell({ id, method, params }); };
</script><iframe sandbox="allow-scripts" src="/view"></iframe></body>`;

async function open(page: Page, site: Site, script: string): Promise<void> {
  site.put("/view", await pageOf(`import { bridge, connect } from "../bridge/index.ts"; import { z } from "zod"; void z;\n${script}`));
  site.put("/", HOST);
  await page.goto(site.origin);
}
const said = (page: Page): Promise<Said[]> => page.evaluate(() => (window as unknown as { said: Said[] }).said);
const tell = (page: Page, message: object): Promise<void> =>
  page.evaluate((one) => (window as unknown as { tell(one: object): void }).tell(one), message);
let last = 100;
async function ask(page: Page, method: string, params: object = {}): Promise<Said> {
  const id = ++last;
  await tell(page, { id, method, params });
  await expect.poll(async () => (await said(page)).some((one) => one.id === id)).toBe(true);
  return (await said(page)).find((one) => one.id === id) ?? {};
}
const view = (page: Page) => page.frameLocator("iframe").locator("html");

test("connects and applies the host's theme", async ({ page, site }) => {
  await open(page, site, `connect({ name: "a", version: "1", title: "A" });`);
  await expect(view(page)).toHaveAttribute("data-app-status", "ready");
  await expect.poll(async () => (await said(page)).length).toBeGreaterThanOrEqual(2);
  const [hello, ready] = await said(page);
  expect(hello).toMatchObject({
    method: "ui/initialize",
    params: { protocolVersion: "2026-01-26", appInfo: { name: "a", version: "1", title: "A" }, appCapabilities: {} },
  });
  expect(ready).toEqual({ jsonrpc: "2.0", method: "ui/notifications/initialized", params: {} });
  await expect(view(page)).toHaveCSS("color-scheme", "dark");
  await expect(view(page)).toHaveCSS("--color-text-primary", "rgb(1, 2, 3)");
  await expect(view(page)).not.toHaveCSS("color", "rgb(255, 0, 0)");
  await expect(view(page)).toHaveAttribute("lang", "en-GB");
  await tell(page, { method: "ui/notifications/host-context-changed", params: { theme: "light" } });
  await expect(view(page)).toHaveCSS("color-scheme", "light");
});

test("the host can call registered tools", async ({ page, site }) => {
  await open(page, site, `
    const b = bridge({ name: "a", version: "1" });
    b.registerTool("plain", {}, (extra) => ({ structuredContent: { has: "signal" in extra } }));
    b.registerTool("zod", { inputSchema: z.object({ n: z.number().default(3) }) }, ({ n }) => ({ content: [{ type: "text", text: String(n) }] }));
    b.connect();`);
  await expect(view(page)).toHaveAttribute("data-app-status", "ready");
  expect((await said(page))[0]?.params?.appCapabilities).toEqual({ tools: { listChanged: true } });
  const list = await ask(page, "tools/list");
  expect(list.result?.tools).toMatchObject([{ name: "plain", inputSchema: { type: "object" } }, { name: "zod", inputSchema: { type: "object", properties: { n: { type: "number" } } } }]);
  expect((await ask(page, "tools/call", { name: "plain" })).result).toMatchObject({ structuredContent: { has: true }, content: [{ type: "text" }] });
  expect((await ask(page, "tools/call", { name: "zod", arguments: {} })).result).toMatchObject({ content: [{ text: "3" }] });
  expect((await ask(page, "tools/call", { name: "zod", arguments: { n: "x" } })).error?.code).toBe(-32602);
});

/** Runs the script `before` in the page and then connects. */
async function ready(page: Page, site: Site, before: string): Promise<void> {
  await open(page, site, `const b = window.b = bridge({ name: "a", version: "1" }); ${before}; b.connect();`);
  await expect(view(page)).toHaveAttribute("data-app-status", "ready");
}
const inside = (page: Page, script: string): Promise<unknown> => view(page).evaluate((_, text) => (0, eval)(text), script);
const names = async (page: Page): Promise<unknown> => ((await ask(page, "tools/list")).result?.tools as { name: string }[]).map((tool) => tool.name);
const changes = async (page: Page): Promise<number> => (await said(page)).filter((one) => one.method === "notifications/tools/list_changed").length;

test("a tool is listed with exactly the given fields", async ({ page, site }) => {
  await ready(page, site, `b.registerTool("bare", {}, () => ({ content: [] }));
    b.registerTool("full", { title: "T", description: "D", inputSchema: { type: "object" }, outputSchema: { type: "object" }, annotations: { readOnlyHint: true }, _meta: { x: 1 } }, () => ({ structuredContent: {} }));`);
  expect((await ask(page, "tools/list")).result).toEqual({
    tools: [
      { name: "bare", inputSchema: { type: "object" } },
      { name: "full", title: "T", description: "D", inputSchema: { type: "object" }, outputSchema: { type: "object" }, annotations: { readOnlyHint: true }, _meta: { x: 1 } },
    ],
  });
});

test("rejects a duplicate tool name", async ({ page, site }) => {
  await ready(page, site, 'b.registerTool("a", {}, () => ({}));');
  expect(await inside(page, 'try { b.registerTool("a", {}, () => ({})) } catch (e) { e.message }')).toContain("already registered");
  await inside(page, 'b.registerTool("other", {}, () => ({ content: [] })); 0');
  expect(await names(page)).toEqual(["a", "other"]);
});

test("disable, enable, update and remove take effect and notify the host", async ({ page, site }) => {
  await ready(page, site, `window.t = b.registerTool("t", { inputSchema: { type: "object", properties: { n: { type: "number" } } } }, (input) => ({ structuredContent: input }));`);
  expect(await changes(page)).toBe(0);
  await inside(page, "t.disable()");
  expect(await names(page)).toEqual([]);
  expect((await ask(page, "tools/call", { name: "t" })).error?.message).toContain("disabled");
  await inside(page, "t.enable()");
  expect((await ask(page, "tools/call", { name: "t", arguments: { n: 1 } })).result?.structuredContent).toEqual({ n: 1 });
  await inside(page, 't.update({ description: "new", inputSchema: { type: "object", properties: { n: { type: "string" } } } })');
  expect((await ask(page, "tools/list")).result?.tools).toMatchObject([{ name: "t", description: "new" }]);
  expect((await ask(page, "tools/call", { name: "t", arguments: { n: 1 } })).error?.message).toContain("wrong input");
  expect((await ask(page, "tools/call", { name: "t", arguments: { n: "1" } })).result?.structuredContent).toEqual({ n: "1" });
  await inside(page, "t.remove()");
  expect(await names(page)).toEqual([]);
  expect((await ask(page, "tools/call", { name: "t" })).error?.message).toContain("not registered");
  expect(await changes(page)).toBe(4);
  await inside(page, "t.remove(); t.enable()");
  await ask(page, "ping");
  expect(await changes(page)).toBe(4);
});

test("a stale tool handle does not affect a newer tool of the same name", async ({ page, site }) => {
  await ready(page, site, `const old = b.registerTool("t", {}, () => ({})); window.old = old; old.remove(); b.registerTool("t", {}, () => ({ content: [{ type: "text", text: "new" }] }));`);
  await inside(page, "old.remove(); old.disable()");
  expect((await ask(page, "tools/call", { name: "t" })).result?.content).toEqual([{ type: "text", text: "new" }]);
});

test("whether a tool takes input is fixed at registration", async ({ page, site }) => {
  await ready(page, site, `
    b.registerTool("none", {}, (...given) => ({ structuredContent: { count: given.length, extra: "signal" in given[0] } }));
    b.registerTool("some", { inputSchema: { type: "object" } }, (...given) => ({ structuredContent: { count: given.length, input: given[0] } }));`);
  expect((await ask(page, "tools/call", { name: "none", arguments: { a: 1 } })).result?.structuredContent).toEqual({ count: 1, extra: true });
  expect((await ask(page, "tools/call", { name: "some" })).result?.structuredContent).toEqual({ count: 2, input: {} });
});

test("an output schema requires valid structured content, except for errors", async ({ page, site }) => {
  await ready(page, site, `
    const outputSchema = { type: "object", properties: { n: { type: "number" } }, required: ["n"] };
    b.registerTool("good", { outputSchema }, () => ({ structuredContent: { n: 1 } }));
    b.registerTool("wrong", { outputSchema }, () => ({ structuredContent: { n: "1" } }));
    b.registerTool("none", { outputSchema }, () => ({ content: [] }));
    b.registerTool("error", { outputSchema }, () => ({ content: [], isError: true }));`);
  expect((await ask(page, "tools/call", { name: "good" })).result).toEqual({ structuredContent: { n: 1 }, content: [{ type: "text", text: '{"n":1}' }] });
  expect((await ask(page, "tools/call", { name: "wrong" })).error).toMatchObject({ code: -32603, message: expect.stringContaining("value.n") });
  expect((await ask(page, "tools/call", { name: "none" })).error?.code).toBe(-32603);
  expect((await ask(page, "tools/call", { name: "error" })).result).toEqual({ content: [], isError: true });
});

test("an unsupported schema is rejected with a hint", async ({ page, site }) => {
  await ready(page, site, 'b.registerTool("a", {}, () => ({}));');
  const refused = (schema: string): Promise<unknown> =>
    inside(page, `try { b.registerTool("x", { inputSchema: ${schema} }, () => ({})); "registered" } catch (e) { e.message }`);
  for (const schema of ["{ n: 1 }", "class { }", "new (class Zod3 { parse() {} })()", '{ type: "string" }', '{ "~standard": { version: 1, vendor: "v", validate: (value) => ({ value }) } }']) {
    expect(await refused(schema)).toContain('JSON Schema with type "object"');
  }
  expect(await refused('{ type: "object", properties: { a: { $ref: "#/x" } } }')).toContain("`$ref`");
  expect(await refused('{ type: "object", properties: { a: { type: "string" } } }')).toBe("registered");
});

test("tools cannot be registered after connect without the capability", async ({ page, site }) => {
  await ready(page, site, "");
  expect((await said(page))[0]?.params?.appCapabilities).toEqual({});
  expect(await inside(page, 'try { b.registerTool("x", {}, () => ({})) } catch (e) { e.message }')).toContain("before");
  expect((await ask(page, "tools/list")).error?.code).toBe(-32601);
});

test("without listChanged, tool changes are not announced", async ({ page, site }) => {
  await open(page, site, 'const b = window.b = bridge({ name: "a", version: "1", capabilities: { tools: {} } }); b.connect();');
  await expect(view(page)).toHaveAttribute("data-app-status", "ready");
  await inside(page, 'b.registerTool("x", {}, () => ({ content: [] })); b.sendToolListChanged(); 0');
  expect(await names(page)).toEqual(["x"]);
  expect(await changes(page)).toBe(0);
});

test("custom handlers replace registered tools", async ({ page, site }) => {
  await open(page, site, `const b = window.b = bridge({ name: "a", version: "1", capabilities: { tools: { listChanged: true } } });
    b.onListTools(() => ({ tools: [{ name: "own", inputSchema: { type: "object" } }] })); b.onCallTool(({ name }) => ({ content: [{ type: "text", text: name }] })); b.connect();`);
  await expect(view(page)).toHaveAttribute("data-app-status", "ready");
  expect(await names(page)).toEqual(["own"]);
  expect((await ask(page, "tools/call", { name: "own" })).result?.content).toEqual([{ type: "text", text: "own" }]);
  await inside(page, "b.sendToolListChanged()");
  await ask(page, "ping");
  expect(await changes(page)).toBe(1);
});

test("a result is delivered to a callback that is added later", async ({ page, site }) => {
  await ready(page, site, "");
  await tell(page, { method: "ui/notifications/tool-input", params: { arguments: { a: 1 } } });
  await tell(page, { method: "ui/notifications/tool-result", params: { content: [], structuredContent: { b: 2 } } });
  await ask(page, "ping");
  expect(await inside(page, "new Promise((r) => b.onToolResult((result) => b.onToolInput((input) => r([input, result.structuredContent]))))")).toEqual([{ a: 1 }, { b: 2 }]);
});

test("the host waits for teardown callbacks", async ({ page, site }) => {
  await ready(page, site, "b.onTeardown(() => new Promise((r) => window.away = r));");
  await tell(page, { id: 7, method: "ui/resource-teardown", params: {} });
  await ask(page, "ping");
  expect((await said(page)).some((one) => one.id === 7)).toBe(false);
  await inside(page, "away(); 0");
  await expect.poll(async () => (await said(page)).some((one) => one.id === 7)).toBe(true);
});

test("a request without an answer times out and is cancelled", async ({ page, site }) => {
  await ready(page, site, "");
  expect(await inside(page, 'b.callTool("x", {}, { timeout: 20 }).catch((e) => e.message)')).toContain("no answer to `tools/call` within 0.02 s");
  await expect.poll(async () => (await said(page)).at(-1)?.method).toBe("notifications/cancelled");
  expect(await inside(page, '(() => { const c = b.callTool("x").catch((e) => e.message); b.close(); return c })()')).toContain("closed");
  expect(await inside(page, 'b.callTool("x").catch((e) => e.message)')).toContain("closed");
});

test("connect fails outside of a frame", async ({ page, site }) => {
  site.put("/", await pageOf('import { connect } from "../bridge/plain.ts"; connect({ name: "a", version: "1" }).catch((e) => document.title = e.message);'));
  await page.goto(site.origin);
  await expect(page).toHaveTitle(/in no frame/);
  await expect(page.locator("html")).toHaveAttribute("data-app-status", "failed");
});

test("ignores messages from windows other than the host", async ({ page, site }) => {
  await ready(page, site, "");
  await inside(page, 'postMessage({ jsonrpc: "2.0", method: "ui/notifications/host-context-changed", params: { theme: "light" } }, "*")');
  await ask(page, "ping");
  await expect(view(page)).toHaveCSS("color-scheme", "dark");
});

test("accepts a proxy as parent window, as in VS Code", async ({ page, site }) => {
  const standIn = `const real = window.parent; const stand = new Proxy({}, { get: (_, name) => name === "postMessage" ? (...all) => real.postMessage(...all) : undefined });
    Object.defineProperty(window, "parent", { value: stand });
    addEventListener("message", (event) => { if (event.source !== real) return; event.stopImmediatePropagation(); const copy = new MessageEvent("message", { data: event.data }); Object.defineProperty(copy, "source", { value: stand }); dispatchEvent(copy); });`;
  await open(page, site, `${standIn} connect({ name: "a", version: "1" });`);
  await expect(view(page)).toHaveAttribute("data-app-status", "ready");
});
