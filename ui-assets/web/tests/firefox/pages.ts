// The built pages with the real program in Firefox.
import puppeteer from "puppeteer-core";
import type { Browser, Page } from "puppeteer-core";

import { serve } from "../files-host.ts";
import { expect, test as base } from "../fixtures.ts";
import { project } from "../shots/program.ts";
import type { Project } from "../shots/program.ts";

const TOTAL = { path: "src/cart.rs", edits: [{ old_text: "map(|item| item.price)", new_text: "map(|item| item.price * item.count)" }] };

/** `tab` fails the test if the page logs an error or throws one. */
const test = base.extend<{ tab: Page; started: Project }, { browser: never; firefox: Browser }>({
  firefox: [
    async ({}, use) => {
      const executablePath = process.env["BAILIWICK_FIREFOX"] ?? "/usr/bin/firefox-esr";
      const browser = await puppeteer.launch({ browser: "firefox", executablePath, defaultViewport: { width: 1280, height: 800 } });
      await use(browser);
      await browser.close();
    },
    { scope: "worker" },
  ],
  tab: async ({ firefox }, use) => {
    const page = await firefox.newPage();
    const errors: string[] = [];
    // Firefox asks each site for an icon, which the pages' CSP blocks.
    const report = (words: string): void => void (/favicon\.ico/.test(words) || errors.push(words));
    page.on("console", (message) => void (message.type() === "error" && report(message.text())));
    page.on("pageerror", (error) => report(String(error)));
    await use(page);
    expect(errors).toEqual([]);
    await page.close();
  },
  started: async ({}, use) => {
    const started = await project();
    await use(started);
    await started.close();
  },
});

const text = (page: Page): Promise<string> => page.evaluate(() => document.body.innerText);

/** Waits until the question is shown. */
const ready = async (page: Page): Promise<void> => {
  await page.waitForSelector("permission-prompt .deny:not([disabled])");
};

/** Presses a key until the question is answered: presses are ignored until it has been unchanged for long enough. */
async function answer(page: Page, key: "d" | "Enter"): Promise<void> {
  await expect
    .poll(async () => {
      if (!(await text(page)).includes("No open questions")) await page.keyboard.press(key);
      return text(page);
    })
    .toContain("No open questions");
}

/** Presses Tab until an element with this text or label has the focus. */
async function tabTo(page: Page, wanted: RegExp): Promise<void> {
  const words = (): Promise<string> =>
    page.evaluate(() => {
      const one = document.activeElement as HTMLInputElement | null;
      return [one?.textContent, one?.ariaLabel, ...[...(one?.labels ?? [])].map((label) => label.textContent)].join(" ");
    });
  await expect
    .poll(async () => {
      await page.keyboard.press("Tab");
      return words();
    }, { intervals: [0] })
    .toMatch(wanted);
}

async function follow(page: Page, name: string): Promise<void> {
  await tabTo(page, new RegExp(`^${name}`));
  await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
  await expect.poll(() => page.evaluate(() => document.querySelector("h1")?.textContent)).toBe(name);
}

test("a person denies by the key d, and the activity page says so", async ({ tab, started }) => {
  const agent = await started.agent("refactor");
  const call = agent.call("edit_file", TOTAL);
  await started.asked(1, call);
  await tab.goto(started.console);
  await ready(tab);
  expect(tab.url()).not.toContain("#");
  await answer(tab, "d");
  expect((await call)?.isError).toBe(true);
  await follow(tab, "Activity");
  await expect.poll(() => text(tab)).toMatch(/Change src\/cart\.rs[^]*Denied by you/);
});

test("a person allows by Tab and Enter", async ({ tab, started }) => {
  const agent = await started.agent("refactor");
  const call = agent.call("edit_file", TOTAL);
  await started.asked(1, call);
  await tab.goto(started.console);
  await ready(tab);
  await tabTo(tab, /^Allow once/);
  await answer(tab, "Enter");
  expect((await call)?.isError).not.toBe(true);
  await follow(tab, "Activity");
  await expect.poll(() => text(tab)).toMatch(/Change src\/cart\.rs[^]*Done/);
});

test("a rule given by keyboard is on the permissions page", async ({ tab, started }) => {
  const agent = await started.agent("refactor");
  const call = agent.call("edit_file", TOTAL);
  await started.asked(1, call);
  await tab.goto(started.console);
  await ready(tab);
  await tab.keyboard.press("o");
  await tabTo(tab, /How many uses/);
  await tab.keyboard.press("ArrowUp");
  await tabTo(tab, /^Allow for \d+ uses/);
  await answer(tab, "Enter");
  expect((await call)?.isError).not.toBe(true);
  await follow(tab, "Permissions");
  await tab.waitForSelector("li.rule");
  expect(await text(tab)).toMatch(/uses? left/);
});

test("the review page shows the changes of a call", async ({ tab, site, started }) => {
  const agent = await started.agent("refactor");
  const call = agent.call("edit_file", TOTAL);
  await started.asked(1, call);
  await started.answer("allow");
  const link = (await call)?.content.find(({ type, name }) => type === "resource_link" && name === "review");
  site.put("/", (await agent.read(link?.uri ?? "")) ?? "");
  await tab.goto(site.origin);
  await expect.poll(() => text(tab)).toContain("item.price * item.count");
});

test("the file browser shows files and changes, by keyboard", async ({ tab, site, started }) => {
  const agent = await started.agent("refactor");
  const change = agent.call("edit_file", TOTAL);
  await started.asked(1, change);
  await started.answer("allow");
  await change;
  const html = (await agent.read("ui://bailiwick/files")) ?? "";
  const { calls } = await serve(site, { tools: {}, other: (name, input) => agent.call(name, input), resources: agent.read, html });
  await tab.goto(site.origin);
  const frame = tab.frames().find((one) => one.parentFrame() !== null);
  if (!frame) throw new Error("the host has no frame");
  const inside = (): Promise<string> => frame.evaluate(() => document.body.innerText);
  await frame.waitForSelector("html[data-app-status=ready]");
  // The frame has an origin of its own, so it cannot access its host.
  expect(await frame.evaluate(() => self.origin)).toBe("null");
  await frame.waitForSelector("[role=treeitem]");
  const chosen = (): Promise<string | undefined> => frame.evaluate(() => document.querySelector('[role=treeitem][aria-selected="true"] .name')?.textContent ?? undefined);
  /** Presses Arrow Down until the row with this name is chosen. */
  const choose = async (name: string): Promise<void> => {
    await expect.poll(async () => {
      if ((await chosen()) !== name) await tab.keyboard.press("ArrowDown");
      return chosen();
    }).toBe(name);
  };
  await frame.focus("[role=tree]");
  await choose("src");
  await tab.keyboard.press("ArrowRight");
  await expect.poll(inside).toContain("cart.rs");
  await choose("cart.rs");
  await tab.keyboard.press("Enter");
  await expect.poll(inside).toContain("item.price * item.count");
  expect(calls.map(({ name }) => name)).toEqual(expect.arrayContaining(["list_directory", "read_file", "changed_files"]));
});
