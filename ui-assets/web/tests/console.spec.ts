import type { Locator, Page } from "@playwright/test";

import { FakeHost, changes, grant, question } from "./fake-host.ts";
import { barriers, expect, test } from "./fixtures.ts";

const CALM = 700;
const run = "00000000000000ab";
const yes = (page: Page) => page.getByRole("button", { name: /^Allow/ });
const calm = (page: Page): Promise<void> => page.clock.runFor(CALM);
/** Presses a button after the delay in which presses are ignored. */
async function press(page: Page, button: Locator): Promise<void> {
  await expect(button).toBeEnabled();
  await calm(page);
  await button.click();
}
const tab = (page: Page, name: string) => page.getByRole("navigation").getByRole("button", { name });

test("shows one question at a time and the number of others", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  host.state.questions = [question(1), question(2), question(3)];
  await host.open(page, site);
  await expect(page.locator("permission-prompt")).toHaveCount(1);
  await expect(page.getByRole("heading", { name: "Replace 3 lines in c1.txt" })).toBeVisible();
  await expect(page).toHaveTitle("(3) Permissions");
  await press(page, page.getByRole("button", { name: "2 more waiting: next" }));
  await expect(page.getByRole("heading", { name: "Replace 3 lines in c2.txt" })).toBeVisible();
  await expect(yes(page)).toBeEnabled();
  await press(page, yes(page));
  await expect(page.getByRole("heading", { name: "Replace 3 lines in c3.txt" })).toBeVisible();
  expect(host.to("answer")).toEqual([
    {
      question: `${run}-2`,
      session: "main",
      answer: { allow: { patterns: ["write:file:/a/b/c.txt"], lifetime: "once", descendants: false, left_out: [] } },
    },
  ]);
});

test("a new question keeps the current one and the focus", async ({ page, site }) => {
  const host = new FakeHost();
  host.state.questions = [question(2)];
  await host.open(page, site);
  await page.getByLabel("For this session").check();
  host.state.questions = [question(1), question(2)];
  host.changed();
  await expect(page.getByRole("button", { name: "1 more waiting: next" })).toBeVisible();
  await expect(page.getByRole("heading", { name: "Replace 3 lines in c2.txt" })).toBeVisible();
  await expect(page.getByLabel("For this session")).toBeFocused();
  await expect(yes(page)).toHaveText("Allow this for this session");
});

test("a call cannot be allowed before its preview is loaded", async ({ page, site }) => {
  const host = new FakeHost();
  host.state.questions = [question(1)];
  let there: (value: unknown) => void = () => undefined;
  host.answers.set(`review/${run}-1`, new Promise((resolve) => (there = resolve)));
  await host.open(page, site);
  await expect(page.getByText("Loading preview…")).toBeVisible();
  await expect(yes(page)).toBeDisabled();
  there(changes());
  await expect(page.getByText("two 40")).toBeVisible();
  await expect(yes(page)).toBeEnabled();
});

test("a failed preview blocks allowing until a retry succeeds", async ({ page, site }) => {
  const host = new FakeHost();
  host.state.questions = [question(1)];
  host.answers.set(`review/${run}-1`, new Error("gone"));
  await host.open(page, site);
  await expect(page.getByRole("alert")).toHaveText("gone");
  await expect(yes(page)).toBeDisabled();
  host.answers.delete(`review/${run}-1`);
  await page.getByRole("button", { name: "Try again" }).click();
  await expect(yes(page)).toBeEnabled();
});

test("hunks can be excluded, but not all of them", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  host.state.questions = [question(1)];
  await host.open(page, site);
  await page.getByLabel("Make this change (2 of 2)").uncheck();
  await expect(yes(page)).toHaveText("Allow what is ticked once");
  await page.getByLabel("Make this change (1 of 2)").uncheck();
  await expect(yes(page)).toBeDisabled();
  await page.getByLabel("Make this change (1 of 2)").check();
  await press(page, yes(page));
  await expect(page.getByText("No pending requests")).toBeVisible();
  expect(host.to("answer")).toMatchObject([{ answer: { allow: { left_out: [{ path: "/a/b/c.txt", hunks: [1] }] } } }]);
});

test("an indivisible change has no checkboxes", async ({ page, site }) => {
  const host = new FakeHost();
  host.state.questions = [question(1, { divisible: false })];
  await host.open(page, site);
  await expect(page.getByText("two 40")).toBeVisible();
  await expect(page.locator(".diff input")).toHaveCount(0);
});

test("a question answered elsewhere stays visible until dismissed", async ({ page, site }) => {
  const host = new FakeHost();
  host.state.questions = [question(1), question(2)];
  await host.open(page, site);
  await expect(page.getByRole("heading", { name: "Replace 3 lines in c1.txt" })).toBeVisible();
  host.answers.set(`question/${run}-1`, { question: `${run}-1`, status: "granted", granted: ["write:file:/a/b/c.txt"] });
  host.state.questions = [question(2)];
  host.changed();
  await expect(page.getByText("Answered elsewhere: allowed write:file:/a/b/c.txt")).toBeVisible();
  await page.getByRole("button", { name: "Next", exact: true }).click();
  await expect(page.getByRole("heading", { name: "Replace 3 lines in c2.txt" })).toBeVisible();
});

test("a rejected answer shows its error and can be repeated", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  host.state.questions = [question(1)];
  host.answers.set("answer", new Error("the answer covers more than may be granted"));
  await host.open(page, site);
  await expect(yes(page)).toBeEnabled();
  await press(page, yes(page));
  await expect(page.getByText("the answer covers more than may be granted")).toBeVisible();
  host.answers.delete("answer");
  await press(page, yes(page));
  await expect(page.getByText("No pending requests")).toBeVisible();
});

test("similar questions can be answered together", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  host.state.questions = [question(1), question(2), question(3)];
  const questions = [1, 2, 3].map((n) => `${run}-${n}`);
  host.state.batches = [{ session: "main", verb: "write", resource: "file", folder: "/a/b", questions } as never];
  await host.open(page, site);
  await press(page, page.getByRole("button", { name: "Review 3 similar requests" }));
  await expect(page.getByRole("heading", { name: "3 questions to write files beneath /a/b" })).toBeVisible();
  await expect(page.getByRole("button", { name: "Allow 0 ticked, once" })).toBeDisabled();
  await page.getByLabel(/c1\.txt/).check();
  await page.getByLabel(/c3\.txt/).check();
  await press(page, page.getByRole("button", { name: "Allow 2 ticked, once" }));
  await expect(page.getByText("granted")).toHaveCount(2);
  expect(host.to("answer-batch")).toMatchObject([{ answers: [{ question: questions[0] }, { question: questions[2] }] }]);
  await page.getByRole("button", { name: "One by one" }).click();
  await expect(page.getByRole("heading", { name: "Replace 3 lines in c2.txt" })).toBeVisible();
});

test("a batch item cannot be checked before its preview is loaded", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  host.state.questions = [question(1), question(2)];
  host.state.batches = [{ session: "main", verb: "write", resource: "file", questions: [`${run}-1`, `${run}-2`] } as never];
  host.answers.set(`review/${run}-1`, new Error("gone"));
  await host.open(page, site);
  await press(page, page.getByRole("button", { name: /similar requests/ }));
  await expect(page.getByLabel(/c2\.txt/)).toBeEnabled();
  await expect(page.getByLabel(/c1\.txt/)).toBeDisabled();
});

test("a suggested rule is added only on request", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  host.state.questions = [question(1), question(2)];
  host.state["tallies"] = [{ session: "main", allowed: 2, denied: 1 }];
  const suggestion = { run, agent: "main/worker-3", pattern: "write:file:/a/b", covers: "change or remove everything beneath /a/b, now and later", spares: 3, holder: { session: { session: "main", worker: 3 } }, lifetime: "session" };
  host.answers.set("suggestions", { suggestion });
  await host.open(page, site);
  await expect(page.getByText("In this session you allowed 2 of 3.")).toBeVisible();
  await expect(yes(page)).toBeEnabled();
  await press(page, yes(page));
  await expect(page.getByText("You allowed 3 questions like this.")).toBeVisible();
  await expect(page.getByText("to change or remove everything beneath /a/b")).toBeVisible();
  expect(host.to("grant")).toEqual([]);
  // The button appeared under a possible press, so this one is ignored.
  await page.getByRole("button", { name: "Add this rule" }).click();
  expect(host.to("grant")).toEqual([]);
  await press(page, page.getByRole("button", { name: "Add this rule" }));
  await expect(page.getByText("You allowed 3 questions like this.")).toHaveCount(0);
  const { spares: _spares, agent: _agent, covers: _covers, ...given } = suggestion;
  expect(host.to("grant")).toEqual([given]);
});

test("a page without the secret shows only an error", async ({ page, site }) => {
  const host = new FakeHost();
  host.state.questions = [question(1)];
  await host.open(page, site);
  await expect(page.getByRole("heading", { name: "Replace 3 lines in c1.txt" })).toBeVisible();
  await page.evaluate(() => sessionStorage.clear());
  await page.reload();
  await expect(page.getByRole("alert")).toHaveText(/Open the address that the host printed last/);
  await expect(page.locator("permission-prompt")).toHaveCount(0);
});

test("turning off a verb revokes all its grants after confirmation", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  const later = Date.now() + 3_600_000;
  host.state.grants = [
    grant(1, { uses_left: 2, expires_at: later, descendants: true }),
    grant(2, { used: 0, used_at: null }),
    grant(3, { verb: "read", pattern: "read:file:/a" }),
  ];
  await host.open(page, site);
  await tab(page, "Permissions").click();
  await expect(page.getByRole("switch")).toHaveCount(3);
  await expect(page.getByRole("switch", { name: "Run without asking" })).not.toBeChecked();
  await page.locator("summary", { hasText: "Rules" }).nth(1).click();
  for (const words of ["2 uses left", "sub-agents too", "never used"]) await expect(page.getByText(words).first()).toBeVisible();
  await expect(page.getByText(/^ends in 59:\d\d$/)).toBeVisible();
  const change = page.getByRole("switch", { name: "Change without asking" });
  await press(page, change);
  expect(host.to("revoke")).toEqual([]);
  await expect(change).toHaveText("Revoke 2?");
  await expect(change).toHaveAccessibleName("Change without asking: Revoke 2?");
  // The second press of a double press is ignored.
  await change.click();
  expect(host.to("revoke")).toEqual([]);
  await press(page, change);
  await expect.poll(() => host.to("revoke")).toEqual([{ grants: [`${run}-1`, `${run}-2`] }]);
  host.state.grants = host.state.grants.slice(2);
  host.changed();
  await expect(change).not.toBeChecked();
});

test("a grant can be revoked while it is updated", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  host.state.grants = [grant(1, { used: 3, uses_left: 9 }), grant(2, {})];
  await host.open(page, site);
  await tab(page, "Permissions").click();
  await page.locator("summary", { hasText: "Rules" }).click();
  const button = page.getByRole("button", { name: "Revoke" }).first();
  await calm(page);
  await button.hover();
  await page.mouse.down();
  host.state.grants = [grant(1, { used: 4, uses_left: 8 }), grant(2, {})];
  host.changed();
  await expect(page.getByText(/^used 4×/)).toBeVisible();
  await expect(page.getByText("8 uses left")).toBeVisible();
  await page.mouse.up();
  await expect.poll(() => host.to("revoke")).toEqual([{ grants: [`${run}-1`] }]);
});

test("a change of line endings is visible", async ({ page, site }) => {
  const host = new FakeHost();
  const lines = [{ op: "-", text: "same\r\n" }, { op: "+", text: "same\n" }];
  host.state.questions = [question(1)];
  host.answers.set(`review/${run}-1`, changes({ hunks: [{ old_start: 1, new_start: 1, lines }] }));
  await host.open(page, site);
  await expect(page.locator(".t.del")).toHaveText("sameCRLF");
  await expect(page.locator(".t.add")).toHaveText("same");
  await expect(page.locator(".note")).toHaveText("Some lines end in CRLF.");
});

test("grants can be revoked together, narrowed and filtered", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  host.state.grants = [grant(1, { descendants: true }), grant(2, { pattern: "write:file:/a/c" }), grant(3, { pattern: "write:mcp:hub", held: "agent other", whose: ["agent other", "server hub"] })];
  await host.open(page, site);
  await tab(page, "Permissions").click();
  await page.locator("summary", { hasText: "Rules" }).first().click();
  await page.getByLabel("Choose write:file:/a/b").check();
  await page.getByLabel("Choose write:file:/a/c").check();
  await press(page, page.getByRole("button", { name: "Revoke 2 chosen" }));
  await expect.poll(() => host.to("revoke")).toEqual([{ grants: [`${run}-1`, `${run}-2`] }]);
  await page.locator("summary", { hasText: "Narrow" }).first().click();
  await page.getByLabel("Remaining").first().fill("write:file:/a/b/x");
  await page.getByLabel("Uses left").first().fill("2");
  await page.getByLabel("Not its sub-agents").first().check();
  await page.getByRole("button", { name: "Narrow to this" }).first().click();
  await expect.poll(() => host.to("narrow")).toEqual([{ grant: `${run}-1`, pattern: "write:file:/a/b/x", uses: 2, holder_only: true }]);
  host.answers.set("narrow", new Error("a grant can only be narrowed"));
  await page.getByRole("button", { name: "Narrow to this" }).first().click();
  await expect(page.getByRole("alert")).toHaveText("a grant can only be narrowed");
  await page.getByLabel("Whose").selectOption("server hub");
  await expect(page.getByRole("button", { name: "Revoke" })).toHaveCount(1);
  await page.getByLabel("Whose").selectOption("agent main/tests");
  await expect(page.locator("li")).toHaveCount(2);
});

test("a template is applied only as previewed", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  host.answers.set("template-rules", { rules: ["read:file:/a", "write:file:/a/reviews"] });
  await host.open(page, site);
  await tab(page, "Permissions").click();
  await page.getByText("Allow without asking").click();
  await page.getByRole("combobox", { name: "What" }).selectOption("reviewer");
  await page.getByLabel("Agent, by its path").fill("main/tests");
  await page.getByRole("button", { name: "Show the rules" }).click();
  await expect(page.getByText("write:file:/a/reviews")).toBeVisible();
  expect(host.to("grant-template")).toEqual([]);
  // Editing the form clears the previewed rules.
  await page.getByLabel("Agent, by its path").fill("main/docs");
  await expect(page.getByText("write:file:/a/reviews")).toHaveCount(0);
  await page.getByRole("button", { name: "Show the rules" }).click();
  await press(page, page.getByRole("button", { name: "Allow exactly this" }));
  const applied = { run, template: "reviewer", roots: ["/a"], holder: { agent: "main/docs" }, lifetime: { for_ms: 3_600_000 } };
  await expect.poll(() => host.to("grant-template")).toEqual([applied]);
});

test("a denial for a session can be withdrawn", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  host.state["refusals"] = [{ run, refusal: 4, agent: "main/worker-3", session: "main", refused: "change /a/x" }];
  await host.open(page, site);
  await tab(page, "Permissions").click();
  await expect(page.getByRole("listitem").filter({ hasText: "change /a/x" })).toBeVisible();
  await press(page, page.getByRole("button", { name: "Ask again" }));
  await expect.poll(() => host.to("ask-again")).toEqual([{ run, refusal: 4 }]);
});

const past = {
  chain: { state: "verified", records: 12 },
  words: "✓ The record is whole: 12 records, each continues the one before.",
  entries: [
    { run: 1, at: 1_700_000_000_000, agent: "main", tool: "edit_file", decision: "denied", by: "person", entry: "question", needs: ["write:file:/a/x"], note: "not now" },
    { run: 1, at: 1_700_000_001_000, agent: "", decision: "granted", by: "person", entry: "signed_in", server: "mail", issuer: "https://a.example", scopes: ["mail.read"], tool_there: "send" },
    { run: 1, at: 1_700_000_002_000, agent: "main", tool: "delete", by: "nobody", entry: "call", outcome: "failed", begun: true, needs: ["write:file:/a/t"] },
    { run: 1, at: 1_700_000_003_000, agent: "main", tool: "delete", by: "nobody", entry: "call", outcome: "failed", begun: true, code: "DEADLINE", needs: ["write:file:/a/u"] },
  ],
  total: 150,
  tally: { granted: 3, denied: 1, expired: 0, cancelled: 0, open: 0 },
  unused: [{ run: 1, grant: 3, pattern: "write:file:/never" }],
  agents: ["main", "main/tests"],
  tools: ["edit_file"],
  sessions: ["talk"],
  runs: [1, 2],
};

test("the history can be filtered, paged and exported", async ({ page, site }) => {
  const host = new FakeHost();
  host.answers.set("history", past);
  await host.open(page, site);
  await tab(page, "History").click();
  await expect(page.getByText("✓ The record is whole: 12 records")).toBeVisible();
  await expect(page.getByText("150 entries. Questions: 3 granted, 1 denied")).toBeVisible();
  for (const words of ["write:file:/a/x", "write:file:/never", "not now", "mail.read", "mail https://a.example send"]) await expect(page.getByText(words)).toBeVisible();
  const unknown = "The effect began, but its end is not recorded.";
  await expect(page.getByRole("row").filter({ hasText: "/a/t" })).toContainText(unknown);
  await expect(page.getByRole("row").filter({ hasText: "/a/u" })).toContainText("DEADLINE");
  await expect(page.getByText(unknown)).toHaveCount(1);
  await page.getByLabel("Agent").selectOption("main/tests");
  await page.getByLabel("Tool").selectOption("edit_file");
  await page.getByLabel("Decision").selectOption("denied");
  await page.getByLabel("Session").selectOption("talk");
  await page.getByLabel("Run").selectOption("2");
  await expect.poll(() => host.to("history").at(-1)).toEqual({ source: run, agent: "main/tests", tool: "edit_file", decision: "denied", session: "talk", run: 2, skip: 0 });
  await page.getByRole("button", { name: "Older" }).click();
  await expect.poll(() => host.to("history").at(-1)).toMatchObject({ skip: 100 });
  const download = page.waitForEvent("download");
  await page.getByRole("button", { name: "Export" }).click();
  expect((await download).suggestedFilename()).toBe("history.jsonl");
});

test("a broken hash chain is reported with its position", async ({ page, site }) => {
  const host = new FakeHost();
  host.answers.set("history", { ...past, chain: { state: "broken" }, words: "✗ The record is broken at record 17: the line was changed. Nothing from there on is shown." });
  await host.open(page, site);
  await tab(page, "History").click();
  await expect(page.getByText("✗ The record is broken at record 17: the line was changed.")).toBeVisible();
});

test("hostile lines, names and rules are rendered as plain text", async ({ page, site }) => {
  const host = new FakeHost();
  const bad = `<img src=x onerror="document.title='bad'">\u202E\u200b`;
  const policy: string[] = [];
  page.on("console", (message) => policy.push(message.text()));
  const hunks = [{ old_start: 1, new_start: 1, lines: [{ op: "+", text: bad + "x".repeat(10_000) }] }];
  host.state.questions = [question(1, { intent: bad, agent: [bad], needs: [bad] })];
  host.answers.set(`review/${run}-1`, changes({ path: bad, hunks }));
  host.state.grants = [grant(1, { pattern: bad, held: bad, whose: [bad] })];
  host.answers.set("history", { ...past, entries: [{ ...past.entries[0], agent: bad, needs: [bad], note: bad, rule: bad }, { ...past.entries[1], server: bad, issuer: bad, scopes: [bad] }], agents: [bad] });
  await host.open(page, site);
  const inert = async (): Promise<void> => {
    await expect(page.getByText("<img src=x").filter({ visible: true }).first()).toBeVisible();
    await expect(page.locator("img")).toHaveCount(0);
    expect(await page.locator("main").textContent()).not.toMatch(/[\u202e\u200b]/u);
  };
  await expect(page.locator(".t.add")).toBeVisible();
  await inert();
  expect((await page.locator(".t.add").textContent())?.length).toBeLessThan(2_100);
  await page.getByRole("button", { name: /^Show all \d+ characters$/ }).click();
  await expect.poll(async () => (await page.locator(".t.add").textContent())?.length).toBeGreaterThan(10_000);
  await tab(page, "Permissions").click();
  await page.locator("summary", { hasText: "Rules" }).click();
  await inert();
  await tab(page, "History").click();
  await expect(page.getByRole("table")).toBeVisible();
  await inert();
  await expect(page).toHaveTitle("(1) Permissions");
  expect(policy).toEqual([]);
});

test("a change of ten thousand lines is virtualized", async ({ page, site }) => {
  const host = new FakeHost();
  const lines = Array.from({ length: 10_000 }, (_, n) => ({ op: "+", text: `line ${n}\n` }));
  host.state.questions = [question(1)];
  host.answers.set(`review/${run}-1`, changes({ hunks: [{ old_start: 0, new_start: 1, lines }], op: "create" }));
  await host.open(page, site);
  await expect(page.getByRole("table")).toHaveAttribute("aria-rowcount", "10000");
  await expect(page.getByText("line 0", { exact: true })).toBeVisible();
  expect(await page.locator("*").count()).toBeLessThan(1000);
  await page.locator(".diff").evaluate((diff) => (diff.scrollTop = diff.scrollHeight));
  await expect(page.getByText("line 9999", { exact: true })).toBeVisible();
  expect(await page.locator("*").count()).toBeLessThan(1000);
});

test("a pressed and focused button survives an update", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  host.state.questions = [question(1), question(2)];
  host.state["tallies"] = [{ session: "main", allowed: 0, denied: 1 }];
  await host.open(page, site);
  const next = page.getByRole("button", { name: "1 more waiting: next" });
  await expect(next).toBeVisible();
  await calm(page);
  await next.focus();
  await next.hover();
  await page.mouse.down();
  host.state["tallies"] = [{ session: "main", allowed: 1, denied: 1 }];
  host.changed();
  await expect(page.getByText("you allowed 1 of 2")).toBeVisible();
  await expect(next).toBeFocused();
  await page.mouse.up();
  await expect(page.getByRole("heading", { name: "c2.txt" })).toBeVisible();
});

test("a new button ignores presses at first", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  host.state.questions = [question(1)];
  await host.open(page, site);
  await expect(yes(page)).toBeEnabled();
  host.state.questions = [question(1), question(2)];
  host.changed();
  const next = page.getByRole("button", { name: "1 more waiting: next" });
  await next.click();
  await expect(page.getByRole("heading", { name: "c1.txt" })).toBeVisible();
  await press(page, next);
  await expect(page.getByRole("heading", { name: "c2.txt" })).toBeVisible();
});

test("skipped questions come up again in order", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  host.state.questions = [question(1), question(2), question(3)];
  await host.open(page, site);
  for (const name of ["c2.txt", "c3.txt", "c1.txt", "c2.txt", "c3.txt"]) {
    await press(page, page.getByRole("button", { name: "2 more waiting: next" }));
    await expect(page.getByRole("heading", { name })).toBeVisible();
  }
});

test("a pending confirmation and typed input survive an update", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  host.state.grants = [grant(1), grant(2, { pattern: "write:file:/a/c" })];
  await host.open(page, site);
  await tab(page, "Permissions").click();
  const change = page.getByRole("switch", { name: "Change without asking" });
  await press(page, change);
  await page.locator("summary", { hasText: "Rules" }).click();
  await page.locator("summary", { hasText: "Narrow" }).first().click();
  const uses = page.locator(".verb", { hasText: "Change" }).getByLabel("Uses left").first();
  await uses.fill("7");
  host.state.grants = [...host.state.grants, grant(3, { pattern: "write:file:/a/d" }), grant(4, { verb: "read", pattern: "read:file:/a" })];
  host.changed();
  await expect(change).toHaveText("Revoke 3?");
  await expect(uses).toHaveValue("7");
  await expect(uses).toBeFocused();
  // It would revoke something other than what was shown.
  await change.click();
  expect(host.to("revoke")).toEqual([]);
  await press(page, change);
  await expect.poll(() => host.to("revoke")).toEqual([{ grants: [1, 2, 3].map((n) => `${run}-${n}`) }]);
});

test("third-party calls and calls without a preview are not batched", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  host.state.questions = [question(1), question(2, { trust: "unknown" }), question(3, { preview: null }), question(4)];
  const questions = [1, 2, 3, 4].map((n) => `${run}-${n}`);
  host.state.batches = [{ session: "main", verb: "write", resource: "file", questions } as never];
  await host.open(page, site);
  await press(page, page.getByRole("button", { name: "Review 2 similar requests" }));
  await expect(page.getByLabel(/c4\.txt/)).toBeEnabled();
  await expect(page.getByRole("checkbox")).toHaveCount(2);
});

test("a batch ignores presses after a layout change and can be retried", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  host.state.questions = [question(1), question(2)];
  host.state.batches = [{ session: "main", verb: "write", resource: "file", questions: [`${run}-1`, `${run}-2`] } as never];
  await host.open(page, site);
  await expect(yes(page)).toBeEnabled();
  let there: (value: unknown) => void = () => undefined;
  host.answers.set(`review/${run}-1`, new Promise((resolve) => (there = resolve)));
  await press(page, page.getByRole("button", { name: /similar requests/ }));
  await page.getByLabel(/c2\.txt/).check();
  await calm(page);
  there(changes());
  await expect(page.getByLabel(/c1\.txt/)).toBeEnabled();
  const allow = page.getByRole("button", { name: "Allow 1 ticked, once" });
  await allow.click();
  expect(host.to("answer-batch")).toEqual([]);
  host.answers.set("answer-batch", new Error("cannot be recorded"));
  await press(page, allow);
  await expect(page.getByRole("alert")).toHaveText("cannot be recorded");
  host.answers.set("answer-batch", { answers: [{ question: `${run}-2`, code: "NOT_RECORDED", message: "not yet" }] });
  await press(page, allow);
  await expect(page.getByText("not yet")).toBeVisible();
  host.answers.delete("answer-batch");
  await press(page, allow);
  await expect(page.getByText("granted")).toBeVisible();
  await expect(page.getByLabel(/c2\.txt/)).toBeDisabled();
});

test("a new question is announced to screen readers", async ({ page, site }) => {
  const host = new FakeHost();
  await host.open(page, site);
  const ear = page.locator("main > section > [role=status]");
  await expect(ear).toHaveText("");
  host.state.questions = [question(1)];
  host.changed();
  await expect(ear).toHaveText("1 waiting. Replace 3 lines in c1.txt");
  host.state.questions = [question(1), question(2)];
  host.changed();
  await expect(ear).toHaveText("2 waiting. Replace 3 lines in c1.txt");
});

test("a failed load of the prompt component is retried", async ({ page, site }) => {
  const host = new FakeHost();
  host.state.questions = [question(1)];
  await page.route("**/permission-prompt.js*", (route) => route.abort());
  await host.open(page, site);
  await expect(page.getByRole("alert")).toHaveText("The prompt cannot be loaded. Trying again…");
  await page.unroute("**/permission-prompt.js*");
  await expect(yes(page)).toBeEnabled();
  await expect(page.getByRole("alert")).toHaveCount(0);
});

test("large and binary files have different messages", async ({ page, site }) => {
  const host = new FakeHost();
  for (const [kind, words] of [["large", "Too much changed to be shown line by line."], ["binary", "Binary file (unknown type): 10 bytes, sha256 aaaaaaaaaaaa"]] as const) {
    host.state.questions = [question(1)];
    host.answers.set(`review/${run}-1`, changes({ hunks: [], added: 0, removed: 0, [kind]: true }));
    await page.goto("about:blank");
    await host.open(page, site);
    await expect(page.locator(".file")).toHaveText(`Changed/a/b/c.txt${words}`);
  }
});

test("a deleted directory lists its contents", async ({ page, site }) => {
  const host = new FakeHost();
  const before = { kind: "directory", entries: 3 };
  const first = [
    { path: "sub", kind: "directory", bytes: 0 },
    { path: "a.txt", kind: "file", bytes: 12 },
  ];
  const contents = { files: 2, directories: 1, others: 0, bytes: 20, first };
  host.state.questions = [question(1)];
  host.answers.set(`review/${run}-1`, changes({ op: "delete", path: "/a/old", before, after: { kind: "absent" }, hunks: [], added: 0, removed: 0, contents }));
  await host.open(page, site);
  await expect(page.locator(".file .note")).toHaveText("With everything in it: 2 files, 1 directory, 20 bytes");
  await expect(page.locator(".file li")).toHaveText(["sub/", "a.txt (12 bytes)", "… and 1 more"]);
});

test("broad and permanent rules need confirmation", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  await host.open(page, site);
  await tab(page, "Permissions").click();
  await page.getByText("Allow without asking").click();
  await page.getByLabel("Agent, by its path").fill("main/tests");
  const give = page.getByRole("button", { name: "Allow exactly this" });
  const tick = page.getByLabel(/I understand this grants/);
  for (const [rule, time, needed] of [
    ["write:file:/a/docs", "for 1 hour", false],
    ["write:file", "for 1 hour", true],
    ["write:file:/a/docs", "until I revoke it", true],
  ] as const) {
    await page.getByLabel("Rule", { exact: true }).fill(rule);
    await page.getByLabel("How long").selectOption(time);
    await page.getByRole("button", { name: "Show the rules" }).click();
    await expect(give).toBeVisible();
    await expect(tick).toHaveCount(needed ? 1 : 0);
    await expect(give).toBeEnabled({ enabled: !needed });
  }
  await tick.check();
  await press(page, give);
  await expect(page.getByText("Rule added.")).toBeVisible();
  expect(host.to("grant")).toEqual([{ run, pattern: "write:file:/a/docs", holder: { agent: "main/tests" }, lifetime: "agent" }]);
});

test("a template is applied to the previewed host with the previewed values", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  const other = { run: "00000000000000cd", server: "other", roots: ["/other"], templates: [{ name: "auditor", about: "Reads" }], recorded: false };
  const first = (host.state["sources"] as object[])[0];
  host.state["sources"] = [first, other];
  host.answers.set("template-rules", { rules: ["read:file:/other"] });
  await host.open(page, site);
  await tab(page, "Permissions").click();
  await page.getByText("Allow without asking").click();
  await page.getByLabel("Where").selectOption(other.run);
  await page.getByRole("combobox", { name: "What" }).selectOption("auditor");
  await expect(page.getByLabel("Directories")).toHaveValue("/other");
  await page.getByLabel("Directories").fill("");
  host.state.grants = [grant(1)];
  host.changed();
  await expect(page.getByRole("switch", { name: "Change" })).toBeChecked();
  await expect(page.getByLabel("Directories")).toHaveValue("");
  await page.getByLabel("Directories").fill("/other/docs");
  await page.getByLabel("Agent, by its path").fill("main/tests");
  await page.getByRole("button", { name: "Show the rules" }).click();
  await expect(page.getByText("read:file:/other", { exact: true })).toBeVisible();
  host.state["sources"] = [other, first];
  host.changed();
  await expect(page.getByLabel("Where").locator("option").first()).toHaveAttribute("value", other.run);
  await press(page, page.getByRole("button", { name: "Allow exactly this" }));
  const given = { run: other.run, template: "auditor", roots: ["/other/docs"], holder: { agent: "main/tests" }, lifetime: { for_ms: 3_600_000 } };
  await expect.poll(() => host.to("grant-template")).toEqual([given]);
});

test("an outdated history response is ignored", async ({ page, site }) => {
  const host = new FakeHost();
  let late: (value: unknown) => void = () => undefined;
  host.answers.set("history", past);
  await host.open(page, site);
  await tab(page, "History").click();
  await expect(page.getByText("150 entries.")).toBeVisible();
  host.answers.set("history", new Promise((resolve) => (late = resolve)));
  await page.getByRole("button", { name: "Check again" }).click();
  await expect.poll(() => host.to("history").at(-1)).toMatchObject({ anew: true });
  host.answers.set("history", { ...past, total: 7 });
  await page.getByLabel("Tool").selectOption("edit_file");
  await expect(page.getByText("7 entries.")).toBeVisible();
  const came = page.waitForResponse((response) => (response.request().postData() ?? "").includes("anew"));
  late({ ...past, total: 151 });
  await (await came).finished();
  await page.evaluate(() => new Promise(requestAnimationFrame));
  await expect(page.getByText("7 entries.")).toBeVisible();
});

test("the secret is removed from the browser history", async ({ page, site }) => {
  const host = new FakeHost();
  await host.open(page, site);
  await expect(page.getByText("No pending requests")).toBeVisible();
  expect(page.url()).not.toContain("secret");
  site.put("/elsewhere", "<title>Elsewhere</title>");
  await page.goto(`${site.origin}/elsewhere`);
  await page.goBack();
  await expect(page.getByText("No pending requests")).toBeVisible();
  expect(page.url()).toBe(`${site.origin}/`);
  // A secret pasted into the address of an open page is used, too.
  await page.goto(`${site.origin}/#another`);
  await expect(page.getByRole("alert")).toHaveText(/Open the address that the host printed last/);
  expect(page.url()).toBe(`${site.origin}/`);
});

for (const colorScheme of ["light", "dark"] as const) {
  for (const [forcedColors, zoom] of [
    ["none", 1],
    ["none", 2],
    ["active", 1],
  ] as const) {
    test(`passes accessibility checks: ${colorScheme}, forced colors ${forcedColors}, zoom ${zoom}`, async ({ page, site }) => {
      await page.clock.install();
      await page.emulateMedia({ colorScheme, forcedColors });
      // The size of a 640 px wide window at 200 % zoom.
      await page.setViewportSize({ width: 640 / zoom, height: 900 / zoom });
      const host = new FakeHost();
      host.state.questions = [question(1, { agent: ["main", "a-very-long-name-of-an-agent-".repeat(6)], needs: [`write:file:/${"folder/".repeat(40)}x`] }), question(2)];
      host.state.batches = [{ session: "main", verb: "write", resource: "file", questions: [`${run}-1`, `${run}-2`] } as never];
      host.state.grants = [grant(1, { pattern: `write:file:/${"folder/".repeat(40)}x` })];
      host.answers.set("history", past);
      await host.open(page, site);
      const fits = async (): Promise<void> => {
        expect(await barriers(page)).toEqual([]);
        expect(await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth)).toBeLessThanOrEqual(0);
      };
      await expect(yes(page)).toBeEnabled();
      await fits();
      await press(page, page.getByRole("button", { name: /similar requests/ }));
      await expect(page.getByLabel(/c1\.txt/)).toBeEnabled();
      await fits();
      await tab(page, "Permissions").click();
      await page.locator("summary", { hasText: "Rules" }).click();
      await page.getByText("Allow without asking").click();
      await fits();
      await tab(page, "History").click();
      await expect(page.getByRole("table")).toBeVisible();
      await fits();
    });
  }
}
