// Host pages with an `<mcp-view>` element for tests.
import type { Frame, Page } from "@playwright/test";

import { built, expect } from "./fixtures.ts";
import type { Answer, Site } from "./fixtures.ts";

export interface Heard {
  readonly from: "app" | "host";
  readonly heard: boolean;
  readonly message: { readonly method?: string; readonly id?: number; readonly params?: Record<string, unknown>; readonly result?: Record<string, unknown>; readonly error?: { readonly code: number; readonly message: string } };
}

/** The proxy page: reports that it is ready, writes the page into a same-origin frame and forwards messages. */
export const PROXY = `<!doctype html><title>proxy</title><body><script>
  const host = new URL(document.referrer).origin;
  const inner = document.createElement("iframe");
  inner.setAttribute("sandbox", "allow-scripts allow-same-origin allow-forms");
  inner.style.cssText = "width:880px;height:560px;border:0";
  inner.title = "app";
  document.body.append(inner);
  addEventListener("message", ({ source, origin, data }) => {
    if (source === parent && origin === host) {
      if (data.method !== "ui/notifications/sandbox-resource-ready") return inner.contentWindow.postMessage(data, "*");
      const page = inner.contentDocument;
      page.open();
      page.write(data.params.html);
      page.close();
    } else if (source === inner.contentWindow && origin === location.origin) parent.postMessage(data, host);
  });
  parent.postMessage({ jsonrpc: "2.0", method: "ui/notifications/sandbox-proxy-ready", params: {} }, host);
</script></body>`;

/** Response headers of the sandbox page. */
export const SANDBOXED = { "content-security-policy": "sandbox allow-scripts allow-forms" };

export type Form = "no sandbox page" | "same port" | "second port";
export const FORMS: readonly Form[] = ["no sandbox page", "same port", "second port"];

/** A host page at `/`. The script `setup` configures the element and can use `view`, `pages` and `log`. */
export async function hostPage(
  sites: () => Promise<Site>,
  form: Form,
  pages: Readonly<Record<string, string>>,
  setup: string,
  headers: Answer["headers"] = {},
): Promise<Site> {
  const site = await sites();
  const other = form === "second port" ? await sites() : site;
  other.put("/sandbox", { body: await built("sandbox.html"), headers: SANDBOXED });
  site.put("/mcp-view.js", { body: await built("mcp-view.js"), type: "text/javascript" });
  const url = { "no sandbox page": "", "same port": 'sandbox-url="/sandbox"', "second port": `sandbox-url="${other.origin}/sandbox"` }[form];
  const text = JSON.stringify(pages).replaceAll("<", "\\u003c");
  site.put("/", {
    headers,
    body: `<!doctype html><html lang="en"><head><title>host</title><style>html { color-scheme: light dark } mcp-view { height: 300px }</style></head><body><main><h1>host</h1><mcp-view defer id="view" ${url}></mcp-view></main>
<script type="module">
  import "/mcp-view.js";
  const view = document.querySelector("#view");
  const pages = ${text};
  const log = window.log = [];
  window.view = view;
  // Skip large messages, which take seconds to transfer from the browser.
  view.onmessagelog = (entry) => log.push(JSON.stringify(entry).length > 1e6 ? { ...entry, message: {} } : entry);
  view.resolver = (uri) => {
    if (!(uri in pages)) throw new Error("no such resource: " + uri);
    return { uri, mimeType: "text/html;profile=mcp-app", text: pages[uri] };
  };
  ${setup.replaceAll("</script", "<\\/script")}
  view.render();
</script></body></html>`,
  });
  return site;
}

/** All messages between the element and its page so far. */
export function heard(page: Page): Promise<Heard[]> {
  return page.evaluate(() => (window as unknown as { log: Heard[] }).log);
}

/** The innermost frame, which holds the page. */
export function innermost(page: Page): Frame {
  const [last] = page.frames().slice(-1);
  if (last === undefined) throw new Error("no frames");
  return last;
}

/** Polls a value inside the page; tolerates that an earlier page is replaced meanwhile. */
export function expectInside<T>(page: Page, read: () => T) {
  return expect.poll(() => innermost(page).evaluate(read).catch((error: unknown) => error));
}
