// Tests of how `<mcp-view>` handles a page's requests.
import { expect, test } from "./fixtures.ts";
import { FORMS, heard, hostPage, innermost } from "./hosts.ts";
import { GREETED, RAW, ask, open, tried } from "./raw.ts";

test("a request without its hook fails and names the hook", async ({ page, sites }) => {
  await open(page, sites, "queueMicrotask(() => {}); view.addEventListener('ready', () => { view.resolver = undefined; });");
  for (const [method, name] of [["tools/call", "toolCaller"], ["resources/read", "resolver"], ["resources/list", "resourceLister"], ["ui/message", "onmessage"], ["ui/download-file", "ondownload"]] as const) {
    expect((await ask(page, method, { name: "x", uri: "ui://x" })).error).toEqual({ code: -32601, message: `this host has no \`${name}\``, data: undefined });
  }
  expect((await ask(page, "ui/open-link", { url: "https://example.com" })).error?.message).toContain("onopenlink");
  expect((await ask(page, "sampling/createMessage")).error?.code).toBe(-32601);
  expect((await ask(page, "constructor")).error?.code).toBe(-32601);
  expect((await ask(page, "ping")).result).toEqual({});
});

test("only server tools visible to apps can be called", async ({ page, sites }) => {
  await open(page, sites, `
    view.tools = [{ name: "any" }, { name: "both", _meta: { ui: { visibility: ["model", "app"] } } }, { name: "app", _meta: { ui: { visibility: ["app"] } } }, { name: "model", _meta: { ui: { visibility: ["model"] } } }, { name: "none", _meta: { ui: { visibility: [] } } }];
    window.calls = []; view.toolCaller = ({ name }) => { calls.push(name); return { content: [] }; };`);
  for (const name of ["any", "both", "app"]) expect((await ask(page, "tools/call", { name })).result).toEqual({ content: [] });
  for (const name of ["model", "none", "of another server", "toString"]) expect((await ask(page, "tools/call", { name })).error?.code).toBe(-32602);
  expect(await page.evaluate(() => (window as unknown as { calls: string[] }).calls)).toEqual(["any", "both", "app"]);
});

test("links need consent and must be http or https", async ({ page, sites }) => {
  await open(page, sites, "window.opened = []; window.open = (...all) => opened.push(String(all[0])); view.onopenlink = (url) => url.pathname === '/yes';");
  expect((await ask(page, "ui/open-link", { url: "https://example.com/yes" })).result).toEqual({});
  expect((await ask(page, "ui/open-link", { url: "https://example.com/no" })).result).toEqual({ isError: true });
  for (const url of ["javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "blob:https://example.com/yes", "no address", "vscode://x/yes"]) {
    expect((await ask(page, "ui/open-link", { url })).error?.message).toBeTruthy();
  }
  expect(await page.evaluate(() => (window as unknown as { opened: string[] }).opened)).toEqual(["https://example.com/yes"]);
});

test("an update replaces the previous model context", async ({ page, sites }) => {
  await open(page, sites, "");
  await ask(page, "ui/update-model-context", { content: [{ type: "text", text: "one" }], structuredContent: { a: 1 } });
  await ask(page, "ui/update-model-context", { content: [{ type: "text", text: "two" }] });
  expect(await page.evaluate(() => window.view.modelContext)).toEqual({ content: [{ type: "text", text: "two" }], structuredContent: undefined });
});

test("downloads and messages need consent", async ({ page, sites }) => {
  await open(page, sites, "window.asked = []; view.ondownload = (all) => asked.push(all) === 1; view.onmessage = (all) => asked.push(all) === 3;");
  const contents = [{ type: "resource", resource: { uri: "file:///a.csv", mimeType: "text/csv", text: "a,b" } }];
  const content = [{ type: "text", text: "hello" }];
  expect((await ask(page, "ui/download-file", { contents })).result).toEqual({});
  expect((await ask(page, "ui/download-file", { contents: "none" })).result).toEqual({ isError: true });
  expect((await ask(page, "ui/message", { role: "user", content })).result).toEqual({});
  expect((await ask(page, "ui/message", { role: "user", content })).result).toEqual({ isError: true });
  expect(await page.evaluate(() => (window as unknown as { asked: unknown[] }).asked)).toEqual([contents, [], content, content]);
});

test("other notifications reach the host, and tool changes reach the page", async ({ page, sites }) => {
  await open(page, sites, "view.onnotification = (method, params) => document.title = method + params.n; view.toolCaller = () => ({ content: [] });");
  await innermost(page).evaluate(() => window.tell("dev.example/notifications/x", { n: 1 }));
  await expect(page).toHaveTitle("dev.example/notifications/x1");
  await page.evaluate(() => Object.assign(window.view, { tools: [{ name: "new" }] }));
  await expect.poll(async () => (await heard(page)).some(({ from, message }) => from === "host" && message.method === "notifications/tools/list_changed")).toBe(true);
  expect((await ask(page, "tools/call", { name: "new" })).result).toEqual({ content: [] });
});

test("an unsupported display mode keeps the current one", async ({ page, sites }) => {
  await open(page, sites, "view.hostContext = { availableDisplayModes: ['inline', 'pip'] }; view.onrequestdisplaymode = (mode) => mode;");
  expect((await ask(page, "ui/request-display-mode", { mode: "fullscreen" })).result).toEqual({ mode: "inline" });
  expect((await ask(page, "ui/request-display-mode", { mode: "pip" })).result).toEqual({ mode: "pip" });
});

test("sends nothing to a page before it is ready", async ({ page, sites }) => {
  await open(page, sites, "view.toolInput = { a: 1 }; view.data = 1; view.tools = [{ name: 'x' }]; view.toolCaller = () => ({ content: [] });", RAW.replace("GREET", ""), "shown");
  expect((await ask(page, "tools/call", { name: "x" })).error?.message).toContain("before `ui/initialize`");
  expect(await tried(page, (view) => view.sendCallTool({ name: "t" }))).toContain("the view is shown");
  await ask(page, "ui/initialize", { appInfo: { name: "r", version: "1" }, appCapabilities: { tools: {} } });
  await page.evaluate(() => Object.assign(window.view, { toolResult: { content: [] }, data: 2, hostContext: { locale: "fr" } }));
  expect(await tried(page, (view) => view.sendListTools())).toContain("the view is greeted");
  await ask(page, "ping");
  expect((await heard(page)).filter(({ from, message }) => from === "host" && message.method !== undefined)).toEqual([]);
  await innermost(page).evaluate(() => window.tell("ui/notifications/initialized"));
  await expect
    .poll(async () => (await heard(page)).filter(({ from, message }) => from === "host" && message.method !== undefined).map(({ message }) => message.method))
    .toEqual(["ui/notifications/tool-input", "ui/notifications/tool-result", "ui/notifications/host-context-changed"]);
});

for (const form of FORMS) {
  test(`ignores forged messages: ${form}`, async ({ page, sites }) => {
    const site = await hostPage(sites, form, { "ui://a": GREETED }, "view.src = 'ui://a'; window.other = []; addEventListener('message', (e) => other.push(e.data));");
    await page.goto(site.origin);
    await expect(page.locator("#view")).toHaveAttribute("data-status", "ready");
    await innermost(page).evaluate(() => {
      const forged = (method: string) => ({ jsonrpc: "2.0", method, params: { level: "info", data: method, html: "<p>forged" } });
      for (const target of [window.top, window.parent, window]) {
        target?.postMessage(forged("ui/notifications/sandbox-resource-ready"), "*");
        target?.postMessage(forged("ui/notifications/sandbox-proxy-ready"), "*");
      }
      window.top?.postMessage(forged("notifications/message"), "*");
      window.tell("notifications/message", { level: "info", data: "last" });
    });
    await page.evaluate(() => postMessage({ jsonrpc: "2.0", method: "notifications/message", params: { data: "of the host's own window" } }, "*"));
    await expect.poll(async () => (await heard(page)).some(({ message }) => message.params?.data === "last")).toBe(true);
    const fromApp = (await heard(page)).filter(({ from }) => from === "app").map(({ message }) => message.params?.data ?? message.method);
    expect(fromApp.filter((one) => one !== "ui/notifications/sandbox-resource-ready" && one !== "ui/notifications/sandbox-proxy-ready")).toEqual(["ui/initialize", "ui/notifications/initialized", "last"]);
    expect(page.frames()).toHaveLength(3);
    expect(await innermost(page).evaluate(() => document.body.textContent)).not.toContain("forged");
  });
}
