// Accessibility and layout tests of the test host's page.
import { open, part, put, ready, tool } from "./test-host-fake.ts";
import type { Api } from "./test-host-fake.ts";
import { barriers, expect, test } from "./fixtures.ts";

const LONG = "a_name_without_any_place_to_break_".repeat(8);
const SCHEMA = {
  type: "object",
  properties: {
    path: { type: "string", description: "Where", scope: "any" },
    roots: { type: "array", items: { type: "object", properties: { path: { type: "string" } } }, description: "Many", scope: "any" },
    mode: { type: "string", enum: ["read", "write"], scope: "configuration" },
  },
};
const WRITE = {
  preview: true,
  inputSchema: SCHEMA,
  lints: ["{x} is not required"],
  intent: "Write {path}",
  annotations: { destructiveHint: true, scopes: ["write:file"] },
};
const BADGES = ["apps", "intent templates", "preview", "policy", "configuration", "dashdash"].map((name) => ({ name, on: true }));
const FACTS = {
  tools: [tool("write", WRITE), tool(LONG)],
  apps: [{ uri: "ui://a", name: "Files", description: "A browser" }],
  badges: BADGES,
  configSchema: SCHEMA,
  policy: true,
};
const everything = (): Api => ({
  state: () => ready(FACTS, { target: `/usr/bin/node ${LONG} --serve /a/long/path/of/a/project`, reason: LONG }),
  intent: () => ({ sentence: "Write a.txt" }),
  request: () => ({ result: { content: [{ type: "text", text: LONG }], _meta: { requested_scopes: [`write:file:/${LONG}`] } } }),
  checks: () => [{ check: "tools.names", outcome: "fail", detail: LONG }],
});

for (const colorScheme of ["light", "dark"] as const) {
  test(`every tab passes accessibility checks: ${colorScheme}`, async ({ page, site }) => {
    await page.emulateMedia({ colorScheme });
    await open(page, site, everything(), [{ seq: 1, at_ms: 1, side: "received", message: {}, fault: "wrong" }]);
    await expect(page.locator(".intent")).toHaveAttribute("data-status", "ready");
    await part(page, "Add to roots").click();
    await part(page, "Call").click();
    await expect(page.locator("permission-prompt")).toBeVisible();
    expect(await barriers(page)).toEqual([]);
    for (const name of ["Applications", "Configuration", "Policy", "Checks", "Wire"]) {
      await part(page, name).click();
      if (name === "Checks") await part(page, "Run the checks").click();
      expect(await barriers(page), name).toEqual([]);
    }
  });
}

test("nothing is cut off or inaccessible at 200 % zoom, on narrow screens and in forced colors", async ({ page, site }) => {
  await page.emulateMedia({ forcedColors: "active" });
  await open(page, site, everything(), [{ seq: 1, at_ms: 1, side: "received", message: { method: LONG }, fault: LONG }]);
  for (const width of [640, 320]) {
    await page.setViewportSize({ width, height: 480 });
    for (const name of ["Tools", "Applications", "Configuration", "Policy", "Checks", "Wire"]) {
      await part(page, name).click();
      if (name === "Tools") await part(page, "Call").click();
      if (name === "Checks") await part(page, "Run the checks").click();
      const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      expect(over, `${name} at ${width}`).toBeLessThanOrEqual(0);
      expect(await barriers(page), `${name} at ${width}`).toEqual([]);
    }
    // The calls above are still pending.
    await part(page, "Tools to answer").click();
  }
});

test("a call can be made by keyboard", async ({ page, site }) => {
  await open(page, site, { ...everything(), request: () => ({ result: { content: [{ type: "text", text: "done" }] } }) });
  await expect(page.locator(".intent")).toHaveAttribute("data-status", "ready");
  await page.getByLabel("Search tools").focus();
  await page.keyboard.type("write");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await expect(page.locator(".call")).toHaveAttribute("data-tool", "write");
  const focused = () => page.evaluate(() => document.activeElement?.textContent);
  for (let steps = 0; steps < 20 && (await focused()) !== "Call"; steps += 1) await page.keyboard.press("Tab");
  expect(await focused()).toBe("Call");
  await page.keyboard.press("Enter");
  await expect(page.locator(".result")).toHaveAttribute("data-status", "done");
});

test("typed input survives the end of the server, and display settings apply", async ({ page, site }) => {
  let state = ready({ tools: [tool("write", { inputSchema: SCHEMA })] });
  let tell: (() => void) | undefined;
  await put(site);
  await page.route("**/api/state", (route) => route.fulfill({ json: state }));
  await page.route("**/api/events", async (route) => {
    const { after } = route.request().postDataJSON() as { after: number };
    const before = { seq: 1, at_ms: 1, side: "state", message: "connecting" };
    if (after === 0) return route.fulfill({ json: [before] });
    await new Promise<void>((told) => (tell = told));
    return route.fulfill({ json: [{ seq: 2, at_ms: 2, side: "state", message: "ended: gone" }] });
  });
  await page.goto(`${site.origin}/#t`);
  await page.getByLabel("path").fill("kept");
  state = { ...state, status: "ended", reason: "gone" };
  await expect.poll(() => tell !== undefined).toBe(true);
  tell?.();
  await expect(page.getByRole("status")).toHaveText("Server ended");
  await expect(page.getByLabel("path")).toHaveValue("kept");
  await page.getByLabel("Theme").selectOption("dark");
  await expect(page.locator("body")).toHaveCSS("background-color", "rgb(23, 25, 30)");
  await page.getByLabel("Theme").selectOption("light");
  await expect(page.locator("body")).toHaveCSS("background-color", "rgb(255, 255, 255)");
  await page.getByLabel("Locale").selectOption("de-DE");
  await expect(page.locator("html")).toHaveAttribute("lang", "de-DE");
});
