// Takes the screenshots in `ui-assets/shots`: of the real program, with real calls of MCP clients on real files.
import { fileURLToPath } from "node:url";

import type { Locator, Page } from "@playwright/test";

import { host } from "../files-host.ts";
import { expect, test as base } from "../fixtures.ts";
import { project, testHost as startTestHost } from "./program.ts";
import type { Agent, Project } from "./program.ts";
import { activity, permissions, questions, testHost } from "./ui.ts";

const MOST_BYTES = 200_000;
const WIDE = { width: 1280, height: 800 };
const NARROW = { width: 320, height: 640 };
type Size = typeof WIDE;

const test = base.extend<{ started: Project }>({
  started: async ({}, use) => {
    const started = await project();
    await use(started);
    await started.close();
  },
});
test.use({ colorScheme: "light", viewport: WIDE });

async function picture(name: string, of: Page | Locator): Promise<void> {
  const path = fileURLToPath(new URL(`../../../shots/${name}.png`, import.meta.url));
  expect((await of.screenshot({ path, animations: "disabled" })).length).toBeLessThan(MOST_BYTES);
}

/** Takes the picture at a size in light colors, then in dark colors, then in light colors on a narrow screen. */
async function pictures(name: string, page: Page, of: Page | Locator = page, size: Size = WIDE, narrow = async () => {}): Promise<void> {
  await page.setViewportSize(size);
  await picture(name, of);
  await page.emulateMedia({ colorScheme: "dark" });
  await picture(`${name}-dark`, of);
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize(NARROW);
  await narrow();
  // Of the window, so that the bar with the buttons is where people see it.
  await picture(`${name}-narrow`, page);
}

const RETRIES = { path: "src/limits.rs", edits: [{ old_text: "RETRIES: u32 = 3", new_text: "RETRIES: u32 = 5" }] };
const TOTAL = { path: "src/cart.rs", edits: [{ old_text: "map(|item| item.price)", new_text: "map(|item| item.price * item.count)" }] };

const BATCH = [
  { tool: "edit_file", ...TOTAL },
  { tool: "move", from: "docs/style.md", to: "docs/code-style.md" },
  { tool: "write_file", path: "docs/limits.md", content: "# Limits\n\nA payment is tried 3 times.\n" },
  { tool: "delete", path: "old", recursive: true },
];

/** Calls that a person is asked about, by the name of the picture. */
const ASKED: Readonly<Record<string, (agent: Agent, dir: string) => ReturnType<Agent["call"]>>> = {
  "prompt-edit": (agent) => agent.call("edit_file", TOTAL),
  "prompt-create": (agent) => agent.call("write_file", { path: "docs/limits.md", content: "# Limits\n\nA payment is tried 3 times.\n" }),
  "prompt-delete-folder": (agent) => agent.call("delete", { path: "old", recursive: true }),
  "prompt-overwrite": (agent) => agent.call("write_file", { path: "README.md", content: "# Shop\n", mode: "overwrite" }),
  "prompt-move-over": (agent) => agent.call("move", { from: "docs/style.md", to: "docs/api.md", overwrite: true }),
  "prompt-protected": (agent) => agent.call("write_file", { path: ".vscode/tasks.json", content: '{ "version": "2.0.0", "tasks": [{ "type": "shell", "command": "make" }] }\n', mode: "overwrite" }),
  "prompt-hidden-characters": (agent) => agent.call("write_file", { path: "src/user.rs", content: 'fn is_admin(role: &str) -> bool {\n    role == "user\u202e\u2066// admins only\u2069\u2066"\n}\n' }),
  "prompt-third-party": (agent) => agent.call("notes__write_file", { path: "tomorrow.md", content: "# Tomorrow\n" }),
  "prompt-batch": (agent) => agent.call("apply_batch", { operations: BATCH }),
  "prompt-outside": (agent, dir) => agent.call("write_file", { path: `${dir}/outside/report.md`, content: "# Report\n\nDone.\n", mode: "overwrite" }),
};
const MAIN = ["prompt-edit", "prompt-delete-folder"];

for (const [name, call] of Object.entries(ASKED)) {
  test(name, async ({ page, started }) => {
    await started.asked(1, call(await started.agent("claude-code"), started.dir));
    await questions.open(page, started.console);
    const prompt = await questions.prompt(page);
    if (MAIN.includes(name)) await pictures(name, page, prompt, { width: 900, height: 900 }, () => questions.show(page));
    else {
      await page.setViewportSize({ width: 900, height: 900 });
      await picture(name, name === "prompt-batch" ? page : prompt);
    }
  });
}

test("prompt-options", async ({ page, started }) => {
  await started.asked(1, (await started.agent("claude-code")).call("edit_file", TOTAL));
  await questions.open(page, started.console);
  await questions.prompt(page);
  await questions.options(page, "until the session ends", "its folder");
  await picture("prompt-options", page);
});

test("prompt-left-out", async ({ page, started }) => {
  await started.asked(1, (await started.agent("claude-code")).call("apply_batch", { operations: BATCH }));
  await questions.open(page, started.console);
  await questions.prompt(page);
  await questions.leaveOut(page, "old");
  await picture("prompt-left-out", page);
});

test("prompt-command", async ({ page }) => {
  const started = await project("--exec", "--ask-scopes=execute:command", "--grantable=execute:command");
  try {
    await started.asked(1, (await started.agent("claude-code")).call("run_command", { argv: ["ls", "-l", "src"] }));
    await questions.open(page, started.console);
    const prompt = await questions.prompt(page);
    await page.setViewportSize({ width: 900, height: 900 });
    await picture("prompt-command", prompt);
  } finally {
    await started.close();
  }
});

test("prompt-forced-colors", async ({ page, started }) => {
  await started.asked(1, (await started.agent("claude-code")).call("delete", { path: "old", recursive: true }));
  await page.emulateMedia({ forcedColors: "active" });
  await questions.open(page, started.console);
  const prompt = await questions.prompt(page);
  await page.setViewportSize({ width: 900, height: 900 });
  await picture("prompt-forced-colors", prompt);
});

test("blocked", async ({ page, started }) => {
  const writer = await started.agent("writer");
  await started.asked(1, writer.call("delete", { path: "docs/style.md" }));
  await questions.open(page, started.console);
  await questions.prompt(page);
  await questions.stop(page);
  await picture("blocked", page);
});

test("inbox", async ({ page, started }) => {
  const calls: readonly (readonly [string, string, object])[] = [
    ["refactor", "edit_file", TOTAL],
    ["refactor", "edit_file", RETRIES],
    ["writer", "write_file", { path: "docs/limits.md", content: "# Limits\n" }],
    ["writer", "edit_file", { path: "docs/api.md", edits: [{ old_text: "sum of all items", new_text: "sum of all items in cents" }] }],
    ["cleaner", "delete", { path: "old", recursive: true }],
    ["planner", "notes__write_file", { path: "plan.md", content: "# Plan\n" }],
  ];
  const agents = new Map<string, Agent>();
  for (const [at, [name, tool, input]] of calls.entries()) {
    const agent = agents.get(name) ?? (await started.agent(name));
    agents.set(name, agent);
    await started.asked(at + 1, agent.call(tool, input as Record<string, unknown>));
  }
  await questions.open(page, started.console);
  await questions.list(page, calls.length);
  await pictures("inbox", page);
  await page.setViewportSize(WIDE);
  await questions.keys(page);
  await picture("keys", page);
  await page.keyboard.press("Escape");
  await questions.pause(page);
  await picture("inbox-paused", page);
  await questions.together(page, calls.length);
  await picture("together", page);
});

/** Two agents whose calls have ended in different ways: applied, denied, stale, failed and cancelled. */
async function history(started: Project): Promise<void> {
  const [refactor, writer] = [await started.agent("refactor"), await started.agent("writer")];
  await refactor.call("read_file", { path: "src/limits.rs" });
  await refactor.call("read_file", { path: "src/missing.rs" });
  const asked = async (call: ReturnType<Agent["call"]>, answer: "allow" | "deny", before?: () => Promise<void>): Promise<void> => {
    await started.asked(1, call);
    await before?.();
    await started.answer(answer);
    await call;
  };
  await asked(refactor.call("edit_file", RETRIES), "allow");
  await asked(writer.call("write_file", { path: "docs/limits.md", content: "# Limits\n" }), "allow");
  await asked(writer.call("delete", { path: "old", recursive: true }), "deny");
  await asked(refactor.call("edit_file", TOTAL), "allow", () => started.write("shop/src/cart.rs", "// Changed by a person.\n"));
  const stop = new AbortController();
  const stopped = writer.call("delete", { path: "docs/style.md" }, stop.signal);
  await started.asked(1, stopped);
  stop.abort();
  await stopped;
  await started.asked(0);
}

test("outcomes", async ({ page, started }) => {
  // The page shows the outcomes of questions that it has not seen, too.
  await history(started);
  await questions.open(page, started.console);
  await questions.empty(page);
  await picture("inbox-empty", page);
  await questions.outcomes(page, /Change src\/cart\.rs/);
  await picture("outcomes", page);
  await questions.outcomes(page, /Create docs\/limits\.md/);
  await expect(page.getByRole("button", { name: /^Undo .*…$/ })).toBeVisible();
  await picture("outcomes-applied", page);
});

test("expired", async ({ page }) => {
  const started = await project("--question-timeout=10");
  try {
    const writer = await started.agent("writer");
    const missed = writer.call("write_file", { path: "docs/limits.md", content: "# Limits\n" });
    await started.asked(1, missed);
    await missed;
    const call = writer.call("delete", { path: "docs/style.md" });
    await started.asked(1, call);
    await questions.open(page, started.console);
    await call;
    await questions.expired(page, /Delete docs\/style\.md/);
    await picture("prompt-expired", page);
    await questions.outcomes(page, /Create docs\/limits\.md/);
    await picture("outcomes-expired", page);
  } finally {
    await started.close();
  }
});

test("activity", async ({ page, started }) => {
  await history(started);
  await activity.open(page, started.console);
  await pictures("activity", page);
  await page.setViewportSize(WIDE);
  await activity.undo(page, /Change src\/limits\.rs/);
  await picture("undo", page);
  await activity.log(page);
  await picture("audit-log", page);
});

test("agent", async ({ page, started }) => {
  await history(started);
  await activity.open(page, started.console);
  await activity.agent(page, "refactor");
  await picture("agent", page);
});

test("permissions", async ({ page, started }) => {
  await history(started);
  await permissions.open(page, started.console);
  await pictures("permissions", page);
  await page.setViewportSize(WIDE);
  await permissions.draft(page, "writer");
  await picture("permissions-rule", page.locator("details", { hasText: "Give a rule" }));
  await permissions.give(page);
  await picture("permissions-rules", page);
});

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

test("browser", async ({ page, site, started }) => {
  const agent = await started.agent("refactor");
  const change = agent.call("edit_file", RETRIES);
  await started.asked(1, change);
  await started.answer("allow");
  await change;
  const other = (name: string, input: Readonly<Record<string, unknown>>): unknown => agent.call(name, input);
  const html = (await agent.read("ui://bailiwick/files")) ?? "";
  const { frame } = await host(page, site, { tools: {}, other, resources: agent.read, html });
  await frame.getByRole("treeitem", { name: "src" }).click();
  await frame.getByRole("treeitem", { name: "limits.rs" }).click();
  await expect(frame.getByRole("option").first()).toBeVisible();
  await pictures("browser", page, page, { width: 900, height: 480 });
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
    await testHost.checks(page);
    await picture("test-host-checks", page);
  } finally {
    await started.close();
  }
});
