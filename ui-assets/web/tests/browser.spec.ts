import { barriers, built, expect, test } from "./fixtures.ts";
test("a page", async ({ page, site }) => {
  site.put("/", await built("browser.html"));
  await page.goto(site.origin);
  await page.getByRole("button").click();
  await expect(page.getByRole("button")).toHaveText("Pressed 1 times");
  expect(await barriers(page)).toEqual([]);
});
