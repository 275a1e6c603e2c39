// Tests of how `<mcp-view>` passes theme, styles and size to its page.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

import { pageOf } from "./bundles.ts";
import { expect, test } from "./fixtures.ts";
import { FORMS, heard, hostPage, innermost } from "./hosts.ts";

const { $defs } = JSON.parse(
  readFileSync(createRequire(import.meta.url).resolve("@modelcontextprotocol/ext-apps/schema.json"), "utf8"),
) as { $defs: { McpUiStyleVariableKey: { anyOf: { const: string }[] } } };

const BARE = '<style>body { color: var(--color-text-primary, green); background: var(--mcp-color-bg, white); border-color: light-dark(rgb(1, 1, 1), rgb(2, 2, 2)) }</style><body><script>addEventListener("mcp-data", (e) => { document.body.dataset.data = JSON.stringify(e.detail) }); document.body.dataset.data = JSON.stringify(window.mcpData)</script>';

test("the element sends exactly the MCP Apps style variables", async ({ page, sites }) => {
  const all = $defs.McpUiStyleVariableKey.anyOf.map((one) => one.const).sort();
  expect(all).toHaveLength(76);
  const app = await pageOf('import { connect } from "../bridge/index.ts"; connect({ name: "a", version: "1" });');
  const site = await hostPage(sites, "same port", { "ui://a": app }, `for (const name of ${JSON.stringify(all)}) view.style.setProperty(name, "1px"); view.src = "ui://a";`);
  await page.goto(site.origin);
  await expect(page.locator("#view")).toHaveAttribute("data-status", "ready");
  const told = (await heard(page)).map(({ message }) => message.result?.hostContext as { styles: { variables: object } } | undefined).find((one) => one !== undefined);
  expect(Object.keys(told?.styles.variables ?? {}).sort()).toEqual(all);
});

for (const form of FORMS) {
  test(`a page without a bridge gets theme and data updates: ${form}`, async ({ page, sites }) => {
    await page.emulateMedia({ colorScheme: "light" });
    const site = await hostPage(sites, form, {}, `view.html = ${JSON.stringify(BARE).replaceAll("<", "\\u003c")}; view.data = { n: "</script><b>" }; view.style.setProperty("--color-text-primary", "rgb(9, 9, 9)");`);
    await page.goto(site.origin);
    await expect(page.locator("#view")).toHaveAttribute("data-status", "shown");
    await expect.poll(() => page.frames().length).toBe(3);
    const body = innermost(page).locator("body");
    await expect(body).toHaveCSS("color", "rgb(9, 9, 9)");
    await expect(body).toHaveCSS("border-top-color", "rgb(1, 1, 1)");
    await expect(body).toHaveAttribute("data-data", '{"n":"</script><b>"}');
    await innermost(page).evaluate(() => Object.assign(window, { kept: true }));

    await page.locator("#view").evaluate((view) => {
      (view as HTMLElement).style.setProperty("--color-text-primary", "rgb(8, 8, 8)");
      (view as HTMLElement).style.setProperty("--mcp-color-bg", "rgb(7, 7, 7)");
      Object.assign(view, { data: { n: 2 } });
    });
    await expect(body).toHaveCSS("color", "rgb(8, 8, 8)");
    await expect(body).toHaveCSS("background-color", "rgb(7, 7, 7)");
    await expect(body).toHaveAttribute("data-data", '{"n":2}');
    await page.emulateMedia({ colorScheme: "dark" });
    await expect(body).toHaveCSS("border-top-color", "rgb(2, 2, 2)");
    await page.locator("html").evaluate((html) => (html.style.colorScheme = "light"));
    await expect(body).toHaveCSS("border-top-color", "rgb(1, 1, 1)");
    expect(await innermost(page).evaluate(() => (window as unknown as { kept: boolean }).kept)).toBe(true);
    // No protocol messages are sent to a page that does not speak the protocol.
    expect((await heard(page)).map(({ message }) => message.method)).toEqual((await heard(page)).map(() => "dev.bailiwick/notifications/dress"));
  });
}

test("an MCP Apps page is not modified", async ({ page, sites }) => {
  const site = await hostPage(sites, "same port", { "ui://a": '<!doctype html><html data-x="1"><body data-kind="bare"></body></html>' }, 'view.src = "ui://a";');
  await page.goto(site.origin);
  await expect.poll(() => page.frames().length).toBe(3);
  await expect(innermost(page).locator("body")).toHaveAttribute("data-kind", "bare");
  expect(await innermost(page).evaluate(() => document.querySelectorAll("script, style, meta").length)).toBe(0);
});

test("the height follows the page up to the host's maximum", async ({ page, sites }) => {
  const app = await pageOf('import { connect } from "../bridge/index.ts"; connect({ name: "a", version: "1" }); window.grow = (px) => document.querySelector("p").style.height = px + "px";', '<p style="margin:0;height:123px"></p>');
  const site = await hostPage(sites, "same port", { "ui://a": app.replace("<body>", '<body style="margin:0">') }, 'view.setAttribute("auto-height", "true"); view.setAttribute("max-height", "500"); view.src = "ui://a";');
  await page.goto(site.origin);
  const view = page.locator("#view");
  await expect(view).toHaveCSS("height", "123px");
  const grow = (px: number) => innermost(page).evaluate((one) => (window as unknown as { grow(px: number): void }).grow(one), px);
  await grow(321);
  await expect(view).toHaveCSS("height", "321px");
  await grow(99_999);
  await expect(view).toHaveCSS("height", "500px");
  await view.evaluate((one) => {
    const heights: string[] = [];
    Object.assign(window, { heights });
    new MutationObserver(() => heights.push((one as HTMLElement).style.height)).observe(one, { attributeFilter: ["style"] });
  });
  await innermost(page).evaluate(() => parent.postMessage({ jsonrpc: "2.0", method: "ui/notifications/size-changed", params: { height: "1px; position: fixed" } }, "*"));
  // Only nonnegative numbers are accepted as a size.
  for (const height of ["7", [7], true, null, {}, -1]) {
    await innermost(page).evaluate((one) => parent.postMessage({ jsonrpc: "2.0", method: "ui/notifications/size-changed", params: { height: one } }, "*"), height);
  }
  await innermost(page).evaluate(() => parent.postMessage({ jsonrpc: "2.0", method: "ui/notifications/size-changed", params: { height: 444 } }, "*"));
  await expect(view).toHaveCSS("height", "444px");
  expect(await view.evaluate(() => (window as unknown as { heights: string[] }).heights)).toEqual(["444px"]);
  await grow(50);
  await expect(view).toHaveCSS("height", "50px");
});
