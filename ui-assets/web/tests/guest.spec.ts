// Tests of app-provided tools in `<mcp-view>` and of the limits on untrusted pages.
import { pageOf } from "./bundles.ts";
import { expect, test } from "./fixtures.ts";
import { heard, hostPage, innermost } from "./hosts.ts";
import { RAW, open, tried } from "./raw.ts";
import type { View } from "./raw.ts";

test("lists at most fifty tools with valid, unique names", async ({ page, sites }) => {
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

test("an oversized tool definition is ignored", async ({ page, sites }) => {
  await open(page, sites, "");
  await innermost(page).evaluate(() => window.serve({
    "tools/list": () => ({ tools: [{ name: "long", description: "x".repeat(70_000) }, { name: "short", description: "x".repeat(60_000) }] }),
  }));
  expect(await page.evaluate(async () => (await window.view.sendListTools()).tools.map(({ name }) => name))).toEqual(["short"]);
});

test("a slow, oversized or invalid tool result is an error", async ({ page, sites }) => {
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

test("a tool that is not read-only needs consent", async ({ page, sites }) => {
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

test("limits notifications, requests and list changes", async ({ page, sites }) => {
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

test("does not list tools of a page without the capability", async ({ page, sites }) => {
  await open(page, sites, "", RAW.replace("GREET", "greet({})"));
  expect(await page.evaluate(() => window.view.sendListTools())).toEqual({ tools: [] });
  expect((await heard(page)).some(({ message }) => message.method === "tools/list")).toBe(false);
});

const APP = `import { bridge } from "../bridge/index.ts"; const b = window.b = bridge({ name: "app", version: "1.0" });
  b.registerTool("which", { annotations: { readOnlyHint: true } }, () => ({ content: [{ type: "text", text: location.hash + (window.mine ?? "none") }] })); b.connect();`;

test("two views of an app have separate tools", async ({ page, sites }) => {
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

test("removing a view ends its calls and tools", async ({ page, sites }) => {
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
