// Takes the screenshots in `ui-assets/shots`: of the real program, with real calls of MCP clients on real files.
import { fileURLToPath } from "node:url";

import type { Locator, Page } from "@playwright/test";

import { expect, test as base } from "../fixtures.ts";
import { project } from "./program.ts";
import type { Agent, Answer, Project } from "./program.ts";

const MOST_BYTES = 200_000;
export const WIDE = { width: 1280, height: 800 };
const NARROW = { width: 320, height: 640 };
type Size = typeof WIDE;

export const test = base.extend<{ started: Project }>({
  started: async ({}, use) => {
    const started = await project();
    await use(started);
    await started.close();
  },
});

export async function picture(name: string, of: Page | Locator): Promise<void> {
  const path = fileURLToPath(new URL(`../../../shots/${name}.png`, import.meta.url));
  expect((await of.screenshot({ path, animations: "disabled" })).length).toBeLessThan(MOST_BYTES);
}

/** Takes the picture at a size in light colors, then in dark colors, then in light colors on a narrow screen. */
export async function pictures(name: string, page: Page, of: Page | Locator = page, size: Size = WIDE, narrow = async () => {}): Promise<void> {
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

/** Takes the pictures of a program that is started with options. */
export async function withProject(options: readonly string[], take: (started: Project) => Promise<void>): Promise<void> {
  const started = await project(...options);
  try {
    await take(started);
  } finally {
    await started.close();
  }
}

export const RETRIES = { path: "src/limits.rs", edits: [{ old_text: "RETRIES: u32 = 3", new_text: "RETRIES: u32 = 5" }] };
export const TOTAL = { path: "src/cart.rs", edits: [{ old_text: "map(|item| item.price)", new_text: "map(|item| item.price * item.count)" }] };
/** Changes in two places of a file. */
export const BOTH = { ...TOTAL, edits: [{ old_text: "The shopping cart.", new_text: "The shopping cart of a person." }, ...TOTAL.edits] };
export const CREATE = { path: "docs/limits.md", content: "# Limits\n\nA payment is tried 3 times.\n" };

export const BATCH = [
  { tool: "edit_file", ...TOTAL },
  { tool: "move", from: "docs/style.md", to: "docs/code-style.md" },
  { tool: "write_file", ...CREATE },
  { tool: "delete", path: "old", recursive: true },
];

type Call = ReturnType<Agent["call"]>;

/** Waits until a call, the only open one, is asked about, does `before`, answers it, and waits for its end. */
export async function asked(started: Project, call: Call, answer: "allow" | "deny", before?: () => Promise<void>): Promise<Answer | undefined> {
  await started.asked(1, call);
  await before?.();
  await started.answer(answer);
  return call;
}

/** Two agents whose calls have ended in different ways: applied, denied, stale, failed and cancelled. */
export async function history(started: Project): Promise<Agent> {
  const [refactor, writer] = [await started.agent("refactor"), await started.agent("writer")];
  await refactor.call("read_file", { path: "src/limits.rs" });
  await refactor.call("read_file", { path: "src/missing.rs" });
  await asked(started, refactor.call("edit_file", RETRIES), "allow");
  await asked(started, writer.call("write_file", CREATE), "allow");
  await asked(started, writer.call("delete", { path: "old", recursive: true }), "deny");
  await asked(started, refactor.call("edit_file", TOTAL), "allow", () => started.write("shop/src/cart.rs", "// Changed by a person.\n"));
  await asked(started, writer.call("notes__edit_file", { path: "missing.md", edits: [{ old_text: "a", new_text: "b" }] }), "allow");
  const stop = new AbortController();
  const stopped = writer.call("delete", { path: "docs/style.md" }, stop.signal);
  await started.asked(1, stopped);
  stop.abort();
  await stopped;
  await started.asked(0);
  return refactor;
}
