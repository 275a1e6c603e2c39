// Pages that ask, and pages that try to in, what the element lets them out.
import type { Page } from "@playwright/test";

import { pageOf } from "./bundles.ts";
import { expect, test } from "./fixtures.ts";
import type { Site } from "./fixtures.ts";
import { FORMS, heard, hostPage, innermost } from "./hosts.ts";

interface View extends HTMLElement {
  readonly instance: string;
  readonly modelContext: object;
  status: string;
  sendCallTool(params: object): Promise<{ content: { text: string }[] }>;
  sendListTools(): Promise<{ tools: { name: string }[] }>;
  appTools(): Promise<{ name: string; untrusted: boolean; app: object }[]>;
  teardown(): Promise<void>;
}

declare global {
  interface Window {
    view: View;
    raw: (method: string, params?: object) => Promise<{ result?: Record<string, unknown>; error?: { code: number; message: string } }>;
    tell: (method: string, params?: object) => void;
    serve: (handlers: Record<string, (params: Record<string, unknown>) => unknown>) => void;
  }
}

/** A page without any bridge: it says what it is told to. */
const RAW = `<!doctype html><body><script>
  let last = 0; const asked = new Map(); let handlers = {};
  const post = (message) => parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
  window.tell = (method, params = {}) => post({ method, params });
  window.raw = (method, params = {}) => new Promise((r) => { const id = ++last; asked.set(id, r); post({ id, method, params }); });
  window.serve = (more) => { handlers = more };
  addEventListener("message", async ({ data }) => {
    if (!data.method) return asked.get(data.id)?.(data);
    if (data.id !== undefined && handlers[data.method]) { const result = await handlers[data.method](data.params); if (result !== undefined) post({ id: data.id, result }); }
  });
  window.greet = async (appCapabilities = { tools: { listChanged: true } }) => { const answer = await raw("ui/initialize", { appInfo: { name: "raw", version: "9" }, appCapabilities, protocolVersion: "2026-01-26" }); tell("ui/notifications/initialized"); return answer; };
  GREET
</script>`;
const GREETED = RAW.replace("GREET", "greet()");

async function open(page: Page, sites: () => Promise<Site>, setup: string, app = GREETED, status = "ready"): Promise<void> {
  const site = await hostPage(sites, "same port", { "ui://a": app }, `view.src = "ui://a"; ${setup}`);
  await page.goto(site.origin);
  await expect(page.locator("#view")).toHaveAttribute("data-status", status);
}
const ask = (page: Page, method: string, params: object = {}) =>
  innermost(page).evaluate(([name, given]) => window.raw(name, given), [method, params] as const);
const tried = <T>(page: Page, act: (view: View) => Promise<T>): Promise<T | string> =>
  page.evaluate(async (text) => {
    // The text is of this file.
    const made = (0, eval)(text) as (view: View) => Promise<unknown>;
    return made(window.view).catch((error: Error) => error.message);
  }, String(act)) as Promise<T | string>;

test("what a host has not set is refused with its name", async ({ page, sites }) => {
  await open(page, sites, "queueMicrotask(() => {}); view.addEventListener('ready', () => { view.resolver = undefined; });");
  for (const [method, name] of [["tools/call", "toolCaller"], ["resources/read", "resolver"], ["resources/list", "resourceLister"], ["ui/message", "onmessage"], ["ui/download-file", "ondownload"]] as const) {
    expect((await ask(page, method, { name: "x", uri: "ui://x" })).error).toEqual({ code: -32601, message: `this host has no \`${name}\``, data: undefined });
  }
  expect((await ask(page, "ui/open-link", { url: "https://example.com" })).error?.message).toContain("onopenlink");
  expect((await ask(page, "sampling/createMessage")).error?.code).toBe(-32601);
  expect((await ask(page, "constructor")).error?.code).toBe(-32601);
  expect((await ask(page, "ping")).result).toEqual({});
});

test("a tool of the server is called if it is for apps", async ({ page, sites }) => {
  await open(page, sites, `
    view.tools = [{ name: "any" }, { name: "both", _meta: { ui: { visibility: ["model", "app"] } } }, { name: "app", _meta: { ui: { visibility: ["app"] } } }, { name: "model", _meta: { ui: { visibility: ["model"] } } }, { name: "none", _meta: { ui: { visibility: [] } } }];
    window.calls = []; view.toolCaller = ({ name }) => { calls.push(name); return { content: [] }; };`);
  for (const name of ["any", "both", "app"]) expect((await ask(page, "tools/call", { name })).result).toEqual({ content: [] });
  for (const name of ["model", "none", "of another server", "toString"]) expect((await ask(page, "tools/call", { name })).error?.code).toBe(-32602);
  expect(await page.evaluate(() => (window as unknown as { calls: string[] }).calls)).toEqual(["any", "both", "app"]);
});

test("links are opened after a yes, and are http", async ({ page, sites }) => {
  await open(page, sites, "window.opened = []; window.open = (...all) => opened.push(String(all[0])); view.onopenlink = (url) => url.pathname === '/yes';");
  expect((await ask(page, "ui/open-link", { url: "https://example.com/yes" })).result).toEqual({});
  expect((await ask(page, "ui/open-link", { url: "https://example.com/no" })).result).toEqual({ isError: true });
  for (const url of ["javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "blob:https://example.com/yes", "no address", "vscode://x/yes"]) {
    expect((await ask(page, "ui/open-link", { url })).error?.message).toBeTruthy();
  }
  expect(await page.evaluate(() => (window as unknown as { opened: string[] }).opened)).toEqual(["https://example.com/yes"]);
});

test("what a page tells the model takes the place of what it told before", async ({ page, sites }) => {
  await open(page, sites, "");
  await ask(page, "ui/update-model-context", { content: [{ type: "text", text: "one" }], structuredContent: { a: 1 } });
  await ask(page, "ui/update-model-context", { content: [{ type: "text", text: "two" }] });
  expect(await page.evaluate(() => window.view.modelContext)).toEqual({ content: [{ type: "text", text: "two" }], structuredContent: undefined });
});

test("a display mode that the host does not have leaves the one that is", async ({ page, sites }) => {
  await open(page, sites, "view.hostContext = { availableDisplayModes: ['inline', 'pip'] }; view.onrequestdisplaymode = (mode) => mode;");
  expect((await ask(page, "ui/request-display-mode", { mode: "fullscreen" })).result).toEqual({ mode: "inline" });
  expect((await ask(page, "ui/request-display-mode", { mode: "pip" })).result).toEqual({ mode: "pip" });
});

test("a page is asked nothing and told nothing before it is ready", async ({ page, sites }) => {
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
  test(`forged messages are not heard: ${form}`, async ({ page, sites }) => {
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

test("a page with too many tools has fifty, each name once and plain", async ({ page, sites }) => {
  await open(page, sites, "view.onconfirmtool = () => true;");
  await innermost(page).evaluate(() => window.serve({
    "tools/list": ({ cursor }) => {
      const start = Number(cursor ?? 0);
      const tools = Array.from({ length: 20 }, (_, index) => ({ name: `t${start + index}`, inputSchema: { type: "object" } }));
      return { tools: [...tools, tools[0], { name: "a b" }, { name: "x".repeat(65) }, { name: 7 }, null], nextCursor: String(start + 20) };
    },
    "tools/call": ({ name }) => ({ content: [{ type: "text", text: name }] }),
  }));
  const { tools } = await page.evaluate(() => window.view.sendListTools());
  expect(tools.map(({ name }) => name)).toEqual(Array.from({ length: 50 }, (_, index) => `t${index}`));
  expect(await tried(page, (view) => view.sendCallTool({ name: "t49" }))).toMatchObject({ content: [{ text: "t49" }] });
  expect(await tried(page, (view) => view.sendCallTool({ name: "t50" }))).toContain("no tool `t50`");
});

test("a tool that takes too long, gives too much or something else is an error", async ({ page, sites }) => {
  await page.clock.install();
  await open(page, sites, "view.onconfirmtool = () => true;");
  await innermost(page).evaluate(() => {
    const results: Record<string, unknown> = { large: { content: [{ type: "text", text: "x".repeat(11 * 1024 * 1024) }] }, odd: { content: "text" }, blocks: { content: [1] }, unstructured: { content: [] } };
    window.serve({
      "tools/list": () => ({ tools: [...Object.keys(results), "slow"].map((name) => ({ name, inputSchema: { type: "object" }, outputSchema: name === "unstructured" ? { type: "object" } : undefined })) }),
      "tools/call": ({ name }) => results[String(name)],
    });
  });
  expect(await tried(page, (view) => view.sendCallTool({ name: "large" }))).toContain("too large");
  for (const name of ["odd", "blocks", "unstructured"]) {
    expect(await page.evaluate((one) => window.view.sendCallTool({ name: one }).then(() => "", String), name)).toContain("no result as it promises");
  }
  const slow = page.evaluate(() => window.view.sendCallTool({ name: "slow" }).then(() => "", String));
  await expect.poll(async () => (await heard(page)).some(({ from, message }) => from === "host" && message.params?.name === "slow")).toBe(true);
  await page.clock.fastForward(31_000);
  expect(await slow).toMatch(/no answer to `tools\/call` within (30|29\.\d+) s/);
});

test("a tool that may change things is called after a yes", async ({ page, sites }) => {
  await open(page, sites, "view.onconfirmtool = (tool, input) => input.sure === true;");
  await innermost(page).evaluate(() => window.serve({
    "tools/list": () => ({ tools: [{ name: "change" }, { name: "look", annotations: { readOnlyHint: true } }, { name: "says", annotations: { readOnlyHint: "true" } }] }),
    "tools/call": () => ({ content: [] }),
  }));
  expect(await tried(page, (view) => view.sendCallTool({ name: "look" }))).toEqual({ content: [] });
  expect(await tried(page, (view) => view.sendCallTool({ name: "change", arguments: { sure: true } }))).toEqual({ content: [] });
  expect(await tried(page, (view) => view.sendCallTool({ name: "change" }))).toContain("nobody confirmed");
  expect(await tried(page, (view) => view.sendCallTool({ name: "says" }))).toContain("nobody confirmed");
});

test("a flood of messages is cut", async ({ page, sites }) => {
  await page.clock.install();
  await open(page, sites, "window.logs = 0; view.onlog = () => logs++; window.lists = 0; view.addEventListener('toolschanged', () => lists++); view.tools = [{ name: 't' }]; view.toolCaller = () => new Promise(() => {});");
  const answers = await innermost(page).evaluate(async () => {
    for (let count = 0; count < 500; count++) window.tell("notifications/message", { level: "info", data: count });
    for (let count = 0; count < 40; count++) void window.raw("tools/call", { name: "t" });
    return window.raw("ping");
  });
  expect(answers.error?.message).toContain("too many requests");
  expect(await page.evaluate(() => (window as unknown as { logs: number }).logs)).toBeLessThanOrEqual(200);
  await page.clock.fastForward(2000);
  await innermost(page).evaluate(() => {
    for (let count = 0; count < 50; count++) window.tell("notifications/tools/list_changed");
  });
  const lists = () => page.evaluate(() => (window as unknown as { lists: number }).lists);
  await expect.poll(lists).toBe(1);
  await page.clock.fastForward(1500);
  await expect.poll(lists).toBe(2);
});

test("a page that says nothing of tools is asked for none", async ({ page, sites }) => {
  await open(page, sites, "", RAW.replace("GREET", "greet({})"));
  expect(await page.evaluate(() => window.view.sendListTools())).toEqual({ tools: [] });
  expect((await heard(page)).some(({ message }) => message.method === "tools/list")).toBe(false);
});

const APP = `import { bridge } from "../bridge/index.ts"; const b = window.b = bridge({ name: "app", version: "1.0" });
  b.registerTool("which", { annotations: { readOnlyHint: true } }, () => ({ content: [{ type: "text", text: location.hash + (window.mine ?? "none") }] })); b.connect();`;

test("two views of one app are two apps", async ({ page, sites }) => {
  const site = await hostPage(sites, "same port", { "ui://a": await pageOf(APP) }, `view.src = "ui://a";
    const second = document.createElement("mcp-view"); second.id = "second"; second.setAttribute("sandbox-url", "/sandbox"); second.resolver = view.resolver; second.src = "ui://a"; document.body.append(second); window.second = second;`);
  await page.goto(site.origin);
  await expect(page.locator("#view")).toHaveAttribute("data-status", "ready");
  await expect(page.locator("#second")).toHaveAttribute("data-status", "ready");
  const names = await page.evaluate(async () => {
    const { second } = window as unknown as { second: View };
    const all = [...(await window.view.appTools()), ...(await second.appTools())];
    const [one, two] = all.map((tool) => tool.name);
    return { all, ids: [window.view.instance, second.instance], own: await window.view.sendCallTool({ name: String(one) }), crossed: await window.view.sendCallTool({ name: String(two) }).then(() => "called", String) };
  });
  expect(names.all.map(({ name }) => name)).toEqual(names.ids.map((id) => `app_${id}__which`));
  expect(names.ids[0]).not.toBe(names.ids[1]);
  expect(names.all[0]).toMatchObject({ untrusted: true, app: { name: "app", version: "1.0", instance: names.ids[0] } });
  expect(names.own.content[0]?.text).toBe("none");
  expect(names.crossed).toContain("no tool");
  await page.evaluate(() => (window as unknown as { second: View }).second.remove());
  expect(await tried(page, (view) => view.sendCallTool({ name: "which" }))).toMatchObject({ content: [{ text: "none" }] });
  expect(await page.evaluate(() => (window as unknown as { second: View }).second.appTools().then(() => "", String))).not.toContain("app_");
});

test("a call ends with its view, and so do the tools", async ({ page, sites }) => {
  await open(page, sites, "view.tools = [{ name: 'wait' }]; view.toolCaller = (_, { signal }) => new Promise(() => signal.addEventListener('abort', () => window.aborted = true)); view.onconfirmtool = () => true;");
  await innermost(page).evaluate(() => {
    window.serve({ "tools/list": () => ({ tools: [{ name: "never" }] }) });
    void window.raw("tools/call", { name: "wait" });
  });
  const call = page.evaluate(() => window.view.sendCallTool({ name: "never" }).then(() => "", String));
  await expect.poll(async () => (await heard(page)).some(({ from, message }) => from === "host" && message.params?.name === "never")).toBe(true);
  await page.evaluate(() => window.view.remove());
  expect(await call).toContain("the view was closed");
  expect(await page.evaluate(() => (window as unknown as { aborted: boolean }).aborted)).toBe(true);
  expect(await tried(page, (view) => view.sendCallTool({ name: "never" }))).toContain("the view is closed");
  expect(await tried(page, (view) => view.sendListTools())).toEqual({ tools: [] });
});

test("scripts, styles and media of the server are put into the page", async ({ page, sites }) => {
  const html = '<html lang="de"><head><link rel="stylesheet" href="ui://x.css"><script src="ui://x.js"></script></head><body><img src="ui://x.svg" alt="x"><img src="ui://y.png" alt="y"></body></html>';
  const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
  const files = {
    "ui://a": { mimeType: "text/html;profile=mcp-app", text: html },
    "ui://x.css": { mimeType: "text/css", text: 'body { color: rgb(1, 2, 3) } /* </style><script>document.title = "broken out"</script> */' },
    "ui://x.js": { mimeType: "text/javascript", text: 'document.documentElement.dataset.ran = "</script><b>"' },
    "ui://x.svg": { mimeType: "image/svg+xml", text: '<svg xmlns="http://www.w3.org/2000/svg" width="7" height="7"><!-- ü # --></svg>' },
    "ui://y.png": { mimeType: "image/png", blob: png },
  };
  await open(page, sites, `view.resolver = (uri) => (${JSON.stringify(files)})[uri];`, "", "shown");
  await expect.poll(() => page.frames().length).toBe(3);
  const inside = innermost(page);
  await expect(inside.locator("body")).toHaveCSS("color", "rgb(1, 2, 3)");
  await expect(inside.locator("html")).toHaveAttribute("data-ran", /b>/);
  await expect.poll(() => inside.locator("img").evaluateAll((all) => all.map((one) => (one as HTMLImageElement).naturalWidth))).toEqual([7, 1]);
  expect(await inside.evaluate(() => document.title)).toBe("");
});

test("what a server declares is reached, and nothing else", async ({ page, sites }) => {
  const [declared, other] = [await sites(), await sites()];
  for (const site of [declared, other]) site.put("/x", { body: "x", headers: { "access-control-allow-origin": "*" } });
  await open(page, sites, `view.resolver = (uri) => ({ mimeType: "text/html;profile=mcp-app", text: pages[uri], _meta: { ui: { csp: { connectDomains: ["${declared.origin}", "${other.origin};", "*", "'unsafe-eval'", "${other.origin} ${other.origin}"] } } } });`);
  const fetched = (origin: string) => innermost(page).evaluate((url) => fetch(url).then(() => "reached", () => "refused"), `${origin}/x`);
  expect(await fetched(declared.origin)).toBe("reached");
  expect(await fetched(other.origin)).toBe("refused");
  expect(other.requests).toEqual([]);
});

test("a host may let a page have less than its server declares", async ({ page, sites }) => {
  const declared = await sites();
  await open(page, sites, `view.meta = { csp: { connectDomains: ["${declared.origin}"] }, permissions: { camera: {} } }; view.onpagemeta = () => ({});`);
  expect(await innermost(page).evaluate((url) => fetch(url).then(() => "reached", () => "refused"), declared.origin)).toBe("refused");
  expect(await page.evaluate(() => window.view.shadowRoot?.querySelector("iframe")?.allow)).toBe("");
});

test("a page makes no code of text", async ({ page, sites }) => {
  await open(page, sites, "", `${GREETED}<script>setTimeout(() => { try { new Function("1")(); document.title = "made" } catch (e) { document.title = e.name } })</script>`);
  await expect.poll(() => innermost(page).evaluate(() => document.title)).toBe("EvalError");
});

test("what cannot be shown says why, to the eye and to the host", async ({ page, sites }) => {
  await open(page, sites, "view.addEventListener('failed', (e) => document.title = e.detail.message); view.src = 'ui://missing';", GREETED, "failed");
  await expect(page.getByRole("alert")).toContainText("no such resource: ui://missing");
  await expect(page).toHaveTitle("no such resource: ui://missing");
  await page.evaluate(() => Object.assign(window.view, { resolver: () => ({ mimeType: "text/plain", text: "x" }), src: "ui://text" }));
  await expect(page.getByRole("alert")).toContainText("text/plain");
  await page.evaluate(() => Object.assign(window.view, { resolver: undefined, src: "ui://b" }));
  await expect(page.getByRole("alert")).toContainText("no `resolver`");
  await page.evaluate(() => Object.assign(window.view, { html: "<p>shown" }));
  await expect(page.locator("#view")).toHaveAttribute("data-status", "shown");
  await expect(page.getByRole("alert")).toHaveCount(0);
});

test("a sandbox page that is not there is an error", async ({ page, sites }) => {
  await page.clock.install();
  const site = await hostPage(sites, "same port", { "ui://a": GREETED }, "view.setAttribute('sandbox-url', '/none'); view.src = 'ui://a';");
  await page.goto(site.origin);
  await expect(page.locator("#view")).toHaveAttribute("data-status", "loading");
  await page.clock.fastForward(11_000);
  await expect(page.getByRole("alert")).toContainText("/none");
});

test("with defer nothing is read before render()", async ({ page, sites }) => {
  const site = await hostPage(sites, "same port", { "ui://a": GREETED }, "window.reads = 0; const read = view.resolver; view.resolver = (uri) => (reads++, read(uri)); view.src = 'ui://a'; view.render = () => {};");
  await page.goto(site.origin);
  await page.evaluate(() => new Promise(requestAnimationFrame));
  expect(await page.evaluate(() => [(window as unknown as { reads: number }).reads, window.view.status])).toEqual([0, "idle"]);
  await page.evaluate(() => (Object.getPrototypeOf(window.view) as { render(): void }).render.call(window.view));
  await expect(page.locator("#view")).toHaveAttribute("data-status", "ready");
  expect(await page.evaluate(() => (window as unknown as { reads: number }).reads)).toBe(1);
});
