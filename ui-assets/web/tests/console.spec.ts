import type { Page } from "@playwright/test";

import { FakeHost, agent, changes, outcome, question } from "./fake-host.ts";
import { barriers, calm, expect, press, stopClock, test } from "./fixtures.ts";
import type { Site } from "./fixtures.ts";

const run = "00000000000000ab";
const yes = (page: Page) => page.getByRole("button", { name: /^Allow(?! or deny)/ });
const title = (page: Page, name: string) => page.getByRole("heading", { name, exact: true });
const numbered = (n: number): string => `Replace 3 lines in c${n}.txt`;
/** A question about a recursive delete. */
const dangerous = (n: number): object =>
  question(n, {
    sentence: `Delete the folder old${n} and the 12 files in it (34 kB)`,
    dangers: [
      { kind: "delete", level: "severe", text: `Deletes the folder old${n} and 12 files` },
      { kind: "secret", level: "severe", text: "old/.env looks like a secret" },
    ],
    files: [{ path: `/a/b/old${n}`, op: "delete", bytes: null }],
    files_total: 13,
  });

test("an answer moves to the next question and shows its result", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  host.state.questions = [question(1), question(2), question(3)];
  await host.open(page, site);
  await expect(page.locator("permission-prompt")).toHaveCount(1);
  await expect(title(page, numbered(1))).toBeVisible();
  await expect(page).toHaveTitle("(3) Questions");
  await page.getByRole("button", { name: numbered(2) }).click();
  await expect(title(page, numbered(2))).toBeFocused();
  await press(page, yes(page));
  await expect(title(page, numbered(3))).toBeFocused();
  await expect(page.getByRole("status").filter({ hasText: `✓ Allowed by you and applied: ${numbered(2)} 2 waiting.` })).toHaveCount(1);
  await expect(page.getByRole("button", { name: "Answered ✓" })).toBeVisible();
  expect(host.to("answer")).toEqual([
    {
      question: `${run}-2`,
      session: "main",
      answer: {
        allow: {
          patterns: [{ pattern: "write:file:/a/b/c.txt", reach: "exact", operations: ["change"] }],
          lifetime: "once",
          descendants: false,
          left_out: [],
        },
      },
    },
  ]);
});

test("every question can be answered with keys alone", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  host.state.questions = [question(1), dangerous(2) as never, question(3), question(4)];
  await host.open(page, site);
  await expect(page.locator(".row")).toHaveCount(4);
  for (const name of [numbered(3), numbered(4), "Delete the folder old2 and the 12 files in it (34 kB)"]) {
    await page.keyboard.press("j");
    await expect(title(page, name)).toBeFocused();
  }
  await page.keyboard.press("k");
  await expect(title(page, numbered(4))).toBeFocused();
  await expect(yes(page)).toBeEnabled();
  await calm(page);
  await page.keyboard.press("a");
  // The next one is dangerous, so the key only moves the focus to the button.
  await expect(title(page, "Delete the folder old2 and the 12 files in it (34 kB)")).toBeFocused();
  await expect(yes(page)).toBeEnabled();
  await calm(page);
  await page.keyboard.press("a");
  await expect(yes(page)).toBeFocused();
  await expect(page.getByText("Press Enter to allow.")).toBeVisible();
  expect(host.to("answer")).toHaveLength(1);
  await page.keyboard.press("Enter");
  await expect(title(page, numbered(3))).toBeFocused();
  await expect(yes(page)).toBeEnabled();
  await calm(page);
  await page.keyboard.press("o");
  await expect(page.getByLabel("Only this call")).toBeVisible();
  await page.keyboard.press("d");
  await expect(title(page, numbered(1))).toBeFocused();
  await expect(yes(page)).toBeEnabled();
  await calm(page);
  await page.keyboard.press("Escape");
  await expect(title(page, "No open questions")).toBeFocused();
  expect(host.to("answer").map((one) => (one as { question: string }).question)).toEqual([4, 2, 3, 1].map((n) => `${run}-${n}`));
});

test("a key does nothing early, while typing, in a dialog or before the preview is loaded", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  host.state.questions = [question(1), question(2)];
  let there: (value: unknown) => void = () => undefined;
  host.answers.set(`review/${run}-1`, new Promise((resolve) => (there = resolve)));
  await host.open(page, site);
  await expect(page.getByText("Loading preview…")).toBeVisible();
  await calm(page);
  await page.keyboard.press("a");
  await stopClock(page);
  there(changes());
  await expect(yes(page)).toBeEnabled();
  // The preview has just arrived.
  await page.keyboard.press("a");
  await expect(page.getByText("The question has just changed.")).toBeVisible();
  await page.clock.resume();
  await calm(page);
  await page.getByLabel("Filter").focus();
  for (const key of ["a", "d", "j"]) await page.keyboard.press(key);
  await expect(page.getByLabel("Filter")).toHaveValue("adj");
  await page.getByLabel("Filter").fill("");
  await title(page, numbered(1)).focus();
  await page.keyboard.press("Control+d");
  await page.keyboard.press("Alt+a");
  await page.keyboard.press("?");
  await expect(page.getByRole("dialog", { name: "Keys" })).toBeVisible();
  await page.keyboard.press("d");
  await page.keyboard.press("Escape");
  await expect(page.getByRole("dialog")).toHaveCount(0);
  await page.evaluate(() => document.dispatchEvent(new KeyboardEvent("keydown", { key: "a", bubbles: true })));
  await expect(title(page, numbered(1))).toBeVisible();
  expect(host.to("answer")).toEqual([]);
  await page.keyboard.press("a");
  await expect.poll(() => host.to("answer").length).toBe(1);
});

test("a new question keeps the current one and the focus", async ({ page, site }) => {
  const host = new FakeHost();
  host.state.questions = [question(2)];
  await host.open(page, site);
  await expect(yes(page)).toBeEnabled();
  await page.getByRole("button", { name: "More options" }).click();
  await page.getByLabel("until this agent or its session ends", { exact: true }).check();
  host.state.questions = [question(1), question(2)];
  host.changed();
  await expect(page.getByRole("button", { name: "Allow or deny all 2…" })).toBeVisible();
  await expect(title(page, numbered(2))).toBeVisible();
  await expect(page.getByLabel("until this agent or its session ends", { exact: true })).toBeFocused();
  await expect(yes(page)).toHaveText("Allow until this agent or its session ends: change /a/b/c.txt");
});

test("equal calls that join a question are counted, restart the delay and keep the choice", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  host.state.questions = [question(1, { preview: null })];
  await host.open(page, site);
  await expect(page.getByText("Your answer is for this call only.")).toBeVisible();
  await page.getByRole("button", { name: "More options" }).click();
  await page.getByLabel("Tell the agent why").pressSequentially("not now");
  await calm(page);
  await stopClock(page);
  host.state.questions = [question(1, { preview: null, waiting: 3 })];
  host.changed();
  await expect(page.getByText("The agent asks for exactly this 3 times: “once” allows one, “Deny” denies all.")).toBeVisible();
  await expect(page.getByText("Your answer is for this call only.")).toHaveCount(0);
  await expect(page.getByLabel("Tell the agent why")).toHaveValue("not now");
  await page.getByRole("button", { name: "Deny and tell why" }).click();
  await expect(page.getByText("The question has just changed.")).toBeVisible();
  await page.clock.resume();
  await page.getByLabel("All equal calls that wait").check();
  host.state.questions = [question(1, { preview: null, waiting: 4 })];
  host.changed();
  await expect(yes(page)).toHaveText("Allow all 4 equal calls that wait");
  expect(host.to("answer")).toEqual([]);
  await press(page, yes(page));
  await expect.poll(() => host.to("answer")).toMatchObject([{ answer: { allow: { lifetime: { waiting: 4 } } } }]);
});

test("equal calls that join a question change nothing of what a person has left out", async ({ page, site }) => {
  const host = new FakeHost();
  host.state.questions = [question(1)];
  host.rest = () => ({ sentence: "Replace 1 line in c1.txt" });
  await host.open(page, site);
  await page.getByLabel("Make this change (2 of 2)").uncheck();
  await expect(title(page, "Replace 1 line in c1.txt")).toBeVisible();
  host.state.questions = [question(1, { waiting: 2 })];
  host.changed();
  await expect(page.getByText("The agent asks for exactly this 2 times")).toBeVisible();
  await expect(title(page, "Replace 1 line in c1.txt")).toBeVisible();
  await expect(yes(page)).toHaveText("Allow the ticked changes once");
});

test("questions are grouped by agent and can be filtered", async ({ page, site }) => {
  const host = new FakeHost();
  host.state.questions = [question(1), question(2, { agent: ["main", "docs"], session: "other" }), dangerous(3) as never, question(4, { agent: ["main", "docs"] })];
  await host.open(page, site);
  await expect(page.locator(".group h2")).toHaveText(["main/worker-3 2", "main/docs 2"]);
  await expect(page.getByText("2 agents, 16 files", { exact: true })).toBeVisible();
  await page.getByLabel("Filter").fill("DELETE");
  await expect(page.locator(".row")).toHaveCount(1);
  await expect(page.locator(".row")).toContainText("⚠ delete");
  await page.getByLabel("Filter").fill("docs");
  await expect(page.locator(".row")).toHaveCount(2);
  await page.getByLabel("Filter").fill("nothing like it");
  await expect(page.getByText("No matching questions.")).toBeVisible();
});

test("the questions of an agent are grouped by folder if there are several", async ({ page, site }) => {
  const host = new FakeHost();
  const about = (number: number, path: string, more: object = {}) => question(number, { files: [{ path, op: "modify", bytes: 1 }], ...more });
  host.state.questions = [about(1, "/p/src/b.rs"), about(2, "/p/docs/z.md"), about(3, "/p/src/a.rs"), about(4, "/p/src/x.rs", { agent: ["other"] }), about(5, "/p/src/y.rs", { agent: ["other"] })];
  await host.open(page, site);
  await expect(page.locator(".list-pane :is(.folder, .row .what)")).toHaveText(["/p/docs/", numbered(2), "/p/src/", numbered(3), numbered(1), numbered(4), numbered(5)]);
});

test("questions of one kind are denied together, after a list of what that means", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  const recursive = { dangers: [{ kind: "recursive", level: "severe", text: "Deletes everything in old" }] };
  host.state.questions = [question(1), question(2, recursive), question(3), question(4, { ...recursive, session: "other" })];
  await host.open(page, site);
  await expect(page.locator(".row")).toHaveCount(4);
  // The filter takes the words of the marks.
  await page.getByLabel("Filter").fill("whole folder");
  await expect(page.locator(".row")).toHaveCount(2);
  await press(page, page.getByRole("button", { name: "Allow or deny all 2…" }));
  await expect(title(page, "2 questions with “whole folder”")).toBeFocused();
  await expect(page.locator(".together li")).toContainText([numbered(2), numbered(4)]);
  await page.getByLabel("Select all").check();
  await press(page, page.getByRole("button", { name: "Deny 2 ticked" }));
  await expect(page.getByText("Denied by you", { exact: true })).toHaveCount(2);
  const deny = { deny: {} };
  expect(host.to("answer-batch")).toEqual([{ answers: [{ question: `${run}-2`, session: "main", answer: deny }, { question: `${run}-4`, session: "other", answer: deny }] }]);
});

test("the questions of a kind are listed together with one press", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  const removes = { files: [{ path: "/a/x", op: "delete", bytes: 1 }] };
  const uses = { files: [], files_total: 0 };
  host.state.questions = [question(1), question(2, removes), question(3), question(4, removes), question(5, uses)];
  await host.open(page, site);
  const kinds = page.getByRole("button", { name: /^All \d/ });
  await expect(kinds).toHaveText(["All 2 to delete files…", "All 2 to change files…"]);
  await press(page, kinds.first());
  await expect(title(page, "2 questions to delete files")).toBeFocused();
  await expect(page.locator(".together li")).toContainText([numbered(2), numbered(4)]);
  expect(host.to("answer-batch")).toEqual([]);
  // Questions of one kind need no such button.
  host.state.questions = [question(1), question(3)];
  host.changed();
  await expect(kinds).toHaveCount(0);
});

test("a link to a question opens it", async ({ page, site }) => {
  const host = new FakeHost();
  host.state.questions = [question(1), question(2)];
  await host.open(page, site, `?question=${run}-2`);
  await expect(title(page, numbered(2))).toBeVisible();
  // An ended question is not there: the first is shown.
  await host.open(page, site, `?question=${run}-9`);
  await expect(title(page, numbered(1))).toBeVisible();
});

test("an agent can be paused and resumed", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  host.state.questions = [question(1)];
  host.state.agents = [agent(3), agent(4)];
  await host.open(page, site);
  await press(page, page.getByRole("button", { name: "Pause" }));
  await expect.poll(() => host.to("pause")).toEqual([{ worker: `${run}-3`, paused: true }]);
  host.state.agents = [agent(3, { paused: true }), agent(4)];
  host.changed();
  await expect(page.getByText("main/worker-3: paused, its new calls wait.")).toBeVisible();
  await expect(page.getByRole("button", { name: "Pause" })).toHaveCount(0);
  host.answers.set("pause", new Error("the agent has ended"));
  await press(page, page.getByRole("button", { name: "Resume" }));
  await expect(page.getByRole("alert")).toHaveText("the agent has ended");
  expect(host.to("pause")).toContainEqual({ worker: `${run}-3`, paused: false });
});

for (const width of [1280, 320]) {
  test(`a page without questions and outcomes has one message at ${width} px`, async ({ page, site }) => {
    await page.setViewportSize({ width, height: 640 });
    await new FakeHost().open(page, site);
    await expect(page.getByText("No open questions")).toBeVisible();
    await expect(page.getByText("Nothing yet.")).toHaveCount(0);
    await expect(page.getByRole("button", { name: /All questions/ })).toBeHidden();
    await page.getByRole("button", { name: "Answered" }).click();
    await expect(page.getByText("Nothing yet.")).toBeVisible();
  });
}

test("a change of a line is visible without scrolling in a narrow window", async ({ page, site }) => {
  await page.setViewportSize({ width: 320, height: 640 });
  const host = new FakeHost();
  host.state.questions = [question(1, { agent: ["~claude-code"] })];
  const kept = ["", "/// The sum of all items, in cents.", "pub fn total(items: &[Item]) -> u64 {"].map((text) => ({ op: " ", text: `${text}\n` }));
  const lines = [...kept, { op: "-", text: "one\n" }, { op: "+", text: "two\n" }];
  host.answers.set(`review/${run}-1`, changes({ path: "/home/me/projects/shop/src/cart.rs", hunks: [{ old_start: 8, new_start: 8, lines }] }));
  await host.open(page, site);
  await page.getByRole("button", { name: numbered(1) }).click();
  const added = page.getByRole("row", { name: /two/ }).first();
  await expect(added).toBeVisible();
  const line = await added.boundingBox();
  const bar = await page.locator(".answer").boundingBox();
  expect(line && bar && line.y + line.height <= bar.y, JSON.stringify({ line, bar })).toBe(true);
});

test("each outcome says what became of the call", async ({ page, site }) => {
  const host = new FakeHost();
  const result = { state: "applied", code: null, message: null, files: 2 };
  const unused = { call: null, result: null };
  host.state.outcomes = [
    outcome(1, { result }),
    outcome(2, { by: "another page", result: { ...result, state: "running" } }),
    outcome(3, { result: { ...result, state: "failed", code: "IO", message: "disk full" } }),
    outcome(4, { result: { ...result, state: "stale", code: "STALE" } }),
    outcome(5, { status: "denied", ...unused }),
    outcome(6, { status: "expired", by: "nobody: time was up", ...unused }),
    outcome(7, { status: "cancelled", by: "the agent's client", ...unused }),
    outcome(8, unused),
  ];
  host.answers.set(`call/${run}-91`, { ...changes(), row: {} });
  await host.open(page, site);
  await page.getByRole("button", { name: "Answered (1 missed)" }).click();
  await expect(page.getByRole("button", { name: "Answered", exact: true })).toBeVisible();
  await expect(page.locator(".row .status")).toHaveText([
    "✓ Allowed by you and applied",
    "Allowed by another page; running",
    "✗ Allowed by you, but failed: disk full",
    "✗ Allowed by you, but not done: something had changed",
    "Denied by you",
    "Denied: no answer in time",
    "Cancelled by the agent's client before an answer",
    "✗ Allowed by you, but never ran",
  ]);
  await page.locator(".row").first().click();
  await expect(title(page, numbered(1))).toBeFocused();
  await expect(page.getByText("two 40")).toBeVisible();
  host.answers.set(`call/${run}-92`, new Error("this call is no longer kept"));
  await page.locator(".row").nth(1).click();
  await expect(page.getByRole("alert")).toHaveText("this call is no longer kept");
});

test("an answered question can be undone, and says so then", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  const denied = { status: "denied", call: null, result: null };
  host.state.outcomes = [outcome(1, { undo: "possible" }), outcome(2, denied), outcome(3)];
  for (const n of [1, 3]) host.answers.set(`call/${run}-9${n}`, { ...changes(), row: {} });
  host.answers.set("preview-undo", { undoes: [4], ...changes({ op: "delete" }) });
  host.answers.set("undo", { files: 1 });
  await host.open(page, site);
  await page.getByRole("button", { name: /^Answered/ }).click();
  const undo = page.getByRole("button", { name: /^Undo .*…$/ });
  for (const n of [2, 3]) {
    await page.locator(".row", { hasText: numbered(n) }).click();
    await expect(title(page, numbered(n))).toBeFocused();
    await expect(undo).toHaveCount(0);
  }
  await page.locator(".row", { hasText: numbered(1) }).click();
  await press(page, undo);
  const section = page.getByRole("region", { name: "Undo" });
  await expect(section.locator(".file .badge")).toHaveText("Will delete");
  expect(await barriers(page)).toEqual([]);
  expect(host.to("undo")).toEqual([]);
  await press(page, section.getByRole("button", { name: "Undo 1 change" }));
  const of = { call: `${run}-91` };
  await expect.poll(() => host.to("undo")).toEqual([{ of, changes: [4] }]);
  await expect(page.getByText("1 file restored to before this call.")).toBeVisible();
  host.state.outcomes = [outcome(1, { undo: "undone" }), outcome(2, denied), outcome(3)];
  host.changed();
  await expect(page.locator(".row .status").first()).toHaveText("Allowed by you and applied; undone later");
  await expect(undo).toHaveCount(0);
});

test("a denial for a session is listed and can be withdrawn", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  host.state["refusals"] = [{ run, refusal: 4, agent: "main/worker-3", session: "main", refused: "change /a/x" }];
  await host.open(page, site);
  await page.getByRole("button", { name: "Blocked 1" }).click();
  await expect(page.getByText("main/worker-3: may not change /a/x until its session ends.")).toBeVisible();
  await press(page, page.getByRole("button", { name: "End this block: ask me again" }));
  await expect.poll(() => host.to("ask-again")).toEqual([{ run, refusal: 4 }]);
});

test("questions can be answered together, but a dangerous one is only denied with others", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  host.state.questions = [question(1), dangerous(2) as never, question(3, { session: "other" }), question(4)];
  await host.open(page, site);
  await press(page, page.getByRole("button", { name: "Allow or deny all 4…" }));
  await expect(title(page, "4 questions")).toBeFocused();
  // Nothing is ticked that a person has not ticked.
  await expect(page.locator(".together input:checked")).toHaveCount(0);
  await expect(page.getByRole("button", { name: "Allow 0 ticked once" })).toBeDisabled();
  await expect(page.getByRole("button", { name: "Deny 0 ticked" })).toBeDisabled();
  await expect(page.getByText("old/.env looks like a secret")).toBeVisible();
  await page.getByLabel("Select all").check();
  await expect(page.locator(".together input:checked")).toHaveCount(5);
  await expect(page.getByRole("button", { name: "Deny 4 ticked" })).toBeEnabled();
  await page.getByLabel(/c4\.txt/).uncheck();
  await expect(page.getByLabel("Select all")).not.toBeChecked();
  await press(page, page.getByRole("button", { name: "Allow 2 of 3 ticked once" }));
  await expect(page.getByText("✓ Allowed by you and applied", { exact: true })).toHaveCount(2);
  const once = { allow: { lifetime: "once" } };
  expect(host.to("answer-batch")).toEqual([
    { answers: [{ question: `${run}-1`, session: "main", answer: once }, { question: `${run}-3`, session: "other", answer: once }] },
  ]);
  // Only the ticked one is denied, not all that are open.
  await press(page, page.getByRole("button", { name: "Deny 1 ticked" }));
  await expect(page.getByText("Denied by you", { exact: true })).toHaveCount(1);
  expect(host.to("answer-batch").at(-1)).toEqual({ answers: [{ question: `${run}-2`, session: "main", answer: { deny: {} } }] });
  await page.getByRole("button", { name: "One by one" }).click();
  await expect(title(page, numbered(4))).toBeFocused();
});

test("questions that are answered together show what became of each call", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  host.state.questions = [question(1), question(2)];
  await host.open(page, site);
  await press(page, page.getByRole("button", { name: "Allow or deny all 2…" }));
  await page.getByLabel("Select all").check();
  await press(page, page.getByRole("button", { name: "Allow 2 ticked once" }));
  const results = page.locator(".together li").getByRole("status");
  await expect(results.filter({ visible: true })).toHaveText(["✓ Allowed by you and applied", "✓ Allowed by you and applied"]);
  // The second change was stale once the first one was applied.
  host.state.outcomes = [outcome(1), outcome(2, { result: { state: "stale", code: "STALE_PREVIEW", message: null, files: 1 } })];
  host.changed();
  await expect(page.locator(".together li").nth(0)).toContainText("✓ Allowed by you and applied");
  await expect(page.locator(".together li").nth(1)).toContainText("✗ Allowed by you, but not done: something had changed");
});

test("a question is not allowed with others before its preview is loaded, or if it must be answered alone", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  host.state.questions = [question(1), question(2), question(3, { batchable: false }), question(4, { preview: null })];
  host.answers.set(`review/${run}-1`, new Error("gone"));
  await host.open(page, site);
  await press(page, page.getByRole("button", { name: "Allow or deny all 4…" }));
  await expect(page.getByText("gone")).toBeVisible();
  await page.getByLabel("Select all").check();
  await expect(page.getByRole("button", { name: "Allow 1 of 4 ticked once" })).toBeEnabled();
  await expect(page.getByRole("button", { name: "Open: it can be allowed only alone" })).toHaveCount(2);
  await press(page, page.getByRole("button", { name: "Deny 4 ticked", exact: true }));
  await expect(page.getByText("Denied by you", { exact: true })).toHaveCount(4);
  await expect(page.getByLabel("Select all")).toBeDisabled();
});

test("answering together ignores presses after a layout change and can be retried", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  host.state.questions = [question(1), question(2)];
  await host.open(page, site);
  await expect(yes(page)).toBeEnabled();
  let there: (value: unknown) => void = () => undefined;
  host.answers.set(`review/${run}-1`, new Promise((resolve) => (there = resolve)));
  await press(page, page.getByRole("button", { name: "Allow or deny all 2…" }));
  await page.getByLabel("Select all").check();
  await expect(page.getByRole("button", { name: "Allow 1 of 2 ticked once" })).toBeEnabled();
  await calm(page);
  await stopClock(page);
  there(changes());
  const allow = page.getByRole("button", { name: /^Allow 2 ticked once/ });
  await allow.click();
  expect(host.to("answer-batch")).toEqual([]);
  await page.clock.resume();
  await page.getByLabel(/c1\.txt/).uncheck();
  const one = page.getByRole("button", { name: /^Allow 1 ticked once/ });
  host.answers.set("answer-batch", new Error("cannot be recorded"));
  await press(page, one);
  await expect(page.getByRole("alert")).toHaveText("cannot be recorded");
  host.answers.set("answer-batch", { answers: [{ question: `${run}-2`, code: "NOT_RECORDED", message: "not yet" }] });
  await press(page, one);
  await expect(page.getByText("not yet")).toBeVisible();
  host.answers.delete("answer-batch");
  await press(page, one);
  await expect(page.getByText("✓ Allowed by you and applied", { exact: true })).toBeVisible();
  await expect(page.getByLabel(/c2\.txt/)).toBeDisabled();
});

test("a pressed and focused button survives an update", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  host.state.questions = [question(1), question(2)];
  await host.open(page, site);
  const all = page.getByRole("button", { name: "Allow or deny all 2…" });
  await expect(all).toBeVisible();
  await calm(page);
  await all.focus();
  await all.hover();
  await page.mouse.down();
  host.state.outcomes = [outcome(9, { status: "expired", result: null, at: 1_800_000_000_000 })];
  host.changed();
  await expect(page.getByRole("button", { name: "Answered (1 missed)" })).toBeVisible();
  await expect(all).toBeFocused();
  await calm(page);
  await page.mouse.up();
  await expect(title(page, "2 questions")).toBeVisible();
});

test("a new button ignores presses at first", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  host.state.questions = [question(1)];
  await host.open(page, site);
  await expect(yes(page)).toBeEnabled();
  await stopClock(page);
  host.state.questions = [question(1), question(2)];
  host.changed();
  const all = page.getByRole("button", { name: /^Allow or deny all 2…/ });
  await all.click();
  await expect(title(page, numbered(1))).toBeVisible();
  await page.clock.resume();
  await press(page, all);
  await expect(title(page, "2 questions")).toBeVisible();
});

test("a suggestion does not move the prompt", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  host.state.questions = [question(1), question(2), question(3)];
  await host.open(page, site);
  let there: (value: unknown) => void = () => undefined;
  host.answers.set("suggestions", new Promise((resolve) => (there = resolve)));
  await expect(yes(page)).toBeEnabled();
  await press(page, yes(page));
  await expect(title(page, numbered(2))).toBeFocused();
  await expect(yes(page)).toBeEnabled();
  await calm(page);
  const before = await page.locator("permission-prompt").boundingBox();
  there({ suggestion: { run, agent: "main/worker-3", pattern: "write:file:/a/b", covers: "change /a/b", spares: 3, holder: {}, lifetime: "session" } });
  await expect(page.getByText("You allowed 3 questions like this.")).toBeVisible();
  expect(await page.locator("permission-prompt").boundingBox()).toEqual(before);
});

test("the options leave about half of the window to the call", async ({ page, site }) => {
  for (const [width, height, most] of [[1280, 800, 0.54], [320, 640, 0.6]] as const) {
    await page.setViewportSize({ width, height });
    const host = new FakeHost();
    host.state.questions = [question(1)];
    await host.open(page, site);
    if (width < 860) await page.getByRole("button", { name: numbered(1) }).click();
    // The preview moves the options when it appears.
    await expect(yes(page)).toBeEnabled();
    await page.getByRole("button", { name: "More options" }).click();
    await page.getByLabel("until I revoke it", { exact: true }).check();
    await page.getByLabel(/^its folder/).check();
    const bar = await page.locator("permission-prompt .answer").boundingBox();
    expect(bar?.height).toBeLessThanOrEqual(height * most);
    await expect(yes(page)).toBeInViewport({ ratio: 1 });
    await expect(page.getByRole("button", { name: "More options" })).toBeInViewport({ ratio: 1 });
    // Every option can be scrolled to.
    for (const label of [/^Only this call/i, /^Stop asking/]) {
      await page.getByLabel(label).scrollIntoViewIfNeeded();
      await expect(page.getByLabel(label)).toBeInViewport({ ratio: 1 });
    }
    await page.unroute("**/api/**");
  }
});

for (const width of [320, 600, 1280]) {
  test(`the options do not move when the bar says what is below it, at ${width} pixels`, async ({ page, site }) => {
    await page.setViewportSize({ width, height: 640 });
    const host = new FakeHost();
    host.state.questions = [question(1)];
    const lines = Array.from({ length: 30 }, (_, n) => ({ op: "+", text: `line ${n}\n` }));
    host.answers.set(`review/${run}-1`, changes({ hunks: [{ old_start: 0, new_start: 1, lines }] }));
    await host.open(page, site);
    if (width < 860) await page.getByRole("button", { name: numbered(1) }).click();
    await expect(yes(page)).toBeEnabled();
    await page.getByRole("button", { name: "More options" }).click();
    const below = page.locator("permission-prompt .below");
    const height = async () => (await page.locator("permission-prompt .answer").boundingBox())?.height;
    await expect(below).toBeVisible();
    const before = await height();
    await page.evaluate(() => scrollTo(0, document.documentElement.scrollHeight));
    await expect(below).toBeHidden();
    expect(await height()).toBe(before);
  });
}

test("the bar says that arguments without a preview are below it", async ({ page, site }) => {
  await page.setViewportSize({ width: 1280, height: 360 });
  const host = new FakeHost();
  host.state.questions = [question(1, { preview: null, arguments_bytes: 9000 })];
  host.answers.set(`arguments/${run}-1`, { arguments: "line\n".repeat(100) });
  await host.open(page, site);
  await page.getByRole("button", { name: "Show all arguments (9000 bytes)" }).click();
  await expect(page.locator("permission-prompt .below")).toHaveText(/^↓ About \d+ more lines$/);
});

test("the bar says how much of the change is below it, and scrolls there", async ({ page, site }) => {
  const host = new FakeHost();
  host.state.questions = [question(1, { divisible: false })];
  const lines = Array.from({ length: 100 }, (_, n) => ({ op: "+", text: `line ${n}\n` }));
  const { changes: [change] } = changes({ hunks: [{ old_start: 0, new_start: 1, lines }] }) as { changes: object[] };
  host.answers.set(`review/${run}-1`, { changes: [change, { ...change, path: "/a/second.txt" }, { ...change, path: "/a/third.txt" }] });
  await host.open(page, site);
  const below = page.locator("permission-prompt .below");
  await expect(below).toHaveText("↓ 2 more files");
  const last = page.locator(".file").last();
  for (let n = 0; n < 20 && (await below.textContent())?.includes("file"); n += 1) await below.click();
  await expect(below).toHaveText(/^↓ About \d+ more lines$/);
  await expect(last.locator("summary")).toBeInViewport();
  await page.evaluate(() => scrollTo(0, document.documentElement.scrollHeight));
  await expect(below).toBeHidden();
  await expect(last.getByText("line 99", { exact: true })).toBeVisible();
  // The options stay where they are when it appears and goes.
  await page.getByRole("button", { name: "More options" }).click();
  const place = async () => (await page.getByLabel("Until I revoke it").boundingBox())?.y;
  const without = await place();
  await page.locator(".preview").evaluate((one) => one.scrollIntoView({ block: "start" }));
  await expect(below).toBeVisible();
  expect(await place()).toBe(without);
});

test("what is deleted comes first in a batch, and the list has the order of the changes", async ({ page, site }) => {
  const host = new FakeHost();
  host.state.questions = [question(1)];
  const { changes: [change] } = changes() as { changes: object[] };
  const first = [{ path: "a", kind: "file", bytes: 1 }, { path: "b", kind: "file", bytes: 2 }];
  const contents = { files: 2, directories: 0, others: 0, bytes: 3, first };
  const deleted = { path: "/a/old", op: "delete", before: { kind: "directory" }, after: { kind: "absent" }, hunks: [], added: 0, removed: 0, contents };
  const moved = { path: "/a/x", to: "/a/y", op: "move", hunks: [], added: 0, removed: 0 };
  host.answers.set(`review/${run}-1`, { changes: [change, { ...change, ...moved }, { ...change, ...deleted }] });
  await host.open(page, site);
  await expect(page.locator(".files li .badge")).toHaveText(["Will delete", "Will change", "Will move"]);
  await expect(page.locator(".file .badge")).toHaveText(["Will delete", "Will change", "Will move"]);
  await expect(page.locator(".file").first().locator(".contents li")).toHaveText(["a (1 byte)", "b (2 bytes)"]);
  await page.locator(".files .jump").first().click();
  await expect(page.locator(".file").first()).toBeInViewport();
});

test("fifty questions are virtualized and answered one after another", async ({ page, site }) => {
  await page.clock.install();
  await page.setViewportSize({ width: 1280, height: 600 });
  const host = new FakeHost();
  host.state.questions = Array.from({ length: 50 }, (_, n) => question(n + 101));
  await host.open(page, site);
  await expect(page).toHaveTitle("(50) Questions");
  await expect(page.getByRole("button", { name: "Allow or deny all 50…" })).toBeVisible();
  expect(await page.locator(".row").count()).toBeLessThan(30);
  for (let n = 0; n < 49; n += 1) await page.keyboard.press("j");
  await expect(title(page, numbered(150))).toBeFocused();
  await expect(page.locator('.row[aria-current="true"]')).toBeInViewport();
  await expect(yes(page)).toBeEnabled();
  await calm(page);
  await page.keyboard.press("a");
  await expect(title(page, numbered(149))).toBeFocused();
});

/** What the page costs with some questions and a change of some lines, once it is shown and while a person moves. */
async function cost(page: Page, site: Site, questions: number, lines: number): Promise<{ readonly nodes: number; readonly steps: number; readonly long: number }> {
  const host = new FakeHost();
  host.state.questions = Array.from({ length: questions }, (_, n) => question(n + 101));
  const all = Array.from({ length: lines }, (_, n) => ({ op: "+", text: `line ${n} ${"x".repeat(60)}\n` }));
  for (let n = 101; n <= questions + 100; n += 1) host.answers.set(`review/${run}-${n}`, changes({ hunks: [{ old_start: 0, new_start: 1, lines: all }], op: "create" }));
  // Leaves the page of an earlier measurement.
  await page.goto("about:blank");
  await host.open(page, site);
  await expect(page.getByText(/^line 0 /)).toBeVisible();
  await page.evaluate(() => {
    const counts = Object.assign(window, { added: 0, long: 0 });
    new PerformanceObserver((list) => (counts.long += list.getEntries().length)).observe({ type: "longtask" });
    new MutationObserver((records) => (counts.added += records.flatMap(({ addedNodes }) => [...addedNodes]).length)).observe(document.body, { childList: true, subtree: true });
  });
  const nodes = await page.locator("*").count();
  // To the end of the change, to its start, and the next question if there is one.
  for (const part of [1, 0.5, 0]) {
    await page.evaluate((part) => {
      scrollTo(0, part * document.documentElement.scrollHeight);
      // The rows are rendered in the next frame.
      return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    }, part);
  }
  await page.keyboard.press("j");
  await expect(title(page, numbered(102))).toBeFocused();
  await expect(page.getByText(/^line 0 /)).toBeVisible();
  await expect(yes(page)).toBeEnabled();
  const { added, long } = await page.evaluate(() => {
    const { added, long } = window as unknown as { added: number; long: number };
    return { added, long };
  });
  return { nodes, steps: added, long };
}

test("fifty questions and a change of five thousand lines cost little more than two small ones", async ({ page, site }) => {
  await page.setViewportSize({ width: 1280, height: 800 });
  const small = await cost(page, site, 2, 100);
  const large = await cost(page, site, 50, 5000);
  console.log("fifty questions and 5,000 lines:", { small, large });
  // Without virtual rows, the page would have more than 20,000 nodes.
  expect(large.nodes / small.nodes).toBeLessThan(1.5);
  expect(large.steps / small.steps).toBeLessThan(2);
});

test("a narrow page shows the list, then one question", async ({ page, site }) => {
  await page.clock.install();
  await page.setViewportSize({ width: 390, height: 800 });
  const host = new FakeHost();
  host.state.questions = [question(1), question(2)];
  await host.open(page, site);
  await expect(page.getByRole("button", { name: numbered(2) })).toBeVisible();
  await expect(yes(page)).toBeHidden();
  await calm(page);
  // Nothing that is not shown can be answered.
  await page.keyboard.press("a");
  await page.keyboard.press("d");
  await page.getByRole("button", { name: numbered(2) }).click();
  await expect(title(page, numbered(2))).toBeFocused();
  await expect(page.getByRole("button", { name: numbered(1) })).toBeHidden();
  await expect(page.getByRole("button", { name: "Deny", exact: true })).toBeInViewport({ ratio: 1 });
  await expect(yes(page)).toBeInViewport({ ratio: 1 });
  expect(host.to("answer")).toEqual([]);
  await press(page, yes(page));
  await expect(title(page, numbered(1))).toBeFocused();
  await page.getByRole("button", { name: "← All questions (1)" }).click();
  await expect(page.getByRole("button", { name: numbered(1) })).toBeVisible();
});

test("the buttons stay in view next to a long change", async ({ page, site }) => {
  const host = new FakeHost();
  const lines = Array.from({ length: 5000 }, (_, n) => ({ op: n % 2 ? "+" : "-", text: `line ${n}\n` }));
  host.state.questions = [question(1, { divisible: false })];
  host.answers.set(`review/${run}-1`, changes({ hunks: [{ old_start: 1, new_start: 1, lines }] }));
  await host.open(page, site);
  await expect(page.getByRole("table")).toHaveAttribute("aria-rowcount", "5000");
  for (const at of [0, 40_000, 1_000_000]) {
    await page.evaluate((at) => scrollTo(0, at), at);
    await expect(yes(page)).toBeInViewport({ ratio: 1 });
    expect(await page.locator("*").count()).toBeLessThan(1500);
  }
  await expect(page.getByText("line 4999", { exact: true })).toBeVisible();
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

test("a host that cannot be reached is named as the cause", async ({ page, site }) => {
  const host = new FakeHost();
  host.state.questions = [question(1), question(2)];
  await host.open(page, site);
  await expect(yes(page)).toBeEnabled();
  await page.route("**/api/review/*", (route) => route.abort());
  await page.keyboard.press("j");
  await expect(page.getByRole("alert")).toHaveText("The host cannot be reached.");
  await expect(yes(page)).toBeDisabled();
});

test("hunks can be excluded, but not all of them", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  host.state.questions = [question(1)];
  await host.open(page, site);
  await page.getByLabel("Make this change (2 of 2)").uncheck();
  await expect(yes(page)).toHaveText("Allow the ticked changes once");
  await expect(page.getByText("What is not ticked will not be done.")).toBeVisible();
  await page.getByLabel("Make this change (1 of 2)").uncheck();
  await expect(yes(page)).toBeDisabled();
  await page.getByLabel("Make this change (1 of 2)").check();
  await press(page, yes(page));
  await expect(page.getByText("No open questions")).toBeVisible();
  expect(host.to("answer")).toMatchObject([{ answer: { allow: { left_out: [{ path: "/a/b/c.txt", hunks: [1] }] } } }]);
});

test("whole changes of a batch can be left out, but not all of them", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  host.state.questions = [question(1)];
  const moved = { path: "/a/x", to: "/a/y", op: "move", added: 0, removed: 0, hunks: [] };
  const both = changes() as { changes: object[] };
  host.answers.set(`review/${run}-1`, { changes: [...both.changes, { ...both.changes[0], ...moved }] });
  await host.open(page, site);
  const tick = (path: string) => page.getByLabel(`Make this change: ${path}`);
  await tick("/a/x").uncheck();
  await expect(yes(page)).toHaveText("Allow the ticked changes once");
  await expect(page.locator(".bar > .counts")).not.toHaveCount(0);
  await tick("/a/b/c.txt").uncheck();
  await expect(yes(page)).toBeDisabled();
  await expect(page.locator(".bar > .counts")).toHaveCount(0);
  await tick("/a/b/c.txt").check();
  await press(page, yes(page));
  await expect(page.getByText("No open questions")).toBeVisible();
  const answer = host.to("answer") as { answer: { allow: { left_out: unknown } } }[];
  expect(answer[0]?.answer.allow.left_out).toEqual([{ path: "/a/x" }]);
});

/** A question about an edit and a delete, of which a person can leave out one. */
function both(host: FakeHost): void {
  const dangers = [{ kind: "delete", level: "severe", text: "Deletes old.txt" }];
  host.state.questions = [question(1, { sentence: "Delete old.txt; change c.txt", dangers, preview: { files: 2, added: 2, removed: 2 } })];
  const [edit] = (changes() as { changes: object[] }).changes;
  host.answers.set(`review/${run}-1`, { changes: [edit, { ...edit, path: "/a/old.txt", op: "delete", added: 0, removed: 0, hunks: [] }] });
  host.rest = (out) => (JSON.stringify(out).includes("old.txt") ? { sentence: "Change c.txt", dangers: [], undo: null } : { sentence: "Delete old.txt; change c.txt", dangers, undo: null });
}

test("the title, the marks and the button of a question are about what is not left out", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  both(host);
  await host.open(page, site);
  const tick = (path: string) => page.getByLabel(`Make this change: ${path}`);
  const dangers = page.getByRole("list", { name: "Dangers" });
  await expect(dangers).toHaveText("⚠ Deletes old.txt");
  await tick("/a/old.txt").uncheck();
  await expect(title(page, "Change c.txt")).toBeVisible();
  await expect(dangers).toHaveCount(0);
  await expect(yes(page)).not.toHaveClass(/severe/);
  await expect(page.locator(".files summary")).toHaveText("1 of 2 changes");
  await expect(page.locator(".files .badge")).toHaveText(["Left out", "Will change"]);
  await expect(page.locator(".file .badge")).toHaveText(["Left out", "Will change"]);
  await tick("/a/old.txt").check();
  await expect(page.locator(".files .badge")).toHaveText(["Will delete", "Will change"]);
  await expect(title(page, "Delete old.txt; change c.txt")).toBeVisible();
  await expect(dangers).toHaveCount(1);
  await expect(yes(page)).toHaveClass(/severe/);
  await tick("/a/b/c.txt").uncheck();
  await expect.poll(() => host.to("remaining").at(-1)).toEqual({ question: `${run}-1`, left_out: [{ path: "/a/b/c.txt" }] });
  await expect(yes(page)).toBeEnabled();
  await expect(yes(page)).toHaveClass(/severe/);
  await press(page, yes(page));
  await expect.poll(() => host.to("answer")).toMatchObject([{ answer: { allow: { left_out: [{ path: "/a/b/c.txt" }] } } }]);
});

test("a call cannot be allowed before the host has described what is left of it", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  both(host);
  await host.open(page, site);
  const tick = page.getByLabel("Make this change: /a/old.txt");
  let there: (value: unknown) => void = () => undefined;
  host.answers.set("remaining", new Promise((resolve) => (there = resolve)));
  await expect(yes(page)).toBeEnabled();
  await tick.uncheck();
  await expect(yes(page)).toBeDisabled();
  await calm(page);
  await page.keyboard.press("a");
  // A description of an earlier choice is ignored.
  const late = there;
  host.answers.set("remaining", new Error("the change of `/a/b/c.txt` depends on that of `/a/old.txt`; exclude both or neither"));
  await tick.check();
  await expect(page.getByText(/depends on that of/)).toBeVisible();
  late({ sentence: "Change c.txt", dangers: [], undo: null });
  await expect(title(page, "Delete old.txt; change c.txt")).toBeVisible();
  await expect(yes(page)).toBeDisabled();
  expect(host.to("answer")).toEqual([]);
  host.answers.delete("remaining");
  await tick.uncheck();
  await expect(title(page, "Change c.txt")).toBeVisible();
  await expect(page.getByText(/depends on that of/)).toHaveCount(0);
  await expect(yes(page)).toBeEnabled();
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
  await expect(page.getByText("Allowed on another page or by somebody else.")).toBeVisible();
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
  await expect(page.getByText("No open questions")).toBeVisible();
});

const SUGGESTION = { run, agent: "main/worker-3", pattern: "write:file:/a/b", covers: "change or remove everything beneath /a/b, now and later", spares: 3, holder: { session: { session: "main", worker: 3 } }, lifetime: "session" };

test("a suggested rule is added only on request", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  host.state.questions = [question(1), question(2)];
  host.answers.set("suggestions", { suggestion: SUGGESTION });
  await host.open(page, site);
  await expect(yes(page)).toBeEnabled();
  await press(page, yes(page));
  await expect(page.getByText("You allowed 3 questions like this.")).toBeVisible();
  await expect(page.getByText("Let main/worker-3 do this without asking until it or its session ends: change or remove everything beneath /a/b, now and later?")).toBeVisible();
  expect(host.to("grant")).toEqual([]);
  await press(page, page.getByRole("button", { name: "Add this rule" }));
  await expect(page.getByText("You allowed 3 questions like this.")).toHaveCount(0);
  const { spares: _spares, agent: _agent, covers: _covers, ...given } = SUGGESTION;
  await expect.poll(() => host.to("grant")).toEqual([given]);
});

test("a suggested rule that the host refuses can be added again", async ({ page, site }) => {
  await page.clock.install();
  const host = new FakeHost();
  host.state.questions = [question(1)];
  host.answers.set("suggestions", { suggestion: SUGGESTION });
  let refuse: (error: Error) => void = () => undefined;
  host.answers.set("grant", new Promise((resolve) => (refuse = resolve)));
  await host.open(page, site);
  await expect(yes(page)).toBeEnabled();
  await press(page, yes(page));
  const add = page.getByRole("button", { name: "Add this rule" });
  await press(page, add);
  // It cannot be pressed twice.
  await expect(add).toHaveCount(0);
  await expect.poll(() => host.to("grant")).toHaveLength(1);
  refuse(new Error("too many grants"));
  await expect(page.getByRole("alert")).toHaveText("too many grants");
  host.answers.delete("grant");
  await press(page, add);
  await expect.poll(() => host.to("grant")).toHaveLength(2);
  await expect(page.getByRole("alert")).toHaveCount(0);
  await expect(add).toHaveCount(0);
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

test("hostile lines, names and sentences are rendered as plain text", async ({ page, site }) => {
  const host = new FakeHost();
  const bad = `<img src=x onerror="document.title='bad'">\u202E\u200b`;
  const policy: string[] = [];
  page.on("console", (message) => policy.push(message.text()));
  const hunks = [{ old_start: 1, new_start: 1, lines: [{ op: "+", text: bad + "x".repeat(10_000) }] }];
  const hostile = { sentence: bad, agent: [bad], needs: [bad], dangers: [{ kind: bad, level: "severe", text: bad }], files: [{ path: `/${bad}`, op: bad, bytes: 1 }] };
  host.state.questions = [question(1, hostile), question(2, { ...hostile, preview: null })];
  host.answers.set(`review/${run}-1`, changes({ path: bad, hunks }));
  host.state.agents = [agent(9, { agent: bad, paused: true })];
  host.state.outcomes = [outcome(5, { sentence: bad, agent: bad, by: bad, result: { state: "failed", code: bad, message: bad, files: 1 }, call: null })];
  host.state["refusals"] = [{ run, refusal: 4, agent: bad, session: bad, refused: bad }];
  await host.open(page, site);
  const inert = async (): Promise<void> => {
    await expect(page.getByText("<img src=x").filter({ visible: true }).first()).toBeVisible();
    await expect(page.locator("img")).toHaveCount(0);
    expect(await page.locator("main").textContent()).not.toMatch(/[\u202e\u200b]/u);
  };
  await expect(page.locator(".t.add")).toBeVisible();
  await inert();
  // The hidden character of the title is pointed out.
  await expect(page.locator("permission-prompt h2 .escape").first()).toHaveText("\\u{202e}");
  expect((await page.locator(".t.add").textContent())?.length).toBeLessThan(2_100);
  await page.getByRole("button", { name: /^Show all \d+ characters$/ }).click();
  await expect.poll(async () => (await page.locator(".t.add").textContent())?.length).toBeGreaterThan(10_000);
  await page.locator(".row").last().click();
  await expect(page.locator(".affected")).toBeVisible();
  await inert();
  await page.getByRole("button", { name: /^Allow or deny 2…/ }).click();
  await inert();
  await page.getByRole("button", { name: /^Answered/ }).click();
  await page.locator(".row").click();
  await inert();
  await page.getByRole("button", { name: "Blocked 1" }).click();
  await inert();
  await expect(page).toHaveTitle("(2) Questions");
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
  await page.evaluate(() => scrollTo(0, document.documentElement.scrollHeight));
  await expect(page.getByText("line 9999", { exact: true })).toBeVisible();
  expect(await page.locator("*").count()).toBeLessThan(1000);
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

test("large and binary files have different messages", async ({ page, site }) => {
  const host = new FakeHost();
  for (const [kind, words] of [["large", "Too much changed to be shown line by line."], ["binary", "Binary file (unknown type): 10 bytes"]] as const) {
    host.state.questions = [question(1)];
    host.answers.set(`review/${run}-1`, changes({ hunks: [], added: 0, removed: 0, [kind]: true }));
    await page.goto("about:blank");
    await host.open(page, site);
    await expect(page.locator(".file")).toHaveText(`Will change/a/b/c.txt${words}`);
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
  await expect(page.locator(".file .note")).toHaveText("With everything in it: 2 files, 1 folder, 20 bytes");
  await expect(page.locator(".file li")).toHaveText(["sub/", "a.txt (12 bytes)", "… and 1 more"]);
});

test("what a command runs and may change is shown before it is allowed", async ({ page, site }) => {
  const host = new FakeHost();
  const resources = [
    { resource: "`make \u202eall`", summary: "run in /a", after: "program: /usr/bin/make\nlayers: all" },
    { resource: "stock", summary: "order tea", before: "2", after: "14" },
  ];
  host.state.questions = [question(1)];
  host.answers.set(`review/${run}-1`, { changes: [], resources });
  await host.open(page, site);
  const view = page.locator(".diff");
  await expect(view.locator("p")).toHaveText(["`make \\u{202e}all`: run in /a", "stock: order tea"]);
  await expect(view.locator("pre")).toHaveText(["program: /usr/bin/make\nlayers: all", "2 → 14"]);
  await expect(page.getByRole("toolbar")).toHaveCount(0);
  await expect(page.getByText("No files change.")).toHaveCount(0);
  host.answers.set(`review/${run}-2`, { changes: [] });
  host.state.questions = [question(2)];
  host.changed();
  await page.getByRole("button", { name: /c2\.txt/ }).click();
  await expect(page.getByText("No files change.")).toBeVisible();
});

test("the secret is removed from the browser history", async ({ page, site }) => {
  const host = new FakeHost();
  await host.open(page, site);
  await expect(page.getByText("No open questions")).toBeVisible();
  expect(page.url()).not.toContain("secret");
  site.put("/elsewhere", "<title>Elsewhere</title>");
  await page.goto(`${site.origin}/elsewhere`);
  await page.goBack();
  await expect(page.getByText("No open questions")).toBeVisible();
  expect(page.url()).toBe(`${site.origin}/`);
  // A secret pasted into the address of an open page is used, too.
  await page.goto(`${site.origin}/#another`);
  await expect(page.getByRole("alert")).toHaveText(/Open the address that the host printed last/);
  expect(page.url()).toBe(`${site.origin}/`);
});

for (const colorScheme of ["light", "dark"] as const) {
  for (const [forcedColors, width] of [
    ["none", 1280],
    ["none", 640],
    // The size of a 640 px wide window at 200 % zoom.
    ["none", 320],
    ["active", 640],
  ] as const) {
    test(`passes accessibility checks: ${colorScheme}, forced colors ${forcedColors}, ${width} px wide`, async ({ page, site }) => {
      await page.clock.install();
      await page.emulateMedia({ colorScheme, forcedColors });
      await page.setViewportSize({ width, height: 640 });
      const host = new FakeHost();
      const long = `/${"folder/".repeat(40)}${"x".repeat(80)}`;
      host.state.questions = [
        question(1, { agent: ["main", "a-very-long-name-of-an-agent-".repeat(6)], needs: [`write:file:${long}`], files: [{ path: long, op: "modify", bytes: 12 }] }),
        question(2),
        question(3, { dangers: [{ kind: "delete", level: "severe", text: `Deletes ${long}` }, { kind: "outside", level: "caution", text: `${long} is outside your project` }], files: [{ path: long, op: "delete", bytes: 12 }], files_total: 30, preview: null }),
      ];
      host.state.agents = [agent(3), agent(4, { paused: true })];
      host.state.outcomes = [outcome(8), outcome(9, { status: "expired", sentence: long, result: null, call: null })];
      host.answers.set(`call/${run}-98`, changes());
      host.state["refusals"] = [{ run, refusal: 4, agent: "main/worker-3", session: "main", refused: `change ${long}` }];
      await host.open(page, site);
      const fits = async (): Promise<void> => {
        expect(await barriers(page)).toEqual([]);
        expect(await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth)).toBeLessThanOrEqual(0);
      };
      /** Returns to the list of a narrow page. */
      const back = async (): Promise<void> => {
        const all = page.getByRole("button", { name: "← All questions" });
        if (await all.isVisible()) await all.click();
        // A list that is shown again renders its rows, after which presses are ignored for a moment.
        await expect(page.locator(".row").last()).toBeVisible();
      };
      await expect(page.getByRole("button", { name: "Allow or deny all 3…" })).toBeVisible();
      await fits();
      await page.getByRole("button", { name: "Replace 3 lines in c1.txt" }).click();
      await expect(page.getByRole("table")).toBeVisible();
      await page.getByRole("button", { name: "More options" }).click();
      // The bar is drawn again when presses are accepted, which can move the options.
      await calm(page);
      await page.getByLabel("Until I revoke it").check();
      await page.getByLabel("The whole project").check();
      await page.getByText("Details", { exact: true }).click();
      await fits();
      await back();
      await page.getByRole("button", { name: "Replace 3 lines in c3.txt" }).click();
      await expect(page.getByText("and 29 more", { exact: true })).toBeVisible();
      await fits();
      await back();
      await press(page, page.getByRole("button", { name: "Allow or deny all 3…" }));
      await expect(page.getByLabel(/c2\.txt/)).toBeEnabled();
      await fits();
      await back();
      await page.getByRole("button", { name: "Answered (1 missed)" }).click();
      await fits();
      await page.getByRole("button", { name: "Replace 3 lines in c8.txt" }).click();
      await expect(page.getByText("two 40")).toBeVisible();
      await fits();
      await back();
      await page.getByRole("button", { name: "Blocked 1" }).click();
      await page.getByRole("button", { name: "Keys" }).click();
      await fits();
    });
  }
}
