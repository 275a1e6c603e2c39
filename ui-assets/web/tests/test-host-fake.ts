// Fake API of the test host, and hostile texts.
import { expect } from "@playwright/test";
import type { Page } from "@playwright/test";

import { built } from "./fixtures.ts";
import type { Site } from "./fixtures.ts";

export type Members = Record<string, unknown>;
export type Api = Record<string, (body: Members) => unknown>;

const OPEN = "data:text/html,<script>hit=1</script>";
/** Texts that would execute or mislead if they were not rendered as plain text. */
export const HOSTILE = [
  "<img src=x onerror=hit=1>",
  "<script>hit=1</script>",
  "</script><script>hit=1</script>",
  "</style><script>hit=1</script>",
  "<svg/onload=hit=1>",
  "<iframe srcdoc='<script>parent.hit=1</script>'>",
  `<iframe src="${OPEN}">`,
  `<object data="${OPEN}">`,
  `<embed src="${OPEN}">`,
  `<meta http-equiv=refresh content="0;${OPEN}">`,
  "<a href=javascript:hit=1>x</a>",
  "javascript:hit=1",
  "\"><img src=x onerror=hit=1>",
  "'><img src=x onerror=hit=1>",
  "`${hit=1}`",
  "{{constructor.constructor('hit=1')()}}",
  "<details open ontoggle=hit=1>",
  "<input autofocus onfocus=hit=1>",
  "<video><source onerror=hit=1>",
  "<math><mtext></mtext><script>hit=1</script></math>",
  "<template><script>hit=1</script></template>",
  "<base href=https://evil.example/>",
  "<form action=https://evil.example/><button>Allow this call</button></form>",
  "<link rel=stylesheet href=https://evil.example/x.css>",
  "<style>*{display:none}</style>",
  "&lt;img src=x onerror=hit=1&gt;",
  "&#60;script&#62;hit=1&#60;/script&#62;",
  "\\u003cscript\\u003ehit=1\\u003c/script\\u003e",
  "%3Cscript%3Ehit=1%3C/script%3E",
  "<!--<img src=--><img src=x onerror=hit=1>",
  "]]><script>hit=1</script>",
  "<xmp><img src=x onerror=hit=1></xmp>",
  "<noscript><img src=x onerror=hit=1></noscript>",
  "<plaintext>",
  "<title></title><script>hit=1</script>",
  "<marquee onstart=hit=1>",
  "<body onload=hit=1>",
  "__proto__",
  "constructor",
  "toString",
  "\u202egnp.exe",
  "a\u2066b\u2069c",
  "zero\u200bwidth\u200cjoin\u200der",
  "\u0000\u0007\u001b[31mred\u001b[0m",
  "tag\u{e0041}\u{e0042}",
  "\ufeffbom",
  "line\nbreak\r\nand\ttab",
  "x".repeat(10_000),
  "\u0301".repeat(500),
  "👩‍👩‍👧‍👦".repeat(50),
  "مرحبا‏ שלום",
];

export function tool(name: string, more: Members = {}): Members {
  const { annotations, inputSchema, description, title, ...facts } = more;
  return {
    tool: {
      name,
      title: title ?? name,
      description: description ?? `Does ${name}.`,
      inputSchema: inputSchema ?? { type: "object" },
      annotations,
    },
    name,
    intent: null,
    lints: [],
    preview: false,
    readOnly: false,
    ui: null,
    ...facts,
  };
}

export function ready(facts: Members = {}, more: Members = {}): Members {
  const greeting = { protocolVersion: "2025-11-25", serverInfo: { name: "server", version: "1.2.3" }, capabilities: {} };
  return {
    status: "ready",
    target: "node server.mjs",
    revision: "2025-11-25",
    configuration: null,
    facts: {
      greeting,
      tools: [tool("greet")],
      apps: [],
      badges: [{ name: "preview", on: true }, { name: "apps", on: false }],
      configSchema: null,
      policy: false,
      ...facts,
    },
    ...more,
  };
}

const BEGUN = [{ seq: 1, at_ms: 0, side: "state", message: "connecting" }];

/** Serves the page and its scripts. */
export async function put(site: Site): Promise<void> {
  site.put("/", await built("test-host.html"));
  for (const name of ["mcp-view.js", "permission-prompt.js"]) {
    site.put(`/${name}`, { body: await built(name), type: "text/javascript" });
  }
}

/** Opens the page with a fake API; unhandled requests stay pending. */
export async function open(page: Page, site: Site, api: Api, entries: readonly Members[] = BEGUN): Promise<Members[]> {
  const asked: Members[] = [];
  await put(site);
  await page.route("**/api/*", async (route) => {
    const what = new URL(route.request().url()).pathname.slice("/api/".length);
    const body = route.request().postDataJSON() as Members;
    asked.push({ what, body, bearer: route.request().headers()["authorization"] });
    if (what === "events" && body["after"] === 0) {
      await route.fulfill({ json: entries });
      return;
    }
    const answer = api[what];
    if (answer !== undefined) await route.fulfill({ json: answer(body) });
  });
  await page.goto(`${site.origin}/#token`);
  return asked;
}

export const part = (page: Page, name: string) => page.getByRole("button", { name, exact: true });

/** The button of the permission prompt that answers it. */
export const answer = (page: Page, word: "Allow" | "Deny") => page.locator("permission-prompt").getByRole("button", { name: new RegExp(`^${word}\\b`) });

/** Presses a button of the prompt after its initial delay. */
export async function press(page: Page, word: "Allow" | "Deny"): Promise<void> {
  await expect(async () => {
    await answer(page, word).click({ timeout: 1_000 });
    await expect(page.locator(".asks")).toBeHidden({ timeout: 200 });
  }).toPass();
}
