// Tests of `<mcp-view>` with pages that use our bridge.
import { pageOf } from "./bundles.ts";
import { expect, test } from "./fixtures.ts";
import { FORMS, heard, hostPage, innermost } from "./hosts.ts";
import "./raw.ts";

const APP = `
  import { bridge } from "../bridge/index.ts";
  const b = (window as unknown as { b: unknown }).b = bridge({ name: "app", version: "1.0" });
  b.registerTool("add", { inputSchema: { type: "object", properties: { n: { type: "number" } }, required: ["n"] }, annotations: { readOnlyHint: true } }, ({ n }) => ({ structuredContent: { sum: Number(n) + 1 } }));
  b.onToolInput((input) => document.body.dataset.input = JSON.stringify(input));
  b.onToolResult((result) => document.body.dataset.result = JSON.stringify(result.structuredContent));
  b.connect();`;

for (const form of FORMS) {
  test(`shows a page, sends its data and calls its tools: ${form}`, async ({ page, sites }) => {
    const site = await hostPage(sites, form, { "ui://a": await pageOf(APP) }, `
      view.src = "ui://a";
      view.toolResult = { content: [], structuredContent: { done: 2 } };
      view.toolInput = { path: "/a" };
      view.tools = [{ name: "read", inputSchema: { type: "object" } }, { name: "write", _meta: { ui: { visibility: ["model"] } } }];
      view.toolCaller = ({ name, arguments: input }) => ({ content: [{ type: "text", text: name + JSON.stringify(input) }] });
    `);
    await page.goto(site.origin);
    await expect(page.locator("#view")).toHaveAttribute("data-status", "ready");
    const body = innermost(page).locator("body");
    await expect(body).toHaveAttribute("data-input", '{"path":"/a"}');
    await expect(body).toHaveAttribute("data-result", '{"done":2}');
    const order = (await heard(page)).map(({ from, message }) => `${from} ${message.method ?? "answer"}`);
    expect(order.filter((one) => !one.endsWith("size-changed"))).toEqual([
      "app ui/initialize",
      "host answer",
      "app ui/notifications/initialized",
      "host ui/notifications/tool-input",
      "host ui/notifications/tool-result",
    ]);
    expect(await page.evaluate(() => window.view.sendCallTool({ name: "add", arguments: { n: 4 } }))).toMatchObject({ structuredContent: { sum: 5 } });
    const inside = await innermost(page).evaluate(async () => {
      const { b } = window as unknown as { b: { callTool(name: string, input: object): Promise<unknown> } };
      return [await b.callTool("read", { x: 1 }), await b.callTool("write", {}).catch(String), await b.callTool("other", {}).catch(String), self.origin];
    });
    expect(inside[0]).toMatchObject({ content: [{ text: 'read{"x":1}' }] });
    expect(inside[1]).toContain("not among");
    expect(inside[2]).toContain("not among");
    expect(inside[3]).toBe("null");
  });
}
