// Screenshots of the list of questions, and of what became of them.
import { expect } from "../fixtures.ts";
import { RETRIES, TOTAL, WIDE, history, picture, pictures, test } from "./pictures.ts";
import type { Agent, Project } from "./program.ts";
import { activity, questions } from "./ui.ts";

const CALLS: readonly (readonly [string, string, object])[] = [
  ["refactor", "edit_file", TOTAL],
  ["refactor", "edit_file", RETRIES],
  ["writer", "write_file", { path: "docs/limits.md", content: "# Limits\n" }],
  ["writer", "edit_file", { path: "docs/api.md", edits: [{ old_text: "sum of all items", new_text: "sum of all items in cents" }] }],
  ["cleaner", "delete", { path: "old", recursive: true }],
  ["planner", "notes__write_file", { path: "plan.md", content: "# Plan\n" }],
];

async function ask(started: Project): Promise<void> {
  const agents = new Map<string, Agent>();
  for (const [at, [name, tool, input]] of CALLS.entries()) {
    const agent = agents.get(name) ?? (await started.agent(name));
    agents.set(name, agent);
    await started.asked(at + 1, agent.call(tool, input as Record<string, unknown>));
  }
}

test("inbox", async ({ page, started }) => {
  await ask(started);
  await questions.open(page, started.console);
  await questions.list(page, CALLS.length);
  await pictures("inbox", page);
  await page.setViewportSize(WIDE);
  await questions.keys(page);
  await picture("keys", page);
  await page.keyboard.press("Escape");
  await questions.pause(page);
  await picture("inbox-paused", page);
  await questions.filter(page, "no such file");
  await picture("inbox-filter", page);
});

test("together", async ({ page, started }) => {
  await ask(started);
  await questions.open(page, started.console);
  await questions.list(page, CALLS.length);
  await questions.together(page, CALLS.length);
  await picture("together", page);
  await questions.allowTogether(page);
  await picture("together-answered", page);
});

test("blocked", async ({ page, started }) => {
  const writer = await started.agent("writer");
  await started.asked(1, writer.call("delete", { path: "docs/style.md" }));
  await questions.open(page, started.console);
  await questions.prompt(page);
  await questions.stop(page);
  await picture("blocked", page);
});

test("suggestion", async ({ page, started }) => {
  const writer = await started.agent("writer");
  for (const name of ["one", "two", "three"]) {
    const call = writer.call("write_file", { path: `docs/${name}.md`, content: "# Page\n" });
    await started.asked(1, call);
    if (name === "one") await questions.open(page, started.console);
    await questions.prompt(page);
    await questions.allow(page);
    await call;
  }
  await expect(page.getByRole("button", { name: "Add this rule" })).toBeVisible();
  await picture("suggestion", page);
});

test("no host", async ({ page, started }) => {
  await questions.open(page, started.console.replace(/#.*/, "#another"));
  await expect(page.locator("header + div")).not.toBeEmpty();
  await picture("wrong-secret", page);
});

test("outcomes", async ({ page, started }) => {
  // The page shows the outcomes of questions that it has not seen, too.
  await history(started);
  await questions.open(page, started.console);
  await questions.empty(page);
  await picture("inbox-empty", page);
  await questions.outcomes(page, /Change src\/cart\.rs/);
  await picture("outcomes", page);
  await questions.outcomes(page, /Use edit_file of notes/);
  await picture("outcomes-failed", page);
  await questions.outcomes(page, /Create docs\/limits\.md/);
  await expect(page.getByRole("button", { name: /^Undo .*…$/ })).toBeVisible();
  await picture("outcomes-applied", page);
  await activity.undo(page);
  await activity.undone(page);
  await picture("outcomes-undone", page);
});

test("outcome without a part", async ({ page, started }) => {
  const agent = await started.agent("refactor");
  const call = agent.call("apply_batch", { operations: [{ tool: "edit_file", ...TOTAL }, { tool: "delete", path: "old", recursive: true }] });
  await started.asked(1, call);
  await questions.open(page, started.console);
  await questions.prompt(page);
  await questions.leaveOut(page, /^Make this change: .*old/);
  await questions.allow(page);
  await call;
  await questions.empty(page);
  await questions.outcomes(page, /^Change src\/cart\.rs/);
  await picture("outcomes-left-out", page);
});
