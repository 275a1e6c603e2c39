// Live tests of the test host against real servers. Each test uses its own host.
import type { Locator, Page } from "@playwright/test";

import { part, press } from "../test-host-fake.ts";
import { barriers, expect, test } from "../fixtures.ts";

const hosts = JSON.parse(process.env["BAILIWICK_TEST_HOSTS"] ?? "{}") as Record<string, string>;

async function open(page: Page, name: string, tool?: string): Promise<void> {
  await page.goto(hosts[name] ?? "");
  await expect(page.locator(".host")).toHaveAttribute("data-status", "ready");
  // The secret is removed from the address.
  expect(page.url()).not.toContain("#");
  if (tool !== undefined) await pick(page, tool);
}

async function pick(page: Page, tool: string): Promise<void> {
  await page.getByLabel("Search tools").fill(tool);
  await page.locator(".pick-tool").first().click();
  await expect(page.locator(".call")).toHaveAttribute("data-tool", tool);
}

/** Enters the arguments as JSON. */
async function given(page: Page, value: unknown): Promise<void> {
  await part(page, "JSON").click();
  await page.getByLabel("The arguments as JSON").fill(JSON.stringify(value));
}

async function result(page: Page, status: "done" | "failed", title = "Result"): Promise<Locator> {
  const shown = page.getByRole("region", { name: title, exact: true });
  await expect(shown).toHaveAttribute("data-status", status);
  return shown;
}

/** Calls a read-only tool; returns its text. */
async function read(page: Page, tool: string, value: unknown): Promise<string> {
  await pick(page, tool);
  await given(page, value);
  await part(page, "Call").click();
  const shown = await result(page, "done");
  // A tool with a view shows that first.
  await part(page, "Text").click();
  return shown.locator(".words").innerText();
}

/** Expects that every message of the server conformed to MCP. */
async function wellFormed(page: Page): Promise<void> {
  await part(page, "Wire").click();
  await page.getByLabel("only invalid messages").check();
  await expect(page.locator(".log")).toHaveText("No matches.");
}

test("an allowed preview is carried out exactly", async ({ page }) => {
  await open(page, "edit", "edit_file");
  await page.getByLabel("path required").fill("src/limits.rs");
  await expect(page.locator(".intent")).toContainText("Edit src/limits.rs");
  await part(page, "Add to edits").click();
  await page.getByLabel("old_text required").fill("= 3");
  await page.getByLabel("new_text required").fill("= 5");
  await part(page, "Preview, ask, call").click();
  await expect(page.locator(".asks .t.add")).toHaveText(["pub const RETRIES: u32 = 5;"]);
  await press(page, "Deny");
  await expect(page.getByText("Denied: nothing was done.")).toBeVisible();
  await part(page, "Preview, ask, call").click();
  await press(page, "Allow");
  await result(page, "done");
  await expect(page.locator(".compared")).toHaveAttribute("data-status", "equal");
  await expect(page.locator(".compared li")).not.toHaveCount(0);
  // A second preview shows no further change.
  await part(page, "Preview").click();
  await expect((await result(page, "failed", "Preview")).locator(".words")).toContainText("NO_MATCH");
  expect(await read(page, "read_file", { path: "src/limits.rs" })).toContain("RETRIES: u32 = 5");
  await wellFormed(page);
});

test("a call outside the root runs once with the granted scope", async ({ page }) => {
  await open(page, "scopes", "list_roots");
  const root = /\/\S+\/repo/.exec(await read(page, "list_roots", {}))?.[0] ?? "";
  const path = root.replace(/repo$/, "outside/new.txt");
  await pick(page, "write_file");
  await given(page, { path, content: "hello" });
  await part(page, "Call").click();
  await expect(page.locator(".asks .preview code")).toHaveText(`write:file:${path}`);
  await press(page, "Allow");
  await result(page, "done");
  // The grant applied to that call only.
  await part(page, "Call").click();
  await expect(page.locator("permission-prompt")).toBeVisible();
  await press(page, "Deny");
  await result(page, "failed");
  await wellFormed(page);
});

test("a write that needs a permission is one question, with its diff", async ({ page }) => {
  await open(page, "asks", "edit_file");
  await given(page, { path: "src/limits.rs", edits: [{ old_text: "= 3", new_text: "= 7" }] });
  await part(page, "Preview, ask, call").click();
  await expect(page.locator(".asks .t.add")).toHaveText(["pub const RETRIES: u32 = 7;"]);
  await press(page, "Allow");
  await result(page, "done");
  await expect(page.locator(".compared")).toHaveAttribute("data-status", "equal");
  await wellFormed(page);
});

test("a write whose preview needs a permission is one question", async ({ page }) => {
  await open(page, "scopes", "list_roots");
  const root = /\/\S+\/repo/.exec(await read(page, "list_roots", {}))?.[0] ?? "";
  await pick(page, "write_file");
  await given(page, { path: root.replace(/repo$/, "outside/once.txt"), content: "once" });
  await part(page, "Preview, ask, call").click();
  await expect(page.locator(".asks")).toContainText("without another question");
  await press(page, "Allow");
  await result(page, "done");
  await expect(page.locator(".compared")).toHaveAttribute("data-status", "equal");
  await wellFormed(page);
});

test("a configuration from the form is sent on reconnect and validated", async ({ page }) => {
  await open(page, "configuration");
  await part(page, "Configuration").click();
  // Every field has a form control.
  for (const field of ["roots", "deny", "grantable", "access", "max_calls", "budget"]) {
    await expect(page.locator(".fields bdi").getByText(field, { exact: true })).toBeVisible();
  }
  await expect(page.locator(".fields .field")).not.toHaveCount(0);
  await expect(page.locator(".fields textarea.code")).toHaveCount(0);
  await page.getByLabel("read_only").selectOption("true");
  await part(page, "Reconnect with it").click();
  await expect(page.locator("main article")).toHaveAttribute("data-status", "sent");
  await part(page, "Tools").click();
  // Tools that a read-only configuration would deny are not listed.
  await expect(page.locator(".pick-tool", { hasText: "Read file" })).toBeVisible();
  await expect(page.locator(".pick-tool", { hasText: "Write file" })).toHaveCount(0);
  await part(page, "Configuration").click();
  await part(page, "JSON").click();
  await page.getByLabel("The configuration as JSON").fill('{"nonsense": 1}');
  await part(page, "Reconnect with it").click();
  await expect(page.getByRole("status")).toHaveText("Not connected");
  await expect(page.getByRole("alert")).toContainText("-32602");
  await part(page, "Connect without the configuration").click();
  await expect(page.getByRole("status")).toHaveText("Connected");
  await part(page, "Tools").click();
  await pick(page, "write_file");
  await given(page, { path: "new.txt", content: "" });
  await part(page, "Call").click();
  await result(page, "done");
});

test("a policy can only restrict and has no startup-only settings", async ({ page }) => {
  await open(page, "policy");
  await part(page, "Configuration").click();
  const start = page.locator(".fields bdi").getByText("grantable", { exact: true });
  await expect(start).toBeVisible();
  await part(page, "Policy").click();
  await expect(page.locator(".fields .field")).not.toHaveCount(0);
  await expect(start).toBeHidden();
  await page.getByLabel("read_only").selectOption("true");
  await part(page, "Use for calls").click();
  await part(page, "Tools").click();
  await pick(page, "write_file");
  await given(page, { path: "a.txt", content: "" });
  await part(page, "Call").click();
  await result(page, "failed");
  await part(page, "Policy").click();
  await part(page, "Stop using it").click();
  await part(page, "Tools").click();
  await pick(page, "write_file");
  await given(page, { path: "a.txt", content: "" });
  await part(page, "Call").click();
  await result(page, "done");
});

for (const [host, revision] of [["elicit", "2025-11-25"], ["stateless", "2026-07-28"]] as const) {
  test(`elicitation requests are answered in a form, ${revision}`, async ({ page }) => {
    await open(page, host, "list_roots");
    await expect(page.locator(".host")).toHaveAttribute("data-revision", revision);
    const root = /\/\S+\/repo/.exec(await read(page, "list_roots", {}))?.[0] ?? "";
    await pick(page, "write_file");
    await given(page, { path: root.replace(/repo$/, "outside/new.txt"), content: "hello" });
    await part(page, "Call").click();
    await expect(page.getByRole("region", { name: "The server asks" })).toContainText("Tool: write_file");
    expect(await barriers(page)).toEqual([]);
    await part(page, "Decline").click();
    await result(page, "failed");
    await part(page, "Call").click();
    await page.getByLabel("decision required").selectOption("allow");
    await part(page, "Answer").click();
    await result(page, "done");
    await wellFormed(page);
  });
}

test("an official sample view is shown and communicates only with its host", async ({ page }) => {
  const origin = new URL(hosts["view"] ?? "").origin;
  const strange: string[] = [];
  page.on("request", (request) => {
    if (!request.url().startsWith(origin) && !/^(about|data):/.test(request.url())) strange.push(request.url());
  });
  await open(page, "view", "get-time");
  await part(page, "Call").click();
  await expect(page.locator("mcp-view")).toHaveAttribute("data-status", "ready");
  const app = page.frameLocator("mcp-view iframe").frameLocator("iframe");
  await expect(app.getByText("Server Time:")).toBeVisible();
  await app.getByRole("button", { name: "Get Server Time" }).click();
  await app.getByRole("button", { name: "Send Message" }).click();
  await page.getByText("The view says").click();
  await expect(page.locator(".shown .words")).toContainText("This is message text.");
  await page.getByLabel("Theme").selectOption("dark");
  await expect(app.locator("html")).toHaveCSS("color-scheme", "dark");
  await page.getByLabel("Width").selectOption("320");
  await expect.poll(() => app.locator("html").evaluate(() => innerWidth)).toBe(320);
  expect(strange).toEqual([]);
  await wellFormed(page);
});

for (const [name, tool, words] of [
  ["budget", "get-budget-data", "R&D"],
  ["cohorts", "get-cohort-data", "M11"],
  ["customers", "get-customer-data", /\(\d+\)/u],
  ["system", "get-system-info", "linux"],
] as const) {
  test(`an official sample view shows its server's data: ${name}`, async ({ page }) => {
    await open(page, name, tool);
    await part(page, "Call").click();
    await expect(page.locator("mcp-view")).toHaveAttribute("data-status", "ready");
    const app = page.frameLocator("mcp-view iframe").frameLocator("iframe");
    await expect(app.locator("body")).toContainText(words);
    await wellFormed(page);
  });
}

test("every content type has its own display", async ({ page }) => {
  await open(page, "everything", "get-tiny-image");
  await part(page, "Call").click();
  const shown = await result(page, "done");
  await part(page, "Image").click();
  await expect.poll(() => shown.locator("img").evaluate((image: HTMLImageElement) => image.naturalWidth)).toBeGreaterThan(0);
  await pick(page, "get-resource-links");
  await part(page, "Call").click();
  await page.getByRole("button", { name: /^Links/ }).click();
  await page.getByRole("button", { name: /^Open Blob/ }).first().click();
  await expect(page.getByText("Binary content, not shown.")).toBeVisible();
  await page.getByRole("button", { name: /^Open Text/ }).first().click();
  await expect(page.locator(".result .words")).toContainText("plaintext resource");
  await pick(page, "get-resource-reference");
  await part(page, "Call").click();
  await part(page, "Embedded").click();
  await expect(page.locator(".result .words")).toContainText("resource");
  await pick(page, "get-structured-content");
  await page.getByLabel("location required").selectOption({ index: 1 });
  await part(page, "Call").click();
  await part(page, "Structured").click();
  await expect(page.locator(".result .words")).toContainText("temperature");
  await pick(page, "trigger-elicitation-request");
  await part(page, "Call").click();
  await expect(page.getByRole("region", { name: "The server asks" })).toBeVisible();
  await part(page, "Answer").click();
  await result(page, "done");
});

test("a stopped server can be restarted, and invalid messages are reported", async ({ page }) => {
  await open(page, "wrong", "exit");
  await expect(page.locator(".pick-tool .warn")).toHaveCount(0);
  await part(page, "Call").click();
  await expect(page.getByRole("alert")).toHaveText("the server ended (exit status: 3)");
  await part(page, "Start again").click();
  await expect(page.getByRole("status")).toHaveText("Connected");
  await expect(page.locator(".pick-tool", { hasText: "template" }).getByText("! lint")).toBeVisible();
  await part(page, "Checks").click();
  await part(page, "Run the checks").click();
  await expect(page.locator("main article")).toHaveAttribute("data-status", "failed");
  await expect(page.locator(".checks .bad")).toHaveCount(13);
  await expect(page.locator(".checks li", { hasText: "policy.expansion" }).locator(".bad")).toBeVisible();
  await part(page, "Wire").click();
  await page.getByLabel("only invalid messages").check();
  await expect(page.locator(".entry").first()).toContainText("this is no JSON");
});

test("the conformance checks pass on the page", async ({ page }) => {
  await open(page, "checks");
  await part(page, "Checks").click();
  await part(page, "Run the checks").click();
  await expect(page.locator("main article")).toHaveAttribute("data-status", "passed");
  await expect(page.locator(".checks li")).toHaveCount(15);
  expect(await barriers(page)).toEqual([]);
});
