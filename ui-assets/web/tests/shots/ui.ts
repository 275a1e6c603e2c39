// Where the pages show what the screenshots are of. Each page is described here only, by roles and visible names.
import type { Locator, Page } from "@playwright/test";

import { expect } from "../fixtures.ts";

/** Presses a button until it has an effect: presses are ignored right after the page changed. */
async function press(button: Locator, effect: Locator): Promise<void> {
  await expect(async () => {
    if (!(await effect.isVisible())) await button.click({ timeout: 1_000 });
    await expect(effect).toBeVisible({ timeout: 1_000 });
  }).toPass();
}

/** The console's page with the questions of agents. */
export const questions = {
  async open(page: Page, url: string): Promise<void> {
    await page.goto(url);
  },
  /** The shown question, once a person can answer it. */
  async prompt(page: Page): Promise<Locator> {
    const prompt = page.locator("permission-prompt");
    await expect(prompt).toBeVisible();
    // Presses are ignored at first, and the buttons look different then.
    await expect(page.locator("permission-prompt[data-early]")).toHaveCount(0);
    await expect(prompt.getByRole("button", { name: /^Deny/ }).first()).toBeEnabled();
    await expect(prompt.getByRole("button", { name: /^Allow/ }).first()).toBeVisible();
    return prompt;
  },
  /** Opens the options, and chooses how long and what an answer allows. */
  async options(page: Page, time: string, reach: string): Promise<void> {
    await page.getByRole("button", { name: "More options" }).click();
    await this.choose(page, time, reach);
  },
  async choose(page: Page, time: string, reach: string): Promise<void> {
    await page.getByLabel(time, { exact: true }).check();
    await page.getByLabel(reach).check();
  },
  /** Opens the options, and says why the call is denied. */
  async refuse(page: Page, why: string): Promise<void> {
    await page.getByRole("button", { name: "More options" }).click();
    await page.getByLabel("Tell the agent why").fill(why);
    await page.getByLabel(/^Stop asking/).check();
  },
  /** Allows the shown question. */
  async allow(page: Page): Promise<void> {
    const prompt = page.locator("permission-prompt");
    await prompt.evaluate((shown) => (shown.dataset["asked"] = ""));
    await prompt.getByRole("button", { name: /^Allow/ }).click();
    await expect(page.locator("permission-prompt[data-asked]")).toHaveCount(0);
  },
  /** Presses a key in the page, and waits for what the prompt says. */
  async pressed(page: Page, key: string, words: string): Promise<void> {
    await page.keyboard.press(key);
    await expect(page.getByText(words)).toBeVisible();
  },
  /** Denies the question and those like it, and shows what is denied. */
  async stop(page: Page): Promise<void> {
    await page.getByRole("button", { name: "More options" }).click();
    await page.getByLabel(/^Stop asking/).check();
    await page.getByRole("button", { name: /^Deny/ }).click();
    await this.empty(page);
    await page.getByRole("button", { name: /^Blocked/ }).click();
    await expect(page.getByRole("button", { name: "End this block: ask me again" })).toBeVisible();
  },
  /** Leaves out a change, and shows the others side by side. */
  async leaveOut(page: Page, name: RegExp): Promise<void> {
    await page.getByRole("checkbox", { name }).first().uncheck();
    await page.getByRole("button", { name: "Side by side" }).click();
    await expect(page.locator("permission-prompt[data-early]")).toHaveCount(0);
    await expect(page.getByRole("button", { name: "Allow the ticked changes once" })).toBeEnabled();
  },
  async filter(page: Page, words: string): Promise<void> {
    await page.getByRole("searchbox").fill(words);
    await expect(page.getByText("No matching questions.")).toBeVisible();
  },
  /** Pauses the agent of the first group. */
  async pause(page: Page): Promise<void> {
    await press(page.getByRole("button", { name: "Pause" }).first(), page.getByRole("button", { name: "Resume" }));
  },
  async keys(page: Page): Promise<void> {
    await page.getByRole("button", { name: "Keys" }).click();
    await expect(page.getByRole("dialog")).toBeVisible();
  },
  /** Shows all questions together. */
  async together(page: Page, count: number): Promise<void> {
    await press(page.getByRole("button", { name: new RegExp(`^Allow or deny all ${count}`) }), page.getByLabel("Select all"));
    await page.getByLabel("Select all").check();
    await expect(page.getByRole("button", { name: /^Allow \d of \d ticked once/ })).toBeEnabled();
  },
  /** Allows the ticked questions that can be allowed together. */
  async allowTogether(page: Page): Promise<void> {
    const allow = page.getByRole("button", { name: /^Allow [1-9] of \d ticked once/ });
    await press(allow, page.getByText("✓ Allowed by you and applied").first());
  },
  /** Opens the first question of the list, which a narrow page shows alone. */
  async show(page: Page): Promise<void> {
    await page.locator("button.row").first().click();
    await this.prompt(page);
  },
  /** The page with this number of questions. */
  async list(page: Page, count: number): Promise<void> {
    await expect(page).toHaveTitle(new RegExp(`\\(${count}\\)`));
    await this.prompt(page);
  },
  /** The page without open questions. */
  async empty(page: Page): Promise<void> {
    await expect(page.getByText(/No open questions/)).toBeVisible();
  },
  /** The shown question, once it has ended. */
  async ended(page: Page, words: string): Promise<void> {
    await expect(page.locator("permission-prompt").getByText(words)).toBeVisible();
  },
  /** The outcomes of earlier questions, with this one shown. */
  async outcomes(page: Page, name: RegExp): Promise<void> {
    await page.getByRole("button", { name: /^Answered/ }).click();
    await page.locator("button.row", { hasText: name }).click();
    await expect(page.locator(".card").getByRole("heading", { name })).toBeVisible();
  },
};

/** The console's page with the calls of agents. */
export const activity = {
  async open(page: Page, url: string): Promise<void> {
    await sibling(page, url, "Activity");
    await expect(page.getByText(/limits\.rs/).first()).toBeVisible();
  },
  /** Opens the page, which may show no calls. */
  async openEmpty(page: Page, url: string): Promise<void> {
    await sibling(page, url, "Activity");
  },
  /** Opens or closes a call. */
  async call(page: Page, name: RegExp): Promise<void> {
    await page.locator("button.row", { hasText: name }).click();
    await expect(page.getByText("Loading…")).toHaveCount(0);
  },
  /** Shows what undoing the open call does. */
  async undo(page: Page): Promise<void> {
    await press(page.getByRole("button", { name: /^Undo .*…/ }), page.getByText("Undoing this call does this:"));
  },
  /** Undoes it. */
  async undone(page: Page): Promise<void> {
    await press(page.getByRole("button", { name: /^Undo 1 change/ }), page.getByText(/restored to before this call/));
  },
  async filter(page: Page, words: string): Promise<void> {
    await page.getByRole("searchbox", { name: "Search calls" }).fill(words);
    await expect(page.getByText("No calls match these filters.")).toBeVisible();
  },
  /** The audit log, and whether its records are complete. */
  async log(page: Page): Promise<void> {
    await page.getByRole("button", { name: "Audit log" }).first().click();
    await expect(page.getByRole("row").nth(1)).toBeVisible();
  },
  async agent(page: Page, name: string): Promise<void> {
    await page.getByRole("complementary", { name: "Agents" }).getByRole("button", { name }).first().click();
    await expect(page.getByRole("button", { name: "Pause" })).toBeVisible();
  },
  /** Shows what the chosen agent may do, and what it has changed. */
  async details(page: Page): Promise<void> {
    await page.getByText("What it may do now").click();
    await page.getByText(/changed files?$/).last().click();
  },
  async pause(page: Page): Promise<void> {
    await press(page.getByRole("button", { name: "Pause" }), page.getByRole("button", { name: "Resume" }));
  },
  /** Asks whether to stop the chosen agent. */
  async stop(page: Page): Promise<void> {
    await press(page.getByRole("button", { name: "Stop…" }), page.getByRole("button", { name: /^Stop .*refactor/ }));
  },
  async stopped(page: Page): Promise<void> {
    await press(page.getByRole("button", { name: /^Stop .*refactor/ }), page.getByText(/was stopped/));
  },
};

/** The console's page with what agents may do. */
export const permissions = {
  async open(page: Page, url: string): Promise<void> {
    await sibling(page, url, "Permissions");
  },
  form: (page: Page): Locator => page.locator("details", { hasText: "Give a rule" }),
  /** Drafts a rule for an agent. */
  async draft(page: Page, agent: string): Promise<void> {
    await this.begin(page, agent, "write");
    await expect(page.getByText(/^It would have allowed/)).toBeVisible();
  },
  async begin(page: Page, agent: string, kind: string): Promise<void> {
    await page.getByRole("heading", { name: "Give a rule" }).click();
    const form = page.locator(".form");
    await form.getByLabel(/^Agent/).selectOption({ label: `says it is ${agent}` });
    await form.getByLabel(/^May/).selectOption(kind);
  },
  /** Chooses a template, and shows its rules. */
  async template(page: Page, agent: string, template: string): Promise<void> {
    await this.begin(page, agent, template);
    await expect(page.getByRole("button", { name: "Give exactly these rules" })).toBeVisible();
    await expect(page.getByText("Checking…")).toHaveCount(0);
  },
  /** Drafts a rule for an agent that does not run. */
  async future(page: Page, path: string): Promise<void> {
    await page.getByRole("heading", { name: "Give a rule" }).click();
    await page.locator(".form").getByLabel(/^Agent/).selectOption("*other");
    await page.getByLabel("Path of the agent").fill(path);
    await expect(page.getByText(/^No agent has this name now/)).toBeVisible();
    await expect(page.getByText("Checking…")).toHaveCount(0);
  },
  /** Gives the drafted rule. */
  async give(page: Page): Promise<void> {
    await page.getByLabel(/I understand/).check();
    await press(page.getByRole("button", { name: /^Give (this rule|exactly these rules)/ }), page.getByText(/^Rules? given/));
  },
  /** Opens the form that narrows the first rule. */
  async narrow(page: Page): Promise<void> {
    await page.getByText("Narrow", { exact: true }).first().click();
    await expect(page.getByRole("button", { name: "Narrow to this" })).toBeVisible();
  },
  /** Asks whether to revoke the first rule. */
  async revoke(page: Page): Promise<void> {
    await press(page.getByRole("button", { name: /^Revoke:/ }).first(), page.getByRole("button", { name: "Revoke this rule" }));
  },
  /** Asks whether to revoke all rules. */
  async revokeAll(page: Page): Promise<void> {
    await press(page.getByRole("button", { name: /^Revoke all \d+…/ }), page.getByRole("button", { name: /^Revoke all \d+ rules/ }));
  },
  async suggest(page: Page): Promise<void> {
    await page.getByRole("button", { name: "Suggest a rule from your answers" }).click();
  },
};

/** Opens another page of the console, whose secret the browser tab keeps. */
async function sibling(page: Page, url: string, name: string): Promise<void> {
  await page.goto(url);
  await page.getByRole("link", { name }).click();
  await expect(page.getByRole("heading", { name, level: 1 })).toBeVisible();
  await expect(page.getByText("Loading…")).toHaveCount(0);
}

/** The page of the test host. */
export const testHost = {
  async open(page: Page, url: string): Promise<void> {
    await page.goto(url);
    await expect(page.getByRole("status")).toHaveText("Connected");
  },
  /** Calls a tool with arguments as JSON, by the button with this name. */
  async call(page: Page, tool: string, given: object, button: string): Promise<void> {
    await page.getByLabel("Search tools").fill(tool);
    await page.getByRole("navigation", { name: "Tools" }).getByRole("button").first().click();
    await page.getByRole("button", { name: "JSON", exact: true }).click();
    await page.getByLabel("The arguments as JSON").fill(JSON.stringify(given));
    await page.getByRole("button", { name: button, exact: true }).click();
  },
  async checks(page: Page): Promise<void> {
    await page.getByRole("button", { name: "Checks", exact: true }).click();
    await page.getByRole("button", { name: "Run the checks" }).click();
    await expect(page.getByText("wire.form")).toBeVisible();
  },
};
