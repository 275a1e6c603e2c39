// Validates all messages between our bridge and `<mcp-view>` against the official MCP Apps schemas.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

import * as official from "@modelcontextprotocol/ext-apps";
import type { ZodType } from "zod";

import { problem } from "../lib/schema.ts";
import { pageOf } from "./bundles.ts";
import { expect, test } from "./fixtures.ts";
import { heard, hostPage, innermost } from "./hosts.ts";
import type { Heard } from "./hosts.ts";

const { $defs } = JSON.parse(
  readFileSync(createRequire(import.meta.url).resolve("@modelcontextprotocol/ext-apps/schema.json"), "utf8"),
) as { $defs: Record<string, unknown> };

/** The official request and result types of a method. */
const TYPES: Readonly<Record<string, readonly [string, string?]>> = {
  "ui/initialize": ["McpUiInitializeRequest", "McpUiInitializeResult"],
  "ui/notifications/initialized": ["McpUiInitializedNotification"],
  "ui/notifications/size-changed": ["McpUiSizeChangedNotification"],
  "ui/notifications/request-teardown": ["McpUiRequestTeardownNotification"],
  "ui/notifications/tool-input": ["McpUiToolInputNotification"],
  "ui/notifications/tool-input-partial": ["McpUiToolInputPartialNotification"],
  "ui/notifications/tool-result": ["McpUiToolResultNotification"],
  "ui/notifications/tool-cancelled": ["McpUiToolCancelledNotification"],
  "ui/notifications/host-context-changed": ["McpUiHostContextChangedNotification"],
  "ui/message": ["McpUiMessageRequest", "McpUiMessageResult"],
  "ui/open-link": ["McpUiOpenLinkRequest", "McpUiOpenLinkResult"],
  "ui/download-file": ["McpUiDownloadFileRequest", "McpUiDownloadFileResult"],
  "ui/update-model-context": ["McpUiUpdateModelContextRequest"],
  "ui/request-display-mode": ["McpUiRequestDisplayModeRequest", "McpUiRequestDisplayModeResult"],
  "ui/resource-teardown": ["McpUiResourceTeardownRequest", "McpUiResourceTeardownResult"],
};

// schema.json rejects every value of this type: both halves of an intersection forbid the other's keys.
const without = (value: unknown): unknown => JSON.parse(JSON.stringify(value, (key, one: unknown) => (key === "containerDimensions" ? undefined : one)));

function wrong(type: string, value: unknown): string[] {
  const schema = Object.entries(official).find(([name]) => name === `${type}Schema`)?.[1] as ZodType | undefined;
  const zod = schema?.safeParse(value);
  const found = [problem($defs[type], without(value), type), zod?.success === false ? `${type}: ${zod.error.message}` : undefined];
  return found.filter((one) => one !== undefined);
}

test("all messages match the official schemas", async ({ page, sites }) => {
  const app = await pageOf(`
    import { bridge } from "../bridge/index.ts";
    const b = window.b = bridge({ name: "app", version: "1.0", title: "App", capabilities: { availableDisplayModes: ["inline"] } });
    b.registerTool("bare", {}, () => ({ content: [] }));
    b.connect();`, "<p>words</p>");
  const site = await hostPage(sites, "same port", { "ui://a": app }, `
    view.resolver = (uri) => ({ uri, mimeType: "text/html;profile=mcp-app", text: pages[uri], _meta: { ui: { csp: { connectDomains: ["https://example.com"] }, permissions: { camera: {} } } } });
    view.onpagemeta = (meta) => meta;
    view.src = "ui://a";
    view.style.setProperty("--color-text-primary", "red");
    view.style.setProperty("--mcp-color-bg", "blue");
    view.data = { some: "data" };
    view.toolInput = { a: 1 };
    view.toolInputPartial = { a: 1 };
    view.toolResult = { content: [{ type: "text", text: "t" }] };
    view.onopenlink = view.ondownload = view.onmessage = () => false;
    view.onrequestdisplaymode = (mode) => mode;
    view.toolCaller = () => ({ content: [] });
    view.hostContext = { toolInfo: { id: 1, tool: { name: "edit", inputSchema: { type: "object" } } } };
    view.addEventListener("ready", () => { view.toolInputPartial = { a: 2 }; view.toolCancelled = "because"; view.hostContext = { locale: "de" }; });
  `);
  await page.goto(site.origin);
  await expect(page.locator("#view")).toHaveAttribute("data-status", "ready");
  await innermost(page).evaluate(async () => {
    const { b } = window as unknown as { b: import("../bridge/index.ts").Bridge };
    await b.sendMessage("m");
    await b.openLink("https://example.com");
    await b.downloadFile([{ type: "resource", resource: { uri: "file:///a.txt", text: "a" } }]);
    await b.updateModelContext({ content: [{ type: "text", text: "t" }], structuredContent: { a: 1 } });
    await b.requestDisplayMode("pip");
    b.requestTeardown();
    b.log("info", "l");
  });
  // The page reports its size after it is laid out.
  await expect.poll(async () => (await heard(page)).map(({ message }) => message.method)).toContain("ui/notifications/size-changed");
  await page.evaluate(() => (window as unknown as { view: { teardown(): Promise<void> } }).view.teardown());
  const all = JSON.parse(JSON.stringify(await heard(page))) as Heard[];
  const seen = new Set<string>();
  const found = all.flatMap(({ from, message }) => {
    const { id, method, params, result } = message;
    if (method !== undefined) {
      seen.add(method);
      const type = TYPES[method]?.[0];
      return type === undefined ? [] : wrong(type, params === undefined ? { method } : { method, params });
    }
    const asked = all.find((one) => one.from !== from && one.message.id === id && one.message.method !== undefined)?.message.method ?? "";
    const type = TYPES[asked]?.[1];
    return type === undefined ? [] : wrong(type, result);
  });
  expect(found).toEqual([]);
  expect([...seen]).toEqual(expect.arrayContaining(Object.keys(TYPES)));
  const hello = all.find(({ message }) => message.result?.hostInfo !== undefined)?.message.result;
  expect(hello).toMatchObject({
    hostContext: { "dev.bailiwick/variables": { "--mcp-color-bg": "blue" }, "dev.bailiwick/data": { some: "data" } },
    hostCapabilities: { sandbox: { csp: { connectDomains: ["https://example.com"] }, permissions: { camera: {} } } },
  });
});

test("detects messages that violate the official schemas", () => {
  expect(wrong("McpUiInitializeRequest", { method: "ui/initialize", params: { appInfo: { name: "a" }, appCapabilities: {} } })).not.toEqual([]);
  expect(wrong("McpUiSizeChangedNotification", { method: "ui/notifications/size-changed", params: { width: "9" } })).not.toEqual([]);
});
