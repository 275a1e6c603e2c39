// Tests of the file browser's file view.
import { expect, test } from "./fixtures.ts";
import { type Told, done, given, host, lines, refused } from "./files-host.ts";

test("a 10 MB file is read in ranges and virtualized", async ({ page, site }) => {
  const { frame, calls, call } = await host(page, site, given({ "/repo/big.log": { text: lines(1_000_000) } }));
  await frame.getByRole("treeitem", { name: "big.log" }).click();
  await expect(frame.getByRole("option").first()).toContainText("line 1");
  await expect(frame.getByText("1,000,000 lines")).toBeVisible();
  await frame.getByRole("listbox").focus();
  await page.keyboard.press("End");
  await expect(frame.locator("#line-1000000")).toContainText("line 1000000");
  await expect.poll(() => frame.getByRole("option").count()).toBeLessThan(60);
  await call("select-lines", { from: 500_000, to: 500_002 });
  await expect(frame.locator("#line-500001")).toHaveAttribute("aria-selected", "true");
  await expect(frame.locator("#line-500001")).toContainText("line 500001");
  expect(calls.filter(({ name }) => name === "read_file").length).toBeLessThan(8);
  for (const { name, input } of calls) if (name === "read_file") expect(input["limit"]).toBe(500);
});

test("lines can be selected by mouse and keyboard", async ({ page, site }) => {
  const { frame } = await host(page, site, given({ "/repo/a.txt": { text: lines(50) } }));
  await frame.getByRole("treeitem", { name: "a.txt" }).click();
  await frame.locator("#line-3 .number").click();
  await frame.locator("#line-6 .number").click({ modifiers: ["Shift"] });
  await expect(frame.getByText("lines 3–6 selected")).toBeVisible();
  await frame.getByRole("listbox").focus();
  await page.keyboard.press("Shift+ArrowDown");
  await expect(frame.getByText("lines 3–7 selected")).toBeVisible();
  await page.keyboard.press("Shift+ArrowUp");
  await expect(frame.getByText("lines 3–6 selected")).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(frame.getByText("selected")).toHaveCount(0);
});

test("hidden characters are escaped and long lines truncated", async ({ page, site }) => {
  const { frame } = await host(page, site, given({ "/repo/a.txt": { text: `a\u202eb\u0000\u200bc\r\n${"x".repeat(5000)}\r\n` }, "/repo/b.txt": { text: "y".repeat(3000) } }));
  await frame.getByRole("treeitem", { name: "a.txt" }).click();
  await expect(frame.locator("#line-1 bdi")).toHaveText("a\\u{202e}b\\u{0}\\u{200b}c");
  await expect(frame.getByText("CRLF")).toBeVisible();
  expect((await frame.locator("#line-2 bdi").textContent())?.length).toBeLessThan(2100);
  await frame.getByText("3,000 more characters").click();
  await expect(frame.locator("#line-2 bdi")).toHaveText("x".repeat(5000));
  // Repeat with the keyboard.
  await frame.getByRole("treeitem", { name: "b.txt" }).click();
  await expect(frame.getByText("1,000 more characters")).toBeVisible();
  await frame.getByRole("listbox").press("ArrowDown");
  await frame.getByRole("listbox").press("Enter");
  await expect(frame.locator("#line-1 bdi")).toHaveText("y".repeat(3000));
});

const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAoAAAAKCAYAAACNMs+9AAAAFUlEQVR42mNk+M9Qz0AEYBxVSF+FABJADveWkH6oAAAAAElFTkSuQmCC";
const media = (path: string, type: string, mimeType: string): Told => ({ bytes: 99, answer: done({ files: [{ path, bytes: 99, mime: mimeType, hash: "sha256:1" }] }, { type, data: PNG, mimeType }) });

test("images, audio and other binary files are shown by type", async ({ page, site }) => {
  const { frame } = await host(
    page,
    site,
    given({
      "/repo/a.png": media("/repo/a.png", "image", "image/png"),
      "/repo/b.wav": media("/repo/b.wav", "audio", "audio/wav"),
      "/repo/c.zip": { text: "PK", bytes: 2_000, answer: { ...refused("NOT_TEXT", "it is no text"), structuredContent: { code: "NOT_TEXT", message: "no text", guess: "a ZIP archive" } } },
      "/repo/d.png": media("/repo/d.png", "image", 'image/png;x"><script>'),
      "/repo/e.txt": { text: "" },
    }),
  );
  await frame.getByRole("treeitem", { name: "a.png" }).click();
  await expect.poll(() => frame.getByRole("img", { name: "a.png" }).evaluate((image) => (image as HTMLImageElement).naturalWidth)).toBe(10);
  await frame.getByRole("treeitem", { name: "b.wav" }).click();
  await expect(frame.locator("audio")).toHaveAttribute("src", /^data:audio\/wav;base64,/);
  await frame.getByRole("treeitem", { name: "c.zip" }).click();
  await expect(frame.getByText("No text, but a ZIP archive")).toBeVisible();
  await expect(frame.getByText("sha256:2")).toBeVisible();
  await frame.getByRole("treeitem", { name: "d.png" }).click();
  await expect(frame.getByText("The file is empty")).toBeVisible();
  await expect(frame.locator("img")).toHaveCount(0);
  await frame.getByRole("treeitem", { name: "e.txt" }).click();
  await expect(frame.getByRole("heading", { name: "/repo/e.txt" })).toBeVisible();
  await expect(frame.getByText("The file is empty")).toBeVisible();
});

test("reports whether a file changed on disk", async ({ page, site }) => {
  const tree: Record<string, Told> = { "/repo/a.txt": { text: lines(5000) } };
  const { frame } = await host(page, site, given(tree));
  await frame.getByRole("treeitem", { name: "a.txt" }).click();
  await frame.getByRole("button", { name: "Check for changes" }).click();
  await expect(frame.getByRole("status")).toContainText("Unchanged at");
  tree["/repo/a.txt"] = { text: `first\n${lines(5000)}` };
  await frame.getByRole("listbox").focus();
  await page.keyboard.press("End");
  await expect(frame.getByText("It changed on disk since it was opened.")).toBeVisible();
  await frame.getByRole("button", { name: "Read it again" }).click();
  await expect(frame.getByRole("status")).toContainText("this is the current version");
  await expect(frame.getByText("5,001 lines")).toBeVisible();
  await expect(frame.getByText("It changed on disk since")).toHaveCount(0);
});
