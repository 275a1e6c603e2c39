// The bridge of a view, and a host of a few lines in; what each says to the other out.
import type { Page } from "@playwright/test";

import { pageOf } from "./bundles.ts";
import { expect, test } from "./fixtures.ts";
import type { Site } from "./fixtures.ts";

type Said = { method?: string; id?: number; params?: Record<string, unknown>; result?: Record<string, unknown>; error?: { code: number; message: string } };

/** A host page: `said` holds what its frame said; `answers` what it gives for a method. */
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

test("greets, and takes the look of its host", async ({ page, site }) => {
  await open(page, site, `connect({ name: "a", version: "1", title: "A" });`);
  await expect(view(page)).toHaveAttribute("data-app-status", "ready");
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

test("registers tools that the host calls", async ({ page, site }) => {
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
