// Fake console API with sample questions and grants; it records the requests.
import type { Page } from "@playwright/test";

import { FakeApi, RUN } from "./fake-api.ts";
import type { Json } from "./fake-api.ts";
import { built } from "./fixtures.ts";
import type { Site } from "./fixtures.ts";

const exact = { pattern: "write:file:/a/b/c.txt", reach: "exact", operations: ["change"] };
const choice = (label: string, covers: string, pattern: string, more: Json = {}): Json => ({
  label,
  covers,
  patterns: [pattern],
  grants: [{ pattern, reach: "beneath", operations: ["create", "change", "delete"] }],
  outside: false,
  confirm: false,
  may_last: true,
  ...more,
});

/** What an answer that outlasts the call can allow. */
export const choices: readonly Json[] = [
  choice("this file", "change /a/b/c.txt", "write:file:/a/b/c.txt", { grants: [exact] }),
  choice("its folder", "create, change or delete /a/b and everything in it; sensitive files still ask", "write:file:/a/b"),
  choice("the whole project", "create, change or delete /a and everything in it; sensitive files still ask", "write:file:/a", { confirm: true }),
];

/** A question about an edit; `own` and `block` override its fields. */
export function question(number: number, own: Json = {}, block: Json = {}): Json {
  return {
    type: "tool_call_permission",
    content: "Replace 3 lines in c.txt",
    status: "pending",
    timestamp: 1_700_000_000_000,
    tool_call: {
      id: `${RUN}-${number}`,
      name: "edit_file",
      params: JSON.stringify({ path: "/a/b/c.txt", edits: [{ old_text: "one", new_text: "two" }] }),
      server_name: "files",
      server_icons: "📁",
      server_description: "Reads and changes files",
    },
    extra: { permissionType: "write", serverName: "files", toolName: "edit_file", needsUserAction: true },
    bailiwick: {
      run: RUN,
      session: "main",
      worker: `${RUN}-3`,
      agent: ["main", "worker-3"],
      intent: `Replace 3 lines in c${number}.txt`,
      needs: ["write:file:/a/b/c.txt"],
      asked_because: ["ask: configuration: a person must be asked (ask_scopes: `write:file`)"],
      trust: "own",
      sentence: `Replace 3 lines in c${number}.txt`,
      sensitive: false,
      stores_grants: true,
      dangers: [],
      undo: "You can undo this in Activity.",
      files: [{ path: `/a/b/c${number}.txt`, op: "modify", bytes: 1200 }],
      files_total: 1,
      bytes_total: 1200,
      choices,
      divisible: true,
      preview: { files: 1, added: 2, removed: 2 },
      batchable: true,
      arguments_bytes: null,
      asked_at: Date.now(),
      expires_at: Date.now() + 600_000,
      waiting: 1,
      ...own,
    },
    ...block,
  };
}

/** An agent with open questions; `more` overrides its fields. */
export function agent(number: number, more: Json = {}): Json {
  const one = { worker: `${RUN}-${number}`, run: RUN, name: `worker-${number}`, agent: `main/worker-${number}`, parent: null, session: "main" };
  return { ...one, access: "full", paused: false, calls: 1, questions: 1, changed: 0, started_at: 1_700_000_000_000, ...more };
}

/** A question that ended; `more` overrides its fields. */
export function outcome(number: number, more: Json = {}): Json {
  const one = { question: `${RUN}-${number}`, run: RUN, worker: `${RUN}-3`, agent: "main/worker-3", sentence: `Replace 3 lines in c${number}.txt`, status: "granted", by: "you" };
  return { ...one, at: 1_700_000_000_000, call: `${RUN}-9${number}`, result: { state: "applied", code: null, message: null, files: 1 }, undo: null, ...more };
}

const hunk = (line: number): Json => ({
  old_start: line,
  old_lines: 2,
  new_start: line,
  new_lines: 2,
  lines: [
    { op: " ", text: "kept\n" },
    { op: "-", text: `one ${line}\n` },
    { op: "+", text: `two ${line}\n` },
  ],
});

/** The preview of an edit with two hunks. */
export function changes(more: Json = {}): Json {
  const file = { kind: "file", hash: "a".repeat(64), bytes: 10 };
  const change = { path: "/a/b/c.txt", op: "modify", before: file, after: file, hunks: [hunk(1), hunk(40)], added: 2, removed: 2, binary: false, large: false, hidden: false };
  return { changes: [{ ...change, ...more }], divisible: true };
}

/** A grant; `more` overrides its fields. */
export function grant(number: number, more: Json = {}): Json {
  const held = { grant: `${RUN}-${number}`, run: RUN, pattern: "write:file:/a/b", verb: "write", resource: "file" };
  return { ...held, holder: { agent: "main/tests" }, agent: "main/tests", lifetime: "until you revoke it", given_at: 1_700_000_000_000, whose: ["agent main/tests"], descendants: false, uses_left: null, expires_at: null, used: 3, used_at: 1_700_000_000_000, ...more };
}

export class FakeHost extends FakeApi {
  /** The sentence and dangers of what remains of a call without what is left out. */
  rest: (out: unknown) => unknown = () => ({});

  /** Opens the console page, with a query of its address. */
  async open(page: Page, site: Site, query = ""): Promise<void> {
    site.put("/", await built("console.html"));
    await this.serve(page);
    await page.goto(`${site.origin}/${query}#secret`);
  }

  protected override usual(path: string, body: unknown): unknown {
    if (path.startsWith("review/")) return changes();
    if (path === "remaining") return this.rest((body as { left_out: unknown }).left_out);
    if (path === "suggestions") return { suggestion: null };
    if (path === "answer") return this.#answer(body as { question: string; answer: object });
    if (path === "answer-batch") {
      const { answers } = body as { answers: { question: string; answer: object }[] };
      return { answers: answers.map((one) => this.#answer(one)) };
    }
    return { grants: [] };
  }

  #answer({ question, answer }: { question: string; answer: object }): unknown {
    const number = Number(question.split("-")[1]);
    const ended = "allow" in answer ? outcome(number) : outcome(number, { status: "denied", result: null, call: null });
    this.state.questions = this.state.questions.filter((one) => (one["tool_call"] as { id: string }).id !== question);
    this.state.outcomes = [ended, ...this.state.outcomes];
    this.changed();
    return { question, status: "allow" in answer ? "granted" : "denied", granted: [] };
  }
}
