// Tests of the test host's page.
import type { Page } from "@playwright/test";

import { initial, policySchema } from "../pages/test-host/schema.ts";
import { HOSTILE, answer, open, part, press, ready, tool } from "./test-host-fake.ts";
import type { Api, Members } from "./test-host-fake.ts";
import type { Site } from "./fixtures.ts";
import { expect, test } from "./fixtures.ts";

test("requests send the token in a header, never in the URL", async ({ page, site }) => {
  const asked = await open(page, site, { state: () => ready() });
  await expect(page.locator(".host")).toHaveAttribute("data-status", "ready");
  expect(new Set(asked.map(({ bearer }) => bearer))).toEqual(new Set(["Bearer token"]));
  expect(site.requests.every((request) => !request.includes("token"))).toBe(true);
});

test("shows an unreachable host, a failed server and an ended server", async ({ page, site }) => {
  let state: Members = { status: "failed", reason: "`nobody` cannot be started", target: "nobody", revision: "2025-11-25" };
  await open(page, site, { state: () => state, connect: () => (state = ready()) });
  await expect(page.getByRole("alert")).toHaveText("`nobody` cannot be started");
  await expect(page.getByRole("status")).toHaveText("Not connected");
  await expect(page.getByRole("main")).toHaveText("Not connected to a server.");
  await part(page, "Start again").click();
  await expect(page.getByRole("status")).toHaveText("Connected");
  state = ready({}, { status: "ended", reason: "the server ended (exit status: 1)" });
  await page.reload();
  await expect(page.getByRole("alert")).toHaveText("the server ended (exit status: 1)");
  // The previous server's tools are still shown.
  await expect(page.getByRole("button", { name: "greet" })).toBeVisible();
  await page.route("**/api/*", (route) => route.abort());
  await page.reload();
  await expect(page.getByRole("status")).toHaveText("Host is gone");
});

test("each tab reports what the server does not offer", async ({ page, site }) => {
  await open(page, site, { state: () => ready({ tools: [] }) });
  await expect(page.getByText("The server has no tools.")).toBeVisible();
  for (const [name, words] of [
    ["Applications", "The server lists no views."],
    ["Configuration", "The server has no configuration schema"],
    ["Policy", "The server does not declare support for policies"],
  ] as const) {
    await part(page, name).click();
    await expect(page.getByText(words)).toBeVisible();
  }
});

test("hostile server text is rendered as plain text", async ({ page, site }) => {
  test.slow();
  const tools = HOSTILE.map((text, index) =>
    tool(`tool${index}`, {
      title: text,
      description: text,
      intent: text,
      lints: [text],
      annotations: { scopes: [text] },
      inputSchema: { type: "object", properties: { [text]: { type: "string", description: text, title: text, enum: [text], scope: text } } },
    }),
  );
  const content = HOSTILE.flatMap((text) => [
    { type: "text", text },
    { type: "image", mimeType: text, data: text },
    { type: "image", mimeType: "image/svg+xml", data: btoa("<svg onload='hit=1'/>") },
    { type: "resource_link", name: text, uri: text, mimeType: text },
    { type: "resource", resource: { uri: text, mimeType: text, text } },
    { type: text },
  ]);
  const entries = HOSTILE.flatMap((text, index) => [
    { seq: 2 * index + 1, at_ms: 1, side: "received", message: { method: text, params: { text } }, fault: text },
    { seq: 2 * index + 2, at_ms: 1, side: "said", message: text },
  ]);
  const api: Api = {
    state: () => ready({ tools, apps: HOSTILE.map((text) => ({ uri: `ui://${text}`, name: text, description: text })) }, { target: HOSTILE[0], reason: HOSTILE[2] }),
    intent: ({ template }) => ({ sentence: template }),
    request: () => ({
      result: { content, structuredContent: { [String(HOSTILE[0])]: HOSTILE }, _meta: { requested_scopes: HOSTILE } },
    }),
    checks: () => HOSTILE.map((text) => ({ check: text, outcome: "fail", detail: text })),
  };
  page.on("dialog", () => expect(true, "no dialog opens").toBe(false));
  await open(page, site, api, entries);
  await expect(page.locator(".host")).toHaveAttribute("data-status", "ready");
  for (const index of [0, 12, 37, 40, 47]) {
    await page.locator(".pick-tool").nth(index).click();
    await expect(page.locator(".intent")).toHaveAttribute("data-status", "ready");
  }
  await part(page, "Call").click();
  await press(page, "Allow");
  for (const tab of ["Text", "Image", "Links", "Embedded", "Structured", "Other", "Raw"]) {
    await page.locator(".result").getByRole("button", { name: new RegExp(`^${tab}`) }).click();
  }
  await part(page, "Applications").click();
  await part(page, "Checks").click();
  await part(page, "Run the checks").click();
  await expect(page.locator("article")).toHaveAttribute("data-status", "failed");
  await part(page, "Wire").click();
  const messages = page.locator("summary");
  await expect(messages).toHaveCount(entries.length);
  for (const message of await messages.all()) await message.click();
  const made = [
    ...["img:not([src^='data:image/png'])", "script:not(head [type=module], body > :last-child)", "iframe", "object"],
    ...["embed", "svg", "form[action]", "link", "base", "meta[http-equiv=refresh]", "a[href]"],
  ].join();
  expect(await page.locator(made).evaluateAll((found) => found.map((one) => one.outerHTML.slice(0, 80)))).toEqual([]);
  expect(await page.evaluate(() => Reflect.get(window, "hit"))).toBeUndefined();
  // Bidirectional and invisible characters are shown escaped.
  const shown = await page.locator("main").innerText();
  expect(shown).toContain("\\u{202e}gnp.exe");
  expect(shown).not.toMatch(/[\u202e\u2066\u200b\u0000]/);
  expect(new Set(site.requests)).toEqual(new Set(["GET /", "GET /mcp-view.js", "GET /permission-prompt.js"]));
});

test("a form follows its schema and omits empty fields", async ({ page, site }) => {
  const inputSchema = {
    type: "object",
    required: ["path"],
    properties: {
      path: { type: "string" },
      limit: { type: ["integer", "null"] },
      loud: { type: "boolean" },
      mode: { $ref: "#/$defs/Mode" },
      edits: { type: "array", items: { $ref: "#/$defs/Edit" } },
      free: {},
    },
    $defs: {
      Mode: { oneOf: [{ const: "a", title: "first" }, { const: "b" }] },
      Edit: { type: "object", required: ["from"], properties: { from: { type: "string" }, to: { type: "string" } } },
    },
  };
  const asked = await open(page, site, {
    state: () => ready({ tools: [tool("edit", { inputSchema })] }),
    request: () => ({ result: { content: [{ type: "text", text: "done" }] } }),
  });
  await page.getByLabel("path required").fill("a.txt");
  await page.getByLabel("limit").fill("3");
  await page.getByLabel("loud").selectOption("true");
  await page.getByLabel("mode").selectOption("first");
  await part(page, "Add to edits").click();
  await part(page, "Add to edits").click();
  await page.getByLabel("from required").last().fill("x");
  await page.getByRole("button", { name: "Remove one of edits" }).first().click();
  await page.getByLabel("free").fill('{"any": [1]}');
  await part(page, "Call").click();
  await expect(page.getByText("done", { exact: true }).last()).toBeVisible();
  const sent = asked.find(({ what }) => what === "request")?.["body"] as Members;
  expect(sent["params"]).toEqual({
    name: "edit",
    arguments: { path: "a.txt", limit: 3, loud: true, mode: "a", edits: [{ from: "x" }], free: { any: [1] } },
  });
  // The same as JSON; invalid JSON keeps the buttons disabled.
  await part(page, "JSON").click();
  const json = page.getByLabel("The arguments as JSON");
  await expect(json).toHaveValue(/"limit": 3/);
  await json.fill("{");
  await expect(part(page, "Call")).toBeDisabled();
  await json.fill('{"path": "b"}');
  await part(page, "Form").click();
  await expect(page.getByLabel("path required")).toHaveValue("b");
  await expect(page.getByLabel("limit")).toHaveValue("");
});

test("the policy form omits startup-only settings and preselects nothing", () => {
  const field = (scope: string) => ({ type: "string", scope });
  const inner = { type: "object", properties: { path: field("any"), access: field("configuration") }, required: ["path", "access"] };
  const schema = {
    type: "object",
    properties: { roots: { type: "array", items: inner, scope: "any" }, grantable: field("configuration"), deny: field("policy") },
    required: ["grantable"],
  };
  expect(policySchema(schema)).toEqual({
    type: "object",
    properties: {
      roots: { type: "array", items: { type: "object", properties: { path: field("any") }, required: ["path"] }, scope: "any" },
      deny: field("policy"),
    },
    required: [],
  });
  const decision = { type: "string", enum: ["allow", "deny"] };
  const form = { type: "object", properties: { decision, sure: { type: "boolean" } }, required: ["decision", "sure"] };
  expect(initial(form, form)).toEqual({ decision: undefined, sure: undefined });
  expect(initial({ ...decision, default: "deny" }, {})).toBe("deny");
  expect(initial({ $ref: "#/$defs/self" }, { $defs: { self: { $ref: "#/$defs/self" } } })).toBeUndefined();
});

test("missing scopes are requested once and sent with one retry", async ({ page, site }) => {
  const scopes = ["write:file:/outside/a"];
  const refused = { result: { content: [{ type: "text", text: "SCOPE_REQUIRED" }], isError: true, _meta: { requested_scopes: scopes } } };
  const done = { result: { content: [{ type: "text", text: "written" }] } };
  const granted = (body: Members) => ((body["params"] as Members)["_meta"] as Members | undefined)?.["granted_scopes"];
  const asked = await open(page, site, {
    state: () => ready({ tools: [tool("write", { annotations: { scopes: ["write:file"] } })] }),
    request: (body) => (granted(body) === undefined ? refused : done),
  });
  const calls = () => asked.filter(({ what }) => what === "request").map(({ body }) => granted(body as Members));
  await part(page, "Call").click();
  await expect(page.locator(".asks .preview code")).toHaveText("write:file:/outside/a");
  await press(page, "Deny");
  await expect(page.getByText("Not granted, so the call was not repeated.")).toBeVisible();
  expect(calls()).toEqual([undefined]);
  await part(page, "Call").click();
  await press(page, "Allow");
  await expect(page.locator(".result")).toHaveAttribute("data-status", "done");
  expect(calls()).toEqual([undefined, undefined, scopes]);
  // The test host keeps no grants, so it does not offer lasting ones.
  await part(page, "Call").click();
  await expect(answer(page, "Allow")).toBeVisible();
  await expect(page.getByText(/remember|until/i)).toBeHidden();
  await press(page, "Deny");
  expect(calls().slice(3)).toEqual([undefined]);
});

/** A server that needs these scopes for previews and for calls. Returns the `_meta` of all calls, and the number of questions. */
async function writes(page: Page, site: Site, needs: { readonly preview?: readonly string[]; readonly call?: readonly string[] }) {
  const sent: Members[] = [];
  await open(page, site, {
    state: () => ready({ tools: [tool("write", { preview: true, annotations: { scopes: ["write:file"] } })] }),
    request: (body) => {
      const meta = ((body["params"] as Members)["_meta"] ?? {}) as Members;
      sent.push(meta);
      const wanted = meta["preview"] === true ? needs.preview : needs.call;
      if (wanted && meta["granted_scopes"] === undefined) return { result: { content: [], isError: true, _meta: { requested_scopes: wanted } } };
      return { result: { content: [], _meta: meta["preview"] === true ? { preview: true, preview_token: "token" } : {} } };
    },
  });
  await part(page, "Preview, ask, call").click();
  return sent;
}
const TOKEN = { preview_token: "token" };

test("one write is one question if the call needs scopes that the question showed", async ({ page, site }) => {
  const scopes = ["write:file:/repo/a.txt"];
  const sent = await writes(page, site, { call: scopes });
  await expect(page.locator(".asks .preview code")).toHaveText("write:file");
  await press(page, "Allow");
  await expect(page.getByRole("region", { name: "Result", exact: true })).toHaveAttribute("data-status", "done");
  expect(sent).toEqual([{ preview: true }, TOKEN, { ...TOKEN, granted_scopes: scopes }]);
});

test("one write is one question if its preview needs scopes, and the question says so", async ({ page, site }) => {
  const scopes = ["write:file:/outside/a.txt"];
  const sent = await writes(page, site, { preview: scopes, call: scopes });
  await expect(page.locator(".asks .preview code")).toHaveText(scopes);
  await expect(page.locator(".asks")).toContainText("If you allow this, the call is made exactly as previewed, without another question.");
  await press(page, "Allow");
  await expect(page.getByRole("region", { name: "Result", exact: true })).toHaveAttribute("data-status", "done");
  expect(sent).toEqual([{ preview: true }, { preview: true, granted_scopes: scopes }, { ...TOKEN, granted_scopes: scopes }]);
});

for (const scopes of [["write:filesystem:/a"], ["write:file:/a", "write:mcp:other"], ["write"]]) {
  test(`scopes that the question did not show are asked for: ${scopes.join(", ")}`, async ({ page, site }) => {
    const sent = await writes(page, site, { call: scopes });
    // Another question replaces this one, so `press` cannot wait until it is gone.
    await expect(async () => {
      await answer(page, "Allow").click({ timeout: 1_000 });
      await expect.poll(() => sent.length, { timeout: 200 }).toBe(2);
    }).toPass();
    await expect(page.locator(".asks .preview code")).toHaveText(scopes);
    await press(page, "Deny");
    await expect(page.getByText("Not granted, so the call was not repeated.")).toBeVisible();
    expect(sent).toEqual([{ preview: true }, TOKEN]);
  });
}

test("a question about a preview says that it changes nothing", async ({ page, site }) => {
  const sent = await writes(page, site, { preview: ["write:file:/outside/a.txt"] });
  await press(page, "Deny");
  await part(page, "Preview").click();
  await expect(page.locator(".asks")).toContainText("This allows the preview only, which changes nothing.");
  await press(page, "Allow");
  await expect(page.getByRole("region", { name: "Preview", exact: true })).toHaveAttribute("data-status", "done");
  expect(sent.filter((meta) => meta["preview"] !== true)).toEqual([]);
});

const DIFF = { name: "diff", uri: "ui://x/1.diff", mimeType: "text/x-diff" };
for (const [place, result] of [
  ["a link", { content: [{ type: "resource_link", ...DIFF }], _meta: { preview: true } }],
  ["the `_meta` of a link", { content: [{ type: "resource_link", name: "json", uri: "ui://x/1.json", _meta: { artifacts: [DIFF] } }], _meta: { preview: true } }],
  ["the `_meta` of the result", { content: [], _meta: { preview: true, artifacts: [DIFF] } }],
] as const) test(`a call cannot be allowed before the diff in ${place} is loaded`, async ({ page, site }) => {
  let there = false;
  const text = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n--- old\n+++ new\n kept\n";
  await open(page, site, {
    state: () => ready({ tools: [tool("write", { preview: true, annotations: { scopes: ["write:file"] } })] }),
    request: ({ method }) => {
      if (method === "tools/call") return { result };
      return there ? { result: { contents: [{ uri: DIFF.uri, mimeType: DIFF.mimeType, text }] } } : { error: { code: -32002, message: "not yet" } };
    },
  });
  await part(page, "Preview, ask, call").click();
  await expect(page.locator(".asks .bad")).toContainText("No preview: -32002: not yet");
  await expect(answer(page, "Allow")).toBeDisabled();
  there = true;
  await part(page, "Try again").click();
  await expect(answer(page, "Allow")).toBeEnabled();
  await expect(page.locator(".asks")).toBeFocused();
  // A changed line that looks like a file header is still a changed line.
  await expect(page.locator(".asks .t.del")).toHaveText("-- old");
  await expect(page.locator(".asks .t.add")).toHaveText("++ new");
  await press(page, "Allow");
});

test("a diff is shown unified or side by side, with renames and binary files", async ({ page, site }) => {
  const text = "diff --git a/x b/y\nrename from x\nrename to y\n--- a/x\n+++ b/y\n@@ -1,2 +1,2 @@\n-old\r\n+new\n kept\ndiff --git a/z.png b/z.png\nBinary files a/z.png and b/z.png differ\n";
  await open(page, site, {
    state: () => ready({ tools: [tool("write")] }),
    request: ({ method }) => ({ result: method === "tools/call" ? { content: [{ type: "resource_link", ...DIFF }] } : { contents: [{ uri: DIFF.uri, mimeType: DIFF.mimeType, text }] } }),
  });
  await part(page, "Call").click();
  await part(page, "Open diff").click();
  await expect(page.locator(".diff h3")).toHaveText(["x → y", "z.png"]);
  await expect(page.locator(".diff .note")).toHaveText(["Some lines end in CRLF.", "Binary file, not shown."]);
  await expect(page.locator(".diff .t")).toHaveText(["oldCRLF", "new", "kept"]);
  await part(page, "Side by side").click();
  await expect(page.locator(".diff .pair").first().locator(".t")).toHaveText(["oldCRLF", "new"]);
  await part(page, "Side by side").click();
  await expect(page.locator(".diff .pair")).toHaveCount(0);
});

for (const [scopes, readOnly, words] of [
  [["read:file"], true, "Wants to read"],
  [["read:file"], false, "Wants to read and change"],
  [["readwrite:file"], true, "Wants to change or run"],
  [["read:file", "run:x"], false, "Wants to read and change"],
] as const) {
  test(`scopes ${scopes.join(" and ")}, ${readOnly ? "read-only" : "writing"} tool: ${words.toLowerCase()}`, async ({ page, site }) => {
    await open(page, site, {
      state: () => ready({ tools: [tool("any", { readOnly })] }),
      request: () => ({ result: { content: [], isError: true, _meta: { requested_scopes: scopes } } }),
    });
    await part(page, "Call").click();
    await expect(page.locator("permission-prompt .badge").first()).toHaveText(words);
  });
}

test("questions are shown one at a time and keep typed input", async ({ page, site }) => {
  const asks = (seq: number, id: unknown): Members => ({
    ...{ seq, at_ms: seq, side: "received" },
    message: { id, method: "elicitation/create", params: { message: `Question ${String(id)}`, requestedSchema: { properties: { name: { type: "string" } } } } },
  });
  const logs = [[asks(2, 0), asks(3, "b")], [{ seq: 4, at_ms: 4, side: "said", message: "log" }]];
  const tell = (...more: Members[]) => logs.push(more);
  let poll = (): void => undefined;
  const told: unknown[] = [];
  await open(page, site, { state: () => ready(), request: () => ({ result: { content: [], _meta: { requested_scopes: ["write:x"] } } }) });
  await page.unroute("**/api/*");
  await page.route("**/api/*", async (route) => {
    const what = new URL(route.request().url()).pathname;
    if (what === "/api/state") return route.fulfill({ json: ready() });
    if (what === "/api/request") return route.fulfill({ json: { result: { content: [], _meta: { requested_scopes: ["write:x"] } } } });
    if (what === "/api/reply") {
      const { id } = route.request().postDataJSON() as Members;
      told.push(id);
      tell({ seq: 4 + told.length, at_ms: 9, side: "sent", message: { id, result: {} } });
      poll();
      return route.fulfill({ json: {} });
    }
    if (logs.length === 0) await new Promise<void>((done) => (poll = done));
    return route.fulfill({ json: logs.shift() ?? [] });
  });
  await page.reload();
  const form = page.getByRole("region", { name: "The server asks" });
  await expect(form).toHaveCount(1);
  await expect(form).toContainText("Question 0");
  await expect(page.getByText("1 of 2 questions")).toBeVisible();
  await form.getByLabel("name").fill("kept");
  await part(page, "Call").click();
  await expect(page.getByText("1 of 3 questions")).toBeVisible();
  await expect(form.getByLabel("name")).toHaveValue("kept");
  await part(page, "Answer").click();
  await expect.poll(() => told).toEqual([0]);
  // Questions are asked in order of arrival, and a person's own call is not delayed.
  await expect(page.getByText("1 of 2 questions")).toBeVisible();
  await press(page, "Deny");
  await expect(form).toContainText("Question b");
  await expect(page.getByText(/of \d questions/)).toBeHidden();
  await part(page, "Decline").click();
  await expect.poll(() => told).toEqual([0, "b"]);
  await expect(form).toHaveCount(0);
});

test("warns about a preview that is not marked as one", async ({ page, site }) => {
  let meta: Members = {};
  await open(page, site, {
    state: () => ready({ tools: [tool("write", { preview: true })] }),
    request: () => ({ result: { content: [], _meta: meta } }),
  });
  await part(page, "Preview").click();
  await expect(page.getByText("the call may have been made")).toBeVisible();
  meta = { preview: true };
  await part(page, "Preview").click();
  await expect(page.locator(".result")).toHaveAttribute("data-status", "done");
  await expect(page.getByText("the call may have been made")).toBeHidden();
});

test("the log can be filtered by text, direction and errors", async ({ page, site }) => {
  const entries = [
    { seq: 1, at_ms: 5, side: "sent", message: { jsonrpc: "2.0", id: 1, method: "tools/list" } },
    { seq: 2, at_ms: 9, side: "received", message: { jsonrpc: "2.0", id: 1, result: {} }, fault: "result of tools/list: missing field `tools`" },
    { seq: 3, at_ms: 9, side: "said", message: "listening" },
  ];
  await open(page, site, { state: () => ready() }, entries);
  await part(page, "Wire").click();
  const log = page.locator(".entry");
  await expect(log).toHaveCount(3);
  await page.getByLabel("Filter by text").fill("LISTEN");
  await expect(log).toHaveCount(1);
  await page.getByLabel("Filter by text").fill("");
  await page.getByLabel("Which side").selectOption("sent");
  await expect(log).toHaveText(/tools\/list #1/);
  await page.getByLabel("Which side").selectOption("all");
  await page.getByLabel("only invalid messages").check();
  await expect(log).toHaveCount(1);
  await log.locator("summary").click();
  await expect(log.locator(".notice")).toHaveText("result of tools/list: missing field `tools`");
});
