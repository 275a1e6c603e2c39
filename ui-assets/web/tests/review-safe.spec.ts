// Security and accessibility tests of the review page.
import { writeFile } from "node:fs/promises";

import { barriers, expect, test } from "./fixtures.ts";
import { embedded, samples } from "./reviews.ts";

const PAYLOADS = [
  ...["alert(1)", "parent.hit=1", "fetch('/hit')", "import('/hit')", "top.location='/hit'"].flatMap((script) => [
    `<script>${script}</script>`,
    `</script><script>${script}</script>`,
    `<img src=x onerror="${script}">`,
    `<svg onload="${script}">`,
    `"><iframe srcdoc="<script>${script}</script>">`,
    `javascript:${script}`,
    `<a href="javascript:${script}">x</a>`,
    `<!--<script>${script}//-->`,
    `<style>@import '/hit'</style><details open ontoggle="${script}">`,
  ]),
  "<!--",
  "-->",
  "]]>",
  "\u202e</script>\u2028",
  "{{constructor.constructor('fetch(\"/hit\")')()}}",
  "x".repeat(10_000),
  "&lt;script&gt;",
];

test("hostile names and lines run no script, load nothing and are escaped", async ({ page, site }) => {
  expect(PAYLOADS.length).toBeGreaterThan(50);
  const [like] = samples.hostile.changes;
  const changes = PAYLOADS.map((text) => ({ ...like, path: `/r/${text}`, to: text, rows: [["-", 1, 0, text], ["+", 0, 1, text, [[0, 4]]]] }));
  const review = { ...samples.hostile, intent: PAYLOADS.join(" "), agent: PAYLOADS[0], tool: PAYLOADS[1], changes };
  site.put("/", await embedded(review));
  const complaints: string[] = [];
  page.on("console", (message) => complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("dialog", (dialog) => void dialog.dismiss().then(() => complaints.push("a dialog")));
  await page.setViewportSize({ width: 1000, height: 20_000 });
  await page.goto(site.origin);
  await expect(page.locator(".file")).toHaveCount(PAYLOADS.length);
  await expect(page.locator(".file").last().getByRole("row")).toHaveCount(2);
  await page.getByRole("button", { name: "Side by side" }).click();
  await expect(page.locator(".file").last().getByRole("row")).toHaveCount(1);
  expect(complaints).toEqual([]);
  expect(site.requests.filter((request) => !/^GET \/(favicon.ico)?$/.test(request))).toEqual([]);
  expect(await page.locator("script").count()).toBe(2);
  expect(await page.locator("img, iframe, svg, a, style ~ style").count()).toBe(0);
  expect(await page.locator("body").innerText()).not.toMatch(/[\u202a-\u202e\u2066-\u2069\u2028]/);
});

for (const theme of ["light", "dark"] as const) {
  for (const [size, width, height] of [["wide", 1200, 800], ["at 200 %", 640, 400], ["narrow", 320, 700]] as const) {
    test(`passes accessibility checks: ${theme}, ${size}`, async ({ page, site }) => {
      await page.emulateMedia({ colorScheme: theme });
      await page.setViewportSize({ width, height });
      site.put("/", await embedded(samples.batch));
      await page.goto(site.origin);
      await expect(page.getByRole("row").first()).toBeVisible();
      expect(await barriers(page)).toEqual([]);
      expect(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth)).toBe(true);
      const side = page.getByRole("button", { name: "Side by side" });
      if (size === "narrow") await expect(side).toBeHidden();
      else await side.click();
      expect(await barriers(page)).toEqual([]);
      site.put("/edit", await embedded(samples.edit));
      await page.goto(`${site.origin}/edit`);
      await expect(page.locator("mark").first()).toBeVisible();
      expect(await barriers(page)).toEqual([]);
      await page.screenshot({ path: test.info().outputPath(`${theme}-${width}.png`) });
    });
  }
}

test("added and removed lines are distinguishable without color", async ({ page, site }) => {
  await page.emulateMedia({ forcedColors: "active" });
  site.put("/", await embedded(samples.edit));
  await page.goto(site.origin);
  await expect(page.getByRole("cell", { name: "added", exact: true }).first()).toHaveText("+");
  expect(await barriers(page)).toEqual([]);
});

test("an embedded review works from a local file without a host", async ({ page }, info) => {
  const file = info.outputPath("review.html");
  await writeFile(file, await embedded(samples.edit));
  await page.goto(`file://${file}`);
  await expect(page.getByText("line 70 has a change in it")).toBeVisible();
});

test("a change of 200,000 lines stays virtualized", async ({ page, site }) => {
  const [like] = samples.edit.changes;
  const changes = [{ ...like, hunks: [[1, 100_000, 1, 100_000, 0, 100_000, 100_000]], old_lines: 0, rows: [], around: undefined }];
  site.put("/", await embedded({ ...samples.edit, changes }));
  await page.goto(site.origin);
  await expect(page.getByRole("table")).toHaveAttribute("aria-rowcount", "200000");
  await expect(page.getByRole("row").first()).toBeVisible();
  await page.getByRole("button", { name: "Side by side" }).click();
  await expect(page.getByRole("table")).toHaveAttribute("aria-rowcount", "100000");
  await page.keyboard.press("n");
  await expect(page.locator(".here")).toBeFocused();
  expect(await page.evaluate(() => document.querySelectorAll("*").length)).toBeLessThan(1000);
});
