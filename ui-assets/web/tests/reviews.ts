// Sample reviews from the runtime, and a minimal host for the review page.
import { readFile } from "node:fs/promises";

import type { Frame, Page } from "@playwright/test";

import { built, expect } from "./fixtures.ts";
import type { Site } from "./fixtures.ts";

/** Written by `runtime/core/src/artifact/review/tests.rs`. */
export interface Samples {
  readonly edit: Review;
  readonly batch: Review;
  readonly hostile: Review;
  readonly paged: Review;
  readonly pages: Readonly<Record<string, unknown>>;
}
export interface Review {
  readonly uri: string;
  readonly intent: string;
  readonly agent: string;
  readonly changes: readonly { readonly path: string; readonly hunks: readonly (readonly number[])[] }[];
}
export const samples = JSON.parse(await readFile(new URL("reviews.json", import.meta.url), "utf8")) as Samples;

/** The page with an embedded review, as the resource `ui://TOOL/ID` returns it. */
export async function embedded(review: unknown): Promise<string> {
  const data = JSON.stringify(review).replaceAll("<", "\\u003c").replaceAll(">", "\\u003e").replaceAll("&", "\\u0026");
  return (await built("review.html")).replace("<!--data-->", () => `<script type="application/json" id="data">${data}</script>`);
}

export type Said = { readonly method?: string; readonly params?: Record<string, unknown> };

/** A host page with the review page in a frame. `serve` answers its requests; `said` collects its messages. */
export async function hosted(
  page: Page,
  site: Site,
  html: string,
  serve: (method: string, params: { uri?: string; name?: string; arguments?: Record<string, unknown> }) => unknown,
  context: object = {},
): Promise<{ frame: Frame; said: () => Promise<Said[]>; tell: (method: string, params: object) => Promise<void> }> {
  site.put("/view", html);
  site.put("/", `<!doctype html><html lang="en"><title>host</title><body style="margin:0"><script>
    window.said = [];
    addEventListener("message", async ({ source, data }) => {
      said.push(data);
      if (data.id === undefined || !data.method) return;
      const context = ${JSON.stringify(context)};
      const answer = data.method === "ui/initialize" ? { result: { protocolVersion: "2026-01-26", hostInfo: { name: "h", version: "1" }, hostCapabilities: {}, hostContext: context } } : await serve(data.method, data.params);
      source.postMessage({ jsonrpc: "2.0", id: data.id, ...answer }, "*");
    });
    window.tell = (method, params) => document.querySelector("iframe").contentWindow.postMessage({ jsonrpc: "2.0", method, params }, "*");
  </script><iframe sandbox="allow-scripts" src="/view" title="view" style="border:0;width:100vw;height:100vh"></iframe></body></html>`);
  await page.exposeFunction("serve", async (method: string, params: object) => {
    try {
      return { result: await serve(method, params) };
    } catch (error) {
      return { error: { code: -32603, message: String(error) } };
    }
  });
  await page.goto(site.origin);
  await expect(page.frameLocator("iframe").locator("html")).toHaveAttribute("data-app-status", "ready");
  const frame = page.frames().at(-1);
  if (frame === undefined) throw new Error("no frame");
  return {
    frame,
    said: () => page.evaluate(() => (window as unknown as { said: Said[] }).said),
    tell: (method, params) =>
      page.evaluate(([one, all]) => (window as unknown as { tell(one: unknown, all: unknown): void }).tell(one, all), [method, params] as const),
  };
}

/** The `resources/read` result for a JSON value. */
export const contents = (value: unknown) => ({ contents: [{ uri: "ui://x", text: JSON.stringify(value) }] });

/** A review of a file in which every seventh line changed, and its rows by page. */
export function large(lines: number): { review: unknown; page: (query: URLSearchParams) => unknown } {
  const rows: unknown[] = [];
  const hunks: number[][] = [];
  for (let at = 4; at + 3 <= lines; at += 7) {
    hunks.push([at - 3, 7, at - 3, 7, 3, 1, 1, 3, 0, 0]);
    const kept = (line: number) => [" ", line, line, `line ${line}`];
    rows.push(...[at - 3, at - 2, at - 1].map(kept), ["-", at, 0, `old ${at}`, [[0, 3]]], ["+", 0, at, `new ${at}`, [[0, 3]]], ...[at + 1, at + 2, at + 3].map(kept));
  }
  const item = { ...(samples.edit.changes[0] ?? {}), hunks, old_lines: lines, rows: rows.slice(0, 400), around: undefined, added: hunks.length, removed: hunks.length };
  return {
    review: { ...samples.edit, changes: [item] },
    page: (query) => {
      const from = Number(query.get("from"));
      return { change: 0, rows: rows.slice(from, from + Number(query.get("count"))) };
    },
  };
}
