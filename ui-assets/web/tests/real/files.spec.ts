// End-to-end tests of the file browser served by the real program over a real directory.
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { expect, test as base } from "../fixtures.ts";
import { host } from "../files-host.ts";
import { hostPage, innermost } from "../hosts.ts";
import { type Server, server } from "./server.ts";

const test = base.extend<{ root: string; started: Server }>({
  root: async ({}, use) => {
    const root = await mkdtemp(join(tmpdir(), "bailiwick-"));
    const lines = Array.from({ length: 300_000 }, (_, n) => `${n + 1}: ${"x".repeat(30)}`).join("\n");
    const files = { "src/lib.rs": "fn one() {}\nfn two() {}\n", ".env": "KEY=1\n", "Cargo.lock": "locked\n", "a\u202eb.txt": "odd\n", "big.log": lines, "data.bin": "a\0b" };
    await mkdir(join(root, "src"));
    await mkdir(join(root, "many"));
    for (const [name, text] of Object.entries(files)) await writeFile(join(root, name), text);
    for (let n = 0; n < 2_500; n += 1) await writeFile(join(root, "many", `file-${n}`), "");
    await use(root);
    await rm(root, { recursive: true });
  },
  started: async ({ root }, use) => {
    const started = await server("--deny", "**/.env", "--immutable", "**/*.lock", root);
    await use(started);
    await started.close();
  },
});

async function given(started: Server) {
  const read = async (uri: string): Promise<string | undefined> => {
    const { contents } = await started.ask("resources/read", { uri });
    return (contents as { text?: string }[])[0]?.text;
  };
  const { tools } = (await started.ask("tools/list")) as { tools: { name: string; _meta: { ui: { visibility: string[] } } }[] };
  const shown = new Set(tools.filter((tool) => tool._meta.ui.visibility.includes("app")).map((tool) => tool.name));
  // As MCP Apps requires of hosts, views can call only tools that are visible to apps.
  const other = (name: string, input: Readonly<Record<string, unknown>>): unknown => {
    if (!shown.has(name)) throw new Error(`${name} is for models`);
    return started.call(name, input);
  };
  const html = (await read("ui://bailiwick/files")) ?? "";
  return { tools: {}, other, resources: read, html };
}

test("a real directory shows the rights of the session", async ({ page, site, root, started }) => {
  const { frame, call } = await host(page, site, await given(started));
  const row = (name: string) => frame.getByRole("treeitem", { name });
  await expect(row("src").locator(".right")).toHaveText("editable");
  await expect(row("Cargo.lock").locator(".right")).toHaveText("read-only");
  await expect(row(".env")).toHaveCount(0);
  await expect(row("a\\u{202e}b.txt")).toBeVisible();
  await row("src").click();
  await row("lib.rs").click();
  await expect(frame.locator("#line-2")).toContainText("fn two() {}");
  await row("data.bin").click();
  await expect(frame.getByText("No text, but binary data")).toBeVisible();
  await expect(frame.getByText(/\b[0-9a-f]{12}\b/)).toBeVisible();
  await row("big.log").click();
  await expect(frame.getByText("300,000 lines")).toBeVisible();
  await frame.getByRole("listbox").focus();
  await page.keyboard.press("End");
  await expect(frame.locator("#line-300000")).toContainText("300000: xxx");
  await row("many").click();
  await frame.getByRole("tree").focus();
  await expect(frame.locator(".foot")).not.toHaveText("7 shown");
  const denied = await call("open-path", { path: `${root}/.env` });
  expect(denied["isError"]).toBe(true);
  await expect(frame.getByText("Not found, or not allowed")).toBeVisible();
  await frame.getByRole("searchbox").fill("LIB");
  await frame.getByRole("searchbox").press("Enter");
  await expect(frame.getByRole("status")).toHaveText("1 found");
});

test("shows the agent's changes without changing files", async ({ page, site, root, started }) => {
  const { frame, call } = await host(page, site, await given(started));
  await expect(frame.getByRole("button", { name: "Changed 0" })).toBeVisible();
  expect((await call("open-path", { path: "src/lib.rs" }))["structuredContent"]).toMatchObject({ path: `${root}/src/lib.rs`, kind: "text" });
  await started.call("edit_file", { path: "src/lib.rs", edits: [{ old_text: "two", new_text: "three" }] });
  await frame.getByRole("button", { name: "Changed 0" }).click();
  await frame.getByRole("treeitem", { name: /lib.rs.*\+1 −1/ }).click();
  await expect(frame.locator(".t.add")).toHaveText("fn three() {}");
  await frame.getByRole("button", { name: "Show the file" }).click();
  await expect(frame.locator("#line-2")).toContainText("fn three() {}");
  await writeFile(join(root, "src/lib.rs"), "gone\n");
  await frame.getByRole("button", { name: "Check for changes" }).click();
  await expect(frame.locator("#line-1")).toContainText("gone");
  await expect(frame.getByRole("status")).toContainText("this is the current version");
  await started.call("delete", { path: "src/lib.rs" });
  await started.call("move", { from: "data.bin", to: "moved.bin" });
  await frame.getByRole("button", { name: /^Changed/ }).click();
  await frame.getByRole("button", { name: /^Changed/ }).click();
  await expect(frame.getByRole("treeitem", { name: /moved.bin/ }).locator(".badge")).toHaveText("moved");
  await expect(frame.getByRole("treeitem", { name: /lib.rs/ }).locator(".badge")).toHaveText("deleted");
  await frame.getByRole("treeitem", { name: /lib.rs/ }).click();
  await expect(frame.locator(".t.del")).toHaveText("gone");
});

test("a page in mcp-view gets the style sheets that it links", async ({ page, sites, started }) => {
  const links = ["tokens", "utilities"].map((name) => `<link rel="stylesheet" href="ui://static/${name}.css">`).join("");
  const guest = `<!doctype html><html><head>${links}</head><body><p class="notice bad">Failed</p></body></html>`;
  const site = await hostPage(sites, "same port", { "ui://own/page": guest }, `
    view.resolver = (uri) => (uri in pages ? { uri, mimeType: "text/html", text: pages[uri] } : window.read(uri));
    view.setAttribute("theme", "light");
    view.style.setProperty("--color-background-danger", "rgb(1, 2, 3)");
    view.src = "ui://own/page";
  `);
  await page.exposeFunction("read", (uri: string) => started.ask("resources/read", { uri }));
  await page.goto(site.origin);
  await expect(page.locator("#view")).toHaveAttribute("data-status", "shown");
  const notice = innermost(page).locator(".notice");
  await expect(notice).toHaveCSS("border-left-width", "4px");
  await expect(notice).toHaveCSS("border-left-color", "rgb(179, 38, 30)");
  await expect(notice).toHaveCSS("background-color", "rgb(1, 2, 3)");
});
