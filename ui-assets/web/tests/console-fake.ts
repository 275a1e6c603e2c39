// Fake console API for the activity and permissions pages, with sample agents, calls and grants; it records requests.
import type { Page } from "@playwright/test";
import type { AxeResults } from "axe-core";

import { FakeApi, RUN } from "./fake-api.ts";
import type { Json } from "./fake-api.ts";
import { barriers, built, expect } from "./fixtures.ts";
import type { Site } from "./fixtures.ts";

/** 2023-11-14T22:13:20Z */
export const START = 1_700_000_000_000;
/** Text that tries to be markup, to reorder lines and to hide characters. */
export const BAD = `<img src=x onerror="document.title='bad'">\u202E\u200b`;

/** No accessibility violations of any impact, and no horizontal scrolling. */
export async function expectAccessible(page: Page): Promise<void> {
  expect(await barriers(page)).toEqual([]);
  const all = await page.evaluate(() => (window as unknown as { axe: { run(): Promise<AxeResults> } }).axe.run());
  expect(all.violations.flatMap(({ id, nodes }) => nodes.map(({ target }) => `${id}: ${target.join(" ")}`))).toEqual([]);
  const wide = await page.evaluate(() => {
    const out = document.documentElement.scrollWidth > window.innerWidth;
    return out ? [...document.querySelectorAll("body *")].filter((one) => one.getBoundingClientRect().right > window.innerWidth).map((one) => one.outerHTML.slice(0, 100)) : [];
  });
  expect(wide).toEqual([]);
}

export function agent(number: number, more: Json = {}): Json {
  const counts = { calls: 0, questions: 0, changed: 0 };
  const own = { worker: `${RUN}-${number}`, run: RUN, name: `worker-${number}`, agent: `main/worker-${number}`, parent: null, session: "main" };
  return { ...own, access: "interact", paused: false, ...counts, started_at: START, ...more };
}

const ENDS: Json = { done: "Done", denied: "Denied by the policy", failed: "Failed", stale: "Not done: the file had changed", cancelled: "Cancelled by the agent's client" };

export function call(number: number, more: Json = {}): Json {
  const at = START + number * 1000;
  return {
    call: `${RUN}-${number}`,
    run: RUN,
    worker: `${RUN}-1`,
    agent: "main/worker-1",
    session: "main",
    tool: "edit_file",
    server: null,
    sentence: `Edit file ${number}`,
    preview: false,
    origin: "model",
    at,
    ended_at: at + 120,
    state: "ended",
    result: "done",
    end: ENDS[String(more["result"] === undefined ? "done" : more["result"])] ?? null,
    code: null,
    message: null,
    allowed_by: [{ kind: "policy", text: "allowed by the policy", grant: null }],
    files: 1,
    added: 2,
    removed: 1,
    kept: true,
    undo: null,
    ...more,
  };
}

const file = { kind: "file", hash: "a".repeat(64), bytes: 10 };
const LINES = [
  { op: " ", text: "kept\n" },
  { op: "-", text: "one\n" },
  { op: "+", text: "two\n" },
  { op: "+", text: "three\n" },
];
export const CHANGE: Json = { path: "/a/b/c.txt", op: "modify", before: file, after: file, hunks: [{ old_start: 1, new_start: 1, lines: LINES }], added: 2, removed: 1, binary: false, large: false, hidden: false };

/** The details of a call. */
export const details = (row: Json, more: Json = {}): Json => ({
  row,
  needs: ["write:file:/a/b/c.txt"],
  arguments: '{"path":"/a/b/c.txt"}',
  changes: [CHANGE],
  output: "Replaced 1 line.",
  ...more,
});

export function statement(verdict: string, text: string, more: Json = {}): Json {
  const source = { kind: "configuration", text: "policy.json" };
  return { verdict, text, operations: ["read"], path: "/a", source, grant: null, expires_at: null, uses_left: null, ...more };
}

export function grant(number: number, more: Json = {}): Json {
  return {
    grant: `${RUN}-${number}`,
    run: RUN,
    pattern: "write:file:/a/b",
    reach: "beneath",
    operations: ["create", "change"],
    covers: "create or change /a/b and everything in it",
    verb: "write",
    resource: "file",
    holder: { agent: "main/tests" },
    whose: ["agent main/tests"],
    agent: "main/tests",
    lifetime: "until you revoke it",
    given_at: START,
    descendants: false,
    uses_left: null,
    expires_at: null,
    used: 3,
    used_at: START,
    ...more,
  };
}

/** What the host says a drafted rule allows. */
export const COVERS = "change what the host names; sensitive files still ask";

export class ConsoleFake extends FakeApi {
  /** The calls, newest first. */
  calls: Json[] = [];

  /** Opens a page of the console. */
  async open(page: Page, site: Site, name: "activity" | "permissions"): Promise<void> {
    site.put(`/${name}`, await built(`${name}.html`));
    site.put("/", "<title>Questions</title>");
    await this.serve(page);
    await page.goto(`${site.origin}/${name}#secret`);
  }

  protected override usual(path: string, body: unknown): unknown {
    if (path === "activity") return this.#activity(body as Json);
    if (path === "suggestions") return { suggestion: null };
    if (path === "would-allow") return { covers: COVERS, calls: [], count: 0, of: 0 };
    if (path === "stop-worker") return { unfinished: 0 };
    const [kind, id] = path.split("/");
    const row = this.calls.find((one) => one["call"] === id);
    if (kind === "call") return row ? details(row) : new Error("unknown call");
    const found = this.state.agents.find((one) => one["worker"] === id);
    if (kind === "agent") return found ? { agent: found, may: [], changed: [], changed_omitted: 0 } : new Error("unknown worker");
    return { grants: [] };
  }

  /** The filters that the tests use. */
  #activity({ worker, agent, tool, result, text, effects_only, before, limit }: Json): unknown {
    const all = this.calls.filter(
      (one) =>
        (worker === undefined || one["worker"] === worker) &&
        (agent === undefined || one["agent"] === agent) &&
        (tool === undefined || one["tool"] === tool) &&
        (result === undefined || one["result"] === result) &&
        (text === undefined || String(one["sentence"]).includes(String(text))) &&
        (!effects_only || Number(one["files"]) > 0),
    );
    const from = before === undefined ? 0 : all.findIndex((one) => one["call"] === before) + 1;
    const calls = all.slice(from, from + Number(limit));
    const names = (key: string): unknown[] => [...new Set(this.calls.map((one) => one[key]))];
    return { calls, more: all.length > from + calls.length, agents: names("agent"), tools: names("tool") };
  }
}
