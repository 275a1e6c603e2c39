// Interoperability tests: our host and bridge with the official ones, in every combination.
import type { Page } from "@playwright/test";

import { pageOf } from "./bundles.ts";
import { built, expect, test } from "./fixtures.ts";
import type { Site } from "./fixtures.ts";
import { FORMS, SANDBOXED, hostPage, innermost } from "./hosts.ts";

/** What a test does with a page. */
interface App {
  callTool(name: string, input: object): Promise<{ content: { text: string }[] }>;
  read(uri: string): Promise<{ text: string }[]>;
  say(text: string): Promise<unknown>;
  tellModel(text: string): Promise<unknown>;
  open(url: string): Promise<unknown>;
  show(mode: string): Promise<string>;
  log(text: string): unknown;
}

/** What a test does with a host. */
interface Host {
  readonly events: string[];
  callTool(params: object): Promise<object>;
  listTools(): Promise<{ tools: { name: string; inputSchema: object }[] }>;
  context(context: object): unknown;
  teardown(): Promise<unknown>;
}

declare global {
  interface Window {
    app: App;
    host: Host;
  }
}

const VIEWS = {
  "our bridge": `
    import { bridge } from "../bridge/index.ts";
    const b = bridge({ name: "ours", version: "1" });
    b.registerTool("add", { title: "Add", inputSchema: { type: "object", properties: { n: { type: "number" } }, required: ["n"] }, annotations: { readOnlyHint: true } }, ({ n }) => ({ content: [{ type: "text", text: String(Number(n) + 1) }] }));
    b.onToolInput((input) => document.body.dataset.input = JSON.stringify(input));
    b.onToolResult((result) => document.body.dataset.result = JSON.stringify(result.structuredContent));
    b.onTeardown(() => b.log("info", "going"));
    window.app = {
      callTool: (name, input) => b.callTool(name, input),
      read: (uri) => b.readResource(uri),
      say: (text) => b.sendMessage(text),
      tellModel: (text) => b.updateModelContext({ content: [{ type: "text", text }] }),
      open: (url) => b.openLink(url),
      show: (mode) => b.requestDisplayMode(mode),
      log: (text) => b.log("info", text),
    };
    b.connect();`,
  "the official App": `
    import { App, applyDocumentTheme, applyHostStyleVariables } from "@modelcontextprotocol/ext-apps";
    import { z } from "zod";
    const a = new App({ name: "official", version: "1" }, {}, { autoResize: true });
    const dress = (context) => {
      if (context?.theme) applyDocumentTheme(context.theme);
      if (context?.styles?.variables) applyHostStyleVariables(context.styles.variables);
    };
    a.registerTool("add", { title: "Add", inputSchema: z.object({ n: z.number() }), annotations: { readOnlyHint: true } }, ({ n }) => ({ content: [{ type: "text", text: String(n + 1) }] }));
    a.ontoolinput = (params) => document.body.dataset.input = JSON.stringify(params.arguments);
    a.ontoolresult = (params) => document.body.dataset.result = JSON.stringify(params.structuredContent);
    a.onhostcontextchanged = dress;
    a.onteardown = async () => { await a.sendLog({ level: "info", data: "going" }); return {}; };
    window.app = {
      callTool: (name, input) => a.callServerTool({ name, arguments: input }),
      read: async (uri) => (await a.readServerResource({ uri })).contents,
      say: (text) => a.sendMessage({ role: "user", content: [{ type: "text", text }] }),
      tellModel: (text) => a.updateModelContext({ content: [{ type: "text", text }] }),
      open: (url) => a.openLink({ url }),
      show: async (mode) => (await a.requestDisplayMode({ mode })).mode,
      log: (text) => a.sendLog({ level: "info", data: text }),
    };
    a.connect().then(() => { dress(a.getHostContext()); document.documentElement.dataset.appStatus = "ready"; });`,
};

/** A host with the official SDK, with our sandbox page on a separate port. */
async function official(sites: () => Promise<Site>, view: string): Promise<Site> {
  const [site, other] = [await sites(), await sites()];
  other.put("/sandbox", { body: await built("sandbox.html"), headers: SANDBOXED });
  site.put("/", await pageOf(`
    import { AppBridge, PostMessageTransport } from "@modelcontextprotocol/ext-apps/app-bridge";
    const html = ${JSON.stringify(view)};
    const capabilities = { openLinks: {}, serverTools: {}, serverResources: {}, logging: {}, updateModelContext: { text: {} }, message: { text: {} } };
    const hostContext = { theme: "dark", styles: { variables: { "--color-text-primary": "rgb(1, 2, 3)" } }, displayMode: "inline", availableDisplayModes: ["inline", "fullscreen"] };
    const bridge = new AppBridge(null, { name: "basic", version: "1" }, capabilities, { hostContext });
    const events = [];
    bridge.oncalltool = async ({ name, arguments: input }) => ({ content: [{ type: "text", text: name + JSON.stringify(input) }] });
    bridge.onreadresource = async ({ uri }) => ({ contents: [{ uri, text: "contents" }] });
    bridge.onmessage = async ({ content }) => (events.push("message " + content[0].text), {});
    bridge.onupdatemodelcontext = async ({ content }) => (events.push("model " + content[0].text), {});
    bridge.onopenlink = async ({ url }) => (events.push("open " + url), {});
    bridge.onrequestdisplaymode = async ({ mode }) => ({ mode });
    bridge.onloggingmessage = ({ data }) => events.push("log " + data);
    bridge.onsizechange = ({ height }) => { if (height > 0 && !events.includes("size")) events.push("size"); };
    bridge.onsandboxready = () => bridge.sendSandboxResourceReady({ html });
    bridge.oninitialized = async () => {
      await bridge.sendToolInput({ arguments: { path: "/a" } });
      await bridge.sendToolResult({ content: [], structuredContent: { done: 2 } });
    };
    window.host = { events, callTool: (params) => bridge.callTool(params), listTools: () => bridge.listTools({}), context: (context) => bridge.setHostContext({ ...hostContext, ...context }), teardown: () => bridge.teardownResource({}) };
    const frame = document.createElement("iframe");
    frame.sandbox = "allow-scripts allow-same-origin allow-forms";
    document.body.append(frame);
    bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow));
    frame.src = "${other.origin}/sandbox";`));
  return site;
}

const OURS = `
  const events = [];
  view.src = "ui://a";
  view.style.setProperty("--color-text-primary", "rgb(1, 2, 3)");
  view.setAttribute("theme", "dark");
  view.toggleAttribute("auto-height", true);
  view.hostContext = { availableDisplayModes: ["inline", "fullscreen"] };
  view.tools = [{ name: "read" }];
  view.toolCaller = ({ name, arguments: input }) => ({ content: [{ type: "text", text: name + JSON.stringify(input) }] });
  const page = view.resolver;
  view.resolver = (uri, extra) => uri === "ui://a" ? page(uri, extra) : { uri, text: "contents" };
  view.onmessage = ([{ text }]) => events.push("message " + text) > 0;
  view.onmodelcontext = ({ content: [{ text }] }) => events.push("model " + text);
  window.open = (url) => events.push("open " + url);
  view.onopenlink = () => true;
  view.onrequestdisplaymode = (mode) => mode;
  view.onlog = ({ data }) => events.push("log " + data);
  new ResizeObserver(() => { if (view.style.height && !events.includes("size")) events.push("size"); }).observe(view);
  view.toolInput = { path: "/a" };
  view.toolResult = { content: [], structuredContent: { done: 2 } };
  window.host = { events, callTool: (params) => view.sendCallTool(params), listTools: () => view.sendListTools(), context: ({ theme, styles }) => {
    if (theme) view.setAttribute("theme", theme);
    for (const [name, value] of Object.entries(styles?.variables ?? {})) view.style.setProperty(name, value);
  }, teardown: () => view.teardown() };`;

const HOSTS: Readonly<Record<string, (sites: () => Promise<Site>, view: string) => Promise<Site>>> = {
  "the official AppBridge": official,
  ...Object.fromEntries(FORMS.map((form) => [`mcp-view, ${form}`, (sites: () => Promise<Site>, view: string) => hostPage(sites, form, { "ui://a": view }, OURS)])),
};

const events = (page: Page): Promise<string[]> => page.evaluate(() => window.host.events);

for (const [hostName, host] of Object.entries(HOSTS)) {
  for (const [viewName, view] of Object.entries(VIEWS)) {
    test(`${hostName} and ${viewName}`, async ({ page, sites }) => {
      const site = await host(sites, await pageOf(view, "<p>words</p>"));
      await page.goto(site.origin);
      await expect.poll(() => page.frames().length).toBe(3);
      const inside = innermost(page);
      const html = inside.locator("html");
      await expect(html).toHaveAttribute("data-app-status", "ready");
      await expect(inside.locator("body")).toHaveAttribute("data-input", '{"path":"/a"}');
      await expect(inside.locator("body")).toHaveAttribute("data-result", '{"done":2}');
      await expect(html).toHaveCSS("color-scheme", "dark");
      await expect(html).toHaveCSS("--color-text-primary", "rgb(1, 2, 3)");

      await page.evaluate(() => window.host.context({ theme: "light", styles: { variables: { "--color-text-primary": "rgb(4, 5, 6)" } } }));
      await expect(html).toHaveCSS("color-scheme", "light");
      await expect(html).toHaveCSS("--color-text-primary", "rgb(4, 5, 6)");

      const asked = await inside.evaluate(async () => [
        (await window.app.callTool("read", { x: 1 })).content[0]?.text,
        (await window.app.read("ui://file"))[0]?.text,
        await window.app.show("fullscreen"),
      ]);
      expect(asked).toEqual(['read{"x":1}', "contents", "fullscreen"]);
      await inside.evaluate(async () => {
        await window.app.say("hello");
        await window.app.tellModel("first");
        await window.app.tellModel("second");
        await window.app.open("https://example.com/");
        await window.app.log("line");
      });
      await expect.poll(() => events(page)).toEqual(expect.arrayContaining(["size", "message hello", "model first", "model second", "open https://example.com/", "log line"]));

      const { tools } = await page.evaluate(() => window.host.listTools());
      expect(tools).toMatchObject([{ name: "add", title: "Add", inputSchema: { type: "object", properties: { n: { type: "number" } } } }]);
      expect(await page.evaluate(() => window.host.callTool({ name: "add", arguments: { n: 4 } }))).toMatchObject({ content: [{ type: "text", text: "5" }] });
      const refused = await page.evaluate(() => window.host.callTool({ name: "add", arguments: { n: "four" } }).then(() => "called", String));
      expect(refused).toMatch(/add/);

      const where = await inside.evaluate(() => {
        const refused = (act: () => unknown): string => {
          try {
            return String(act());
          } catch (error) {
            return error instanceof Error ? error.name : String(error);
          }
        };
        return [self.origin, refused(() => parent.document.title), refused(() => top?.location.href), refused(() => localStorage.length), refused(() => document.cookie)];
      });
      expect(where).toEqual(["null", "SecurityError", "SecurityError", "SecurityError", "SecurityError"]);

      await page.evaluate(() => window.host.teardown());
      await expect.poll(() => events(page)).toContain("log going");
    });
  }
}
