import type { Page } from "@playwright/test";

import { question } from "./fake-host.ts";
import { barriers, built, expect, test } from "./fixtures.ts";
import type { Site } from "./fixtures.ts";

const CALM = 700;

/** Opens a page with the built component and a question; its events are recorded in `window.told`. */
async function asked(page: Page, site: Site, block: object, settle = true): Promise<void> {
  site.put("/prompt.js", { body: await built("permission-prompt.js"), type: "text/javascript" });
  site.put("/prompt.css", { body: await built("permission-prompt.css"), type: "text/css" });
  const links = '<link rel="stylesheet" href="/prompt.css"><script type="module" src="/prompt.js"></script>';
  site.put("/", `<!doctype html><html lang="en"><title>Host</title>${links}<main><h1>Chat</h1><input aria-label="Message"></main></html>`);
  await page.clock.install();
  await page.goto(site.origin);
  await page.clock.pauseAt(Date.now() + 1000);
  await page.evaluate(
    async ([block, settle]) => {
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
    [block, settle] as const,
  );
}

const told = (page: Page): Promise<unknown[]> => page.evaluate(() => (window as unknown as { told: unknown[] }).told);
const set = (page: Page, members: object): Promise<unknown> =>
  page.evaluate((members) => void Object.assign((window as unknown as { prompt: object }).prompt, members), members);
const calm = (page: Page): Promise<void> => page.clock.runFor(CALM);
const yes = (page: Page) => page.getByRole("button", { name: /^Allow/ });
const no = (page: Page) => page.getByRole("button", { name: /^Deny/ });
const id = "00000000000000ab-1";
const allow = (more: object = {}): object => ({
  patterns: ["write:file:/a/b/c.txt"],
  lifetime: "once",
  descendants: false,
  left_out: [],
  ...more,
});

test("choosing once clears the grant to sub-agents", async ({ page, site }) => {
  await asked(page, site, question(1));
  await page.getByLabel("For this session").check();
  await page.getByLabel("Its sub-agents may, too").check();
  await page.getByLabel("once", { exact: true }).check();
  await expect(page.getByLabel("Its sub-agents may, too")).not.toBeChecked();
  await expect(yes(page)).toHaveText("Allow this once");
  await calm(page);
  await yes(page).click();
  expect(await told(page)).toEqual([["granted", { id, answer: { allow: allow() }, remember: false }]]);
});

test("a single press grants the narrowest scope once", async ({ page, site }) => {
  await asked(page, site, question(1));
  await calm(page);
  await expect(yes(page)).toHaveText("Allow this once");
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
  await expect(page.getByText("Not accepted: the request has just changed.")).toBeVisible();
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
  await calm(page);
  await page.evaluate(() => {
    const prompt = document.querySelector("permission-prompt");
    for (const one of prompt?.querySelectorAll<HTMLElement>("button, input, summary") ?? []) {
      one.click();
      one.dispatchEvent(new MouseEvent("click", { bubbles: true }));
      one.dispatchEvent(new Event("change", { bubbles: true }));
      one.dispatchEvent(new Event("input", { bubbles: true }));
    }
    prompt?.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
  });
  expect(await told(page)).toEqual([]);
  // Changes that a script made to the controls are undone within a second.
  await page.clock.runFor(1000);
  await expect(page.getByLabel("once", { exact: true })).toBeChecked();
  await expect(page.getByLabel("exactly what is asked")).toBeChecked();
  await expect(yes(page)).toHaveText("Allow this once");
  await yes(page).click();
  expect(await told(page)).toHaveLength(1);
});

test("broad and permanent grants need confirmation", async ({ page, site }) => {
  await asked(page, site, question(1));
  await calm(page);
  const tick = page.getByLabel(/I understand this grants/);
  const wide = async (choose: () => Promise<void>, needed: boolean): Promise<void> => {
    await choose();
    await expect(tick).toBeVisible({ visible: needed });
    await expect(yes(page)).toBeEnabled({ enabled: !needed });
  };
  await wide(() => page.getByLabel(/beneath \/a\/b,/).check(), false);
  await wide(() => page.getByLabel(/beneath \/a,/).check(), false);
  await wide(() => page.getByLabel(/every file that/).check(), true);
  await wide(() => page.getByLabel(/everything that may/).check(), true);
  await wide(() => page.getByLabel(/exactly what/).check(), false);
  await wide(() => page.getByLabel("For this session").check(), false);
  await wide(() => page.getByLabel("Until I revoke it").check(), true);
  await tick.check();
  await expect(yes(page)).toBeEnabled();
  // The confirmation was for another choice, so it is required again.
  await page.getByLabel(/every file that/).check();
  await expect(yes(page)).toBeDisabled();
  await tick.check();
  await yes(page).click();
  const answer = { allow: allow({ patterns: ["write:file"], lifetime: "agent" }) };
  expect(await told(page)).toEqual([["granted", { id, answer, remember: true }]]);
});

test("button labels describe the answer", async ({ page, site }) => {
  await asked(page, site, question(1));
  for (const [label, words] of [
    ["for the next uses:", "Allow this for 10 uses"],
    ["For 1 hour", "Allow this for 1 hour"],
    ["For this session", "Allow this for this session"],
    ["Its sub-agents may, too", "Allow this for this session, sub-agents too"],
  ] as const) {
    await page.getByLabel(label).check();
    await expect(yes(page)).toHaveText(words);
  }
  await page.getByLabel(/beneath \/a\/b,/).check();
  await expect(yes(page)).toHaveText("Allow to change or remove everything beneath /a/b, now and later; pr… for this session, sub-agents too");
  await expect(page.getByText("Covers: change or remove everything beneath /a/b")).toBeVisible();
  await expect(page.getByText("; 14 now")).toBeVisible();
  await page.getByText("Deny with a note").click();
  await page.getByLabel("Note to the agent").pressSequentially("not there");
  await page.getByLabel(/rest of the session/).check();
  await expect(no(page)).toHaveText("Deny for the rest of the session, with the note");
  await calm(page);
  await no(page).click();
  const answer = { deny: { note: "not there", rest_of_session: true } };
  expect(await told(page)).toEqual([["denied", { id, answer, remember: false }]]);
});

test("a grant can be chosen by keyboard, and Escape denies", async ({ page, site }) => {
  await asked(page, site, question(1));
  await calm(page);
  await page.getByLabel("exactly what is asked").focus();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Tab");
  await page.keyboard.press("ArrowDown");
  await expect(yes(page)).toHaveText("Allow to change or remove everything beneath /a/b, now and later; pr… for 10 uses");
  for (let n = 0; n < 12 && !(await yes(page).evaluate((it) => it === document.activeElement)); n += 1) await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  const answer = { allow: allow({ patterns: ["write:file:/a/b"], lifetime: { uses: 10 } }) };
  expect(await told(page)).toEqual([["granted", { id, answer, remember: true }]]);
  await set(page, { block: question(2) });
  await set(page, { settled: true });
  await calm(page);
  await page.getByLabel("once", { exact: true }).focus();
  await page.keyboard.press("Escape");
  expect(await told(page)).toHaveLength(2);
});

test("Escape denies except inside the note", async ({ page, site }) => {
  await asked(page, site, question(1));
  await page.getByText("Deny with a note").click();
  await page.getByLabel("Note to the agent").focus();
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
  const clock = await page.getByText(/^Ends in/).textContent();
  await page.clock.runFor(3000);
  await expect(page.getByText(/^Ends in/)).not.toHaveText(clock ?? "");
  expect(await page.evaluate(() => "rewritten" in window)).toBe(false);
});

test("excluding a hunk limits the answer to this call", async ({ page, site }) => {
  await asked(page, site, question(1));
  await page.getByLabel("For this session").check();
  const leftOut = [{ path: "/a/b/c.txt", hunks: [1] }];
  await set(page, { leftOut });
  await expect(yes(page)).toHaveText("Allow what is ticked once");
  await expect(page.getByLabel("For this session")).toBeDisabled();
  await expect(page.getByLabel(/beneath \/a\/b,/)).toBeDisabled();
  await page.evaluate(() => Object.assign((window as unknown as { prompt: object }).prompt, { leftOut: undefined }));
  await expect(yes(page)).toBeDisabled();
  await set(page, { leftOut });
  await calm(page);
  await yes(page).click();
  expect(await told(page)).toEqual([["granted", { id, answer: { allow: allow({ left_out: leftOut }) }, remember: false }]]);
});

test("sensitive resources cannot be granted permanently", async ({ page, site }) => {
  const needs = ["write:file:/a/.mcp.json"];
  const rungs = [{ patterns: needs, covers: "exactly what is asked" }];
  await asked(page, site, question(1, { sensitive: true, protected: needs, needs, rungs }));
  await expect(page.getByText("Protected, so only exactly this can be allowed: write:file:/a/.mcp.json")).toBeVisible();
  await expect(page.getByLabel("For this session")).toBeVisible();
  await expect(page.getByLabel("Until I revoke it")).toHaveCount(0);
});

test("shows agent, tool, reason and server", async ({ page, site }) => {
  await asked(page, site, question(1, { trust: "unknown" }));
  for (const words of ["Wants to change or run", "main › worker-3 › edit_file", "Replace 3 lines in c1.txt", "📁 files", "⚠ Unknown server", "write:file:/a/b/c.txt", "Remember this choice"]) {
    await expect(page.getByText(words, { exact: true }).first()).toBeVisible();
  }
  await page.getByText("All arguments (2)").click();
  await expect(page.getByText("/a/b/c.txt", { exact: true })).toBeVisible();
  await expect(page.getByText('"new_text": "two"')).toBeVisible();
});

test("a final status is shown and does not change", async ({ page, site }) => {
  for (const [status, words] of [
    ["granted", "Answered elsewhere: allowed"],
    ["denied", "Answered elsewhere: denied"],
    ["expired", "Not allowed: no answer in time."],
    ["cancelled", "The call has ended; there is nothing to answer."],
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
  await expect(page.getByText(/^Ends in 0:\d\d$/)).toBeVisible();
  await calm(page);
  await expect(yes(page)).toBeEnabled();
  await page.clock.runFor(12_000);
  await expect(page.getByText("Not allowed: no answer in time.")).toBeVisible();
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
  await calm(page);
  await page.getByLabel("Remember this choice").check();
  await expect(yes(page)).toHaveText("Allow this until I revoke it");
  await expect(yes(page)).toBeDisabled();
  await page.getByLabel("I understand this grants broad or permanent access.").check();
  await yes(page).click();
  const answer = { allow: allow({ patterns: [], lifetime: "agent" }) };
  expect(await told(page)).toEqual([["granted", { id, answer, remember: true }]]);
});

test("an invalid block is rejected", async ({ page, site }) => {
  await asked(page, site, question(1));
  for (const wrong of [{}, { ...question(1), status: "maybe" }, { ...question(1), type: "text" }, question(1, { rungs: "all" })]) {
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
        const own = { agent: [text], intent: text, needs: [text], protected: [text], rungs: [{ patterns: [text], covers: text }] };
        Object.assign(block["bailiwick"] ?? {}, own);
        prompt.block = block;
        const strange = [...prompt.querySelectorAll("script, img, iframe, a, [onerror], [href], [src]")];
        const raw = /[\u0000-\u0008\u000b\u001b\u200b\u202e\u2066\ufeff]/u.test(prompt.textContent ?? "");
        const heading = prompt.querySelector("h2")?.textContent?.length ?? 0;
        const buttons = prompt.querySelectorAll("button").length;
        return strange.length > 0 || raw || heading > 200 || buttons !== 2 || "bad" in window ? [n] : [];
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
      await asked(page, site, question(1, { trust: "unknown", protected: ["write:file:/a"] }));
      await page.getByText("All arguments (2)").click();
      await page.getByText("Deny with a note").click();
      await page.getByLabel("Until I revoke it").check();
      await page.clock.resume();
      expect(await barriers(page)).toEqual([]);
    });
  }
}

