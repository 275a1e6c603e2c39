// Playwright fixtures: in-memory sites on loopback ports, built files and accessibility checks.
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createRequire } from "node:module";
import { json } from "node:stream/consumers";

import { test as base, expect } from "@playwright/test";
import type { Frame, Locator, Page } from "@playwright/test";
import type { AxeResults } from "axe-core";

export { expect };

/** The response for a path of a site. */
export interface Answer {
  readonly body: string | Buffer;
  readonly type?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** A site on a loopback port of its own. */
export interface Site {
  readonly origin: string;
  /** Sets the page at a path, replacing an earlier one. */
  put(path: string, answer: Answer | string): void;
  /** Answers each JSON that the host page posts to a path. These requests are not in `requests`. */
  answer(path: string, given: (message: Readonly<Record<string, unknown>>) => Promise<unknown>): void;
  /** All other requests so far, as `METHOD /path`. */
  readonly requests: readonly string[];
}

async function site(): Promise<Site & { close(): Promise<void> }> {
  const answers = new Map<string, Answer>();
  const answering = new Map<string, Parameters<Site["answer"]>[1]>();
  const requests: string[] = [];
  const server = createServer((request, response) => {
    const path = new URL(request.url ?? "/", "http://localhost").pathname;
    const answered = answering.get(path);
    if (answered !== undefined) {
      const found = json(request).then((message) => answered(message as Readonly<Record<string, unknown>>));
      found.then((body) => response.end(JSON.stringify(body)), (error: unknown) => response.writeHead(500).end(String(error)));
      return;
    }
    requests.push(`${request.method} ${path}`);
    const answer = answers.get(path);
    if (answer === undefined) {
      response.writeHead(404).end();
      return;
    }
    const type = answer.type ?? "text/html; charset=utf-8";
    response.writeHead(200, { "content-type": type, ...answer.headers }).end(answer.body);
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  const { port } = server.address() as AddressInfo;
  return {
    origin: `http://127.0.0.1:${port}`,
    requests,
    put(path, answer) {
      answers.set(path, typeof answer === "string" ? { body: answer } : answer);
    },
    answer: (path, given) => void answering.set(path, given),
    close: () =>
      new Promise((closed) => {
        server.closeAllConnections();
        server.close(() => closed());
      }),
  };
}

export const test = base.extend<{ site: Site; sites: () => Promise<Site> }>({
  sites: async ({}, use) => {
    const opened: Awaited<ReturnType<typeof site>>[] = [];
    await use(async () => {
      const one = await site();
      opened.push(one);
      return one;
    });
    await Promise.all(opened.map((one) => one.close()));
  },
  site: async ({ sites }, use) => {
    await use(await sites());
  },
});

const dist = new URL("../../dist/", import.meta.url);

/** The content of a built file. */
export function built(name: string): Promise<string> {
  return readFile(new URL(name, dist), "utf8");
}

const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/**
 * Violations that axe-core finds, as `rule: element`. axe is injected through the debugger, which bypasses the
 * CSP.
 */
export async function barriers(frame: Page | Frame): Promise<string[]> {
  await frame.evaluate(axe);
  const results = await frame.evaluate(() =>
    (window as unknown as { axe: { run(): Promise<AxeResults> } }).axe.run(),
  );
  return results.violations.flatMap((found) => found.nodes.map((node) => `${found.id}: ${node.target.join(" ")}`));
}

/** The time after a change in which the console ignores presses, and a little more. */
const CALM = 750;

/** Waits until the page is drawn, and then until presses are accepted. The page's clock must be installed and running. */
export async function calm(page: Page): Promise<void> {
  // The virtual lists add rows when they are drawn, which delays presses.
  await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))));
  await page.clock.runFor(CALM);
}

/** Stops the page's clock, which must be installed, so that no time passes between two presses on a busy machine. */
export async function stopClock(page: Page): Promise<void> {
  await page.clock.pauseAt((await page.evaluate(() => Date.now())) + 1000);
}

/** Presses a button when presses are accepted. */
export async function press(page: Page, button: Locator): Promise<void> {
  await expect(button).toBeEnabled();
  await calm(page);
  await button.click();
}
