// Tests of the npm package as users install it.
import { execFile } from "node:child_process";
import { cp, mkdir, readFile, readdir, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { build } from "esbuild";

import { pageOf } from "./bundles.ts";
import { built, expect, test } from "./fixtures.ts";
import { SANDBOXED, innermost } from "./hosts.ts";
import { type Installed, installed, plainHost } from "./package.ts";

// All tests use the same installation.
test.describe.configure({ mode: "serial" });

const web = fileURLToPath(new URL("..", import.meta.url));
let given: Installed;
test.beforeAll(async () => {
  given = await installed();
  // React is not a dependency of the package, but of these projects.
  await mkdir(join(given.project, "node_modules/@types"));
  for (const name of ["react", "react-dom", "@types/react", "@types/react-dom"]) await symlink(join(web, "node_modules", name), join(given.project, "node_modules", name));
});
test.afterAll(() => given.remove());

/** Type-checks files of the project as strictly as TypeScript can; returns the errors. */
async function check(...files: string[]): Promise<string> {
  const options = ["--pretty", "false", "--strict", "--exactOptionalPropertyTypes", "--noEmit", "--target", "es2022", "--module", "nodenext", "--jsx", "react-jsx", "--types", ""];
  const checked = promisify(execFile)(join(web, "node_modules/.bin/tsc"), [...options, ...files], { cwd: given.project });
  return checked.then(
    () => "",
    ({ stdout }: { stdout: string }) => stdout,
  );
}

/** A page of the official SDK that shows what it was called with, and the result of another call. */
const guest = (): Promise<string> =>
  pageOf(
    `
    import { App } from "@modelcontextprotocol/ext-apps";
    const app = new App({ name: "guest", version: "1" }, {});
    app.ontoolinput = async ({ arguments: input }) => {
      document.querySelector("#input").textContent = input.name;
      const { content } = await app.callServerTool({ name: "shout", arguments: { text: input.name } });
      document.querySelector("#answer").textContent = content[0].text;
    };
    void app.connect();`,
    '<p id="input"></p><p id="answer"></p>',
  );

/** An MCP server over stdio with the page `ui://guest/page`. */
const SERVER = `
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
const said = (text) => ({ content: [{ type: "text", text }] });
const tools = [
  { name: "greet", title: "Greet", inputSchema: { type: "object" }, _meta: { ui: { resourceUri: "ui://guest/page" } } },
  { name: "shout", inputSchema: { type: "object" }, annotations: { readOnlyHint: true } },
];
const methods = {
  initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities: { tools: {}, resources: {} }, serverInfo: { name: "guest", version: "1" } }),
  "tools/list": () => ({ tools }),
  "tools/call": ({ name, arguments: input }) => said(name === "shout" ? input.text.toUpperCase() : "greeted"),
  "resources/read": ({ uri }) => ({ contents: [{ uri, mimeType: "text/html;profile=mcp-app", text: readFileSync("../guest.html", "utf8") }] }),
};
createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id !== undefined) console.log(JSON.stringify({ jsonrpc: "2.0", id, result: methods[method](params) }));
});
`;

test("the package has the built element, and the version of the crates", async () => {
  const folder = join(given.project, "node_modules/@bailiwick/mcp-view");
  const { version, publishConfig } = JSON.parse(await readFile(join(folder, "package.json"), "utf8")) as { version: string; publishConfig: object };
  // npm publishes packages with a scope to their owners only, unless they say otherwise.
  expect(publishConfig).toEqual({ access: "public" });
  expect(await readFile(join(web, "../../Cargo.toml"), "utf8")).toContain(`[workspace.package]\nversion = "${version}"`);
  expect((await readdir(folder)).sort()).toEqual(["LICENSE-APACHE", "LICENSE-MIT", "README.md", "dist", "examples", "package.json", "react.d.ts"]);
  for (const name of ["mcp-view.js", "sandbox.html"]) expect(await readFile(join(folder, "dist", name), "utf8")).toBe(await built(name));
});

test("a TypeScript project gets the types of the package", async () => {
  const main = `
    import { McpView } from "@bailiwick/mcp-view";
    import type { HostContext, ToolResult } from "@bailiwick/mcp-view";
    const view: McpView = document.createElement("mcp-view");
    const result: ToolResult = { content: [{ type: "text", text: "done" }] };
    const context: HostContext = { theme: "dark" };
    view.resolver = async (uri, { signal }) => (await fetch(uri, { signal })).text();
    view.toolCaller = ({ name }) => ({ content: [{ type: "text", text: name }] });
    view.onopenlink = (url) => url.protocol === "https:";
    view.toolInput = { path: "/a" };
    view.toolResult = result;
    view.hostContext = context;
    view.src = "ui://guest/page";
    void view.appTools().then((tools) => tools.map(({ untrusted, name }) => [untrusted, name]));
  `;
  await writeFile(join(given.project, "main.ts"), main);
  expect(await check("main.ts")).toBe("");
  await writeFile(join(given.project, "wrong.ts"), `${main}\nview.hostContext = { theme: "blue" };\nview.onopenlink = () => 1;\n`);
  const errors = await check("wrong.ts");
  expect(errors.match(/error TS\d+/g)).toHaveLength(2);
});

test("the plain host page shows a page of the official SDK", async ({ page }) => {
  await writeFile(join(given.project, "guest.html"), await guest());
  await writeFile(join(given.project, "server.mjs"), SERVER);
  const host = await plainHost(given.project, ["node", "../server.mjs"]);
  try {
    await page.goto(host.url);
    await expect(page.locator("#tool option")).toHaveText(["Greet"]);
    await page.getByLabel("Arguments").fill('{ "name": "ada" }');
    await page.getByRole("button", { name: "Call" }).click();
    await expect(page.locator("mcp-view")).toHaveAttribute("data-status", "ready");
    await expect(innermost(page).locator("#input")).toHaveText("ada");
    await expect(innermost(page).locator("#answer")).toHaveText("ADA");
    await expect(page.locator("#message")).toBeEmpty();
  } finally {
    await host.close();
  }
});

test("the plain host rejects requests of other origins, and methods that it does not need", async ({ request }) => {
  await writeFile(join(given.project, "server.mjs"), SERVER);
  const host = await plainHost(given.project, ["node", "../server.mjs"]);
  try {
    const { origin } = new URL(host.url);
    const rpc = (method: string, headers: Record<string, string>) => request.post(`${host.url}rpc`, { data: { method, params: {} }, headers });
    expect((await rpc("tools/list", { origin: "http://example.com" })).status()).toBe(403);
    expect((await rpc("tools/list", { origin, host: "example.com" })).status()).toBe(403);
    expect((await rpc("tools/list", {})).status()).toBe(404);
    expect(await (await rpc("initialize", { origin })).json()).toEqual({ error: { message: "Error: `initialize` is not allowed" } });
    expect(await (await rpc("tools/list", { origin })).json()).toMatchObject({ result: { tools: [{ name: "greet" }, { name: "shout" }] } });
  } finally {
    await host.close();
  }
});

test("the React component type-checks and shows a page of the official SDK", async ({ page, site }) => {
  await cp(join(given.project, "node_modules/@bailiwick/mcp-view/examples/react/McpView.tsx"), join(given.project, "McpView.tsx"));
  const app = `
    import { StrictMode, useState } from "react";
    import { createRoot } from "react-dom/client";
    import { McpView } from "./McpView.js";
    import type { Tool, ToolParams } from "@bailiwick/mcp-view";
    const tools: Tool[] = [{ name: "shout" }];
    const read = async (): Promise<{ mimeType: string; text: string }> => ({ mimeType: "text/html;profile=mcp-app", text: await (await fetch("/guest.html")).text() });
    const call = ({ arguments: input }: ToolParams) => ({ content: [{ type: "text", text: String(input?.["text"]).toUpperCase() }] });
    function App() {
      const [input, setInput] = useState({ name: "ada" });
      return (
        <>
          <button onClick={() => setInput({ name: "bob" })}>Bob</button>
          <McpView uri="ui://guest/page" sandboxUrl="/sandbox" maxHeight={400} tools={tools} resolver={read} toolCaller={call} toolInput={input} />
        </>
      );
    }
    createRoot(document.body).render(<StrictMode><App /></StrictMode>);
  `;
  await writeFile(join(given.project, "app.tsx"), app);
  expect(await check("app.tsx")).toBe("");
  await writeFile(join(given.project, "wrong.tsx"), app.replace('uri="ui://guest/page"', "uri={1}"));
  expect((await check("wrong.tsx")).match(/error TS\d+/g)).toHaveLength(1);
  const bundle = await build({ entryPoints: [join(given.project, "app.tsx")], bundle: true, format: "esm", jsx: "automatic", write: false, logLevel: "silent" });
  site.put("/app.js", { body: bundle.outputFiles[0]?.text ?? "", type: "text/javascript" });
  site.put("/guest.html", await guest());
  site.put("/sandbox", { body: await built("sandbox.html"), headers: SANDBOXED });
  site.put("/", '<!doctype html><title>React</title><body><script type="module" src="/app.js"></script>');
  await page.goto(site.origin);
  await expect(page.locator("mcp-view")).toHaveAttribute("data-status", "ready");
  await expect(innermost(page).locator("#answer")).toHaveText("ADA");
  await page.getByRole("button", { name: "Bob" }).click();
  await expect(innermost(page).locator("#answer")).toHaveText("BOB");
});
