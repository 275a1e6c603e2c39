// Runs the host page of the npm package with the real program.
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { expect, test } from "../fixtures.ts";
import { innermost } from "../hosts.ts";
import { installed, plainHost } from "../package.ts";

test("the plain host page shows the file browser for list_directory", async ({ page }) => {
  const root = await mkdtemp(join(tmpdir(), "bailiwick-"));
  await writeFile(join(root, "a.txt"), "one\n");
  const given = await installed();
  const host = await plainHost(given.project, [process.env["BAILIWICK_PROGRAM"] ?? "", "serve", root]);
  try {
    await page.goto(host.url);
    await page.getByLabel("Tool").selectOption("list_directory");
    await page.getByRole("button", { name: "Call" }).click();
    await expect(page.locator("mcp-view")).toHaveAttribute("data-status", "ready");
    await innermost(page).getByRole("treeitem", { name: "a.txt" }).click();
    await expect(innermost(page).locator("#line-1")).toContainText("one");
  } finally {
    await host.close();
    await given.remove();
    await rm(root, { recursive: true });
  }
});
