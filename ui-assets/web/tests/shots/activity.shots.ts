// Screenshots of the page with the calls of agents.
import { TOTAL, WIDE, asked, history, picture, pictures, test, withProject } from "./pictures.ts";
import { activity } from "./ui.ts";

test("activity", async ({ page, started }) => {
  await history(started);
  await activity.open(page, started.console);
  await pictures("activity", page);
  await page.setViewportSize(WIDE);
  await activity.call(page, /Change src\/limits\.rs/);
  await activity.undo(page);
  await picture("undo", page);
  await activity.undone(page);
  await picture("activity-undone", page);
});

test("activity-call", async ({ page, started }) => {
  await history(started);
  await activity.open(page, started.console);
  await activity.call(page, /Read .*missing/);
  await picture("activity-failed", page);
  await activity.call(page, /Read .*missing/);
  await activity.call(page, /Read .*limits/);
  await picture("activity-call", page);
});

test("activity-filter", async ({ page, started }) => {
  await history(started);
  await activity.open(page, started.console);
  await activity.filter(page, "no such file");
  await picture("activity-filter", page);
});

test("activity-empty", async ({ page, started }) => {
  await activity.openEmpty(page, started.console);
  await picture("activity-empty", page);
});

test("audit-log", async ({ page, started }) => {
  await history(started);
  await activity.open(page, started.console);
  await activity.log(page);
  await picture("audit-log", page);
});

test("agent", async ({ page, started }) => {
  const refactor = await history(started);
  await started.asked(1, refactor.call("delete", { path: "old", recursive: true }));
  await started.asked(2, refactor.call("write_file", { path: "src/total.rs", content: "//! The total of a cart.\n" }));
  await activity.open(page, started.console);
  await activity.agent(page, "refactor");
  await picture("agent", page);
  await activity.details(page);
  await picture("agent-details", page);
  await activity.stop(page);
  await picture("agent-stop", page);
  await activity.stopped(page);
  await picture("agent-stopped", page);
});

test("agent-paused", async ({ page, started }) => {
  const agent = await started.agent("refactor");
  await started.asked(1, agent.call("edit_file", TOTAL));
  await activity.openEmpty(page, started.console);
  await activity.agent(page, "refactor");
  await activity.pause(page);
  await picture("agent-paused", page);
});

test("activity-output", async ({ page }) => {
  await withProject(["--exec", "--ask-scopes=execute:command", "--grantable=execute:command"], async (started) => {
    const agent = await started.agent("claude-code");
    await asked(started, agent.call("run_command", { argv: ["ls", "-l", "src"] }), "allow");
    await activity.openEmpty(page, started.console);
    await activity.call(page, /ls -l src/);
    await picture("activity-output", page);
  });
});
