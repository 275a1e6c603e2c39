// Runs our pages in a host that works like the MCP Apps example `basic-host`: the official AppBridge, and a proxy on a
// separate origin that shares its origin with the page. The pages must use only their tools and resources.
import type { Frame, Page } from "@playwright/test";

import { pageOf } from "./bundles.ts";
import { barriers, built, expect, test } from "./fixtures.ts";
import type { Site } from "./fixtures.ts";
import { served } from "./files-host.ts";
import { PROXY, innermost } from "./hosts.ts";
import { samples } from "./reviews.ts";

type Fields = Readonly<Record<string, unknown>>;

const host = (proxy: string, html: string, result: object): string => `
  import { AppBridge, PostMessageTransport } from "@modelcontextprotocol/ext-apps/app-bridge";
  const frame = document.querySelector("iframe");
  const bridge = new AppBridge(null, { name: "MCP Apps Host", version: "1.0.0" }, { openLinks: {}, serverTools: {}, serverResources: {} }, { hostContext: { theme: "dark" } });
  bridge.oncalltool = ({ name, arguments: input }) => (window as any).answer(name, input ?? {});
  bridge.onreadresource = async ({ uri }) => ({ contents: [{ uri, mimeType: "application/json", text: await (window as any).text(uri) }] });
  bridge.onsandboxready = () => bridge.sendSandboxResourceReady({ html: ${JSON.stringify(html)} });
  bridge.oninitialized = async () => {
    document.body.dataset.ready = "yes";
    await bridge.sendToolInput({ arguments: {} });
    await bridge.sendToolResult(${JSON.stringify(result)});
  };
  void bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow)).then(() => { frame.src = ${JSON.stringify(proxy)}; });`;

/** Opens the page in such a host, and checks that nothing else is requested from either origin. */
async function shown(page: Page, sites: () => Promise<Site>, html: string, answers: Readonly<Record<string, (input: Fields) => unknown>>, text: (uri: string) => string, result: object): Promise<[Frame, () => string[]]> {
  const [site, other] = [await sites(), await sites()];
  await page.exposeFunction("answer", (name: string, input: Fields) => answers[name]?.(input));
  await page.exposeFunction("text", text);
  other.put("/sandbox.html", PROXY);
  const frame = '<iframe title="sandbox" sandbox="allow-scripts allow-same-origin allow-forms" style="width:900px;height:600px"></iframe>';
  site.put("/", await pageOf(host(`${other.origin}/sandbox.html`, html, result), frame));
  await page.goto(site.origin);
  await expect(page.locator("body")).toHaveAttribute("data-ready", "yes");
  return [innermost(page), () => [...site.requests, ...other.requests].filter((request) => !/\/(favicon\.ico|sandbox\.html)?$/u.test(request))];
}

test("basic-host shows a review", async ({ page, sites }) => {
  const { edit } = samples;
  const texts: Readonly<Record<string, unknown>> = { [`${edit.uri}.rows`]: edit, [`${edit.uri}.state`]: { changes: ["same"] } };
  const result = { content: [{ type: "resource_link", uri: edit.uri, name: "review", mimeType: "text/html" }] };
  const [frame, requests] = await shown(page, sites, await built("review.html"), {}, (uri) => JSON.stringify(texts[uri]), result);
  await expect(frame.locator("html")).toHaveAttribute("data-review", "ready");
  await expect(frame.locator("h1")).toHaveText(edit.intent);
  await expect(frame.locator(".file h2")).toContainText([edit.changes[0]?.path ?? ""]);
  await expect(frame.locator("html")).toHaveCSS("color-scheme", "dark");
  expect(await barriers(frame)).toEqual([]);
  expect(requests()).toEqual([]);
});

test("basic-host shows the file browser", async ({ page, sites }) => {
  const tree = { "/repo/src/lib.rs": { text: "pub mod a;\nsecond\n" }, "/repo/README.md": { text: "# Read me\n" } };
  const [frame, requests] = await shown(page, sites, await built("browser.html"), served(tree, {}), () => "", { content: [] });
  await frame.getByRole("treeitem", { name: "src" }).click();
  await frame.getByRole("treeitem", { name: "lib.rs" }).click();
  await expect(frame.locator("#line-1")).toContainText("pub mod a;");
  await expect(frame.locator("html")).toHaveCSS("color-scheme", "dark");
  expect(await barriers(frame)).toEqual([]);
  expect(requests()).toEqual([]);
});
