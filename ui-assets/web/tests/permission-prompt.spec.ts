import type { Page } from "@playwright/test";

import { choices, question } from "./fake-host.ts";
import { barriers, built, expect, test } from "./fixtures.ts";
import type { Site } from "./fixtures.ts";

const CALM = 700;

/** How far the stopped clock of the page is ahead, which is more than loading it takes. */
const AHEAD = 60_000;

/**
 * Opens a page with the built component and a question, whose time left does not depend on the time that loading takes; its
 * events are recorded in `window.told`.
 */
async function asked(page: Page, site: Site, block: object, settle = true): Promise<void> {
  const opened = Date.now();
  site.put("/prompt.js", { body: await built("permission-prompt.js"), type: "text/javascript" });
  site.put("/prompt.css", { body: await built("permission-prompt.css"), type: "text/css" });
  const links = '<link rel="stylesheet" href="/prompt.css"><script type="module" src="/prompt.js"></script>';
  site.put("/", `<!doctype html><html lang="en"><title>Host</title>${links}<main><h1>Chat</h1><input aria-label="Message"></main></html>`);
  await page.clock.install();
  await page.goto(site.origin);
  await page.clock.pauseAt(opened + AHEAD);
  await page.evaluate(
    async ([block, settle, ahead]) => {
      const details = (block as { bailiwick?: { expires_at: number } }).bailiwick;
      if (details) details.expires_at += ahead;
      await customElements.whenDefined("permission-prompt");
      const told: unknown[] = [];
      const prompt = document.createElement("permission-prompt");
      for (const word of ["granted", "denied"]) {
        prompt.addEventListener(`permission-${word}`, (event) => told.push([word, (event as CustomEvent).detail]));
      }
      Object.assign(window, { told, prompt });
      document.querySelector("main")?.append(prompt);
      Object.assign(prompt, { block });
      if (settle) Object.assign(prompt, { settled: true });
    },
    [block, settle, AHEAD] as const,
  );
}

const told = (page: Page): Promise<unknown[]> => page.evaluate(() => (window as unknown as { told: unknown[] }).told);
const set = (page: Page, members: object): Promise<unknown> =>
  page.evaluate((members) => void Object.assign((window as unknown as { prompt: object }).prompt, members), members);
const calm = (page: Page): Promise<void> => page.clock.runFor(CALM);
const yes = (page: Page) => page.getByRole("button", { name: /^Allow/ });
const no = (page: Page) => page.getByRole("button", { name: /^Deny/ });
const id = "00000000000000ab-1";
/** The grants of a choice of the sample question. */
const grants = (choice: number): unknown => choices[choice]?.["grants"];
const options = (page: Page): Promise<void> => page.getByRole("button", { name: "More options" }).click();
const allow = (more: object = {}): object => ({
  patterns: grants(0),
  lifetime: "once",
  descendants: false,
  left_out: [],
  ...more,
});

test("choosing once clears the grant to sub-agents and the wider reach", async ({ page, site }) => {
  await asked(page, site, question(1));
  await options(page);
  await expect(page.getByLabel("its folder")).toHaveCount(0);
  await page.getByLabel("until this agent or its session ends", { exact: true }).check();
  await page.getByLabel("Its sub-agents may, too").check();
  await page.getByLabel("its folder").check();
  await page.getByLabel("only this call").check();
  await expect(page.getByLabel("its folder")).toHaveCount(0);
  await expect(yes(page)).toHaveText("Allow once");
  await calm(page);
  await yes(page).click();
  expect(await told(page)).toEqual([["granted", { id, answer: { allow: allow() }, remember: false }]]);
});

test("the first view has two answers and no scope syntax", async ({ page, site }) => {
  await asked(page, site, question(1));
  for (const words of ["worker-3 asks (main › worker-3)", "Replace 3 lines in c1.txt"]) await expect(page.getByText(words)).toBeVisible();
  await expect(page.getByText(/^(9:5\d|10:00) left, then denied$/)).toBeVisible();
  await expect(page.getByRole("button")).toHaveText(["More options", "Deny", "Allow once"]);
  await expect(page.getByText("Your answer is for this call only. You can undo this in Activity.")).toBeVisible();
  await expect(page.locator("permission-prompt").getByRole("textbox")).toHaveCount(0);
  await expect(page.getByText("write:file").filter({ visible: true })).toHaveCount(0);
});

test("dangers are named and marked", async ({ page, site }) => {
  const dangers = [
    { kind: "delete", level: "severe", text: "Deletes the folder old and 12 files" },
    { kind: "protected", level: "severe", text: ".mcp.json is sensitive: it starts programs" },
    { kind: "hidden_characters", level: "severe", text: "The name a\u202eb has U+202E" },
    { kind: "outside", level: "caution", text: "/etc/x is outside your project" },
  ];
  await asked(page, site, question(1, { dangers }));
  const marks = page.getByRole("list", { name: "Dangers" }).getByRole("listitem");
  await expect(marks).toHaveText(["⚠ Deletes the folder old and 12 files", "⚠ .mcp.json is sensitive: it starts programs", "⚠ The name a\\u{202e}b has U+202E", "⚠ /etc/x is outside your project"]);
  await expect(marks.last()).toHaveClass("danger caution");
  await expect(marks.first()).toHaveClass("danger severe");
  await expect(yes(page)).toHaveClass(/severe/);
  await set(page, { block: question(3, { dangers: dangers.slice(3) }) });
  await expect(yes(page)).toHaveClass(/caution/);
  await set(page, { block: question(2) });
  await expect(marks).toHaveCount(0);
  await expect(yes(page)).not.toHaveClass(/severe|caution/);
});

test("without a preview, the first files are listed", async ({ page, site }) => {
  const files = Array.from({ length: 20 }, (_, n) => ({ path: `/a/${"folder/".repeat(20)}name-${n}.txt`, op: "delete" }));
  await asked(page, site, question(1, { files, files_total: 50, preview: null }));
  await expect(page.locator(".affected li")).toHaveCount(9);
  await expect(page.locator(".affected li").first()).toHaveText(/^Will delete\/a\/folder.*….*folder\/name-0\.txt$/);
  await expect(page.getByText("and 42 more")).toBeVisible();
});

test("runs of spaces are visible in the heading, the files and the choices", async ({ page, site }) => {
  const covers = 'read "/a/b  c.txt"';
  const files = [{ path: "/a/b  c.txt", op: "read" }];
  await asked(page, site, question(1, { sentence: "Read “b  c.txt”", files, preview: null, choices: [{ ...choices[0], covers }] }));
  await expect(page.getByRole("heading", { name: "Read “b␣␣c.txt”" })).toBeVisible();
  await expect(page.locator(".affected li")).toHaveText("Will read/a/b␣␣c.txt");
  await options(page);
  await page.getByLabel("for 1 hour").check();
  await expect(page.getByText('read "/a/b␣␣c.txt"', { exact: true })).toBeVisible();
  await expect(yes(page)).toHaveText('Allow for 1 hour: read "/a/b␣␣c.txt"');
});

test("keys answer only with shortcuts", async ({ page, site }) => {
  await asked(page, site, question(1));
  await calm(page);
  for (const key of ["a", "d", "o"]) await page.keyboard.press(key);
  expect(await told(page)).toEqual([]);
  await expect(yes(page)).not.toHaveAttribute("aria-keyshortcuts");
  await set(page, { shortcuts: true });
  await set(page, { block: question(2) });
  await set(page, { settled: true });
  await expect(yes(page)).toHaveAttribute("aria-keyshortcuts", "a");
  await calm(page);
  await page.keyboard.press("o");
  await expect(page.getByLabel("only this call")).toBeVisible();
  await page.keyboard.press("a");
  expect(await told(page)).toHaveLength(1);
});

test("a single press grants the narrowest scope once", async ({ page, site }) => {
  await asked(page, site, question(1));
  await calm(page);
  await expect(yes(page)).toHaveText("Allow once");
  await yes(page).click();
  expect(await told(page)).toEqual([["granted", { id, answer: { allow: allow() }, remember: false }]]);
  await expect(page.getByText("Sending…")).toBeVisible();
  // The event is dispatched once, regardless of further presses.
  await expect(yes(page)).toBeDisabled();
  await page.keyboard.press("Escape");
  expect(await told(page)).toHaveLength(1);
});

test("presses in the first 700 ms are ignored", async ({ page, site }) => {
  await asked(page, site, question(1));
  await yes(page).focus();
  await page.keyboard.press("Enter");
  await page.keyboard.press("Escape");
  await yes(page).click();
  await page.clock.runFor(CALM - 100);
  await yes(page).click();
  expect(await told(page)).toEqual([]);
  await expect(page.getByText("The question has just changed.")).toBeVisible();
  await page.clock.runFor(200);
  await page.keyboard.press("Enter");
  expect(await told(page)).toHaveLength(1);
});

test("the delay restarts when the preview is loaded", async ({ page, site }) => {
  await asked(page, site, question(1), false);
  await calm(page);
  await expect(yes(page)).toBeDisabled();
  await expect(page.getByText("Loading preview…")).toBeVisible();
  await set(page, { settled: true });
  await yes(page).click();
  expect(await told(page)).toEqual([]);
  await calm(page);
  await yes(page).click();
  expect(await told(page)).toHaveLength(1);
});

test("a call without a loaded preview can be denied", async ({ page, site }) => {
  await asked(page, site, question(1), false);
  await calm(page);
  await expect(yes(page)).toBeDisabled();
  await no(page).click();
  expect(await told(page)).toEqual([["denied", { id, answer: { deny: { note: null, rest_of_session: false } }, remember: false }]]);
});

test("a call without a preview can be allowed after the delay", async ({ page, site }) => {
  await asked(page, site, question(1, { preview: null }), false);
  await calm(page);
  await expect(yes(page)).toBeEnabled();
});

test("scripted events neither answer nor change the choice", async ({ page, site }) => {
  await asked(page, site, question(1));
  await set(page, { shortcuts: true });
  await options(page);
  await page.getByLabel("for 1 hour").check();
  await calm(page);
  await page.evaluate(() => {
    const prompt = document.querySelector("permission-prompt");
    for (const one of prompt?.querySelectorAll<HTMLElement>("button, input, summary") ?? []) {
      one.click();
      one.dispatchEvent(new MouseEvent("click", { bubbles: true }));
      one.dispatchEvent(new Event("change", { bubbles: true }));
      one.dispatchEvent(new Event("input", { bubbles: true }));
    }
    for (const key of ["Escape", "a", "d"]) prompt?.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  });
  expect(await told(page)).toEqual([]);
  // Changes that a script made to the controls are undone within a second.
  await page.clock.runFor(1000);
  await expect(page.getByLabel("for 1 hour")).toBeChecked();
  await expect(page.getByLabel("this file")).toBeChecked();
  await expect(yes(page)).toHaveText("Allow for 1 hour: change /a/b/c.txt");
  await yes(page).click();
  expect(await told(page)).toHaveLength(1);
});

test("more than a person can read is allowed only once", async ({ page, site }) => {
  const many = { ...choices[0], covers: "change 21 files", may_last: false };
  await asked(page, site, question(1, { choices: [many, choices[1]] }));
  await options(page);
  await calm(page);
  await page.getByLabel("until this agent or its session ends", { exact: true }).check();
  await expect(page.getByLabel("this file")).toBeDisabled();
  await expect(page.getByLabel("its folder")).toBeChecked();
  await expect(yes(page)).toHaveText(/^Allow until this agent or its session ends: create, change or delete \/a\/b and everything in it/);
  await page.getByLabel("only this call").check();
  await yes(page).click();
  expect(await told(page)).toEqual([["granted", { id, answer: { allow: allow() }, remember: false }]]);
});

test("only once is offered if nothing that can be allowed for longer can be read", async ({ page, site }) => {
  await asked(page, site, question(1, { choices: [{ ...choices[0], may_last: false }] }));
  await options(page);
  await expect(page.getByRole("radio")).toHaveCount(1);
  await expect(page.getByLabel("only this call")).toBeChecked();
});

test("broad, permanent and outside grants need confirmation", async ({ page, site }) => {
  const outside = { ...choices[1], label: "another folder", covers: "change /etc/x", outside: true };
  await asked(page, site, question(1, { choices: [...choices, outside] }));
  await options(page);
  await calm(page);
  const tick = page.getByLabel(/I understand that this/);
  const wide = async (choose: () => Promise<void>, reason?: string): Promise<void> => {
    await choose();
    await expect(tick).toHaveCount(reason === undefined ? 0 : 1);
    if (reason !== undefined) await expect(page.getByLabel(`I understand that this ${reason}.`)).toBeVisible();
    await expect(yes(page)).toBeEnabled({ enabled: reason === undefined });
  };
  await wide(() => page.getByLabel("until this agent or its session ends", { exact: true }).check());
  await expect(page.getByText("You can take the permission back in Permissions.")).toBeVisible();
  await wide(() => page.getByLabel("its folder").check());
  await wide(() => page.getByLabel("the whole project").check(), "allows much more than this call");
  await wide(() => page.getByLabel("Outside your project").check(), "reaches outside your project");
  await wide(() => page.getByLabel("only this call").check());
  await wide(() => page.getByLabel("until I revoke it", { exact: true }).check(), "lasts until I revoke it");
  await tick.check();
  await expect(yes(page)).toBeEnabled();
  // The confirmation was for another choice, so it is required again.
  await page.getByLabel("the whole project").check();
  await expect(yes(page)).toBeDisabled();
  await tick.check();
  await yes(page).click();
  const answer = { allow: allow({ patterns: grants(2), lifetime: "agent" }) };
  expect(await told(page)).toEqual([["granted", { id, answer, remember: true }]]);
});

test("a permanent grant that is not stored ends with the server", async ({ page, site }) => {
  await asked(page, site, question(1, { stores_grants: false }));
  await options(page);
  await page.getByLabel("until I revoke it or the server stops", { exact: true }).check();
  await expect(yes(page)).toHaveText("Allow until I revoke it or the server stops: change /a/b/c.txt");
  await expect(page.getByLabel("I understand that this lasts until I revoke it or the server stops.")).toBeVisible();
});

test("button labels describe the answer", async ({ page, site }) => {
  await asked(page, site, question(1, { waiting: 3, preview: { files: 0 } }));
  await options(page);
  for (const [label, words] of [
    ["all equal calls that wait", "Allow all 3 equal calls that wait"],
    ["for the next uses:", "Allow for 10 uses: change /a/b/c.txt"],
    ["for 1 hour", "Allow for 1 hour: change /a/b/c.txt"],
    ["until this agent or its session ends", "Allow until this agent or its session ends: change /a/b/c.txt"],
    ["Its sub-agents may, too", "Allow until this agent or its session ends, sub-agents too: change /a/b/c.txt"],
  ] as const) {
    await page.getByLabel(label, { exact: true }).check();
    await expect(yes(page)).toHaveText(words);
  }
  await page.getByLabel("its folder").check();
  await expect(yes(page)).toHaveText("Allow until this agent or its session ends, sub-agents too: create, change or delete /a/b and everything in it; sensitive files still ask");
  await page.getByLabel("Tell the agent why").pressSequentially("not there");
  await expect(no(page)).toHaveText("Deny and tell why");
  await page.getByLabel("Stop asking for this until the session ends").check();
  await expect(no(page)).toHaveText("Deny and tell why, stop asking");
  await expect(page.getByText("later ones ask again")).toHaveCount(0);
  // What was chosen stays when the options are closed.
  await options(page);
  await expect(no(page)).toHaveText("Deny and tell why, stop asking");
  await options(page);
  await expect(page.getByLabel("Tell the agent why")).toHaveValue("not there");
  await calm(page);
  await no(page).click();
  const answer = { deny: { note: "not there", rest_of_session: true } };
  expect(await told(page)).toEqual([["denied", { id, answer, remember: false }]]);
});

test("equal changes of files are not offered together", async ({ page, site }) => {
  await asked(page, site, question(1, { waiting: 3 }));
  await expect(page.getByText("The agent asks for exactly this 3 times")).toBeVisible();
  await options(page);
  await expect(page.getByLabel("only this call")).toBeVisible();
  await expect(page.getByLabel("all equal calls that wait")).toHaveCount(0);
});

test("the button of a batch says how many changes it allows", async ({ page, site }) => {
  await asked(page, site, question(1, { preview: { files: 4, added: 3, removed: 1 } }));
  await expect(yes(page)).toHaveText("Allow all 4 changes once");
  await set(page, { block: question(2) });
  await expect(yes(page)).toHaveText("Allow once");
});

test("a grant can be chosen by keyboard, and Escape denies", async ({ page, site }) => {
  await asked(page, site, question(1));
  await calm(page);
  await page.getByRole("button", { name: "More options" }).focus();
  await page.keyboard.press("Enter");
  await page.getByLabel("only this call").focus();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Tab");
  await page.keyboard.press("ArrowDown");
  await expect(yes(page)).toHaveText("Allow for 10 uses: create, change or delete /a/b and everything in it; sensitive files still ask");
  for (let n = 0; n < 12 && !(await yes(page).evaluate((it) => it === document.activeElement)); n += 1) await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  const answer = { allow: allow({ patterns: grants(1), lifetime: { uses: 10 } }) };
  expect(await told(page)).toEqual([["granted", { id, answer, remember: true }]]);
  await set(page, { block: question(2) });
  await set(page, { settled: true });
  await calm(page);
  await yes(page).focus();
  await page.keyboard.press("Escape");
  expect(await told(page)).toHaveLength(2);
});

test("Escape denies except inside the note", async ({ page, site }) => {
  await asked(page, site, question(1));
  await options(page);
  await page.getByLabel("Tell the agent why").focus();
  await calm(page);
  const devtools = await page.context().newCDPSession(page);
  await devtools.send("Input.imeSetComposition", { text: "か", selectionStart: 1, selectionEnd: 1 });
  await page.keyboard.press("Escape");
  expect(await told(page)).toEqual([]);
  await devtools.send("Input.insertText", { text: "か" });
  await page.keyboard.press("Escape");
  expect(await told(page)).toEqual([]);
  await no(page).focus();
  await page.keyboard.press("Escape");
  expect(await told(page)).toHaveLength(1);
});

test("the countdown does not update live regions", async ({ page, site }) => {
  await asked(page, site, question(1));
  await page.evaluate(() => {
    const seen = new MutationObserver((all) => Object.assign(window, { rewritten: all.length }));
    for (const region of document.querySelectorAll("[role=status], button")) seen.observe(region, { childList: true, characterData: true, subtree: true });
  });
  const clock = await page.getByText(/ left, then denied/).textContent();
  await page.clock.runFor(3000);
  await expect(page.getByText(/ left, then denied/)).not.toHaveText(clock ?? "");
  expect(await page.evaluate(() => "rewritten" in window)).toBe(false);
});

test("excluding a hunk limits the answer to this call", async ({ page, site }) => {
  await asked(page, site, question(1));
  await options(page);
  await page.getByLabel("until this agent or its session ends", { exact: true }).check();
  await page.getByLabel("its folder").check();
  const leftOut = [{ path: "/a/b/c.txt", hunks: [1] }];
  await set(page, { leftOut });
  await expect(yes(page)).toHaveText("Allow the ticked changes once");
  await expect(page.getByLabel("until this agent or its session ends", { exact: true })).toBeDisabled();
  await expect(page.getByLabel("its folder")).toHaveCount(0);
  await page.evaluate(() => Object.assign((window as unknown as { prompt: object }).prompt, { leftOut: undefined }));
  await expect(yes(page)).toBeDisabled();
  await set(page, { leftOut });
  await calm(page);
  await yes(page).click();
  expect(await told(page)).toEqual([["granted", { id, answer: { allow: allow({ left_out: leftOut }) }, remember: false }]]);
});

test("sensitive resources cannot be granted permanently", async ({ page, site }) => {
  const needs = ["write:file:/a/.mcp.json"];
  await asked(page, site, question(1, { sensitive: true, protected: needs, needs, choices: choices.slice(0, 1) }));
  await options(page);
  await page.getByLabel("until this agent or its session ends", { exact: true }).check();
  await expect(page.getByLabel("until I revoke it", { exact: true })).toHaveCount(0);
  await expect(page.getByLabel("this file")).toBeVisible();
  await expect(page.getByLabel("its folder")).toHaveCount(0);
});

test("a long heading shows the start and end of the call, and opens the arguments", async ({ page, site }) => {
  const preview = { files: 0 };
  const params = (command: string) => ({ tool_call: { ...(question(1)["tool_call"] as object), params: JSON.stringify({ argv: ["sh", "-c", command] }) } });
  const command = `echo ${"harmless ".repeat(60)}; rm -rf many`;
  await asked(page, site, question(1, { preview, sentence: `Run \`sh -c '${command}'\`` }, params(command)));
  await expect(page.getByRole("heading", { level: 2 })).toHaveText(/^Run `sh -c 'echo harmless .*\[172 characters\].* harmless ; rm -rf many'`$/);
  await expect(page.locator(".argument pre")).toBeVisible();
  await expect(page.locator(".argument pre")).toContainText("; rm -rf many");
  // A person can close it, and it stays closed.
  await page.getByText("Details", { exact: true }).click();
  await page.clock.runFor(2000);
  await expect(page.locator(".argument pre")).toBeHidden();
  for (const [sentence, open] of [["Run `sh -c 'echo[171 characters]; rm'`", true], ["Fetch “https://example.com/…”", true], ["Run `ls`", false]] as const) {
    await asked(page, site, question(1, { preview, sentence }, params("x")));
    await expect(page.locator(".argument pre")).toBeVisible({ visible: open });
  }
});

test("the details show tool, server, scopes and arguments", async ({ page, site }) => {
  await asked(page, site, question(1, { trust: "unknown" }));
  await page.getByText("Details", { exact: true }).click();
  await expect(page.getByText("ask: configuration: a person must be asked (ask_scopes: `write:file`)")).toBeVisible();
  for (const words of ["edit_file", "📁 files", "write:file:/a/b/c.txt", "/a/b/c.txt"]) await expect(page.getByText(words, { exact: true })).toBeVisible();
  await expect(page.getByText("(unknown to this host)")).toBeVisible();
  await expect(page.getByText('"new_text": "two"')).toBeVisible();
  await set(page, { block: question(2, { arguments_bytes: 9000 }) });
  await expect(page.getByText(/^What the agent sends: the first \d+ characters of 9000 bytes$/)).toBeAttached();
});

test("a final status is shown and does not change", async ({ page, site }) => {
  for (const [status, words] of [
    ["granted", "Allowed on another page or by somebody else."],
    ["denied", "Denied on another page or by somebody else."],
    ["expired", "Denied: no answer in time."],
    ["cancelled", "The call ended unanswered, so it was not allowed."],
  ] as const) {
    await asked(page, site, question(1));
    await set(page, { block: question(1, {}, { status }) });
    await calm(page);
    await expect(page.getByText(words)).toBeVisible();
    await expect(yes(page)).toBeDisabled();
    await expect(no(page)).toBeDisabled();
    await set(page, { block: question(1) });
    await expect(page.getByText(words)).toBeVisible();
    expect(await told(page)).toEqual([]);
  }
});

test("an expired question cannot be answered", async ({ page, site }) => {
  await asked(page, site, question(1, { expires_at: Date.now() + 10_000 }));
  await expect(page.getByText(/^0:\d\d left, then denied$/)).toBeVisible();
  await calm(page);
  await expect(yes(page)).toBeEnabled();
  await page.clock.runFor(12_000);
  await expect(page.getByText("Denied: no answer in time.")).toBeVisible();
  await expect(yes(page)).toBeDisabled();
});

test("an answer without effect can be repeated", async ({ page, site }) => {
  await asked(page, site, question(1));
  await calm(page);
  await yes(page).click();
  await page.evaluate(() => (window as unknown as { prompt: { failed(why: string): void } }).prompt.failed("cannot be recorded"));
  await expect(page.getByText("cannot be recorded")).toBeVisible();
  await yes(page).click();
  expect(await told(page)).toHaveLength(1);
  await calm(page);
  await yes(page).click();
  expect(await told(page)).toHaveLength(2);
});

test("a new prompt does not take the focus", async ({ page, site }) => {
  await asked(page, site, question(1));
  await page.getByLabel("Message").focus();
  await set(page, { block: question(2) });
  await expect(page.getByText("Replace 3 lines in c2.txt")).toBeVisible();
  await expect(page.getByLabel("Message")).toBeFocused();
});

test("a block without bailiwick details offers allow, deny and remember", async ({ page, site }) => {
  const { bailiwick: _, ...block } = question(1) as { bailiwick: unknown };
  await asked(page, site, block);
  await expect(page.getByText("Wants to change or run")).toBeVisible();
  await expect(page.getByText("files › edit_file")).toBeVisible();
  await options(page);
  await expect(page.locator("permission-prompt").getByRole("radio")).toHaveCount(2);
  await page.getByLabel("until I revoke it", { exact: true }).check();
  await expect(yes(page)).toHaveText("Allow until I revoke it");
  await expect(yes(page)).toBeDisabled();
  await page.getByLabel("I understand that this lasts until I revoke it.").check();
  await calm(page);
  await yes(page).click();
  const answer = { allow: allow({ patterns: [], lifetime: "agent" }) };
  expect(await told(page)).toEqual([["granted", { id, answer, remember: true }]]);
});

test("an invalid block is rejected", async ({ page, site }) => {
  await asked(page, site, question(1));
  for (const wrong of [{}, { ...question(1), status: "maybe" }, { ...question(1), type: "text" }, question(1, { choices: "all" }), question(1, { dangers: [{}] })]) {
    const refused = page.evaluate((wrong) => Object.assign((window as unknown as { prompt: object }).prompt, { block: wrong }), wrong);
    await expect(refused).rejects.toThrow("is not as expected");
  }
  expect(await told(page)).toEqual([]);
});

const lines = ["<img src=x onerror=window.bad=1>", "<script>window.bad=1</script>", "javascript:window.bad=1", "\u202Egnp.exe", "a\u0000b\u001b[31mred", "x".repeat(10_000), "line\r\nAllow", "{{constructor.constructor('window.bad=1')()}}", "\u200b\u2066\ufeff", "`${window.bad=1}`"];
/** Two hundred deceptive or malformed texts. */
const payloads = Array.from({ length: 200 }, (_, n) => `${n} ${lines[n % lines.length] ?? ""}${lines[Math.floor(n / lines.length) % lines.length] ?? ""}`);

test("hostile texts are rendered as plain text", async ({ page, site }) => {
  await asked(page, site, question(1));
  await calm(page);
  const found = await page.evaluate(
    ([payloads, base]) => {
      const prompt = document.querySelector("permission-prompt") as HTMLElement & { block: unknown };
      return payloads.flatMap((text, n) => {
        const block = structuredClone(base) as Record<string, Record<string, unknown>>;
        Object.assign(block["tool_call"] ?? {}, { id: `h${n}`, name: text, params: JSON.stringify({ [text]: text }), server_name: text, server_icons: text, server_description: text });
        const choice = { label: text, covers: text, grants: [text], outside: false, confirm: false, may_last: true };
        const own = { agent: [text], sentence: text, needs: [text], dangers: [{ kind: text, level: "severe", text }], files: [{ path: text, op: text, bytes: 1 }], choices: [choice], preview: null };
        Object.assign(block["bailiwick"] ?? {}, own);
        prompt.block = block;
        const strange = [...prompt.querySelectorAll("script, img, iframe, a, [onerror], [href], [src]")];
        const raw = /[\u0000-\u0008\u000b\u001b\u200b\u202e\u2066\ufeff]/u.test(prompt.textContent ?? "");
        const heading = prompt.querySelector("h2")?.textContent?.length ?? 0;
        const buttons = prompt.querySelectorAll("button").length;
        return strange.length > 0 || raw || heading > 450 || buttons !== 3 || "bad" in window ? [n] : [];
      });
    },
    [payloads, question(1)] as const,
  );
  expect(found).toEqual([]);
  expect(await told(page)).toEqual([]);
});

for (const colorScheme of ["light", "dark"] as const) {
  for (const forcedColors of ["none", "active"] as const) {
    test(`passes accessibility checks: ${colorScheme}, forced colors ${forcedColors}`, async ({ page, site }) => {
      await page.emulateMedia({ colorScheme, forcedColors });
      await asked(page, site, question(1, { trust: "unknown", dangers: [{ kind: "delete", level: "severe", text: "Deletes a" }, { kind: "outside", level: "caution", text: "Outside" }] }));
      await page.getByText("Details", { exact: true }).click();
      await options(page);
      await page.getByLabel("until I revoke it", { exact: true }).check();
      await page.clock.resume();
      expect(await barriers(page)).toEqual([]);
    });
  }
}

