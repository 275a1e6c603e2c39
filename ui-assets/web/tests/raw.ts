// A page without a bridge that tests control message by message.
import type { Page } from "@playwright/test";

import { expect } from "./fixtures.ts";
import type { Site } from "./fixtures.ts";
import { expectInside, hostPage, innermost } from "./hosts.ts";

export interface View extends HTMLElement {
  readonly instance: string;
  readonly modelContext: object;
  status: string;
  sendCallTool(params: object): Promise<{ content: { text: string }[] }>;
  sendListTools(): Promise<{ tools: { name: string }[] }>;
  appTools(): Promise<{ name: string; untrusted: boolean; app: object }[]>;
  teardown(): Promise<void>;
}

declare global {
  interface Window {
    view: View;
    raw: (method: string, params?: object) => Promise<{ result?: Record<string, unknown>; error?: { code: number; message: string } }>;
    tell: (method: string, params?: object) => void;
    serve: (handlers: Record<string, (params: Record<string, unknown>) => unknown>) => void;
  }
}

/** A page without a bridge that sends the messages it is given. */
export const RAW = `<!doctype html><body><script>
  let last = 0; const asked = new Map(); let handlers = {};
  const post = (message) => parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
  window.tell = (method, params = {}) => post({ method, params });
  window.raw = (method, params = {}) => new Promise((r) => { const id = ++last; asked.set(id, r); post({ id, method, params }); });
  window.serve = (more) => { handlers = more };
  addEventListener("message", async ({ data }) => {
    if (!data.method) return asked.get(data.id)?.(data);
    if (data.id !== undefined && handlers[data.method]) { const result = await handlers[data.method](data.params); if (result !== undefined) post({ id: data.id, result }); }
  });
  window.greet = async (appCapabilities = { tools: { listChanged: true } }) => { const answer = await raw("ui/initialize", { appInfo: { name: "raw", version: "9" }, appCapabilities, protocolVersion: "2026-01-26" }); tell("ui/notifications/initialized"); return answer; };
  GREET
</script>`;
export const GREETED = RAW.replace("GREET", "greet()");

export async function open(page: Page, sites: () => Promise<Site>, setup: string, app = GREETED, status = "ready"): Promise<void> {
  const site = await hostPage(sites, "same port", { "ui://a": app }, `view.src = "ui://a"; ${setup}`);
  await page.goto(site.origin);
  await expect(page.locator("#view")).toHaveAttribute("data-status", status);
  // The view's status is `shown` before its page has run.
  if (status !== "failed" && app.includes("window.raw")) await expectInside(page, () => "raw" in window).toBe(true);
}
export const ask = (page: Page, method: string, params: object = {}) =>
  innermost(page).evaluate(([name, given]) => window.raw(name, given), [method, params] as const);
export const tried = <T>(page: Page, act: (view: View) => Promise<T>): Promise<T | string> =>
  page.evaluate(async (text) => {
    // The evaluated text comes from this file.
    const made = (0, eval)(text) as (view: View) => Promise<unknown>;
    return made(window.view).catch((error: Error) => error.message);
  }, String(act)) as Promise<T | string>;
