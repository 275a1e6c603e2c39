// Tests of the console's permissions page.
import type { Page } from "@playwright/test";

import { BAD, COVERS, ConsoleFake, START, agent, expectAccessible, grant, statement } from "./console-fake.ts";
import { RUN, SOURCE } from "./fake-api.ts";
import { calm, expect, press, stopClock, test } from "./fixtures.ts";

const rules = (page: Page) => page.locator("li.rule");
const form = (page: Page) => page.locator("details.card");
const giving = (page: Page) => form(page).getByRole("button", { name: /^Give (this rule|exactly these rules)/ });
const broad = (page: Page) => form(page).getByLabel(/I understand what this allows/);
const pick = async (page: Page, name: string, value: string): Promise<void> => void (await form(page).getByRole("combobox", { name, exact: true }).selectOption(value));
/** Lets the page ask the host about the rule of the form. */
const pause = (page: Page): Promise<void> => page.clock.runFor(300);
/** Gives the rule, once the host told its effect. */
async function give(page: Page): Promise<void> {
  await pause(page);
  await expect(form(page).getByText("Checking…")).toHaveCount(0);
  await press(page, giving(page));
}

async function openForm(page: Page): Promise<void> {
  await page.getByText("Give a rule", { exact: true }).click();
  await expect(form(page).getByRole("combobox", { name: "May" })).toBeVisible();
}

/** What the host says about an agent. */
const about = (row: object | undefined, ...may: object[]) => ({ agent: row, may, changed: [], changed_omitted: 0 });

test("the policy of an agent is shown in plain words, with its sources", async ({ page, site }) => {
  const host = new ConsoleFake();
  host.state.agents = [agent(1), agent(2, { session: "other" })];
  host.answers.set(`agent/${RUN}-1`, about(host.state.agents[0], statement("allowed", "read everything in /a"), statement("denied", "read /a/secrets", { source: { kind: "parent", text: "narrowed by main" } })));
  host.answers.set(`agent/${RUN}-2`, about(host.state.agents[1], statement("asks", "change everything in /a"), statement("protected", "change files in .git", { source: { kind: "built_in", text: "Git hooks run code" } })));
  await host.open(page, site, "permissions");
  await expect(page.getByRole("region", { name: "Allowed" })).toContainText("read everything in /aConfiguration");
  await page.getByText("read /a/secrets").click();
  await expect(page.getByRole("region", { name: "Denied" })).toContainText("narrowed by main");
  await page.getByRole("combobox", { name: "Agent" }).first().selectOption("main/worker-2 (started by the host)");
  await expect(page.getByRole("region", { name: "Asks you", exact: true })).toContainText("change everything in /a");
  await expect(page.getByRole("region", { name: "Sensitive: asks you" })).toContainText("change files in .git");
  await expect(page.getByRole("region", { name: "Allowed" })).toHaveCount(0);
});

test("agents are named in words, and those that are connected come first", async ({ page, site }) => {
  const host = new ConsoleFake();
  const named = (number: number, path: string, more: object = {}) => agent(number, { agent: path, name: path, ...more });
  host.state.agents = [named(1, "client"), named(2, "~refactor"), named(3, "~refactor", { session: "other" }), named(4, "~refactor/tests", { parent: `${RUN}-2` })];
  host.answers.set(`agent/${RUN}-2`, about(host.state.agents[1], statement("denied", "run programs"), statement("denied", "connect to the network")));
  await host.open(page, site, "permissions");
  const options = page.getByRole("combobox", { name: "Agent" }).first().locator("option");
  await expect(options).toHaveText([
    "says it is refactor (connected over MCP), session main",
    "says it is refactor (connected over MCP), session other",
    "says it is refactor/tests",
    "client (started by the host)",
  ]);
  for (const text of ["run programs", "connect to the network"]) await expect(page.getByRole("region", { name: "Denied" }).getByText(text, { exact: true })).toBeVisible();
  await page.getByRole("heading", { name: "Give a rule" }).click();
  await expect(form(page).getByRole("combobox", { name: "Agent", exact: true }).locator("option")).toHaveText(["Choose an agent", "client", "says it is refactor", "says it is refactor/tests", "Another agent…"]);
  await expectAccessible(page);
});

test("the policy follows the state, and an outdated response is ignored", async ({ page, site }) => {
  const host = new ConsoleFake();
  host.state.agents = [agent(1), agent(2)];
  let late: (value: unknown) => void = () => undefined;
  host.answers.set(`agent/${RUN}-1`, new Promise((resolve) => (late = resolve)));
  host.answers.set(`agent/${RUN}-2`, about(host.state.agents[1], statement("allowed", "read /second")));
  const came = page.waitForResponse(/agent\/.*-1$/);
  await host.open(page, site, "permissions");
  await expect(page.getByText("Loading…")).toBeVisible();
  await page.getByRole("combobox", { name: "Agent" }).first().selectOption(`${RUN}-2`);
  await expect(page.getByText("read /second")).toBeVisible();
  late(about(host.state.agents[0], statement("allowed", "read /first")));
  await (await came).finished();
  await page.evaluate(() => new Promise(requestAnimationFrame));
  await expect(page.getByText("read /first")).toHaveCount(0);
  host.answers.set(`agent/${RUN}-2`, about(host.state.agents[1], statement("allowed", "read /third")));
  host.changed();
  await expect(page.getByText("read /third")).toBeVisible();
  await expect(page.getByText("read /second")).toHaveCount(0);
});

test("there are words for no agents, no rules, and a host that does not answer", async ({ page, site }) => {
  const host = new ConsoleFake();
  await host.open(page, site, "permissions");
  await expect(page.getByText("No agent is running.")).toBeVisible();
  await expect(page.getByText("No rules: agents do what the configuration allows, and ask for the rest.")).toBeVisible();
  host.answers.set(`agent/${RUN}-1`, new Error("unknown worker"));
  host.state.agents = [agent(1)];
  host.changed();
  await expect(page.getByRole("alert")).toHaveText("unknown worker");
  host.answers.set(`agent/${RUN}-1`, about(host.state.agents[0]));
  host.changed();
  await expect(page.getByText("The host does not report what this agent may do.")).toBeVisible();
  await expect(page.getByRole("alert")).toHaveCount(0);
});

test("a rule is suggested only on request, and added only on request", async ({ page, site }) => {
  await page.clock.install();
  const host = new ConsoleFake();
  host.state.agents = [agent(3)];
  await host.open(page, site, "permissions");
  const ask = page.getByRole("button", { name: "Suggest a rule" });
  await expect(ask).toBeVisible();
  expect(host.to("suggestions")).toEqual([]);
  await ask.click();
  await expect(page.getByText(/^No suggestion:/)).toBeVisible();
  expect(host.to("suggestions")).toEqual([{ run: RUN, agent: "main/worker-3", session: "main", worker: `${RUN}-3` }]);
  const suggestion = { run: RUN, agent: "main/worker-3", pattern: "write:file:/a/b", reach: "beneath", operations: ["change"], covers: "change /a/b and everything in it", spares: 3, holder: { session: { session: "main", worker: 3 } }, lifetime: "session" };
  host.answers.set("suggestions", { suggestion });
  await stopClock(page);
  await ask.click();
  await expect(page.getByText("You allowed 3 calls like this. Let it do this without asking until it or its session ends: change /a/b and everything in it?")).toBeVisible();
  const add = page.getByRole("button", { name: "Add this rule" });
  // The button appeared under a possible press, so this one is ignored.
  await add.click();
  expect(host.to("grant")).toEqual([]);
  await page.clock.resume();
  let refuse: (error: Error) => void = () => undefined;
  host.answers.set("grant", new Promise((resolve) => (refuse = resolve)));
  await press(page, add);
  // It cannot be pressed twice, but again after the host refused it.
  await expect(add).toHaveCount(0);
  const { spares: _spares, agent: _agent, covers: _covers, ...given } = suggestion;
  await expect.poll(() => host.to("grant")).toEqual([given]);
  refuse(new Error("too many grants"));
  await expect(page.getByRole("alert")).toHaveText("too many grants");
  host.answers.delete("grant");
  await press(page, add);
  await expect.poll(() => host.to("grant")).toEqual([given, given]);
  await expect(page.getByRole("alert")).toHaveCount(0);
  await expect(add).toHaveCount(0);
});

test("a rule says who may do what, how long, and how often it was used", async ({ page, site }) => {
  await page.clock.install({ time: START });
  const host = new ConsoleFake();
  host.state.grants = [
    grant(1, { uses_left: 2, expires_at: START + 3_600_000, descendants: true }),
    grant(2, { used: 0, used_at: null, agent: "main/docs", covers: "read /a", lifetime: "until the agent or its session ends" }),
  ];
  await host.open(page, site, "permissions");
  await expect(page.getByRole("heading", { name: "Rules you gave (2)" })).toBeVisible();
  await expect(rules(page).nth(0)).toContainText("main/tests and its sub-agents may create or change /a/b and everything in it");
  await expect(rules(page).nth(0)).toContainText(/2 uses left, until .* \(\d+ minutes left\)used 3 times since the server started, last /);
  await expect(rules(page).nth(1)).toContainText("main/docs may read /a");
  await expect(rules(page).nth(1)).toContainText("until the agent or its session endsnot used since the server started");
  // Scope syntax is not in the first view.
  await expect(page.getByText("write:file:/a/b").first()).toBeHidden();
  await rules(page).nth(0).getByText("Details").click();
  await expect(page.getByText("write:file:/a/b").first()).toBeVisible();
  await page.clock.runFor(3_545_000);
  await expect(rules(page).nth(0)).toContainText(/\(\d+ seconds left\)/);
});

test("a rule is revoked after a second press", async ({ page, site }) => {
  await page.clock.install();
  const host = new ConsoleFake();
  host.state.grants = [grant(1), grant(2, { covers: "read /a" })];
  host.answers.set("revoke", { grants: [{ grant: `${RUN}-2`, revoked: 1, unfinished: 1 }] });
  await host.open(page, site, "permissions");
  const button = rules(page).nth(1).getByRole("button", { name: /^Revoke/ });
  await expect(button).toHaveAccessibleName(/^Revoke: main\/tests may read \/a/);
  await calm(page);
  await stopClock(page);
  await button.click();
  await expect(button).toHaveText("Revoke this rule");
  await expect(button).toBeFocused();
  // The second press of a double press is ignored.
  await button.click();
  expect(host.to("revoke")).toEqual([]);
  await page.clock.resume();
  await press(page, button);
  await expect.poll(() => host.to("revoke")).toEqual([{ grants: [`${RUN}-2`] }]);
  await expect(page.getByText("1 rule was revoked. 1 call had begun and may still finish.")).toBeVisible();
});

test("only one rule at a time awaits a second press, and it can be cancelled", async ({ page, site }) => {
  await page.clock.install();
  const host = new ConsoleFake();
  host.state.grants = [grant(1), grant(2)];
  await host.open(page, site, "permissions");
  const first = rules(page).nth(0).getByRole("button", { name: /^Revoke/ });
  const second = rules(page).nth(1).getByRole("button", { name: /^Revoke/ });
  await press(page, first);
  await press(page, second);
  await expect(first).toHaveText("Revoke");
  await expect(second).toHaveText("Revoke this rule");
  await press(page, page.getByRole("button", { name: "Cancel" }));
  await expect(second).toHaveText("Revoke");
  await press(page, second);
  await page.keyboard.press("Escape");
  await expect(second).toHaveText("Revoke");
  expect(host.to("revoke")).toEqual([]);
});

test("a grant can be revoked while it is updated", async ({ page, site }) => {
  await page.clock.install();
  const host = new ConsoleFake();
  host.state.grants = [grant(1, { used: 3, uses_left: 9 }), grant(2)];
  await host.open(page, site, "permissions");
  const button = rules(page).first().getByRole("button", { name: /^Revoke/ });
  await press(page, button);
  await calm(page);
  await button.hover();
  await page.mouse.down();
  host.state.grants = [grant(1, { used: 4, uses_left: 8 }), grant(2)];
  host.changed();
  await expect(page.getByText(/^used 4 times/)).toBeVisible();
  await expect(page.getByText("8 uses left")).toBeVisible();
  await page.mouse.up();
  await expect.poll(() => host.to("revoke")).toEqual([{ grants: [`${RUN}-1`] }]);
});

test("rules that could not be revoked are reported", async ({ page, site }) => {
  await page.clock.install();
  const host = new ConsoleFake();
  host.state.grants = [grant(1), grant(2)];
  host.answers.set("revoke", { grants: [{ grant: `${RUN}-1`, revoked: 1, unfinished: 0 }, { grant: `${RUN}-2`, code: "NOT_STORED", message: "the disk is full" }] });
  await host.open(page, site, "permissions");
  const all = page.getByRole("button", { name: /^Revoke all 2/ });
  await press(page, all);
  await press(page, all);
  await expect(page.getByRole("alert")).toHaveText("1 rule could not be revoked: the disk is full");
  await expect(page.getByText("1 rule was revoked.")).toBeVisible();
});

test("rules are filtered by agent, operation and text, and revoked together", async ({ page, site }) => {
  await page.clock.install();
  const host = new ConsoleFake();
  host.state.grants = [grant(1), grant(2, { covers: "create or change /a/c" }), grant(3, { agent: "other", verb: "read", covers: "read /a" }), grant(4, { agent: "other", verb: null, covers: "everything" })];
  await host.open(page, site, "permissions");
  await page.getByRole("combobox", { name: "Agent of the rules" }).selectOption("other");
  await expect(rules(page)).toHaveCount(2);
  // A rule for all operations is for this one, too.
  await page.getByRole("combobox", { name: "Operation" }).selectOption("write");
  await expect(rules(page)).toHaveCount(1);
  await expect(rules(page)).toContainText("everything");
  await page.getByRole("combobox", { name: "Operation" }).selectOption("read");
  await expect(rules(page)).toHaveCount(2);
  const shown = page.getByRole("button", { name: /^Revoke (the )?2/ });
  await press(page, shown);
  await expect(shown).toHaveText("Revoke 2 of 4 rules");
  await expect(shown).toHaveAccessibleDescription("Calls that these rules allow will ask you or fail. Calls under way that use them are stopped.");
  // Another filter changes what would be revoked, so it cancels.
  await page.getByRole("searchbox").fill("everything");
  await expect(rules(page)).toHaveCount(1);
  await page.getByRole("searchbox").fill("");
  await expect(shown).toHaveText("Revoke the 2 shown…");
  await press(page, shown);
  await press(page, shown);
  await expect.poll(() => host.to("revoke")).toEqual([{ grants: [`${RUN}-3`, `${RUN}-4`] }]);
  await page.getByRole("searchbox").fill("nothing like this");
  await expect(page.getByText("No rules match.")).toBeVisible();
});

test("ticked rules are revoked together, without those that a filter hides", async ({ page, site }) => {
  await page.clock.install();
  const host = new ConsoleFake();
  host.state.grants = [grant(1), grant(2, { covers: "create or change /a/c" }), grant(3, { agent: "other" })];
  await host.open(page, site, "permissions");
  const ticks = page.getByRole("checkbox", { name: /^Choose: / });
  await expect(ticks).toHaveCount(3);
  for (const tick of await ticks.all()) await tick.check();
  const button = page.getByRole("button", { name: /chosen/ });
  await expect(button).toHaveText("Revoke 3 chosen…");
  await page.getByRole("combobox", { name: "Agent of the rules" }).selectOption("main/tests");
  await press(page, button);
  await expect(button).toHaveText("Revoke 2 chosen rules");
  await press(page, button);
  await expect.poll(() => host.to("revoke")).toEqual([{ grants: [`${RUN}-1`, `${RUN}-2`] }]);
});

test("a pending confirmation and typed input survive an update", async ({ page, site }) => {
  await page.clock.install();
  const host = new ConsoleFake();
  host.state.grants = [grant(1), grant(2)];
  await host.open(page, site, "permissions");
  const all = page.getByRole("button", { name: /^Revoke all/ });
  await press(page, all);
  await expect(all).toHaveText("Revoke all 2 rules");
  await page.getByText("Narrow", { exact: true }).first().click();
  const uses = rules(page).first().getByLabel("Uses left");
  await uses.fill("7");
  await stopClock(page);
  host.state.grants = [...host.state.grants, grant(3)];
  host.changed();
  await expect(all).toHaveText("Revoke all 3 rules");
  await expect(uses).toHaveValue("7");
  await expect(uses).toBeFocused();
  // It would revoke something other than what was shown.
  await all.click();
  expect(host.to("revoke")).toEqual([]);
  await page.clock.resume();
  await press(page, all);
  await expect.poll(() => host.to("revoke")).toEqual([{ grants: [1, 2, 3].map((number) => `${RUN}-${number}`) }]);
});

test("a rule is narrowed by path, operations, uses, time and holder", async ({ page, site }) => {
  await page.clock.install();
  const host = new ConsoleFake();
  host.state.grants = [grant(1, { descendants: true }), grant(2, { pattern: "write:mcp:hub~1:send~2" })];
  await host.open(page, site, "permissions");
  await rules(page).first().getByText("Narrow", { exact: true }).click();
  const first = rules(page).first();
  await expect(first.getByLabel("Only this path")).toHaveValue("/a/b");
  await first.getByLabel("Only this path").fill("/a/b/x");
  await first.getByRole("checkbox", { name: "create", exact: true }).uncheck();
  await first.getByLabel("Uses left").fill("2");
  await first.getByLabel("Minutes left").fill("5");
  await first.getByLabel("Not its sub-agents").check();
  const narrow = first.getByRole("button", { name: "Narrow to this" });
  await press(page, narrow);
  await expect.poll(() => host.to("narrow")).toEqual([{ grant: `${RUN}-1`, pattern: "write:file:/a/b/x", operations: ["change"], uses: 2, for_ms: 300_000, holder_only: true }]);
  await expect(page.getByText("The rule was narrowed.")).toBeVisible();
  await first.getByRole("checkbox", { name: "change", exact: true }).uncheck();
  await press(page, narrow);
  await expect(page.getByRole("alert")).toHaveText("Leave at least one operation, or revoke the rule.");
  expect(host.to("narrow")).toHaveLength(1);
  await first.getByRole("checkbox", { name: "change", exact: true }).check();
  host.answers.set("narrow", new Error("a grant can only be narrowed"));
  await press(page, narrow);
  await expect(page.getByRole("alert")).toHaveText("a grant can only be narrowed");
  // The pattern of another resource is narrowed as text.
  await rules(page).nth(1).getByText("Narrow", { exact: true }).click();
  await expect(rules(page).nth(1).getByLabel("Only this pattern")).toHaveValue("write:mcp:hub~1:send~2");
  host.answers.delete("narrow");
  await press(page, rules(page).nth(1).getByRole("button", { name: "Narrow to this" }));
  await expect.poll(() => host.to("narrow").at(-1)).toEqual({ grant: `${RUN}-2`, holder_only: false });
});

test("three hundred rules are rendered in parts", async ({ page, site }) => {
  const host = new ConsoleFake();
  host.state.grants = Array.from({ length: 300 }, (_, number) => grant(number));
  host.state["omitted"] = { questions: 0, grants: 4, refusals: 0 };
  await host.open(page, site, "permissions");
  await expect(rules(page)).toHaveCount(50);
  await page.getByRole("button", { name: "Show 50 more rules" }).click();
  await expect(rules(page)).toHaveCount(100);
  await expect(page.getByText("4 more rules are not listed. Revoke some to see them.")).toBeVisible();
});

test("a denial for a session can be withdrawn", async ({ page, site }) => {
  await page.clock.install();
  const host = new ConsoleFake();
  host.state.refusals = [{ run: RUN, refusal: 4, agent: "main/worker-3", session: "main", refused: "change /a/x" }];
  await host.open(page, site, "permissions");
  await expect(page.getByRole("listitem").filter({ hasText: "main/worker-3: may not change /a/x" })).toBeVisible();
  await press(page, page.getByRole("button", { name: "End this block: ask me again" }));
  await expect.poll(() => host.to("ask-again")).toEqual([{ run: RUN, refusal: 4 }]);
});

test("a rule is given to an agent from the list, with its effect on the last hour", async ({ page, site }) => {
  await page.clock.install();
  const host = new ConsoleFake();
  host.state.agents = [agent(1)];
  const calls = [1, 2].map((number) => ({ call: `${RUN}-${number}`, at: START, agent: "main/worker-1", sentence: `Edit file ${number}` }));
  host.answers.set("would-allow", { covers: COVERS, calls, count: 7, of: 9 });
  await host.open(page, site, "permissions");
  await openForm(page);
  await expect(form(page).getByText("Choose an agent.", { exact: true })).toBeVisible();
  await expect(giving(page)).toHaveCount(0);
  await pick(page, "Agent", "main/worker-1");
  await pick(page, "May", "write");
  await form(page).getByRole("checkbox", { name: "create", exact: true }).uncheck();
  await form(page).getByRole("checkbox", { name: "delete", exact: true }).check();
  await form(page).getByLabel("Path below it").fill("docs/");
  await pick(page, "How long", "uses");
  await form(page).getByLabel("Its sub-agents too").check();
  await pause(page);
  await expect(form(page).getByText(`main/worker-1 and its sub-agents may, for 10 uses: ${COVERS}.`)).toBeVisible();
  await expect(form(page).getByText("It would have allowed 7 of the 9 calls that needed a person in the last hour:")).toBeVisible();
  await expect(form(page).locator(".would li")).toHaveText([/^Edit file 1 main\/worker-1/, /^Edit file 2/, "and 5 more"]);
  const body = { run: RUN, pattern: "write:file:/a/docs", reach: "beneath", operations: ["change", "delete"], holder: { agent: "main/worker-1" }, lifetime: { uses: 10 }, descendants: true };
  expect(host.to("would-allow").at(-1)).toEqual(body);
  expect(host.to("grant")).toEqual([]);
  await give(page);
  await expect.poll(() => host.to("grant")).toEqual([body]);
  await expect(page.getByText(`Rule given: main/worker-1 may, for 10 uses: ${COVERS}.`)).toBeVisible();
});

test("a rule is given once if its button is pressed again before the host answers", async ({ page, site }) => {
  await page.clock.install();
  const host = new ConsoleFake();
  host.state.agents = [agent(1)];
  await host.open(page, site, "permissions");
  await openForm(page);
  await pick(page, "Agent", "main/worker-1");
  await form(page).getByLabel("Path below it").fill("docs/");
  let finish: (answer: unknown) => void = () => undefined;
  host.answers.set("grant", new Promise((resolve) => (finish = resolve)));
  await give(page);
  await expect.poll(() => host.to("grant")).toHaveLength(1);
  await press(page, giving(page));
  finish({ grants: [] });
  await expect(page.getByText(/^Rule given: main\/worker-1/)).toBeVisible();
  expect(host.to("grant")).toHaveLength(1);
  // Another press gives another rule.
  await press(page, giving(page));
  await expect.poll(() => host.to("grant")).toHaveLength(2);
});

test("a read of one file until the agent or its session ends is given to the worker of the session", async ({ page, site }) => {
  await page.clock.install();
  const host = new ConsoleFake();
  host.state.agents = [agent(5)];
  await host.open(page, site, "permissions");
  await openForm(page);
  await pick(page, "Agent", "main/worker-5");
  await form(page).getByLabel("Path below it").fill("c.txt");
  await pick(page, "Reach", "exact");
  await pick(page, "How long", "session");
  await expect(form(page).getByText(`main/worker-5 may, until the agent or its session ends: ${COVERS}.`)).toBeVisible();
  await give(page);
  const body = { run: RUN, pattern: "read:file:/a/c.txt", reach: "exact", operations: ["read"], holder: { session: { session: "main", worker: 5 } }, lifetime: "session" };
  await expect.poll(() => host.to("grant")).toEqual([body]);
  // When the agent ends, its session ends, too.
  host.state.agents = [];
  host.changed();
  await expect(form(page).getByText("The session of this agent has ended: choose another time.")).toBeVisible();
  await expect(form(page).getByRole("combobox", { name: "Agent" })).toHaveValue("main/worker-5");
  await expect(giving(page)).toHaveCount(0);
});

test("a permanent rule of a host without a grant store ends with the server", async ({ page, site }) => {
  await page.clock.install();
  const host = new ConsoleFake();
  host.state.agents = [agent(1)];
  host.state["sources"] = [{ ...SOURCE, stores_grants: false }];
  await host.open(page, site, "permissions");
  await openForm(page);
  await pick(page, "Agent", "main/worker-1");
  await pick(page, "How long", "agent");
  await expect(form(page).getByText(`main/worker-1 may, until you revoke it or the server stops: ${COVERS}.`)).toBeVisible();
  await expect(form(page).getByLabel("I understand what this allows. It stays until you revoke it or the server stops.")).toBeVisible();
});

test("a rule for a future agent says so, and only then asks for one", async ({ page, site }) => {
  await page.clock.install();
  const host = new ConsoleFake();
  host.state.agents = [agent(1)];
  await host.open(page, site, "permissions");
  await openForm(page);
  await pick(page, "Agent", "*other");
  await expect(form(page).getByText("Write the path of the agent, such as main/tests.")).toBeVisible();
  const name = form(page).getByLabel("Path of the agent");
  const warning = form(page).getByText("No agent has this name now, and none holds a rule. The rule is for agents that start later.");
  await name.fill("main/worker-1");
  await expect(giving(page)).toBeVisible();
  await expect(warning).toHaveCount(0);
  await name.fill("main/later");
  await expect(warning).toBeVisible();
  await give(page);
  await expect.poll(() => host.to("grant").at(-1)).toMatchObject({ holder: { agent: "main/later" }, future_agent: true });
  await name.fill("main/worker-1");
  host.answers.set("grant", new Error("unknown agent"));
  await give(page);
  await expect(page.getByRole("alert")).toHaveText("unknown agent");
  expect(host.to("grant").at(-1)).not.toHaveProperty("future_agent");
});

test("a path cannot leave its folder", async ({ page, site }) => {
  const host = new ConsoleFake();
  host.state.agents = [agent(1)];
  await host.open(page, site, "permissions");
  await openForm(page);
  await pick(page, "Agent", "main/worker-1");
  for (const path of ["../x", "x/../../y", "*", "x/**"]) {
    await form(page).getByLabel("Path below it").fill(path);
    await expect(form(page).getByText("The path below the folder cannot contain")).toBeVisible();
    await expect(giving(page)).toHaveCount(0);
  }
  await form(page).getByLabel("Path below it").fill("/x//y/");
  await expect.poll(() => host.to("would-allow").at(-1)).toMatchObject({ pattern: "read:file:/a/x/y", reach: "beneath" });
});

test("broad and permanent rules need confirmation", async ({ page, site }) => {
  await page.clock.install();
  const host = new ConsoleFake();
  host.state.grants = [grant(1)];
  await host.open(page, site, "permissions");
  await openForm(page);
  await pick(page, "Agent", "main/tests");
  await pick(page, "May", "pattern");
  for (const [rule, time, needed] of [
    ["write:file:/a/docs", "hour", false],
    ["write:file", "hour", true],
    ["write:file:/a/docs", "agent", true],
  ] as const) {
    await form(page).getByLabel("Pattern", { exact: true }).fill(rule);
    await pick(page, "How long", time);
    await pause(page);
    await expect(broad(page)).toHaveCount(needed ? 1 : 0);
    await expect(giving(page)).toBeEnabled({ enabled: !needed });
  }
  await pause(page);
  await broad(page).check();
  // A change of the form needs the confirmation again.
  await form(page).getByLabel("Pattern", { exact: true }).fill("write:file:/a/guide");
  await expect(broad(page)).not.toBeChecked();
  await expect(giving(page)).toBeDisabled();
  await broad(page).check();
  await give(page);
  await expect.poll(() => host.to("grant")).toEqual([{ run: RUN, pattern: "write:file:/a/guide", holder: { agent: "main/tests" }, lifetime: "agent" }]);
  // Changes in a whole root are broad, reads of it and changes below it are not.
  await pick(page, "How long", "hour");
  await pick(page, "May", "write");
  await expect(broad(page)).toHaveCount(1);
  await form(page).getByLabel("Path below it").fill("docs");
  await expect(broad(page)).toHaveCount(0);
  await form(page).getByLabel("Path below it").fill("");
  await pick(page, "May", "read");
  await expect(broad(page)).toHaveCount(0);
});

test("a press meant for an earlier rule is ignored", async ({ page, site }) => {
  await page.clock.install();
  const host = new ConsoleFake();
  host.state.agents = [agent(1)];
  await host.open(page, site, "permissions");
  await openForm(page);
  await pick(page, "Agent", "*other");
  await form(page).getByLabel("Path of the agent").fill("main/worker-1");
  await pause(page);
  await calm(page);
  await expect(form(page).getByText("In the last hour no call needed a person.")).toBeVisible();
  await stopClock(page);
  host.state.agents = [];
  host.changed();
  await expect(form(page).getByText("No agent has this name now")).toBeVisible();
  await pause(page);
  await expect(form(page).getByText("In the last hour no call needed a person.")).toBeVisible();
  await giving(page).click();
  expect(host.to("grant")).toEqual([]);
  await page.clock.resume();
  await give(page);
  await expect.poll(() => host.to("grant")).toHaveLength(1);
});

test("an outdated response about a rule is ignored", async ({ page, site }) => {
  await page.clock.install();
  const host = new ConsoleFake();
  host.state.agents = [agent(1)];
  let late: (value: unknown) => void = () => undefined;
  host.answers.set("would-allow", new Promise((resolve) => (late = resolve)));
  await host.open(page, site, "permissions");
  await openForm(page);
  await pick(page, "Agent", "main/worker-1");
  await pause(page);
  await expect.poll(() => host.to("would-allow")).toHaveLength(1);
  const came = page.waitForResponse(/would-allow/);
  host.answers.set("would-allow", { covers: COVERS, calls: [], count: 0, of: 4 });
  await form(page).getByLabel("Path below it").fill("docs");
  await pause(page);
  await expect(form(page).getByText("It would have allowed none of the 4 calls that needed a person in the last hour.")).toBeVisible();
  late({ covers: COVERS, calls: [], count: 99, of: 99 });
  await (await came).finished();
  await page.evaluate(() => document.body.offsetHeight);
  await expect(form(page).getByText("It would have allowed none of the 4 calls")).toBeVisible();
  await expect(form(page).getByText("99")).toHaveCount(0);
});

test("a template is applied only as previewed", async ({ page, site }) => {
  await page.clock.install();
  const host = new ConsoleFake();
  host.state.grants = [grant(1), grant(2, { agent: "main/docs" })];
  let there: (value: unknown) => void = () => undefined;
  host.answers.set("template-rules", new Promise((resolve) => (there = resolve)));
  await host.open(page, site, "permissions");
  await openForm(page);
  await pick(page, "Agent", "main/tests");
  await pick(page, "May", "template:reviewer");
  await pause(page);
  await expect.poll(() => host.to("template-rules")).toEqual([{ run: RUN, template: "reviewer", roots: ["/a"] }]);
  // The rules are not known yet.
  await expect(giving(page)).toBeDisabled();
  there({ rules: [{ pattern: "read:file:/a", covers: "read /a" }, { pattern: "write:file:/a/reviews", covers: "change /a/reviews" }] });
  await expect(form(page).getByText("change /a/reviews")).toBeVisible();
  await expect(giving(page)).toBeDisabled();
  await form(page).getByLabel("I understand what this allows. It allows more than to read.").check();
  await expect(giving(page)).toBeEnabled();
  // Editing the form clears the previewed rules.
  host.answers.set("template-rules", new Promise((resolve) => (there = resolve)));
  await form(page).getByLabel("Path below it").fill("x");
  await expect(form(page).getByText("change /a/reviews")).toHaveCount(0);
  await expect(giving(page)).toBeDisabled();
  await pick(page, "Agent", "main/docs");
  await pause(page);
  there({ rules: [{ pattern: "read:file:/a/x", covers: "read /a/x" }] });
  await expect(form(page).getByText("read /a/x")).toBeVisible();
  await give(page);
  const applied = { run: RUN, template: "reviewer", roots: ["/a/x"], holder: { agent: "main/docs" }, lifetime: { for_ms: 3_600_000 } };
  await expect.poll(() => host.to("grant-template")).toEqual([applied]);
  await expect(page.getByText("Rules given to main/docs, for 1 hour.")).toBeVisible();
});

test("a template whose rules cannot be loaded is not applied", async ({ page, site }) => {
  await page.clock.install();
  const host = new ConsoleFake();
  host.state.grants = [grant(1)];
  host.answers.set("template-rules", new Error("the template needs a directory"));
  await host.open(page, site, "permissions");
  await openForm(page);
  await pick(page, "Agent", "main/tests");
  await pick(page, "May", "template:reviewer");
  await pause(page);
  await expect(page.getByRole("alert")).toHaveText("the template needs a directory");
  await expect(giving(page)).toBeDisabled();
});

test("a template is applied to the previewed host with the previewed values", async ({ page, site }) => {
  await page.clock.install();
  const host = new ConsoleFake();
  const other = { run: "00000000000000cd", server: "other", roots: ["/other", "/more"], templates: [{ name: "auditor", about: "Reads" }], recorded: false };
  host.state["sources"] = [SOURCE, other];
  host.state.grants = [grant(1)];
  host.answers.set("template-rules", { rules: [{ pattern: "read:file:/other", covers: "read /other" }] });
  await host.open(page, site, "permissions");
  await openForm(page);
  await pick(page, "Where", other.run);
  await pick(page, "May", "template:auditor");
  await pick(page, "Folder", "*all");
  await pick(page, "Agent", "main/tests");
  await pause(page);
  await expect(form(page).getByText("read /other", { exact: true })).toBeVisible();
  await expect(form(page).getByText("main/tests on other may, for 1 hour:")).toBeVisible();
  host.state["sources"] = [other, SOURCE];
  host.changed();
  await expect(form(page).getByRole("combobox", { name: "Where" }).locator("option").first()).toHaveAttribute("value", other.run);
  await give(page);
  const given = { run: other.run, template: "auditor", roots: ["/other", "/more"], holder: { agent: "main/tests" }, lifetime: { for_ms: 3_600_000 } };
  await expect.poll(() => host.to("grant-template")).toEqual([given]);
});

test("the host of the form stays when others come and go", async ({ page, site }) => {
  await page.clock.install();
  const host = new ConsoleFake();
  const other = { ...SOURCE, run: "00000000000000cd", server: "other", roots: ["/other"] };
  host.state["sources"] = [SOURCE, other];
  host.state.grants = [grant(1)];
  await host.open(page, site, "permissions");
  await openForm(page);
  await pick(page, "Agent", "main/tests");
  await expect(form(page).getByText(`${COVERS}.`)).toBeVisible();
  host.state["sources"] = [other];
  host.changed();
  await expect(form(page).getByRole("combobox", { name: "Where" })).toHaveValue(RUN);
  await expect(form(page).getByText("The host has no folders.")).toBeVisible();
  await expect(giving(page)).toHaveCount(0);
});

test("a rule is given and revoked with the keyboard alone", async ({ page, site }) => {
  await page.clock.install();
  const host = new ConsoleFake();
  host.state.agents = [agent(1)];
  host.state.grants = [grant(1)];
  await host.open(page, site, "permissions");
  await expect(rules(page)).toHaveCount(1);
  const go = async (reached: () => Promise<boolean>): Promise<void> => {
    for (let tabs = 0; tabs < 30 && !(await reached()); tabs += 1) await page.keyboard.press("Tab");
    expect(await reached()).toBe(true);
  };
  const focused = (text: string) => () => page.evaluate((words) => !!document.activeElement?.closest("button, summary, label")?.textContent?.startsWith(words), text);
  await calm(page);
  await go(focused("Revoke"));
  await page.keyboard.press("Enter");
  await expect(rules(page).getByRole("button", { name: /^Revoke this rule/ })).toBeFocused();
  await calm(page);
  await page.keyboard.press("Enter");
  await expect.poll(() => host.to("revoke")).toEqual([{ grants: [`${RUN}-1`] }]);
  host.state.grants = [];
  host.changed();
  await expect(rules(page)).toHaveCount(0);
  // The focus stays on the page.
  await expect(page.locator("main > section")).toBeFocused();
  await go(focused("Give a rule"));
  await page.keyboard.press("Enter");
  await go(focused("Agent"));
  await page.keyboard.type("main/w");
  await expect(form(page).getByText(`main/worker-1 may, for 1 hour: ${COVERS}.`)).toBeVisible();
  await pause(page);
  await expect(form(page).getByText("In the last hour no call needed a person.")).toBeVisible();
  await calm(page);
  await go(focused("Give this rule"));
  await page.keyboard.press("Enter");
  await expect.poll(() => host.to("grant")).toHaveLength(1);
});

test("hostile text of rules, agents and templates is shown as plain text", async ({ page, site }) => {
  await page.clock.install();
  const host = new ConsoleFake();
  const policy: string[] = [];
  page.on("console", (message) => policy.push(message.text()));
  host.state.agents = [agent(1, { agent: BAD, session: BAD })];
  host.state["sources"] = [{ ...SOURCE, server: BAD, roots: [BAD], templates: [{ name: BAD, about: BAD }] }];
  host.state.grants = [grant(1, { pattern: BAD, covers: BAD, agent: BAD, lifetime: BAD, operations: [BAD, "read"] })];
  host.state.refusals = [{ run: RUN, refusal: 1, agent: BAD, session: BAD, refused: BAD }];
  host.answers.set(`agent/${RUN}-1`, about(host.state.agents[0], statement("allowed", BAD, { source: { kind: "parent", text: BAD } })));
  host.answers.set("suggestions", { suggestion: { run: RUN, agent: BAD, pattern: BAD, covers: BAD, spares: 3, holder: {}, lifetime: "session" } });
  host.answers.set("would-allow", { covers: COVERS, calls: [{ call: "x", at: START, agent: BAD, sentence: BAD }], count: 1, of: 1 });
  host.answers.set("template-rules", { rules: [{ pattern: BAD, covers: BAD }] });
  await host.open(page, site, "permissions");
  const inert = async (): Promise<void> => {
    await expect(page.getByText("<img src=x").filter({ visible: true }).first()).toBeVisible();
    await expect(page.locator("img")).toHaveCount(0);
    expect(await page.locator("body").textContent()).not.toMatch(/[\u202e\u200b]/u);
  };
  await page.getByRole("button", { name: "Suggest a rule" }).click();
  await page.getByText("Narrow", { exact: true }).click();
  await page.getByText("Details", { exact: true }).click();
  await openForm(page);
  await pick(page, "Agent", BAD);
  await form(page).getByLabel("Path below it").fill(BAD);
  await pause(page);
  await expect(form(page).getByText("It would have allowed 1 of the 1 call")).toBeVisible();
  await inert();
  await pick(page, "May", `template:${BAD}`);
  await pause(page);
  await expect(form(page).locator(".draft li")).toBeVisible();
  await inert();
  await expect(page).toHaveTitle("Permissions");
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
      const path = `/${"folder/".repeat(40)}x`;
      host.state.agents = [agent(1, { agent: long, session: long })];
      host.state["sources"] = [{ ...SOURCE, roots: [path] }, { ...SOURCE, run: "00000000000000cd", server: long }];
      host.state.grants = [grant(1, { agent: long, covers: `change ${path}`, pattern: `write:file:${path}`, descendants: true }), grant(2)];
      host.state.refusals = [{ run: RUN, refusal: 1, agent: long, session: "main", refused: `change ${path}` }];
      host.answers.set(`agent/${RUN}-1`, about(host.state.agents[0], ...["allowed", "asks", "denied", "protected"].map((verdict) => statement(verdict, `read ${path}`, { path }))));
      host.answers.set("would-allow", { covers: COVERS, calls: [{ call: "x", at: START, agent: long, sentence: `Edit ${path}` }], count: 30, of: 40 });
      await host.open(page, site, "permissions");
      await expect(page.getByRole("region", { name: "Sensitive: asks you" })).toBeVisible();
      await expectAccessible(page);
      await page.getByRole("region", { name: "Denied" }).locator("summary").click();
      await page.getByText("Narrow", { exact: true }).first().click();
      await page.getByText("Details", { exact: true }).first().click();
      await page.getByRole("checkbox", { name: /^Choose/ }).first().check();
      await press(page, page.getByRole("button", { name: /^Revoke all/ }));
      await openForm(page);
      await pick(page, "Agent", long);
      await pick(page, "May", "write");
      await pause(page);
      await expect(form(page).getByText("It would have allowed 30 of the 40 calls")).toBeVisible();
      await expectAccessible(page);
    });
  }
}
