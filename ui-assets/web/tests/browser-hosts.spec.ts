// Runs the file browser in the official AppBridge and in `<mcp-view>`.
import type { Page } from "@playwright/test";

import { pageOf } from "./bundles.ts";
import { built, expect, test } from "./fixtures.ts";
import { done, served } from "./files-host.ts";
import { FORMS, PROXY, hostPage, innermost } from "./hosts.ts";

const TREE = { "/repo/src/lib.rs": { text: "pub mod a;\nsecond\n" }, "/repo/README.md": { text: "# Read me\n" } };

async function answers(page: Page): Promise<void> {
  const changed_files = (): unknown => done({ changes: [{ path: "/repo/README.md", op: "modify", added: 1, removed: 0, calls: 1, review: "ui://edit_file/1" }] });
  const tools = served(TREE, { changed_files });
  await page.exposeFunction("answer", (name: string, input: Readonly<Record<string, unknown>>) => tools[name]?.(input));
}

const OFFICIAL = `
  import { AppBridge, PostMessageTransport } from "@modelcontextprotocol/ext-apps/app-bridge";
  const frame = document.querySelector("iframe");
  const bridge = new AppBridge(null, { name: "official", version: "1" }, { serverTools: {}, serverResources: {}, openLinks: {} }, { hostContext: { theme: "dark" } });
  bridge.oncalltool = ({ name, arguments: input }) => (window as any).answer(name, input ?? {});
  bridge.oninitialized = () => { document.body.dataset.ready = "yes"; };
  Object.assign(window, { bridge });
  void bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow)).then(() => { frame.src = "/browser.html"; });`;

test("works in the official AppBridge, without images as in the Inspector", async ({ page, site }) => {
  const errors: string[] = [];
  page.on("console", (message) => /Content Security Policy/.test(message.text()) && errors.push(message.text()));
  await answers(page);
  site.put("/browser.html", { body: await built("browser.html"), headers: { "content-security-policy": "img-src 'none'" } });
  site.put("/", await pageOf(OFFICIAL, '<iframe title="app" sandbox="allow-scripts" style="width:900px;height:600px"></iframe>'));
  await page.goto(site.origin);
  await expect(page.locator("body")).toHaveAttribute("data-ready", "yes");
  const frame = innermost(page);
  await frame.getByRole("treeitem", { name: "src" }).click();
  await frame.getByRole("treeitem", { name: "lib.rs" }).click();
  await expect(frame.locator("#line-1")).toContainText("pub mod a;");
  await expect(frame.locator("html")).toHaveCSS("color-scheme", "dark");
  const tools = await page.evaluate(async () => {
    const { bridge } = window as unknown as { bridge: { listTools(input: object): Promise<{ tools: { name: string }[] }>; callTool(input: object): Promise<object> } };
    return [(await bridge.listTools({})).tools.map((tool) => tool.name), await bridge.callTool({ name: "select-lines", arguments: { from: 2 } })];
  });
  expect(tools).toMatchObject([["get-current-view", "open-path", "select-lines", "search-text", "get-visible-nodes"], { structuredContent: { path: "/repo/src/lib.rs", from: 2, to: 2 } }]);
  await expect(frame.getByText("line 2 selected")).toBeVisible();
  await expect(frame.locator(".icon.file").first()).toHaveCSS("clip-path", /^path\(/);
  expect(errors).toEqual([]);
});

const react = (sandbox: string, html: string): string => `
  import { AppRenderer } from "@mcp-ui/client";
  import { createElement } from "react";
  import { createRoot } from "react-dom/client";
  createRoot(document.querySelector("main")).render(createElement(AppRenderer, {
    toolName: "list_roots",
    html: ${JSON.stringify(html)},
    sandbox: { url: new URL(${JSON.stringify(sandbox)}) },
    hostContext: { theme: "dark" },
    toolInput: {},
    toolResult: { content: [] },
    onCallTool: ({ name, arguments: input }) => (window as any).answer(name, input ?? {}),
    onError: (error) => { document.body.dataset.error = String(error); },
  }));`;

test("works in the React component of mcp-ui", async ({ page, sites }) => {
  await answers(page);
  const [site, other] = [await sites(), await sites()];
  other.put("/sandbox.html", PROXY);
  site.put("/", await pageOf(react(`${other.origin}/sandbox.html`, await built("browser.html")), '<main style="width:900px;height:600px"></main>'));
  await page.goto(site.origin);
  await expect.poll(() => page.frames().length).toBe(3);
  const frame = innermost(page);
  await frame.getByRole("treeitem", { name: "src" }).click();
  await frame.getByRole("treeitem", { name: "lib.rs" }).click();
  await expect(frame.locator("#line-1")).toContainText("pub mod a;");
  await expect(frame.locator("html")).toHaveCSS("color-scheme", "dark");
  expect(await page.locator("body").getAttribute("data-error")).toBeNull();
});

for (const form of FORMS) {
  test(`works in mcp-view: ${form}`, async ({ page, sites }) => {
    await answers(page);
    const site = await hostPage(sites, form, { "ui://bailiwick/files": await built("browser.html") }, `
      view.style.height = "600px";
      view.src = "ui://bailiwick/files";
      view.tools = ["list_roots", "list_directory", "read_file", "stat", "authority", "changed_files"].map((name) => ({ name, inputSchema: { type: "object" } }));
      view.toolCaller = ({ name, arguments: input }) => window.answer(name, input ?? {});
      view.hostContext = { "dev.bailiwick/open-resource": true };
      view.onnotification = (method, params) => { document.body.dataset.told = method + " " + params.uri; };
    `);
    await page.goto(site.origin);
    await expect(page.locator("#view")).toHaveAttribute("data-status", "ready");
    const frame = innermost(page);
    await frame.getByRole("treeitem", { name: "README.md" }).click();
    await expect(frame.locator("#line-1")).toContainText("# Read me");
    await frame.getByRole("button", { name: "Review" }).click();
    await expect(page.locator("body")).toHaveAttribute("data-told", "dev.bailiwick/notifications/open-resource ui://edit_file/1");
    const shown = await page.evaluate(() => (window as unknown as { view: { sendCallTool(call: object): Promise<object> } }).view.sendCallTool({ name: "get-current-view", arguments: {} }));
    expect(shown).toMatchObject({ structuredContent: { root: "/repo", file: { path: "/repo/README.md", kind: "text" } } });
  });
}
