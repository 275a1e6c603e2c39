// Accessibility tests of the file browser: keyboard, narrow windows, themes and contrast.
import { barriers, expect, test } from "./fixtures.ts";
import { given, host } from "./files-host.ts";

test("everything can be done by keyboard", async ({ page, site }) => {
  const { frame } = await host(page, site, given());
  await expect(frame.getByRole("treeitem").first()).toBeVisible();
  await page.keyboard.press("Tab");
  await expect(frame.getByRole("searchbox")).toBeFocused();
  await page.keyboard.press("Tab");
  await page.keyboard.press("Tab");
  await expect(frame.getByRole("tree")).toBeFocused();
  const active = (): Promise<string | null> =>
    frame.evaluate(() => document.getElementById(document.querySelector('[role="tree"]')?.getAttribute("aria-activedescendant") ?? "")?.querySelector(".name")?.textContent ?? null);
  await expect.poll(active).toBe("asked");
  await page.keyboard.press("s");
  await expect.poll(active).toBe("src");
  await page.keyboard.press("ArrowRight");
  await expect(frame.getByRole("treeitem", { name: "lib.rs" })).toBeVisible();
  await page.keyboard.press("ArrowRight");
  await expect.poll(active).toBe("deep");
  await page.keyboard.press("*");
  await expect(frame.getByRole("treeitem", { name: "inner.rs" })).toBeVisible();
  await page.keyboard.press("ArrowLeft");
  await expect(frame.getByRole("treeitem", { name: "inner.rs" })).toHaveCount(0);
  await page.keyboard.press("ArrowLeft");
  await expect.poll(active).toBe("src");
  await page.keyboard.press("End");
  await expect.poll(active).toBe("secret.key");
  await page.keyboard.press("Home");
  await expect.poll(active).toBe("asked");
  await page.keyboard.press("PageDown");
  await page.keyboard.type("re");
  await expect.poll(active).toBe("README.md");
  await page.keyboard.press("Enter");
  await expect(frame.getByRole("option").first()).toContainText("# Read me");
  await page.keyboard.press("Tab");
  await expect(frame.getByRole("separator")).toBeFocused();
  const width = frame.getByRole("separator");
  const before = Number(await width.getAttribute("aria-valuenow"));
  await page.keyboard.press("ArrowRight");
  await expect(width).toHaveAttribute("aria-valuenow", String(before + 24));
  await page.keyboard.press("Home");
  await expect(width).toHaveAttribute("aria-valuenow", "180");
  await page.keyboard.press("Tab");
  await expect(frame.getByRole("button", { name: "Check for changes" })).toBeFocused();
  await page.keyboard.press("Tab");
  await expect(frame.getByRole("listbox")).toBeFocused();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowDown");
  await expect(frame.getByText("line 2 selected")).toBeVisible();
});

test("a narrow window shows one pane and moves the focus with it", async ({ page, site }) => {
  await page.setViewportSize({ width: 320, height: 640 });
  const { frame } = await host(page, site, given());
  // A letter goes to a row that is listed.
  await expect(frame.getByRole("treeitem", { name: "README.md" })).toBeVisible();
  await frame.getByRole("tree").focus();
  await page.keyboard.type("R");
  await page.keyboard.press("Enter");
  await expect(frame.getByRole("tree")).toBeHidden();
  const back = frame.getByRole("button", { name: "Back to the files" });
  await expect(frame.getByRole("region", { name: "File" })).toBeFocused();
  await expect(back).toBeVisible();
  await page.keyboard.press("Tab");
  await expect(back).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(frame.getByRole("tree")).toBeFocused();
  await expect(frame.getByRole("listbox")).toBeHidden();
  expect(await frame.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(320);
});

const LOOKS = [
  ["light", { colorScheme: "light" }, { width: 1000, height: 700 }],
  ["dark", { colorScheme: "dark" }, { width: 1000, height: 700 }],
  ["200 %", { colorScheme: "light" }, { width: 500, height: 350 }],
  ["forced colors", { forcedColors: "active" }, { width: 1000, height: 700 }],
  ["320 px, dark", { colorScheme: "dark" }, { width: 320, height: 640 }],
] as const;
for (const [look, media, size] of LOOKS) {
  test(`passes accessibility checks: ${look}`, async ({ page, site }, info) => {
    await page.emulateMedia(media);
    await page.setViewportSize(size);
    const { frame } = await host(page, site, given());
    await frame.getByRole("treeitem", { name: "src" }).click();
    await expect(frame.getByRole("treeitem", { name: "lib.rs" })).toBeVisible();
    expect(await barriers(frame)).toEqual([]);
    await page.screenshot({ path: info.outputPath("tree.png") });
    await frame.getByRole("treeitem", { name: "README.md" }).click();
    await frame.locator("#line-2 .number").click();
    expect(await barriers(frame)).toEqual([]);
    await page.screenshot({ path: info.outputPath("file.png") });
  });
}
