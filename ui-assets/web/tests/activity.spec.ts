// Tests of the console's activity page.
import type { Page } from "@playwright/test";

import { BAD, CHANGE, ConsoleFake, START, agent, call, details, expectAccessible, statement } from "./console-fake.ts";
import { RUN } from "./fake-api.ts";
import { calm, expect, press, stopClock, test } from "./fixtures.ts";

const rows = (page: Page) => page.getByRole("list", { name: "Calls" }).locator("> .list > [role=listitem]");
/** The button of the call whose sentence starts with a text; a number in it is whole. */
const row = (page: Page, text: string) => rows(page).getByRole("button", { name: new RegExp(`^${text}(?!\\d)`) });
const aside = (page: Page) => page.getByRole("complementary", { name: "Agents" });
const loaded = async (page: Page, text: string): Promise<void> => expect(row(page, text).first()).toBeVisible();

/** Calls from the newest to the oldest. */
const some = (newest: number, count: number) => Array.from({ length: count }, (_, at) => call(newest - at));

test("a row tells who did what, with its result and what allowed it", async ({ page, site }) => {
  const host = new ConsoleFake();
  host.calls = [
    call(4, { sentence: "Write notes.md", tool: "write_file", state: "running", result: null, ended_at: null, allowed_by: [{ kind: "person", text: "allowed once", grant: null }] }),
    call(3, { sentence: "Delete the folder old", state: "ended", result: "denied", code: "PERMISSION_DENIED", message: "not now", allowed_by: [] }),
    call(2, { sentence: "Replace 2 lines in c.txt", allowed_by: [{ kind: "grant", text: "change /a/b, 2 uses left", grant: `${RUN}-7` }] }),
    call(1, { sentence: "", tool: "list_roots", files: 0, added: 0, removed: 0 }),
  ];
  await host.open(page, site, "activity");
  await expect(rows(page)).toHaveCount(4);
  await expect(row(page, "Write notes.md")).toContainText("Running");
  await expect(row(page, "Write notes.md")).toContainText("by a person: allowed once");
  await expect(row(page, "Delete the folder old")).toContainText("Denied");
  // The counts are of changes that were made.
  await expect(row(page, "Delete the folder old").locator(".counts")).toHaveCount(0);
  await expect(row(page, "Replace 2 lines in c.txt")).toContainText("by a rule: change /a/b, 2 uses left");
  await expect(row(page, "Replace 2 lines in c.txt").locator(".counts")).toHaveText("+2−1");
  await expect(row(page, "list_roots")).toContainText("allowed by the policy");
});

test("an expanded call shows its changes, output, arguments and needs", async ({ page, site }) => {
  const host = new ConsoleFake();
  host.calls = [call(1, { allowed_by: [{ kind: "grant", text: "change /a/b, for a limited time", grant: `${RUN}-7`, expires_at: START }] })];
  await host.open(page, site, "activity");
  await row(page, "Edit file 1").click();
  await expect(row(page, "Edit file 1")).toHaveAttribute("aria-expanded", "true");
  await expect(page.locator(".t.add").first()).toHaveText("two");
  for (const [summary, text] of [["Output", "Replaced 1 line."], ["Arguments", '{"path":"/a/b/c.txt"}'], ["1 permission needed", "write:file:/a/b/c.txt"]] as const) {
    await expect(page.getByText(text, { exact: true })).toBeHidden();
    await page.getByText(summary, { exact: true }).click();
    await expect(page.getByText(text, { exact: true })).toBeVisible();
  }
  await expect(page.getByRole("link", { name: "Permissions" }).last()).toHaveAttribute("href", "/permissions");
  await row(page, "Edit file 1").click();
  await expect(page.locator(".t.add")).toHaveCount(0);
});

test("changes that were not made say so", async ({ page, site }) => {
  const host = new ConsoleFake();
  host.calls = [
    call(6, { preview: true }),
    call(5, { result: "denied" }),
    call(4, { result: "failed", message: "disk full", code: "INTERNAL" }),
    call(3, { state: "asking", result: null, ended_at: null }),
    call(2, { kept: false }),
    call(1, { files: 0 }),
  ];
  for (const number of [1, 2]) host.answers.set(`call/${RUN}-${number}`, details(host.calls[6 - number] ?? {}, { changes: [] }));
  await host.open(page, site, "activity");
  const words = {
    6: "A preview: this call did not make these changes.",
    5: "These changes were not made.",
    4: "The planned changes. The call did not succeed, so some or all of them were not made.",
    3: "The planned changes.",
    2: "The changes of this call are no longer kept.",
    1: "This call changed no files.",
  };
  for (const [number, text] of Object.entries(words)) {
    const item = rows(page).filter({ has: page.locator(`[data-call="${RUN}-${number}"]`) });
    await row(page, `Edit file ${number}`).click();
    await expect(item.getByText(text, { exact: true })).toBeVisible();
    if (number === "4") await expect(item).toContainText("disk full INTERNAL");
    if (number === "3") await expect(item.getByRole("link", { name: "Answer the question" })).toHaveAttribute("href", "/");
    await row(page, `Edit file ${number}`).click();
  }
});

test("details that cannot be loaded can be requested again", async ({ page, site }) => {
  const host = new ConsoleFake();
  host.calls = [call(1)];
  host.answers.set(`call/${RUN}-1`, new Error("no longer kept"));
  await host.open(page, site, "activity");
  await row(page, "Edit file 1").click();
  await expect(page.getByRole("alert")).toHaveText("no longer kept");
  host.answers.delete(`call/${RUN}-1`);
  await page.getByRole("button", { name: "Try again" }).click();
  await expect(page.locator(".t.add").first()).toBeVisible();
  await expect(page.getByRole("alert")).toHaveCount(0);
});

test("an open call is updated in place, with its details", async ({ page, site }) => {
  const host = new ConsoleFake();
  host.calls = [call(1, { state: "running", result: null, ended_at: null })];
  host.answers.set(`call/${RUN}-1`, details(host.calls[0] ?? {}, { output: null }));
  await host.open(page, site, "activity");
  await row(page, "Edit file 1").click();
  await expect(page.locator(".t.add").first()).toBeVisible();
  await expect(page.getByText("Output", { exact: true })).toHaveCount(0);
  await expect(row(page, "Edit file 1")).toContainText("Running");
  host.calls = [call(1)];
  host.answers.delete(`call/${RUN}-1`);
  host.changed();
  await expect(row(page, "Edit file 1")).toContainText("Done");
  await expect(page.getByText("Output", { exact: true })).toBeVisible();
});

test("new calls appear at once while nobody reads", async ({ page, site }) => {
  const host = new ConsoleFake();
  host.calls = some(3, 3);
  await host.open(page, site, "activity");
  await loaded(page, "Edit file 3");
  host.calls = some(5, 5);
  host.changed();
  await loaded(page, "Edit file 5");
  await expect(rows(page)).toHaveCount(5);
  await expect(page.getByRole("status").filter({ hasText: "Live" })).toBeVisible();
});

test("new calls wait while a person reads, and are shown on request", async ({ page, site }) => {
  const host = new ConsoleFake();
  host.calls = some(3, 3);
  await host.open(page, site, "activity");
  await row(page, "Edit file 2").click();
  await expect(page.locator(".t.add").first()).toBeVisible();
  const before = await row(page, "Edit file 2").boundingBox();
  host.calls = some(5, 5);
  host.changed();
  await expect(page.getByRole("status").filter({ hasText: "2 new calls." })).toBeVisible();
  await expect(rows(page)).toHaveCount(3);
  expect(await row(page, "Edit file 2").boundingBox()).toEqual(before);
  await page.getByRole("button", { name: "Show", exact: true }).click();
  await expect(rows(page)).toHaveCount(5);
  await expect(row(page, "Edit file 5")).toBeFocused();
  await expect(row(page, "Edit file 2")).toHaveAttribute("aria-expanded", "true");
  await expect(page.getByRole("button", { name: "Show", exact: true })).toHaveCount(0);
});

test("older calls are loaded on request and stay when new ones come", async ({ page, site }) => {
  const host = new ConsoleFake();
  host.calls = some(250, 250);
  await host.open(page, site, "activity");
  await loaded(page, "Edit file 250");
  for (const [before, size] of [[151, 200], [51, 250]] as const) {
    await page.getByRole("button", { name: "Show older calls" }).click();
    await expect.poll(() => host.to("activity").at(-1)).toEqual({ before: `${RUN}-${before}`, limit: 100 });
    await expect(rows(page).first()).toHaveAttribute("aria-setsize", `${size}`);
  }
  await expect(page.getByRole("button", { name: "Show older calls" })).toHaveCount(0);
  await page.evaluate(() => scrollTo(0, 0));
  await page.mouse.move(0, 0);
  await loaded(page, "Edit file 250");
  host.calls = some(251, 251);
  host.changed();
  await loaded(page, "Edit file 251");
  await expect(rows(page).first()).toHaveAttribute("aria-setsize", "251");
});

test("a thousand calls render only the rows in view", async ({ page, site }) => {
  const host = new ConsoleFake();
  const calls = some(1000, 1000);
  host.answers.set("activity", { calls, more: false, agents: ["main/worker-1"], tools: ["edit_file"] });
  await host.open(page, site, "activity");
  await loaded(page, "Edit file 1000");
  expect(await page.locator("*").count()).toBeLessThan(1000);
  await page.evaluate(() => scrollTo(0, document.documentElement.scrollHeight));
  await expect(row(page, "Edit file 1")).toBeVisible();
  expect(await page.locator("*").count()).toBeLessThan(1000);
});

test("rows keep their place when one of them grows", async ({ page, site }) => {
  const host = new ConsoleFake();
  host.calls = some(90, 90);
  const lines = Array.from({ length: 200 }, (_, n) => ({ op: "+", text: `line ${n}\n` }));
  host.answers.set(`call/${RUN}-90`, details(host.calls[0] ?? {}, { changes: [{ ...CHANGE, hunks: [{ old_start: 0, new_start: 1, lines }] }], arguments: "x\n".repeat(300) }));
  await host.open(page, site, "activity");
  await row(page, "Edit file 90").click();
  await page.getByText("Arguments", { exact: true }).click();
  await page.evaluate(() => scrollTo(0, document.documentElement.scrollHeight));
  await expect(row(page, "Edit file 1")).toBeInViewport();
  await page.evaluate(() => scrollTo(0, 0));
  await expect(row(page, "Edit file 90")).toBeInViewport();
  // The rows follow one another without gaps or overlaps.
  const gaps = (): Promise<number[]> =>
    rows(page).evaluateAll((all) => {
      const places = all.map((one) => one.getBoundingClientRect());
      return places.slice(1).flatMap(({ top }, at) => Math.round(top) - Math.round(places[at]?.bottom ?? 0) || []);
    });
  await rows(page).first().evaluate((grown) => scrollTo(0, grown.getBoundingClientRect().height));
  await expect(row(page, "Edit file 88")).toBeInViewport();
  await expect.poll(gaps).toEqual([]);
});

test("calls can be filtered by text, tool, result and changes", async ({ page, site }) => {
  await page.clock.install();
  const host = new ConsoleFake();
  host.calls = [call(3, { tool: "read_file", files: 0 }), call(2, { result: "failed" }), call(1)];
  await host.open(page, site, "activity");
  await loaded(page, "Edit file 3");
  await page.getByRole("combobox", { name: "Tool" }).selectOption("edit_file");
  await expect(rows(page)).toHaveCount(2);
  await page.getByRole("combobox", { name: "Result" }).selectOption("failed");
  await expect(rows(page)).toHaveCount(1);
  await page.getByLabel("Changes only").check();
  await page.getByRole("searchbox").fill("nothing like this");
  await page.clock.runFor(300);
  await expect(page.getByText("No calls match these filters.")).toBeVisible();
  expect(host.to("activity").at(-1)).toEqual({ tool: "edit_file", result: "failed", text: "nothing like this", effects_only: true, limit: 100 });
  await page.getByRole("button", { name: "Show all calls" }).click();
  await expect(rows(page)).toHaveCount(3);
  expect(host.to("activity").at(-1)).toEqual({ limit: 100 });
});

test("each ended call says by whom or why it ended, and an open one its state", async ({ page, site }) => {
  const host = new ConsoleFake();
  const ends = ["Denied by you", "Denied: nobody answered in time", "Not done: the file had changed", "Cancelled by the agent's client"];
  const results = ["denied", "denied", "stale", "cancelled"];
  host.calls = [call(9, { result: null, end: null, state: "asking" }), ...ends.map((end, at) => call(8 - at, { end, result: results[at] }))];
  await host.open(page, site, "activity");
  await expect(rows(page).locator(".badge")).toHaveText(["Waits for your answer", ...ends]);
});

test("an outdated response to a filter is ignored", async ({ page, site }) => {
  const host = new ConsoleFake();
  host.calls = [call(2, { tool: "read_file" }), call(1)];
  await host.open(page, site, "activity");
  await loaded(page, "Edit file 2");
  let late: (value: unknown) => void = () => undefined;
  host.answers.set("activity", new Promise((resolve) => (late = resolve)));
  const tool = page.getByRole("combobox", { name: "Tool" });
  await tool.selectOption("read_file");
  await expect.poll(() => host.to("activity").at(-1)).toMatchObject({ tool: "read_file" });
  host.answers.delete("activity");
  const came = page.waitForResponse((response) => (response.request().postData() ?? "").includes("read_file"));
  await tool.selectOption("edit_file");
  await expect(rows(page)).toHaveCount(1);
  await loaded(page, "Edit file 1");
  late({ calls: [call(9)], more: false, agents: [], tools: ["edit_file", "read_file"] });
  await (await came).finished();
  await page.evaluate(() => new Promise(requestAnimationFrame));
  await expect(row(page, "Edit file 9")).toHaveCount(0);
  await loaded(page, "Edit file 1");
});

test("a slow host is not asked again before it answered", async ({ page, site }) => {
  const host = new ConsoleFake();
  host.calls = [call(1)];
  await host.open(page, site, "activity");
  await loaded(page, "Edit file 1");
  const asked = host.to("activity").length;
  let there: (value: unknown) => void = () => undefined;
  host.answers.set("activity", new Promise((resolve) => (there = resolve)));
  for (const questions of [1, 2, 3]) {
    host.state["questions"] = Array.from({ length: questions }, () => ({}));
    host.changed();
    await expect(page).toHaveTitle(`(${questions}) Activity`);
  }
  expect(host.to("activity").length).toBe(asked + 1);
  host.answers.delete("activity");
  host.calls = [call(2), call(1)];
  there({ calls: [call(1)], more: false, agents: [], tools: [] });
  await loaded(page, "Edit file 2");
  expect(host.to("activity").length).toBe(asked + 2);
});

test("there are words for no calls, and for a host that does not answer", async ({ page, site }) => {
  const host = new ConsoleFake();
  await host.open(page, site, "activity");
  await expect(page.getByText("No calls yet. Each call of an agent appears here.")).toBeVisible();
  await expect(page.getByText("0 running agents")).toBeVisible();
  host.answers.set("activity", new Error("the runtime does not keep its calls"));
  host.changed();
  await expect(page.getByRole("alert")).toHaveText("the runtime does not keep its calls");
  host.answers.delete("activity");
  host.calls = [call(1)];
  await page.getByRole("button", { name: "Try again" }).click();
  await loaded(page, "Edit file 1");
  await expect(page.getByRole("alert")).toHaveCount(0);
});

const family = () => [
  agent(1, { name: "main", agent: "main", changed: 2 }),
  agent(2, { name: "tests", agent: "main/tests", parent: `${RUN}-1`, calls: 1, questions: 7 }),
  agent(3, { name: "reviewer", agent: "main/tests/reviewer", parent: `${RUN}-2`, paused: true }),
  agent(4, { name: "orphan", agent: "gone/orphan", parent: `${RUN}-99` }),
];

test("agents form a tree, and choosing one shows only its calls", async ({ page, site }) => {
  const host = new ConsoleFake();
  host.state.agents = family();
  host.state.questions = [1, 2, 3, 4, 5, 6, 7].map((number) => ({
    tool_call: { id: `${RUN}-${number}` },
    bailiwick: { worker: `${RUN}-2`, sentence: `Change c${number}.txt` },
  }));
  host.state.questions.unshift({ tool_call: { id: `${RUN}-9` }, bailiwick: { worker: `${RUN}-1`, sentence: "Of another agent" } });
  host.calls = [call(3, { worker: `${RUN}-2`, agent: "main/tests" }), call(2, { worker: `${RUN}-1`, agent: "main" }), call(1, { worker: `${RUN}-8`, agent: "ended" })];
  await host.open(page, site, "activity");
  await expect(aside(page).locator("li li").getByRole("button")).toHaveText(["tests1 open call · 7 questions", "reviewerPaused"]);
  await aside(page).getByRole("button", { name: "tests" }).click();
  await expect(page.getByRole("heading", { name: "main/tests", exact: true })).toBeVisible();
  await expect(rows(page)).toHaveCount(1);
  await expect.poll(() => host.to("activity").at(-1)).toEqual({ worker: `${RUN}-2`, limit: 100 });
  const asks = page.getByRole("list", { name: "Waits for your answer" }).getByRole("link");
  await expect(asks).toHaveText(["Change c1.txt", "Change c2.txt", "Change c3.txt", "Change c4.txt", "Change c5.txt", "and 2 more questions"]);
  await expect(asks.first()).toHaveAttribute("href", `/?question=${RUN}-1`);
  await expect(asks.last()).toHaveAttribute("href", "/");
  await aside(page).getByRole("button", { name: "ended" }).click();
  await expect(page.getByText("This agent has ended. Its calls are below.")).toBeVisible();
  await expect.poll(() => host.to("activity").at(-1)).toEqual({ agent: "ended", limit: 100 });
  await aside(page).getByRole("button", { name: "All agents" }).click();
  await expect(rows(page)).toHaveCount(3);
  await expect(page.getByRole("heading", { name: "ended", exact: true })).toHaveCount(0);
});

test("a chosen agent shows what it may do and what it changed", async ({ page, site }) => {
  const host = new ConsoleFake();
  host.state.agents = family();
  const may = [
    statement("allowed", "read everything in /a"),
    statement("asks", "change everything in /a"),
    statement("denied", "read /a/secrets", { source: { kind: "parent", text: "narrowed by main" } }),
    statement("protected", "change files in .git", { source: { kind: "built_in", text: "Git hooks run code" } }),
    statement("allowed", "change /a/b", { source: { kind: "grant", text: "given by a person" }, grant: `${RUN}-7`, uses_left: 1, expires_at: Date.now() + 3_600_000 }),
  ];
  const changed = [
    { path: "/a/b", op: "modify", to: null, worker: `${RUN}-1`, agent: "main" },
    { path: "/a/c", op: "move", to: "/a/d", worker: `${RUN}-2`, agent: "main/tests" },
  ];
  host.answers.set(`agent/${RUN}-1`, { agent: host.state.agents[0], may, changed, changed_omitted: 5, undoable: 0 });
  await host.open(page, site, "activity");
  await aside(page).getByRole("button", { name: "main" }).click();
  await page.getByText("What it may do now").click();
  await expect(page.getByRole("region", { name: "Allowed" }).locator("summary")).toHaveText([/^read everything in \/aConfiguration$/, /^change \/a\/bRule you gave, 1 use left, until .* \(\d+ minutes left\)$/]);
  for (const [name, text] of [["Asks you", "change everything in /a"], ["Denied", "read /a/secrets"], ["Sensitive: asks you", "change files in .git"]] as const) await expect(page.getByRole("region", { name, exact: true })).toContainText(text);
  await page.getByText("read /a/secrets").click();
  await expect(page.getByText("narrowed by main")).toBeVisible();
  await page.getByText("7 changed files").click();
  await expect(page.locator(".changed li")).toHaveText(["Changed /a/b", "Moved /a/c → /a/d by main/tests", "and 5 more"]);
});

test("changes of an agent are undone after they are shown", async ({ page, site }) => {
  await page.clock.install();
  const host = new ConsoleFake();
  host.state.agents = family();
  const found = { agent: host.state.agents[0], may: [], changed: [], changed_omitted: 0 };
  host.answers.set(`agent/${RUN}-1`, { ...found, undoable: 0 });
  await host.open(page, site, "activity");
  await aside(page).getByRole("button", { name: "main" }).click();
  await expect(page.getByText("What it may do now")).toBeVisible();
  await expect(page.getByRole("button", { name: /^Undo .*…$/ })).toHaveCount(0);

  host.answers.set(`agent/${RUN}-1`, { ...found, undoable: 2 });
  host.answers.set("preview-undo", { undoes: [4, 2], changes: [CHANGE] });
  host.answers.set("undo", { files: 1 });
  host.changed();
  await press(page, page.getByRole("button", { name: "Undo the changes of main and 2 sub-agents…" }));
  const section = page.getByRole("region", { name: "Undo" });
  await expect(section).toContainText("Undoing the changes of main and 2 sub-agents does this:");
  await expect(section.locator(".file")).toHaveCount(1);
  expect(host.to("undo")).toEqual([]);
  await expectAccessible(page);
  await press(page, section.getByRole("button", { name: "Undo 2 changes" }));
  await expect.poll(() => host.to("undo")).toEqual([{ of: { worker: `${RUN}-1` }, changes: [4, 2] }]);
  await expect(page.getByText("1 file restored to before the changes of main and 2 sub-agents.")).toBeVisible();
});

test("one call is undone after that is shown, and its row says so", async ({ page, site }) => {
  await page.clock.install();
  const host = new ConsoleFake();
  host.calls = [call(3, { undo: "possible" }), call(2, { undo: "undone" }), call(1, { tool: "read_file", files: 0 })];
  host.answers.set("preview-undo", { undoes: [7], changes: [{ ...CHANGE, op: "delete" }] });
  host.answers.set("undo", { files: 1 });
  await host.open(page, site, "activity");
  await loaded(page, "Edit file 3");
  await expect(rows(page).getByText("Undone", { exact: true })).toHaveCount(1);
  // A call that changed nothing, and one that was undone, offer no undo.
  const undo = page.getByRole("button", { name: "Undo this call…" });
  for (const text of ["Edit file 1", "Edit file 2"]) {
    await row(page, text).click();
    await expect(page.getByText("Arguments", { exact: true })).toBeVisible();
    if (text === "Edit file 2") await expect(page.getByText("These changes were made, and undone later.")).toBeVisible();
    await expect(undo).toHaveCount(0);
    await row(page, text).click();
  }
  await row(page, "Edit file 3").click();
  await expect(page.getByText("Arguments", { exact: true })).toBeVisible();
  await press(page, undo);
  const section = page.getByRole("region", { name: "Undo" });
  await expect(section).toContainText("Undoing this call does this:");
  await expect(section.locator(".file .badge")).toHaveText("Will delete");
  await expectAccessible(page);
  await press(page, section.getByRole("button", { name: "Cancel" }));
  await press(page, undo);
  expect(host.to("undo")).toEqual([]);
  host.calls = host.calls.map((one) => ({ ...one, ...(one["undo"] === "possible" && { undo: "undone" }) }));
  await press(page, section.getByRole("button", { name: "Undo 1 change" }));
  const of = { call: `${RUN}-3` };
  await expect.poll(() => host.to("undo")).toEqual([{ of, changes: [7] }]);
  expect(host.to("preview-undo")).toEqual([{ of }, { of }]);
  // The page looks the call up by itself.
  await expect(row(page, "Edit file 3")).toContainText("Undone");
  await expect(page.getByText("1 file restored to before this call.")).toBeVisible();
  await expect(section).toBeFocused();
  await expect(undo).toHaveCount(0);
});

test("the second press of a double press does not undo", async ({ page, site }) => {
  await page.clock.install();
  const host = new ConsoleFake();
  host.calls = [call(1, { undo: "possible" })];
  host.answers.set("preview-undo", { undoes: [7], changes: [CHANGE] });
  host.answers.set("undo", { files: 1 });
  await host.open(page, site, "activity");
  await row(page, "Edit file 1").click();
  await expect(page.getByText("Arguments", { exact: true })).toBeVisible();
  await calm(page);
  await stopClock(page);
  await page.getByRole("button", { name: /^Undo .*…$/ }).click();
  const undo = page.getByRole("button", { name: "Undo 1 change" });
  await undo.click();
  await expect(undo).toHaveAttribute("data-early");
  expect(host.to("undo")).toEqual([]);
  await page.clock.resume();
  await press(page, undo);
  await expect.poll(() => host.to("undo").length).toBe(1);
});

test("an undo that conflicts says which file changed since", async ({ page, site }) => {
  await page.clock.install();
  const host = new ConsoleFake();
  host.calls = [call(1, { undo: "possible" })];
  host.answers.set("preview-undo", new Error("Not undone: `/a/b/c.txt` changed since; nothing was changed now"));
  await host.open(page, site, "activity");
  await row(page, "Edit file 1").click();
  await expect(page.getByText("Arguments", { exact: true })).toBeVisible();
  await press(page, page.getByRole("button", { name: /^Undo .*…$/ }));
  await expect(page.getByRole("alert")).toHaveText("Not undone: `/a/b/c.txt` changed since; nothing was changed now");
  await expect(row(page, "Edit file 1")).not.toContainText("Undone");
  await press(page, page.getByRole("button", { name: "Cancel" }));
  await expect(page.getByRole("alert")).toHaveCount(0);
});

test("a call is undone with the keyboard alone", async ({ page, site }) => {
  await page.clock.install();
  const host = new ConsoleFake();
  host.calls = [call(1, { undo: "possible" })];
  host.answers.set("preview-undo", { undoes: [7], changes: [CHANGE] });
  host.answers.set("undo", { files: 1 });
  await host.open(page, site, "activity");
  await row(page, "Edit file 1").focus();
  await page.keyboard.press("Enter");
  await expect(page.getByText("Arguments", { exact: true })).toBeVisible();
  await calm(page);
  await page.keyboard.press("Tab");
  await expect(page.getByRole("button", { name: /^Undo .*…$/ })).toBeFocused();
  await page.keyboard.press("Enter");
  const undo = page.getByRole("button", { name: "Undo 1 change" });
  await expect(undo).toBeVisible();
  await calm(page);
  for (let n = 0; n < 12 && !(await undo.evaluate((one) => one === document.activeElement)); n += 1) await page.keyboard.press("Tab");
  await expect(undo).toBeFocused();
  await page.keyboard.press("Enter");
  await expect.poll(() => host.to("undo")).toEqual([{ of: { call: `${RUN}-1` }, changes: [7] }]);
});

test("an undo by a person is not shown as an agent's call", async ({ page, site }) => {
  const host = new ConsoleFake();
  host.calls = [call(1, { tool: "undo", agent: "~undo", origin: "human" }), call(2, { agent: "~refactor" })];
  await host.open(page, site, "activity");
  await expect(row(page, "Edit file 1").locator(".facts")).toContainText("A personundo");
  await expect(row(page, "Edit file 1")).not.toContainText("says it is");
  await expect(row(page, "Edit file 2")).toContainText("“refactor”");
});

test("a row looks as if it can be opened", async ({ page, site }) => {
  const host = new ConsoleFake();
  host.calls = [call(1)];
  await host.open(page, site, "activity");
  const look = () => row(page, "Edit file 1").evaluate((one) => ({ sign: getComputedStyle(one, "::before").content, cursor: getComputedStyle(one).cursor }));
  await loaded(page, "Edit file 1");
  expect(await look()).toEqual({ sign: '"▸" / ""', cursor: "pointer" });
  await row(page, "Edit file 1").click();
  expect(await look()).toEqual({ sign: '"▾" / ""', cursor: "pointer" });
});

test("changes of an agent that has ended are undone", async ({ page, site }) => {
  await page.clock.install();
  const host = new ConsoleFake();
  const calls = { calls: [], more: false, agents: ["main"], tools: [] };
  host.answers.set("activity", { ...calls, undoable: 0 });
  await host.open(page, site, "activity");
  await aside(page).getByRole("button", { name: "main" }).click();
  await expect(page.getByText("This agent has ended.")).toBeVisible();
  await expect(page.getByRole("button", { name: /^Undo .*…$/ })).toHaveCount(0);

  host.answers.set("activity", { ...calls, undoable: 2 });
  host.answers.set("preview-undo", { undoes: [4, 2], changes: [CHANGE] });
  host.answers.set("undo", { files: 1 });
  host.changed();
  await press(page, page.getByRole("button", { name: /^Undo .*…$/ }));
  const section = page.getByRole("region", { name: "Undo" });
  await expect(section.locator(".file")).toHaveCount(1);
  await press(page, section.getByRole("button", { name: "Undo 2 changes" }));
  await expect.poll(() => host.to("undo")).toEqual([{ of: { agent: "main" }, changes: [4, 2] }]);
  await expect(page.getByText("1 file restored to before the changes of main and its sub-agents.")).toBeVisible();
});

test("an agent is paused and resumed", async ({ page, site }) => {
  await page.clock.install();
  const host = new ConsoleFake();
  host.state.agents = family();
  await host.open(page, site, "activity");
  await stopClock(page);
  await aside(page).getByRole("button", { name: "tests" }).click();
  const button = page.getByRole("button", { name: /^Pause(?!d)/ });
  // The button appeared under a possible press, so this one is ignored.
  await button.click();
  expect(host.to("pause")).toEqual([]);
  await page.clock.resume();
  await press(page, button);
  await expect.poll(() => host.to("pause")).toEqual([{ worker: `${RUN}-2`, paused: true }]);
  host.state.agents = family().map((one) => (one["worker"] === `${RUN}-2` ? { ...one, paused: true } : one));
  host.changed();
  await expect(page.getByText(/^Paused: its new calls and those of its sub-agents wait/)).toBeVisible();
  await press(page, page.getByRole("button", { name: "Resume" }));
  await expect.poll(() => host.to("pause")).toEqual([{ worker: `${RUN}-2`, paused: true }, { worker: `${RUN}-2`, paused: false }]);
  host.answers.set("pause", new Error("cannot be recorded"));
  await press(page, page.getByRole("button", { name: "Resume" }));
  await expect(page.getByRole("alert")).toHaveText("cannot be recorded");
});

test("an agent that is paused with its parent is resumed at the parent", async ({ page, site }) => {
  const host = new ConsoleFake();
  host.state.agents = family().map((one) => (one["worker"] === `${RUN}-1` ? one : { ...one, paused: true }));
  await host.open(page, site, "activity");
  await aside(page).getByRole("button", { name: "reviewer" }).click();
  await expect(page.getByText(/^Paused: .* wait until you resume main\/tests or their time is up\.$/)).toBeVisible();
  await expect(page.getByRole("button", { name: "Resume" })).toHaveCount(0);
  await aside(page).getByRole("button", { name: "tests" }).click();
  await expect(page.getByRole("button", { name: "Resume" })).toBeVisible();
});

test("an agent is stopped only after saying what that means", async ({ page, site }) => {
  await page.clock.install();
  const host = new ConsoleFake();
  host.state.agents = family();
  host.answers.set("stop-worker", { unfinished: 1 });
  await host.open(page, site, "activity");
  await aside(page).getByRole("button", { name: "tests" }).click();
  const stop = page.getByRole("button", { name: "Stop" });
  await expect(stop).toBeEnabled();
  await calm(page);
  await stopClock(page);
  await stop.click();
  await expect(stop).toHaveText("Stop tests and 1 sub-agent");
  await expect(stop).toHaveAccessibleDescription(/^Stopping revokes everything that main\/tests and 1 sub-agent may do\..*This cannot be undone\.$/);
  await expect(stop).toBeFocused();
  // The second press of a double press is ignored.
  await stop.click();
  expect(host.to("stop-worker")).toEqual([]);
  await page.clock.resume();
  await page.keyboard.press("Escape");
  await expect(stop).toHaveText("Stop…");
  await press(page, stop);
  await press(page, stop);
  await expect.poll(() => host.to("stop-worker")).toEqual([{ worker: `${RUN}-2` }]);
  await expect(page.getByText("main/tests was stopped. 1 call had begun and may still finish.")).toBeVisible();
  host.state.agents = family().slice(0, 1);
  host.changed();
  await expect(page.getByText("This agent has ended. Its calls are below.")).toBeVisible();
  await expect(page.getByRole("heading", { name: "main/tests", exact: true })).toBeVisible();
});

test("an agent can be stopped while calls come in", async ({ page, site }) => {
  await page.clock.install();
  const host = new ConsoleFake();
  host.state.agents = family();
  host.calls = [call(1, { worker: `${RUN}-2` })];
  await host.open(page, site, "activity");
  await aside(page).getByRole("button", { name: "tests" }).click();
  const stop = page.getByRole("button", { name: "Stop" });
  await press(page, stop);
  await expect(stop).toHaveText("Stop tests and 1 sub-agent");
  await calm(page);
  host.state.agents = [...family().map((one) => (one["worker"] === `${RUN}-2` ? { ...one, calls: 7 } : one)), agent(5)];
  host.calls = [call(2, { worker: `${RUN}-2` }), call(1, { worker: `${RUN}-2`, result: "failed" })];
  host.changed();
  await loaded(page, "Edit file 2");
  await expect(aside(page).getByText("7 open calls")).toBeVisible();
  await stop.click();
  await expect.poll(() => host.to("stop-worker")).toEqual([{ worker: `${RUN}-2` }]);
});

test("an outdated response about an agent is ignored", async ({ page, site }) => {
  const host = new ConsoleFake();
  host.state.agents = family();
  const about = (number: number, text: string) => ({ agent: host.state.agents[number - 1], may: [statement("allowed", text)], changed: [], changed_omitted: 0 });
  let late: (value: unknown) => void = () => undefined;
  host.answers.set(`agent/${RUN}-1`, new Promise((resolve) => (late = resolve)));
  host.answers.set(`agent/${RUN}-2`, about(2, "read /second"));
  await host.open(page, site, "activity");
  const came = page.waitForResponse(/agent\/.*-1$/);
  await aside(page).getByRole("button", { name: "main" }).click();
  await aside(page).getByRole("button", { name: "tests" }).click();
  await page.getByText("What it may do now").click();
  await expect(page.getByText("read /second")).toBeVisible();
  late(about(1, "read /first"));
  await (await came).finished();
  await page.evaluate(() => new Promise(requestAnimationFrame));
  await expect(page.getByText("read /first")).toHaveCount(0);
  await expect(page.getByText("read /second")).toBeVisible();
});

test("the page is used with the keyboard alone", async ({ page, site }) => {
  await page.clock.install();
  const host = new ConsoleFake();
  host.state.agents = [agent(1)];
  host.calls = some(60, 60);
  await host.open(page, site, "activity");
  await loaded(page, "Edit file 60");
  const go = async (name: string): Promise<void> => {
    for (let tabs = 0; tabs < 30; tabs += 1) {
      await page.keyboard.press("Tab");
      const focused = await page.evaluate(() => document.activeElement?.textContent ?? "");
      if (focused.startsWith(name)) return;
    }
    throw new Error(`${name} was not reached`);
  };
  await go("worker-1");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { name: "main/worker-1" })).toBeVisible();
  await loaded(page, "Edit file 60");
  await go("Edit file 60");
  await page.keyboard.press("ArrowDown");
  await expect(row(page, "Edit file 59")).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(page.locator(".t.add").first()).toBeVisible();
  await expect(row(page, "Edit file 59")).toBeFocused();
  await page.keyboard.press("End");
  await expect(row(page, "Edit file 1")).toBeFocused();
  await expect(row(page, "Edit file 1")).toBeInViewport();
  await page.keyboard.press("Home");
  await expect(row(page, "Edit file 60")).toBeFocused();
  await page.keyboard.press("ArrowUp");
  await expect(row(page, "Edit file 60")).toBeFocused();
});

const past = {
  chain: { state: "verified", records: 12 },
  words: "✓ The audit log is intact: 12 records.",
  entries: [
    { run: 1, at: START, agent: "main", tool: "edit_file", decision: "denied", by: "person", entry: "question", needs: ["write:file:/a/x"], note: "not now" },
    { run: 1, at: START + 1000, agent: "", decision: "granted", by: "person", entry: "signed_in", server: "mail", issuer: "https://a.example", scopes: ["mail.read"], tool_there: "send" },
    { run: 1, at: START + 2000, agent: "main", tool: "delete", by: "nobody", entry: "call", outcome: "failed", begun: true, needs: ["write:file:/a/t"] },
    { run: 1, at: START + 3000, agent: "main", tool: "delete", by: "nobody", entry: "call", outcome: "failed", begun: true, code: "DEADLINE", needs: ["write:file:/a/u"] },
  ],
  total: 150,
  tally: { granted: 3, denied: 1, expired: 0, cancelled: 0, open: 0 },
  unused: [{ run: 1, grant: 3, pattern: "write:file:/never" }],
  agents: ["main", "main/tests"],
  tools: ["edit_file"],
  sessions: ["talk"],
  runs: [1, 2],
};

/** Opens the page at its audit log. */
async function openLog(host: ConsoleFake, page: Page, site: Parameters<ConsoleFake["open"]>[1]): Promise<void> {
  await host.open(page, site, "activity");
  await page.getByRole("button", { name: "Audit log" }).first().click();
}

test("the audit log can be filtered, paged and exported", async ({ page, site }) => {
  const host = new ConsoleFake();
  host.answers.set("history", past);
  await openLog(host, page, site);
  await expect(page.getByText("✓ The audit log is intact: 12 records")).toBeVisible();
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
  await expect.poll(() => host.to("history").at(-1)).toEqual({ source: RUN, agent: "main/tests", tool: "edit_file", decision: "denied", session: "talk", run: 2, skip: 0 });
  await page.getByRole("button", { name: "Older" }).click();
  await expect.poll(() => host.to("history").at(-1)).toMatchObject({ skip: 100 });
  const download = page.waitForEvent("download");
  await page.getByRole("button", { name: "Export" }).click();
  expect((await download).suggestedFilename()).toBe("history.jsonl");
});

test("a broken hash chain is reported with its position", async ({ page, site }) => {
  const host = new ConsoleFake();
  host.answers.set("history", { ...past, chain: { state: "broken" }, words: "✗ The audit log is broken at record 17: the line was changed. Nothing from there on is shown." });
  await openLog(host, page, site);
  await expect(page.locator(".notice.bad")).toHaveText("✗ The audit log is broken at record 17: the line was changed. Nothing from there on is shown.");
});

test("an outdated response of the audit log is ignored", async ({ page, site }) => {
  const host = new ConsoleFake();
  let late: (value: unknown) => void = () => undefined;
  host.answers.set("history", past);
  await openLog(host, page, site);
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

test("the end of the recent calls leads to the audit log, if there is one", async ({ page, site }) => {
  const host = new ConsoleFake();
  host.calls = [call(1)];
  host.answers.set("history", past);
  await host.open(page, site, "activity");
  await page.locator(".end").getByRole("button", { name: "audit log" }).click();
  await expect(page.getByText("150 entries.")).toBeVisible();
  await page.getByRole("button", { name: "Recent calls" }).click();
  await loaded(page, "Edit file 1");
  host.state["sources"] = (host.state["sources"] as object[]).map((one) => ({ ...one, recorded: false }));
  host.changed();
  await expect(page.getByRole("button", { name: "Audit log" })).toHaveCount(0);
  await loaded(page, "Edit file 1");
});

test("hostile text of calls and agents is shown as plain text", async ({ page, site }) => {
  const host = new ConsoleFake();
  const policy: string[] = [];
  page.on("console", (message) => policy.push(message.text()));
  host.state.agents = [agent(1, { name: BAD, agent: BAD, session: BAD })];
  host.calls = [call(1, { sentence: BAD, agent: BAD, session: BAD, tool: BAD, server: BAD, message: BAD, code: "INTERNAL", result: "failed", allowed_by: [{ kind: "grant", text: BAD, grant: null }] })];
  host.answers.set(`call/${RUN}-1`, details(host.calls[0] ?? {}, { needs: [BAD], arguments: BAD, output: BAD, changes: [{ ...CHANGE, path: BAD }] }));
  host.answers.set(`agent/${RUN}-1`, { agent: host.state.agents[0], may: [statement("allowed", BAD, { path: BAD, operations: [BAD], source: { kind: "parent", text: BAD } })], changed: [{ path: BAD, op: BAD, to: BAD, worker: "x", agent: BAD }], changed_omitted: 0 });
  host.answers.set("history", { ...past, entries: [{ ...past.entries[0], agent: BAD, needs: [BAD], note: BAD, rule: BAD }, { ...past.entries[1], server: BAD, issuer: BAD, scopes: [BAD] }], agents: [BAD] });
  await host.open(page, site, "activity");
  const inert = async (): Promise<void> => {
    await expect(page.getByText("<img src=x").filter({ visible: true }).first()).toBeVisible();
    await expect(page.locator("img")).toHaveCount(0);
    expect(await page.locator("body").textContent()).not.toMatch(/[\u202e\u200b]/u);
  };
  await aside(page).getByRole("button", { name: "<img" }).first().click();
  await page.getByText("What it may do now").click();
  await page.getByText("1 changed file").click();
  await row(page, "<img").click();
  for (const words of ["Output", "Arguments", "1 permission needed"]) await page.getByText(words, { exact: true }).click();
  await expect(page.locator(".t.add").first()).toBeVisible();
  await inert();
  await page.getByRole("button", { name: "Audit log" }).first().click();
  await expect(page.getByRole("table")).toBeVisible();
  await inert();
  await expect(page).toHaveTitle("Activity");
  expect(policy).toEqual([]);
});

for (const colorScheme of ["light", "dark"] as const) {
  for (const [forcedColors, width] of [
    ["none", 1280],
    ["none", 320],
    ["active", 640],
  ] as const) {
    test(`passes accessibility checks: ${colorScheme}, forced colors ${forcedColors}, width ${width}`, async ({ page, site }) => {
      await page.clock.install();
      await page.emulateMedia({ colorScheme, forcedColors });
      // A 320 px wide window is also one of 640 px at 200 % zoom.
      await page.setViewportSize({ width, height: 800 });
      const host = new ConsoleFake();
      const long = "a-very-long-name-of-an-agent-".repeat(6);
      host.state.agents = [agent(1, { agent: long, name: long, questions: 1, paused: true, changed: 1 })];
      const may = ["allowed", "asks", "denied", "protected"].map((verdict) => statement(verdict, `read /${"folder/".repeat(30)}x`));
      host.answers.set(`agent/${RUN}-1`, { agent: host.state.agents[0], may, changed: [{ path: `/${"folder/".repeat(30)}x`, op: "modify", to: null, worker: `${RUN}-1`, agent: long }], changed_omitted: 3 });
      const results = ["done", "denied", "failed", "stale", "cancelled"].map((result, at) => call(20 - at, { result, sentence: `Edit ${"folder/".repeat(30)}x` }));
      const open = ["preparing", "asking", "queued", "running"].map((state, at) => call(10 - at, { state, result: null, ended_at: null }));
      host.calls = [...results, ...open];
      host.answers.set("history", past);
      await host.open(page, site, "activity");
      await expect(rows(page).first()).toBeVisible();
      await expectAccessible(page);
      if (width < 900) await aside(page).getByText("1 running agent").click();
      await aside(page).getByRole("button", { name: long.slice(0, 60) }).click();
      await page.getByText("What it may do now").click();
      await page.getByText("4 changed files").click();
      await calm(page);
      await page.getByRole("button", { name: "Stop" }).click();
      await page.getByRole("list", { name: "Calls" }).scrollIntoViewIfNeeded();
      await rows(page).getByRole("button", { name: "Denied" }).click();
      await expect(page.locator(".t.add").first()).toBeVisible();
      for (const words of ["Output", "Arguments", "1 permission needed"]) await page.getByText(words, { exact: true }).click();
      await expectAccessible(page);
      await page.getByRole("button", { name: "Audit log" }).first().click();
      await expect(page.getByRole("table")).toBeVisible();
      await expectAccessible(page);
    });
  }
}
