// Screenshots of the pages that hosts show, and of the test host.
import { host } from "../files-host.ts";
import { expect } from "../fixtures.ts";
import { BATCH, RETRIES, TOTAL, WIDE, asked, picture, pictures, test, withProject } from "./pictures.ts";
import { testHost as startTestHost } from "./program.ts";
import { questions, testHost } from "./ui.ts";

test("review", async ({ page, site, started }) => {
  const agent = await started.agent("refactor");
  const call = agent.call("edit_file", TOTAL);
  await started.asked(1, call);
  await started.answer("allow");
  const link = (await call)?.content.find(({ type, name }) => type === "resource_link" && name === "review");
  const html = await agent.read(link?.uri ?? "");
  expect(html).toBeDefined();
  site.put("/", html ?? "");
  await page.goto(site.origin);
  await expect(page.getByRole("row").first()).toBeVisible();
  await pictures("review", page, page, { width: 900, height: 480 });
});

test("review-batch", async ({ page, site, started }) => {
  const agent = await started.agent("refactor");
  const done = await asked(started, agent.call("apply_batch", { operations: BATCH }), "allow");
  const link = done?.content.find(({ type, name }) => type === "resource_link" && name === "review");
  site.put("/", (await agent.read(link?.uri ?? "")) ?? "");
  await page.goto(site.origin);
  await page.getByRole("button", { name: "Side by side" }).click();
  await picture("review-batch", page);
});

test("browser", async ({ page, site, started }) => {
  const agent = await started.agent("refactor");
  await asked(started, agent.call("edit_file", RETRIES), "allow");
  await asked(started, agent.call("delete", { path: "docs/style.md" }), "allow");
  const other = (name: string, input: Readonly<Record<string, unknown>>): unknown => agent.call(name, input);
  const html = (await agent.read("ui://bailiwick/files")) ?? "";
  const { frame } = await host(page, site, { tools: {}, other, resources: agent.read, html });
  await frame.getByRole("treeitem", { name: "src" }).click();
  await frame.getByRole("treeitem", { name: "limits.rs" }).click();
  await expect(frame.getByRole("option").first()).toBeVisible();
  await pictures("browser", page, page, { width: 900, height: 480 });
  await page.setViewportSize({ width: 900, height: 480 });
  await frame.getByRole("button", { name: /^Changed/ }).click();
  await frame.getByRole("treeitem", { name: "style.md" }).click();
  await expect(frame.getByRole("table").first()).toBeVisible();
  await picture("browser-changed", page);
  await frame.getByRole("searchbox").fill("md");
  await frame.getByRole("searchbox").press("Enter");
  await frame.getByRole("treeitem", { name: "api.md" }).click();
  await expect(frame.getByRole("option").first()).toBeVisible();
  await picture("browser-found", page);
});

test("browser-denied", async ({ page, site }) => {
  await withProject(["--deny-scopes=read:file:DIR/shop/old"], async (started) => {
    const agent = await started.agent("refactor");
    const other = (name: string, input: Readonly<Record<string, unknown>>): unknown => agent.call(name, input);
    const html = (await agent.read("ui://bailiwick/files")) ?? "";
    await page.setViewportSize({ width: 900, height: 480 });
    const { frame } = await host(page, site, { tools: {}, other, resources: agent.read, html });
    await expect(frame.getByRole("treeitem", { name: "old" })).toHaveClass(/locked/);
    await picture("browser-denied", page);
  });
});

test("test host", async ({ page }) => {
  const started = await startTestHost();
  try {
    await testHost.open(page, started.url);
    await testHost.call(page, "edit_file", RETRIES, "Preview");
    await expect(page.getByRole("region", { name: "Preview", exact: true })).toBeVisible();
    await expect(page.locator("mcp-view")).toHaveAttribute("data-status", "ready");
    await pictures("test-host", page);
    await page.setViewportSize(WIDE);
    await testHost.call(page, "edit_file", RETRIES, "Preview, ask, call");
    await questions.prompt(page);
    await picture("test-host-asks", page);
    await questions.allow(page);
    await testHost.call(page, "read_file", { path: "src/limits.rs" }, "Call");
    await expect(page.getByRole("region", { name: "Result", exact: true })).toBeVisible();
    await picture("test-host-result", page);
    await testHost.checks(page);
    await picture("test-host-checks", page);
  } finally {
    await started.close();
  }
});
