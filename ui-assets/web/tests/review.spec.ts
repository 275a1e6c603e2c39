// Tests of the review page.
import type { Frame, Page } from "@playwright/test";

import { pageOf } from "./bundles.ts";
import { built, expect, test } from "./fixtures.ts";
import { hostPage, innermost } from "./hosts.ts";
import { contents, embedded, hosted, large, samples } from "./reviews.ts";

const rows = (of: Page | Frame) => of.getByRole("row");
const shown = async (of: Page | Frame): Promise<string[]> => (await of.locator("[role=row]:not(.between)").allTextContents()).map((text) => text.trim());

/** Line numbers and texts of the changed lines, in either view. */
function changed(of: Page | Frame): Promise<string[]> {
  return of.locator(".t:is(.add, .del)").evaluateAll((cells) =>
    cells.map((cell) => {
      let number = cell.previousElementSibling;
      while (number && !/^\d+$/.test(number.textContent)) number = number.previousElementSibling;
      return `${cell.classList.contains("add") ? "+" : "-"} ${number?.textContent} ${cell.textContent}`;
    }),
  );
}

test("both views show the same changes and mark changed words", async ({ page, site }) => {
  site.put("/", await embedded(samples.edit));
  await page.setViewportSize({ width: 1000, height: 1200 });
  await page.goto(site.origin);
  await expect(page.getByRole("heading", { level: 1 })).toHaveText(samples.edit.intent);
  await expect(page.getByRole("table")).toHaveAttribute("aria-rowcount", "40");
  const unified = await changed(page);
  expect(unified).toContain("- 70 line 70 has a word in it");
  expect(unified).toContain("+ 70 line 70 has a change in it");
  expect(unified).toHaveLength(11);
  await page.getByRole("button", { name: "Side by side" }).click();
  await expect(page.getByRole("button", { name: "Side by side" })).toHaveAttribute("aria-pressed", "true");
  await expect(page.locator(".pair").first()).toBeVisible();
  expect((await changed(page)).sort()).toEqual(unified.sort());
  await expect(page.locator(".pair mark").first()).toHaveText("word");
  await expect(page.getByRole("cell", { name: "added", exact: true }).first()).toHaveText("+");
  await expect(page.getByRole("cell", { name: "removed", exact: true }).first()).toHaveText("−");
  await expect(page.getByRole("button", { name: "Wrap lines" })).toBeDisabled();
});

test("lines between hunks can be expanded without a host", async ({ page, site }) => {
  site.put("/", await embedded(samples.edit));
  await page.setViewportSize({ width: 1000, height: 8000 });
  await page.goto(site.origin);
  const first = page.locator(".between").first();
  await expect(first).toContainText("66 unchanged");
  await first.getByRole("button", { name: "↑ 20" }).click();
  await expect(page.locator(".between").first()).toContainText("46 unchanged");
  expect((await shown(page))[0]).toMatch(/^47\s*47\s*line 47 has a word in it$/);
  await page.locator(".between").nth(1).getByRole("button", { name: "↓ 20" }).click();
  await expect(page.locator(".between").nth(1)).toContainText("43 unchanged");
  await expect(page.getByText("line 93 has a word in it")).toBeVisible();
  for (let left = 5; left > 0; left -= 1) {
    await expect(page.locator(".between")).toHaveCount(left);
    await page.getByRole("button", { name: "Show all" }).first().click();
  }
  await expect(page.getByRole("table")).toHaveAttribute("aria-rowcount", "306");
  await expect(page.getByText("line 1 has a word in it", { exact: true })).toBeVisible();
  // Its new line number is one higher, because a line was added above.
  await expect(page.getByText("line 300 has a word in it").locator("..")).toHaveText(/^300301/);
});

test("n and p move between changes", async ({ page, site }) => {
  site.put("/", await embedded(samples.batch));
  await page.goto(site.origin);
  await page.keyboard.press("n");
  await expect(page.locator(".here")).toHaveText(/going/);
  await expect(page.locator(".where")).toHaveText("1 of 4");
  await page.keyboard.press("n");
  await expect(page.locator(".here")).toBeFocused();
  await expect(page.locator(".here")).toHaveText(/# New/);
  await page.keyboard.press("p");
  await expect(page.locator(".here")).toHaveText(/going/);
  await page.keyboard.press("p");
  await expect(page.locator(".where")).toHaveText("1 of 4");
  await page.keyboard.press("w");
  await expect(page.getByRole("button", { name: "Wrap lines" })).toHaveAttribute("aria-pressed", "false");
  await page.getByRole("button", { name: "Next change" }).press("Enter");
  await expect(page.locator(".where")).toHaveText("2 of 4");
});

test("every kind of change is labeled", async ({ page, site }) => {
  site.put("/", await embedded(samples.batch));
  await page.setViewportSize({ width: 1000, height: 3000 });
  await page.goto(site.origin);
  await expect(page.locator(".files li")).toHaveCount(11);
  for (const [path, badge, text] of [
    ["/repo/docs/new.md", "Will create", "Some text\\u{202e}txt.exe."],
    ["/repo/old.txt", "Will delete", "gone"],
    ["/repo/crlf.bat", "Will change", "echo bCRLF"],
    ["/repo/name.txt → /repo/sub/renamed.txt", "Will move", "The content stays as it is."],
    ["/repo/from.txt → /repo/copied.txt", "Will copy", "The content stays as it is."],
    ["/repo/sub", "Will create", "Folder will be created."],
    ["/repo/build", "Will delete", "Folder and its contents will be deleted."],
    ["/repo/logo.png", "Will change", "Binary file"],
    ["/repo/large.csv", "Will change", "Too much changed"],
    ["/repo/secret", "Will change", "may not read the file"],
  ] as const) {
    const file = page.locator(".file").filter({ has: page.locator("h2", { hasText: new RegExp(`^${path.replace(/[.]/g, "\\.")}$`) }) });
    await expect(file.locator(".badge")).toHaveText(badge);
    await expect(file).toContainText(text);
  }
  await page.getByRole("button", { name: "/repo/secret" }).click();
  await expect(page.locator(".file", { hasText: "/repo/secret" })).toBeInViewport();
});

test("ten thousand lines are virtualized and loaded by page", async ({ page, site }) => {
  const { review, page: paged } = large(10_000);
  const asked: string[] = [];
  const { frame } = await hosted(page, site, await embedded(review), (_method, { uri = "" }) => {
    asked.push(uri);
    if (uri.endsWith(".state")) return contents({ changes: ["same"] });
    return contents(paged(new URLSearchParams(uri.split("?")[1])));
  });
  const nodes = () => frame.evaluate(() => document.querySelectorAll("*").length);
  await expect(rows(frame).first()).toBeVisible();
  expect(await nodes()).toBeLessThan(1000);
  for (const part of [0.5, 1, 0.25]) {
    await frame.evaluate((to) => scrollTo(0, document.documentElement.scrollHeight * to), part);
    await expect.poll(() => frame.evaluate(() => [...document.querySelectorAll(".t")].some((cell) => { const { top } = cell.getBoundingClientRect(); return top > 0 && top < innerHeight && cell.textContent !== "…"; }))).toBe(true);
    expect(await nodes()).toBeLessThan(1000);
  }
  expect(asked.filter((uri) => uri.includes("from=")).every((uri) => /^ui:\/\/edit_file\/0+\.rows\?change=0&from=\d+&count=500$/.test(uri))).toBe(true);
  await frame.getByRole("button", { name: "Side by side" }).click();
  await expect(frame.locator(".pair").first()).toBeVisible();
  expect(await nodes()).toBeLessThan(1000);
  await frame.locator("body").press("n");
  await expect(frame.locator(".here")).toBeFocused();
});

test("missing lines are loaded with queries that the runtime supports", async ({ page, site }) => {
  const queries: string[] = [];
  let there = (): void => undefined;
  const gone = new Promise<void>((done) => (there = done));
  const { frame } = await hosted(page, site, await embedded(samples.paged), async (method, { uri = "", name, arguments: input }) => {
    // A host that does not offer resources to views.
    if (method === "resources/read") throw new Error("no resources here");
    expect(name).toBe("review_rows");
    const asked = String(input?.uri ?? uri);
    if (asked.endsWith(".state")) return { content: [], structuredContent: { changes: ["same"] } };
    const query = asked.split("?change=0&")[1] ?? "";
    queries.push(query);
    if (query.startsWith("from=")) await gone;
    const known = samples.pages[query];
    return known === undefined ? { content: [{ type: "text", text: "no such review" }], isError: true } : { content: [], structuredContent: known };
  });
  await page.setViewportSize({ width: 900, height: 700 });
  await frame.locator(".between").nth(1).getByRole("button", { name: "Show all" }).click();
  await expect(frame.getByText("line 94 has a word in it")).toBeVisible();
  expect(queries).toEqual(["old=94&count=500"]);
  for (let presses = 0; presses < 51; presses += 1) await frame.locator("body").press("n");
  await expect(frame.locator(".where")).toHaveText("51 of 88");
  // The line arrives after a person has scrolled there.
  there();
  await expect(frame.locator(".here .t")).toHaveText("line 4590 has a word in it");
  await expect(frame.locator(".here")).toBeFocused();
  expect(queries).toContain("from=400&count=500");
});

test("a failed load of lines can be retried", async ({ page, site }) => {
  let there = false;
  const { review, page: paged } = large(10_000);
  const { frame } = await hosted(page, site, await embedded(review), (_method, { uri = "" }) => {
    if (uri.endsWith(".state")) return contents({ changes: ["same"] });
    return there ? contents(paged(new URLSearchParams(uri.split("?")[1]))) : contents({ rows: [] });
  });
  await expect(rows(frame).first()).toBeVisible();
  await frame.evaluate(() => scrollTo(0, document.documentElement.scrollHeight / 2));
  const alert = frame.getByRole("alert");
  await expect(alert).toContainText("Cannot load more lines");
  there = true;
  // Scrolling may trigger a retry that hides the alert briefly; the press must count regardless.
  await alert.getByRole("button", { name: "Try again" }).dispatchEvent("click");
  await expect(alert).toBeHidden();
  await expect(frame.getByRole("table")).toBeFocused();
  // Also retried automatically when other lines are needed.
  there = false;
  await frame.evaluate(() => scrollTo(0, document.documentElement.scrollHeight));
  await expect(alert).toBeVisible();
  there = true;
  await frame.evaluate(() => scrollTo(0, document.documentElement.scrollHeight * 0.8));
  await expect(alert).toBeHidden();
});

test("without a host, lines that the page does not contain are shown as not loaded", async ({ page, site }) => {
  site.put("/", await embedded(large(10_000).review));
  await page.goto(site.origin);
  await expect(page.getByRole("row").first()).toBeVisible();
  await page.evaluate(() => scrollTo(0, document.documentElement.scrollHeight / 2));
  await expect(page.getByRole("alert")).toContainText("Cannot load more lines: this page is not connected to its server");
  const inView = () =>
    page.evaluate(() => [
      ...new Set(
        [...document.querySelectorAll(".t")]
          .filter((cell) => {
            const { top } = cell.getBoundingClientRect();
            return top > 0 && top < innerHeight;
          })
          .map((cell) => cell.textContent),
      ),
    ]);
  await expect.poll(inView).toEqual(["Line not loaded"]);
});

test("lines that are needed during a failing load are loaded after it", async ({ page, site }) => {
  const queries: string[] = [];
  let fail = (): void => undefined;
  const failure = new Promise<void>((done) => (fail = done));
  const { review, page: paged } = large(10_000);
  const { frame } = await hosted(page, site, await embedded(review), async (_method, { uri = "" }) => {
    if (uri.endsWith(".state")) return contents({ changes: ["same"] });
    const query = uri.split("?")[1] ?? "";
    queries.push(query);
    if (queries.length > 1) return contents(paged(new URLSearchParams(query)));
    await failure;
    return contents({ rows: [] });
  });
  await expect(rows(frame).first()).toBeVisible();
  await frame.evaluate(() => scrollTo(0, document.documentElement.scrollHeight / 2));
  await expect.poll(() => queries.length).toBe(1);
  // The last row stands for the lines after the last change.
  const last = Number(await frame.getByRole("table").getAttribute("aria-rowcount")) - 1;
  const row = frame.locator(`[aria-rowindex="${last}"]`);
  await frame.evaluate(() => scrollTo(0, document.documentElement.scrollHeight));
  await expect(row).toBeVisible();
  expect(queries).toHaveLength(1);
  fail();
  await expect(row.locator(".t")).toHaveText(/\S/);
  await expect(frame.getByRole("alert")).toBeHidden();
});

test("invalid line counts do not break the layout", async ({ page, site }) => {
  const [change] = samples.edit.changes;
  for (const hunks of [[[1, 1, 1, 1, 0, 1e12, 1e12]], [[1, 1e12, 1, 1, 0, 1, 1]], [[1, 1, 1, 1, 0, 1, 1]]]) {
    site.put("/", await embedded({ ...samples.edit, changes: [{ ...change, hunks, rows: [["-", 1, 0, "old"], ["+", 0, 1, "new"]], around: [], old_lines: 1e12 }] }));
    await page.goto(site.origin);
    await expect(page.locator("html")).toHaveAttribute("data-review", "ready");
    await expect(page.getByRole("button", { name: "Show all" })).toHaveCount(0);
  }
  await expect(page.getByRole("table")).toContainText("new");
});

test("a truncated line can be expanded, and failures are reported", async ({ page, site }) => {
  const { frame } = await hosted(page, site, await embedded(samples.batch), (_method, { uri = "" }) => {
    if (uri.endsWith("change=2&from=1&whole=1")) return contents({ change: 2, rows: [["+", 0, 1, "the whole line"]] });
    throw new Error("it is gone");
  });
  const file = frame.locator(".file", { hasText: "/repo/data.js" });
  await file.getByRole("button", { name: "Show all 3016 characters" }).click();
  await expect(file.getByText("the whole line")).toBeVisible();
  site.put("/", await embedded(samples.paged));
  await page.goto(site.origin);
  await page.locator(".between").first().getByRole("button", { name: "Show all" }).click();
  await expect(page.getByRole("alert")).toContainText("not connected to its server");
});

test("reports files that changed since the preview", async ({ page, site }) => {
  let state: string[] = ["same"];
  const { frame } = await hosted(page, site, await embedded(samples.edit), (_method, { uri = "" }) => {
    expect(uri).toBe(`${samples.edit.uri}.state`);
    return contents({ changes: state });
  });
  const banner = frame.locator(".stale");
  await expect(banner).toBeHidden();
  state = ["changed"];
  await frame.evaluate(() => dispatchEvent(new Event("focus")));
  await expect(banner).toContainText("Changed since this preview");
  await expect(banner).toContainText("/repo/src/parser.rs");
  state = ["unknown"];
  await frame.evaluate(() => dispatchEvent(new Event("focus")));
  await expect(banner).toBeHidden();
});

test("hunks can be excluded only in a permission request, and the host is notified", async ({ page, site }) => {
  const { frame, said, tell } = await hosted(page, site, await built("review.html"), () => contents({ changes: [] }));
  const told = async () => (await said()).filter(({ method }) => method === "dev.bailiwick/notifications/left-out").map(({ params }) => params);
  await expect(frame.locator("p.none")).toHaveText("Waiting for the call…");
  await tell("dev.bailiwick/notifications/review", { review: samples.edit });
  await expect(rows(frame).first()).toBeVisible();
  await expect(frame.getByRole("checkbox")).toHaveCount(0);
  await tell("dev.bailiwick/notifications/review", { asked: true });
  await expect(frame.getByRole("checkbox").first()).toBeChecked();
  expect(await told()).toEqual([]);
  await frame.getByRole("checkbox", { name: "Make this change (2 of 4)" }).press("Space");
  await expect(frame.locator(".left-out")).toHaveText("1 of 4 changes are left out.");
  await expect.poll(told).toEqual([{ left_out: [{ path: "/repo/src/parser.rs", hunks: [1] }] }]);
  // The lines of an excluded hunk are dimmed, and are not counted.
  await expect(frame.locator(".bar .counts")).toHaveCount(0);
  await expect(frame.locator(".file > summary .counts")).toHaveText("+3−3");
  await expect(frame.locator(".out .t.add")).toHaveText(["line 140 has a change in it", "line 141 had", "and one more line that never was there before has a word in it"]);
  await frame.getByRole("button", { name: "Side by side" }).click();
  await expect(frame.getByRole("checkbox", { name: "Make this change (2 of 4)" })).not.toBeChecked();
  await frame.getByRole("checkbox", { name: "Make this change (2 of 4)" }).check();
  await expect.poll(told).toEqual([{ left_out: [{ path: "/repo/src/parser.rs", hunks: [1] }] }, { left_out: [] }]);
  await expect(frame.locator(".left-out")).toBeHidden();
});

test("a pending call shows its preview, a finished call its result", async ({ page, site }) => {
  const calls: unknown[] = [];
  const { frame, tell } = await hosted(
    page,
    site,
    await built("review.html"),
    (method, { uri = "", name, arguments: input }) => {
      if (method === "tools/call") {
        calls.push([name, input]);
        return { content: [], structuredContent: { review: "ui://edit_file/PREVIEW" } };
      }
      if (uri.endsWith(".state")) return contents({ changes: [] });
      return contents(uri.includes("PREVIEW") ? samples.edit : { ...samples.edit, preview: false });
    },
    { theme: "dark", toolInfo: { tool: { name: "edit_file", inputSchema: { type: "object" } } } },
  );
  await tell("ui/notifications/tool-input", { arguments: { path: "/repo/src/parser.rs" } });
  await expect(frame.getByText("Preview: nothing is done yet")).toBeVisible();
  expect(calls).toEqual([["preview_call", { tool: "edit_file", arguments: { path: "/repo/src/parser.rs" } }]]);
  await expect(frame.locator("html")).toHaveCSS("color-scheme", "dark");
  await tell("ui/notifications/tool-result", {
    content: [{ type: "text", text: "edited" }, { type: "resource_link", name: "review", uri: "ui://edit_file/DONE" }],
  });
  await expect(frame.getByText("Done", { exact: true })).toBeVisible();
  await tell("ui/notifications/tool-result", { content: [{ type: "text", text: "NO_MATCH: nothing" }], isError: true });
  await expect(frame.locator("p.none")).toHaveText("NO_MATCH: nothing");
  await tell("ui/notifications/tool-cancelled", { reason: "x" });
  await expect(frame.locator("p.none")).toHaveText("The call was cancelled.");
});

test("accepts messages only from the embedding host", async ({ page, site }) => {
  site.put("/", await built("review.html"));
  await page.goto(site.origin);
  await expect(page.locator("p.none")).toHaveText("Nothing to review.");
  await page.evaluate((review) => postMessage({ jsonrpc: "2.0", method: "dev.bailiwick/notifications/review", params: { review } }), samples.edit);
  await page.evaluate(() => new Promise((done) => setTimeout(done)));
  await expect(page.locator("p.none")).toBeVisible();
});

test("works in the official AppBridge", async ({ page, sites }) => {
  const [site, other] = [await sites(), await sites()];
  other.put("/view", await built("review.html"));
  site.put("/", await pageOf(`
    import { AppBridge, PostMessageTransport } from "@modelcontextprotocol/ext-apps/app-bridge";
    const review = ${JSON.stringify(samples.edit).replaceAll("<", "\\u003c")};
    const capabilities = { serverTools: {}, serverResources: {} };
    const bridge = new AppBridge(null, { name: "basic", version: "1" }, capabilities, { hostContext: { theme: "light" } });
    bridge.onreadresource = async ({ uri }) => ({ contents: [{ uri, mimeType: "application/json", text: JSON.stringify(uri.endsWith(".rows") ? review : { changes: ["changed"] }) }] });
    bridge.onsizechange = ({ height }) => { document.body.dataset.height = String(height); };
    bridge.oninitialized = async () => {
      await bridge.sendToolInput({ arguments: {} });
      await bridge.sendToolResult({ content: [{ type: "resource_link", name: "review", uri: review.uri }] });
    };
    window.teardown = () => bridge.teardownResource({});
    const frame = document.createElement("iframe");
    frame.sandbox = "allow-scripts";
    frame.style = "width: 900px; height: 600px";
    document.body.append(frame);
    bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow));
    frame.src = "${other.origin}/view";`));
  await page.goto(site.origin);
  const frame = page.frameLocator("iframe");
  await expect(frame.getByText("line 70 has a change in it")).toBeVisible();
  await expect(frame.locator(".stale")).toBeVisible();
  await expect.poll(() => page.evaluate(() => Number(document.body.dataset.height))).toBeGreaterThan(400);
  expect(await page.evaluate(() => Number(document.body.dataset.height))).toBeLessThanOrEqual(1000);
  expect(await page.evaluate(() => (window as unknown as { teardown(): Promise<unknown> }).teardown())).toEqual({});
});

test("works in mcp-view with an embedded review", async ({ page, sites }) => {
  const site = await hostPage(sites, "same port", { "ui://review": await built("review.html") }, `
    const review = ${JSON.stringify(samples.edit).replaceAll("<", "\\u003c")};
    view.src = "ui://review";
    view.data = { review, asked: true };
    window.told = [];
    view.onnotification = (method, params) => told.push([method, params]);
    view.resolver = ((pages) => (uri) => uri.endsWith(".state") ? { uri, mimeType: "application/json", text: '{"changes":["changed"]}' } : pages(uri))(view.resolver);
  `);
  await page.goto(site.origin);
  await expect(page.locator("#view")).toHaveAttribute("data-status", "ready");
  const frame = innermost(page);
  await expect(frame.locator(".stale")).toBeVisible();
  await frame.getByRole("checkbox").first().uncheck();
  await expect.poll(() => page.evaluate(() => (window as unknown as { told: unknown[] }).told)).toEqual([
    ["dev.bailiwick/notifications/left-out", { left_out: [{ path: "/repo/src/parser.rs", hunks: [0] }] }],
  ]);
});
