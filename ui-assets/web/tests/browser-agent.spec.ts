// Tests of the file browser's app-provided tools.
import { expect, test } from "./fixtures.ts";
import { TREE, done, given, host } from "./files-host.ts";

test("an agent inspects and controls the page through its tools", async ({ page, site }) => {
  const grep = (input: Readonly<Record<string, unknown>>): unknown => done({ files: [{ path: "/repo/README.md", matches: 1 }], searched: 7 }, { type: "text", text: `/repo/README.md\n2:${String(input["pattern"])}\n` });
  const { frame, ask, call, calls } = await host(page, site, given(TREE, { grep }));
  await expect(frame.getByRole("treeitem").first()).toBeVisible();
  const { tools } = (await ask("tools/list")) as { tools: { name: string; inputSchema: object; outputSchema: object; annotations: object }[] };
  expect(tools.map((tool) => tool.name)).toEqual(["get-current-view", "open-path", "select-lines", "search-text", "get-visible-nodes"]);
  for (const { inputSchema, outputSchema, annotations } of tools) {
    expect(inputSchema).toMatchObject({ type: "object" });
    expect(outputSchema).toMatchObject({ type: "object" });
    expect(annotations).toMatchObject({ readOnlyHint: true });
  }
  const structured = async (name: string, input = {}): Promise<unknown> => (await call(name, input))["structuredContent"];
  expect(await structured("open-path", { path: "/repo/src/deep/inner.rs", line: 1 })).toMatchObject({ path: "/repo/src/deep/inner.rs", kind: "text", lines: 1, from: 1, to: 1 });
  await expect(frame.getByRole("treeitem", { name: "inner.rs" })).toHaveAttribute("aria-selected", "true");
  await expect(frame.getByRole("heading", { name: "/repo/src/deep/inner.rs" })).toBeVisible();
  expect(await structured("open-path", { path: "/repo/docs" })).toEqual({ path: "/repo/docs", kind: "directory" });
  expect(await structured("open-path", { path: "/repo/README.md" })).toMatchObject({ kind: "text", lines: 3 });
  expect(await structured("select-lines", { from: 2, to: 3 })).toMatchObject({ path: "/repo/README.md", from: 2, to: 3 });
  expect(await structured("get-current-view")).toMatchObject({ root: "/repo", showing: "tree", worker: "main", active: "/repo/README.md", file: { path: "/repo/README.md", from: 2, to: 3 } });
  expect(await structured("search-text", { query: "second" })).toEqual({ files: [{ path: "/repo/README.md", matches: 1 }], lines: "/repo/README.md\n2:second\n", more: false });
  expect(calls.at(-1)?.input).toMatchObject({ pattern: "second", path: "/repo", literal: true });
  await expect
    .poll(async () => ((await structured("get-visible-nodes")) as { nodes: object[] }).nodes)
    .toContainEqual({ path: "/repo/secret.key", kind: "file", level: 1, active: false, read: "deny", write: "deny" });
});

test("tools of the page fail with readable errors", async ({ page, site }) => {
  const { frame, call } = await host(page, site, given());
  await expect(frame.getByRole("treeitem").first()).toBeVisible();
  const failed = async (name: string, input = {}): Promise<string> => {
    const { isError, content } = (await call(name, input)) as { isError?: boolean; content: { text: string }[] };
    expect(isError).toBe(true);
    return content[0]?.text ?? "";
  };
  expect(await failed("select-lines", { from: 1 })).toContain("0 lines of text open");
  expect(await failed("open-path", { path: "/repo/none" })).toContain("or it is not yours");
  expect(await failed("open-path", {})).not.toBe("");
  await call("open-path", { path: "/repo/README.md" });
  for (const input of [{ from: 4 }, { from: 0 }, { from: "<b>" }, {}]) expect(await failed("select-lines", input)).toContain("3 lines of text open");
  expect(await failed("search-text", { query: "x" })).toContain("there is no tool `grep`");
  expect(await failed("no-such-tool")).toContain("no such tool");
});

test("opens the path that the host passes", async ({ page, site }) => {
  const { frame, tell } = await host(page, site, given());
  await expect(frame.getByRole("treeitem").first()).toBeVisible();
  await tell("ui/notifications/tool-input", { arguments: { path: "/repo/src/lib.rs" } });
  await expect(frame.getByRole("heading", { name: "/repo/src/lib.rs" })).toBeVisible();
  await expect(frame.getByRole("treeitem", { name: "lib.rs" })).toHaveAttribute("aria-selected", "true");
});

test("relative paths are resolved like those of the tools", async ({ page, site }) => {
  const { frame, call, tell } = await host(page, site, given());
  await expect(frame.getByRole("treeitem").first()).toBeVisible();
  for (const [path, shown] of [
    ["README.md", "/repo/README.md"],
    ["./src//deep/../lib.rs", "/repo/src/lib.rs"],
    ["/repo/docs/../README.md", "/repo/README.md"],
    ["../repo/frozen.toml", "/repo/frozen.toml"],
  ]) {
    const { structuredContent } = (await call("open-path", { path })) as { structuredContent: object };
    expect(structuredContent).toMatchObject({ path: shown, kind: "text" });
    await expect(frame.getByRole("heading", { name: String(shown) })).toBeVisible();
    await expect(frame.locator(".facts .right")).not.toHaveText("denied");
  }
  expect((await call("open-path", { path: "." }))["structuredContent"]).toEqual({ path: "/repo", kind: "directory" });
  // As for the tools, nothing is above the top.
  expect((await call("open-path", { path: "../../README.md" }))["isError"]).toBe(true);
  await tell("ui/notifications/tool-input", { arguments: { path: "src/deep", depth: 2 } });
  await expect(frame.getByRole("treeitem", { name: "deep" })).toHaveAttribute("aria-expanded", "true");
});
