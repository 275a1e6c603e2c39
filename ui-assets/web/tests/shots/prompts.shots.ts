// Screenshots of permission prompts.
import type { Page } from "@playwright/test";

import { expect } from "../fixtures.ts";
import { BATCH, BOTH, CREATE, TOTAL, WIDE, picture, pictures, test, withProject } from "./pictures.ts";
import { subAgent } from "./program.ts";
import type { Agent, Project } from "./program.ts";
import { activity, questions } from "./ui.ts";

const TALL = { width: 900, height: 900 };

/** Calls that a person is asked about, by the name of the picture. */
const ASKED: Readonly<Record<string, (agent: Agent, dir: string) => ReturnType<Agent["call"]>>> = {
  "prompt-edit": (agent) => agent.call("edit_file", TOTAL),
  "prompt-create": (agent) => agent.call("write_file", CREATE),
  "prompt-delete-folder": (agent) => agent.call("delete", { path: "old", recursive: true }),
  "prompt-overwrite": (agent) => agent.call("write_file", { path: "README.md", content: "# Shop\n", mode: "overwrite" }),
  "prompt-move-over": (agent) => agent.call("move", { from: "docs/style.md", to: "docs/api.md", overwrite: true }),
  "prompt-protected": (agent) => agent.call("write_file", { path: ".vscode/tasks.json", content: '{ "version": "2.0.0", "tasks": [{ "type": "shell", "command": "make" }] }\n', mode: "overwrite" }),
  "prompt-hidden-characters": (agent) => agent.call("write_file", { path: "src/user.rs", content: 'fn is_admin(role: &str) -> bool {\n    role == "user\u202e\u2066// admins only\u2069\u2066"\n}\n' }),
  "prompt-third-party": (agent) => agent.call("notes__write_file", { path: "tomorrow.md", content: "# Tomorrow\n" }),
  "prompt-batch": (agent) => agent.call("apply_batch", { operations: BATCH }),
  "prompt-secret": (agent) => agent.call("write_file", { path: "deploy.pem", content: "-----BEGIN PUBLIC KEY-----\n" }),
  "prompt-binary": (agent) => agent.call("write_file", { path: "docs/logo.png", content: "A logo\n", mode: "overwrite" }),
  "prompt-long-arguments": (agent) => agent.call("notes__write_file", { path: "long.md", content: "# All that was said\n\n".padEnd(6000, "And then somebody said something else. ") }),
  "prompt-outside": (agent, dir) => agent.call("write_file", { path: `${dir}/outside/report.md`, content: "# Report\n\nDone.\n", mode: "overwrite" }),
};
const MAIN = ["prompt-edit", "prompt-delete-folder"];

for (const [name, call] of Object.entries(ASKED)) {
  test(name, async ({ page, started }) => {
    await started.asked(1, call(await started.agent("claude-code"), started.dir));
    await questions.open(page, started.console);
    const prompt = await questions.prompt(page);
    if (MAIN.includes(name)) await pictures(name, page, prompt, TALL, () => questions.show(page));
    else {
      await page.setViewportSize(TALL);
      await picture(name, name === "prompt-batch" ? page : prompt);
    }
  });
}

/** The prompt of a call, opened in the page. */
async function open(page: Page, started: Project, ...calls: readonly (readonly [string, object])[]): Promise<Agent> {
  const agent = await started.agent("claude-code");
  const made = calls.map(([tool, input]) => agent.call(tool, input as Record<string, unknown>));
  await started.asked(1, made[0]);
  await questions.open(page, started.console);
  await questions.prompt(page);
  return agent;
}

const OLD = ["delete", { path: "old", recursive: true }] as const;

test("prompt-options", async ({ page, started }) => {
  await open(page, started, ["edit_file", TOTAL]);
  await questions.options(page, "until this agent or its session ends", "its folder");
  await picture("prompt-options", page);
  await questions.choose(page, "until I revoke it or the server stops", "the whole project");
  await picture("prompt-broad", page);
});

test("prompt-deny", async ({ page, started }) => {
  await open(page, started, ["edit_file", TOTAL]);
  await questions.refuse(page, "Keep the price as it is.");
  await picture("prompt-deny", page);
});

test("prompt-left-out", async ({ page, started }) => {
  await open(page, started, ["apply_batch", { operations: BATCH }]);
  await questions.leaveOut(page, /^Make this change: .*old/);
  await picture("prompt-left-out", page);
});

test("prompt-hunk-left-out", async ({ page, started }) => {
  await open(page, started, ["edit_file", BOTH]);
  await questions.leaveOut(page, /^Make this change/);
  await picture("prompt-hunk-left-out", page);
});

test("prompt-equal-calls", async ({ page, started }) => {
  await open(page, started, ["edit_file", TOTAL], ["edit_file", TOTAL]);
  await page.getByRole("button", { name: "More options" }).click();
  await picture("prompt-equal-calls", page);
});

test("prompt-press-enter", async ({ page, started }) => {
  await open(page, started, OLD);
  await page.setViewportSize(TALL);
  await questions.pressed(page, "a", "Press Enter to allow.");
  await picture("prompt-press-enter", page);
});

test("prompt-answered-elsewhere", async ({ page, started }) => {
  await open(page, started, OLD);
  await page.setViewportSize(TALL);
  await started.answer("allow");
  await questions.ended(page, "Allowed on another page or by somebody else.");
  await picture("prompt-answered-elsewhere", page);
});

test("prompt-cancelled", async ({ page, started }) => {
  const stop = new AbortController();
  await started.asked(1, (await started.agent("claude-code")).call(...OLD, stop.signal));
  await questions.open(page, started.console);
  await questions.prompt(page);
  await page.setViewportSize(TALL);
  stop.abort();
  await questions.ended(page, "The call ended unanswered, so it was not allowed.");
  await picture("prompt-cancelled", page);
});

test("prompt-command", async ({ page }) => {
  await withProject(["--exec", "--ask-scopes=execute:command", "--grantable=execute:command"], async (started) => {
    await open(page, started, ["run_command", { argv: ["ls", "-l", "src"] }]);
    await page.setViewportSize(TALL);
    await picture("prompt-command", page.locator("permission-prompt"));
  });
});

test("prompt-forced-colors", async ({ page, started }) => {
  await page.emulateMedia({ forcedColors: "active" });
  await open(page, started, OLD);
  await page.setViewportSize(TALL);
  await picture("prompt-forced-colors", page.locator("permission-prompt"));
});

test("prompt-expired", async ({ page }) => {
  await withProject(["--question-timeout=10"], async (started) => {
    const writer = await started.agent("writer");
    const missed = writer.call("write_file", CREATE);
    await started.asked(1, missed);
    await missed;
    const call = writer.call("delete", { path: "docs/style.md" });
    await started.asked(1, call);
    await questions.open(page, started.console);
    await call;
    await questions.ended(page, "Denied: no answer in time.");
    await picture("prompt-expired", page);
    await questions.outcomes(page, /Create docs\/limits\.md/);
    await picture("outcomes-expired", page);
  });
});

test("prompt-sub-agent", async ({ page }) => {
  const started = await subAgent();
  try {
    await page.setViewportSize(WIDE);
    await questions.open(page, started.url);
    await questions.prompt(page);
    await picture("prompt-sub-agent", page);
    await page.getByRole("link", { name: "Activity" }).click();
    await activity.agent(page, "proofreader");
    await picture("activity-sub-agents", page);
  } finally {
    await started.close();
  }
});

test("prompt-no-preview", async ({ page, started }) => {
  const agent = await started.agent("claude-code");
  await started.asked(1, agent.call("edit_file", TOTAL));
  await started.asked(2, agent.call("write_file", CREATE));
  await page.setViewportSize(WIDE);
  await questions.open(page, started.console);
  await questions.prompt(page);
  await page.context().setOffline(true);
  await page.locator("button.row").last().click();
  await expect(page.getByText("The host cannot be reached.")).toBeVisible();
  await picture("prompt-no-preview", page);
});
