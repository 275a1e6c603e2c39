// Takes the README screenshots of the built pages into `ui-assets/shots`.
import { fileURLToPath } from "node:url";

import type { Locator, Page } from "@playwright/test";

import { FakeHost, changes, question } from "../fake-host.ts";
import { TREE, done, given, host } from "../files-host.ts";
import { expect, test } from "../fixtures.ts";
import { embedded, samples } from "../reviews.ts";

const MOST_BYTES = 80_000;
const HUNK = {
  old_start: 12,
  new_start: 12,
  lines: [
    { op: " ", text: "fn next(n: u32) -> u32 {\n" },
    { op: "-", text: "    n + 2\n" },
    { op: "+", text: "    n + 1\n" },
    { op: " ", text: "}\n" },
  ],
};

test.use({ colorScheme: "light" });

async function picture(page: Page, name: string, height: number, of: Page | Locator = page): Promise<void> {
  await page.setViewportSize({ width: 900, height });
  const path = fileURLToPath(new URL(`../../../shots/${name}.png`, import.meta.url));
  expect((await of.screenshot({ path, animations: "disabled" })).length).toBeLessThan(MOST_BYTES);
}

test("screenshot of a prompt in the console", async ({ page, site }) => {
  const told = question(1);
  const rungs = [
    { patterns: ["write:file:/a/b/c.txt"], covers: "exactly what is asked" },
    { patterns: ["write:file:/a/b"], covers: "change everything beneath /a/b" },
  ];
  const call = { ...(told["tool_call"] as object), server_icons: "" };
  const console = new FakeHost();
  console.state.questions = [question(1, { rungs, divisible: false, sensitive: true, intent: "Replace 1 line in c.txt" }, { tool_call: call })];
  console.answers.set(`review/${(told["tool_call"] as { id: string }).id}`, changes({ hunks: [HUNK], added: 1, removed: 1 }));
  await page.clock.install({ time: Date.now() });
  await console.open(page, site);
  await expect(page.getByRole("button", { name: /^Allow/ })).toBeEnabled();
  await picture(page, "prompt", 900, page.locator("permission-prompt"));
});

test("screenshot of the review page", async ({ page, site }) => {
  site.put("/", await embedded({ ...samples.edit, intent: "Replace 3 lines in src/parser.rs" }));
  await page.goto(site.origin);
  await expect(page.getByRole("row").first()).toBeVisible();
  await picture(page, "review", 400);
});

test("screenshot of the file browser", async ({ page, site }) => {
  const text = "pub mod a;\n\n/// Adds one.\npub fn next(n: u32) -> u32 {\n    n + 1\n}\n";
  const made = [{ path: "/repo/src/lib.rs", added: 4, removed: 1 }];
  const { frame } = await host(page, site, given({ ...TREE, "/repo/src/lib.rs": { text } }, { changed_files: () => done({ changes: made }) }));
  await page.setViewportSize({ width: 900, height: 420 });
  await frame.getByRole("treeitem", { name: "src" }).click();
  await frame.getByRole("treeitem", { name: "lib.rs" }).click();
  await expect(frame.getByRole("option").first()).toContainText("pub mod a");
  await picture(page, "browser", 420);
});
