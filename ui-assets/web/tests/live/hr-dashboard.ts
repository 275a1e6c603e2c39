// Live tests of the staff dashboard. Each test uses its own host and data file.
import { readFile, writeFile } from "node:fs/promises";

import type { FrameLocator, Locator, Page } from "@playwright/test";

import { part } from "../test-host-fake.ts";
import { barriers, expect, test } from "../fixtures.ts";

interface Stage {
  readonly url: string;
  readonly file: string;
}
const stages = JSON.parse(process.env["BAILIWICK_DASHBOARDS"] ?? "{}") as Record<string, Stage>;

/** Opens the dashboard through its tool; returns its frame, and a function that reads the data file. */
async function open(page: Page, name: string): Promise<[FrameLocator, () => Promise<string>]> {
  const { url, file } = stages[name] ?? { url: "", file: "" };
  await page.goto(url);
  await expect(page.locator(".host")).toHaveAttribute("data-status", "ready");
  await page.getByLabel("Search tools").fill("show_dashboard");
  await page.locator(".pick-tool").first().click();
  await part(page, "Call").click();
  const app = page.frameLocator("mcp-view iframe").frameLocator("iframe");
  await expect(app.locator("main")).toHaveAttribute("data-status", "ready");
  return [app, () => readFile(file, "utf8")];
}

const rows = (app: FrameLocator): Locator => app.getByRole("region", { name: "Employees" }).locator("tbody tr");
const news = (app: FrameLocator, kind: string): Locator => app.locator(`[data-kind="${kind}"]`);

/** Requests a preview of a raise. */
async function wanted(app: FrameLocator, department: string, percent: string): Promise<void> {
  await app.getByLabel("Department").first().selectOption(department);
  await app.getByLabel("Percent, 1 to 25").fill(percent);
  await app.getByRole("form", { name: "Raise salaries" }).getByRole("button", { name: "Preview" }).click();
}

async function previewed(app: FrameLocator, department: string, percent: string): Promise<Locator> {
  await wanted(app, department, percent);
  const preview = app.getByRole("region", { name: "Preview", exact: true });
  await expect(preview).toBeVisible();
  return preview;
}

/** Answers the prompt in the host's window, which the page cannot reach. */
async function answer(page: Page, decision: "allow" | "deny"): Promise<void> {
  const asks = page.getByRole("region", { name: "The server asks" });
  await expect(asks).toContainText("The agent's client asks for this, for a page that it shows or for the agent.");
  await page.getByLabel("decision required").selectOption(decision);
  await part(page, "Answer").click();
}

test("a raise is previewed, requested and made", async ({ page }) => {
  const [app, file] = await open(page, "raise");
  const before = await file();
  await expect(rows(app)).toHaveCount(30);
  const preview = await previewed(app, "Sales", "10");
  await expect(rows(app)).toHaveCount(7);
  await expect(preview).toContainText("Raise all salaries in “Sales” by 10 %");
  await expect(preview.locator("tbody tr")).toHaveCount(7);
  const salaries = (await rows(app).locator(".sum").allInnerTexts()).map((text) => Number(text.replaceAll(/\D/gu, "")));
  const cost = salaries.reduce((sum, one) => sum + Math.round(one / 10), 0);
  await expect(preview.locator("tfoot .sum")).toHaveText(cost.toLocaleString("en"));
  expect(await file()).toBe(before);
  await preview.getByRole("button", { name: "Ask to make this change" }).click();
  await expect(news(app, "busy")).toHaveText("A person is asked…");
  expect(await file()).toBe(before);
  await answer(page, "allow");
  await expect(news(app, "done")).toHaveText("Done.");
  await expect(preview).toBeHidden();
  const after = (await rows(app).locator(".sum").allInnerTexts()).map((text) => Number(text.replaceAll(/\D/gu, "")));
  expect(after).toEqual(salaries.map((one) => one + Math.round(one / 10)));
  expect(await file()).not.toBe(before);
});

test("a preview asks for nothing, and a denied raise changes nothing", async ({ page }) => {
  const [app, file] = await open(page, "refuse");
  const before = await file();
  const preview = await previewed(app, "", "3");
  await expect(preview.locator("tbody tr")).toHaveCount(30);
  await expect(page.getByRole("region", { name: "The server asks" })).toBeHidden();
  await preview.getByRole("button", { name: "Ask to make this change" }).click();
  await answer(page, "deny");
  await expect(news(app, "refused")).toHaveText("Refused: nothing was changed.");
  expect(await file()).toBe(before);
});

test("an employee can be changed by keyboard", async ({ page }) => {
  const [app, file] = await open(page, "update");
  await app.getByLabel("Search").focus();
  await page.keyboard.type("mara");
  await expect(rows(app)).toHaveCount(1);
  await page.keyboard.press("Tab");
  await page.keyboard.press("Tab");
  await expect(app.getByRole("button", { name: "Mara Lindqvist" })).toBeFocused();
  await page.keyboard.press("Enter");
  const card = app.getByRole("region", { name: "Employee", exact: true });
  await expect(card.getByRole("heading")).toBeFocused();
  await expect(card).toContainText("mara.lindqvist@example.com");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Tab");
  await expect(card.getByLabel("Title")).toBeFocused();
  await page.keyboard.press("ControlOrMeta+a");
  await page.keyboard.type("Principal engineer");
  await page.keyboard.press("Enter");
  const preview = app.getByRole("region", { name: "Preview", exact: true });
  await expect(preview.getByRole("heading")).toBeFocused();
  await expect(preview.locator("tbody tr")).toHaveText(["Mara Lindqvist, titleStaff engineerPrincipal engineer"]);
  await page.keyboard.press("Tab");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await answer(page, "allow");
  await expect(news(app, "done")).toHaveText("Done.");
  await expect(rows(app)).toContainText("Principal engineer");
  expect(await file()).toContain('"title":"Principal engineer"');
});

test("a stale preview is not committed", async ({ page }) => {
  const [app, file] = await open(page, "stale");
  const preview = await previewed(app, "Support", "5");
  const other = (await file()).replace("Mara Lindqvist", "Mara \\u202eL<b>x</b>");
  await writeFile(stages["stale"]?.file ?? "", other);
  await preview.getByRole("button", { name: "Ask to make this change" }).click();
  await answer(page, "allow");
  await expect(news(app, "failed")).toContainText("Preview it again");
  expect(await file()).toBe(other);
  // Names are rendered as text, with deceptive characters escaped.
  await app.getByLabel("Department").first().selectOption("");
  await expect(rows(app).first()).toContainText("Mara \\u{202e}L<b>x</b>");
  await writeFile(stages["stale"]?.file ?? "", "nonsense");
  await wanted(app, "", "3");
  await expect(news(app, "failed")).toContainText("invalid employees file");
});

for (const theme of ["light", "dark"]) {
  test(`passes accessibility checks: ${theme}`, async ({ page }) => {
    const [app] = await open(page, "look");
    await page.getByLabel("Theme").selectOption(theme);
    await expect(app.locator("html")).toHaveCSS("color-scheme", theme);
    const preview = await previewed(app, "Engineering", "4");
    await rows(app).first().getByRole("button").click();
    await expect(app.getByRole("region", { name: "Employee", exact: true })).toBeVisible();
    await expect(preview).toBeVisible();
    const inside = page.frames().find((frame) => frame.parentFrame()?.parentFrame() === page.mainFrame());
    expect(inside).toBeDefined();
    if (inside) expect(await barriers(inside)).toEqual([]);
    await page.locator("mcp-view").screenshot({ path: test.info().outputPath(`hr-${theme}.png`) });
  });
}

test("fits a narrow frame", async ({ page }) => {
  const [app] = await open(page, "narrow");
  await page.getByLabel("Width").selectOption("320");
  await previewed(app, "Finance", "4");
  await expect.poll(() => app.locator("html").evaluate(() => document.documentElement.scrollWidth <= innerWidth)).toBe(true);
  await page.locator("mcp-view").screenshot({ path: test.info().outputPath("hr-narrow.png") });
});
