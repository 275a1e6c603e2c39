// Tests of the file browser's tree.
import { expect, test } from "./fixtures.ts";
import { type Given, type Told, TREE, done, given, host, names, refused, served } from "./files-host.ts";

test("the tree lists folders first and uses the server's tools", async ({ page, site }) => {
  const { frame, calls } = await host(page, site, given());
  await expect.poll(() => names(page)).toEqual(["asked", "docs", "src", "frozen.toml", "guarded.toml", "README.md", "secret.key"]);
  await frame.getByRole("treeitem", { name: "src" }).click();
  await expect.poll(() => names(page)).toEqual(["asked", "docs", "src", "deep", "lib.rs", "frozen.toml", "guarded.toml", "README.md", "secret.key"]);
  await frame.getByRole("treeitem", { name: "docs" }).click();
  await expect(frame.getByText("Empty folder")).toBeVisible();
  await frame.getByRole("treeitem", { name: "README.md" }).click();
  await expect(frame.getByRole("option").first()).toContainText("# Read me");
  expect(new Set(calls.map((call) => call.name))).toEqual(new Set(["list_roots", "list_directory", "changed_files", "authority", "read_file", "stat"]));
  // The page itself makes no network requests.
  expect(site.requests.filter((one) => one !== "GET /favicon.ico")).toEqual(["GET /", "GET /browser.html"]);
});

test("rows show the worker's rights and lock denied entries", async ({ page, site }) => {
  const { frame } = await host(page, site, given());
  const badge = (name: string): Promise<string | null> => frame.getByRole("treeitem", { name }).locator(".right").textContent();
  await expect.poll(() => badge("README.md")).toBe("editable");
  expect([await badge("frozen.toml"), await badge("guarded.toml"), await badge("secret.key"), await badge("asked")]).toEqual(["read-only", "asks", "denied", "asks to read"]);
  await expect(frame.getByRole("treeitem", { name: /secret.key.*may not be read/ })).toHaveClass(/locked/);
  await expect(frame.getByRole("treeitem", { name: /guarded.toml.*changes ask a person/ })).not.toHaveClass(/locked/);
});

test("a denied file shows the missing scopes", async ({ page, site }) => {
  const asked = refused("SCOPE_REQUIRED", "a person must allow this", { _meta: { requested_scopes: ["read:file:/repo/secret.key"] } });
  const { frame } = await host(page, site, given({ ...TREE, "/repo/secret.key": { answer: asked } }));
  await frame.getByRole("treeitem", { name: "secret.key" }).click();
  await expect(frame.getByText("Not found, or not allowed")).toBeVisible();
  await expect(frame.getByText("read:file:/repo/secret.key")).toBeVisible();
});

test("the rights of another worker can be selected", async ({ page, site }) => {
  const authority = ({ paths, worker = "main" }: Readonly<Record<string, unknown>>): unknown =>
    done({ worker, workers: ["main", "main/tests"], paths: (paths as string[]).map((path) => ({ path, read: "allow", write: worker === "main" ? "allow" : "deny" })) });
  const { frame } = await host(page, site, given(TREE, { authority }));
  const badge = frame.getByRole("treeitem", { name: "README.md" }).locator(".right");
  await expect(badge).toHaveText("editable");
  await frame.getByLabel("Permissions of worker").selectOption("main/tests");
  await expect(badge).toHaveText("read-only");
});

test("a folder of 100,000 entries is virtualized and loaded by page", async ({ page, site }) => {
  test.slow();
  const all = Array.from({ length: 100_000 }, (_, n) => ({ name: `file-${String(n).padStart(6, "0")}.txt`, kind: "file", bytes: n }));
  const list_directory = ({ limit, cursor = "0" }: Readonly<Record<string, unknown>>): unknown => {
    const [from, to] = [Number(cursor), Math.min(Number(cursor) + Number(limit) * 10, all.length)];
    return done({ path: "/repo", entries: all.slice(from, to), total: all.length, ...(to < all.length ? { next_cursor: String(to) } : {}) });
  };
  const { frame, calls } = await host(page, site, given(TREE, { list_directory }));
  const tree = frame.getByRole("tree");
  const listed = (): number => calls.filter((call) => call.name === "list_directory").length;
  await expect(frame.getByRole("treeitem", { name: "file-000000.txt" })).toHaveAttribute("aria-setsize", "100000");
  expect(listed()).toBe(1);
  await tree.focus();
  for (let pages = 1; pages <= 10; pages += 1) {
    await page.keyboard.press("End");
    await expect.poll(() => frame.getByRole("treeitem").count()).toBeLessThan(60);
    await expect(frame.locator(".foot")).toHaveText(`${(Math.min(pages + 1, 10) * 10_000).toLocaleString()} shown`);
  }
  expect(listed()).toBe(10);
  await page.keyboard.press("End");
  await expect(frame.getByRole("treeitem", { name: "file-099999.txt" })).toHaveAttribute("aria-selected", "true");
  await expect(frame.getByRole("treeitem", { name: "file-099999.txt" })).toHaveAttribute("aria-posinset", "100000");
  await expect.poll(() => frame.getByRole("treeitem").count()).toBeLessThan(60);
});

test("a failed listing shows its error and can be retried", async ({ page, site }) => {
  let fails = true;
  const tools = served(TREE);
  const list_directory = (input: Readonly<Record<string, unknown>>): unknown =>
    fails && input["path"] === "/repo/src" ? refused("IO", "the disk did not answer") : tools["list_directory"]?.(input);
  const { frame } = await host(page, site, given(TREE, { list_directory }));
  await frame.getByRole("treeitem", { name: "src" }).click();
  const note = frame.getByRole("treeitem", { name: "the disk did not answer" });
  await expect(note).toBeVisible();
  fails = false;
  await note.click();
  await expect(frame.getByRole("treeitem", { name: "lib.rs" })).toBeVisible();
});

test("a server without file tools shows an error and can be retried", async ({ page, site }) => {
  const { frame } = await host(page, site, { tools: {} });
  await expect(frame.getByRole("alert")).toContainText("there is no tool `list_roots`");
  await expect(frame.getByRole("button", { name: "Try again" })).toBeVisible();
});

test("rights and changes are optional server tools", async ({ page, site }) => {
  const { list_roots, list_directory, read_file } = served(TREE);
  const { frame } = await host(page, site, { tools: { list_roots, list_directory, read_file } as Given["tools"] });
  await frame.getByRole("treeitem", { name: "README.md" }).click();
  await expect(frame.getByRole("option").first()).toContainText("# Read me");
  await expect(frame.locator(".right")).toHaveCount(0);
  await expect(frame.getByRole("button", { name: /^Changed/ })).toHaveCount(0);
});

test("typing filters loaded names, and Enter searches all folders", async ({ page, site }) => {
  const found = [...Array(700).keys()].map((n) => `/repo/src/x${n}.rs`);
  const find = ({ cursor = "0" }: Readonly<Record<string, unknown>>): unknown => {
    const paths = found.slice(Number(cursor), Number(cursor) + 500);
    return done({ paths, total: found.length, ...(Number(cursor) === 0 ? { next_cursor: "500" } : {}) });
  };
  const { frame, calls } = await host(page, site, given(TREE, { find }));
  await frame.getByRole("treeitem", { name: "src" }).click();
  await frame.getByRole("searchbox").fill("LIB");
  await expect.poll(() => names(page)).toEqual(["src", "lib.rs"]);
  await frame.getByRole("searchbox").press("Enter");
  await expect(frame.getByRole("status")).toHaveText("700 found");
  expect(calls.find((call) => call.name === "find")?.input).toEqual({ pattern: "*[lL][iI][bB]*", path: "/repo", limit: 500 });
  await frame.getByRole("tree").focus();
  await page.keyboard.press("End");
  await expect.poll(() => calls.filter((call) => call.name === "find").length).toBe(2);
  await page.keyboard.press("Home");
  await page.keyboard.press("Enter");
  await expect(frame.getByRole("heading", { name: "/repo/src/x0.rs" })).toBeVisible();
  await frame.getByRole("searchbox").press("Escape");
  await expect.poll(() => names(page)).toContain("README.md");
});

const REVIEW = {
  changes: [
    { path: "/repo/other.rs", op: "modify", hunks: [[1, 1, 1, 0, 0, 1, 0]], rows: [["-", 1, 0, "of another file"]] },
    {
      path: "/repo/src/lib.rs",
      op: "modify",
      hunks: [[1, 2, 1, 2, 0, 2, 2]],
      rows: [
        ["-", 1, 0, "<b>old</b>"],
        ["-", 2, 0, "-- sql\r"],
        ["+", 0, 1, "new"],
        ["+", 0, 2, "++ i", [], 0, 1],
      ],
    },
    { path: "/repo/src/gone.rs", op: "delete", hunks: [[1, 1, 0, 0, 0, 1, 0]], rows: [["-", 1, 0, "removed"]] },
    { path: "/repo/a.png", to: "/repo/b.png", op: "move", binary: true },
  ],
};

test("lists changed files with their diffs, unified and side by side", async ({ page, site }) => {
  const changed_files = (): unknown => done({ changes: [{ path: "/repo/src/lib.rs", op: "modify", added: 2, removed: 1, calls: 1, review: "ui://edit_file/1", diff: "ui://edit_file/1.diff" }] });
  const review_rows = ({ uri }: Readonly<Record<string, unknown>>): unknown => done(uri === "ui://edit_file/1.rows" ? REVIEW : {});
  const context = { "dev.bailiwick/open-resource": true };
  const { frame, sent } = await host(page, site, { tools: served(TREE, { changed_files, review_rows }), context });
  await expect(frame.getByRole("treeitem", { name: "src" }).getByLabel("holds changes")).toBeVisible();
  await frame.getByRole("button", { name: "Changed 1" }).click();
  await expect(frame.getByRole("treeitem", { name: /lib.rs.*\+2 −1/ })).toBeVisible();
  await expect(frame.getByRole("treeitem")).toHaveCount(1);
  await frame.getByRole("treeitem").click();
  await expect(frame.locator(".t.del")).toHaveText(["<b>old</b>", "-- sqlCRLF"]);
  await expect(frame.locator(".t.add")).toHaveText(["new", "++ ino line end at the end of the file"]);
  await expect(frame.locator(".pair")).toHaveCount(0);
  await frame.getByRole("button", { name: "Side by side" }).click();
  await expect(frame.locator(".pair")).toHaveCount(2);
  await expect(frame.locator(".pair").first().locator(".t")).toHaveText(["<b>old</b>", "new"]);
  await frame.getByRole("button", { name: "Side by side" }).click();
  await expect(frame.locator(".pair")).toHaveCount(0);
  await frame.getByRole("button", { name: "Show the file" }).click();
  await expect(frame.getByRole("option").first()).toContainText("pub mod a;");
  await frame.getByRole("button", { name: "Review" }).click();
  await expect.poll(() => sent.find((message) => message["method"] === "dev.bailiwick/notifications/open-resource")?.["params"]).toEqual({ uri: "ui://edit_file/1" });
  await frame.getByRole("button", { name: "Changed 1" }).click();
  await expect.poll(() => names(page)).toContain("README.md");
});

test("deleted, new and moved files are marked in the list of changes", async ({ page, site }) => {
  const review = "ui://delete/1";
  const counts = { added: 0, removed: 0, calls: 1, review };
  const changes = [
    { path: "/repo/src/gone.rs", op: "delete", ...counts, removed: 1 },
    { path: "/repo/new.rs", op: "create", ...counts },
    { path: "/repo/b.png", op: "move", ...counts },
    { path: "/repo/README.md", op: "modify", ...counts },
  ];
  const tools = served(TREE, { changed_files: () => done({ changes }), review_rows: () => done(REVIEW) });
  const { frame } = await host(page, site, { tools });
  await frame.getByRole("button", { name: "Changed 4" }).click();
  const row = (name: string) => frame.getByRole("treeitem", { name });
  await expect(row("gone.rs").locator(".badge")).toHaveText("deleted");
  await expect(row("gone.rs")).toHaveClass(/gone/);
  await expect(row("new.rs").locator(".badge")).toHaveText("new");
  await expect(row("b.png").locator(".badge")).toHaveText("moved");
  for (const name of ["new.rs", "b.png", "README.md"]) await expect(row(name)).not.toHaveClass(/locked/);
  await expect(row("README.md").locator(".badge")).toHaveCount(0);
  await row("gone.rs").click();
  await expect(frame.locator(".t.del")).toHaveText(["removed"]);
  await expect(frame.getByRole("button", { name: "Show the file" })).toHaveCount(0);
  await row("b.png").click();
  await expect(frame.getByRole("heading", { name: "/repo/a.png → /repo/b.png" })).toBeVisible();
  await expect(frame.getByText("No lines to show.")).toBeVisible();
  await expect(frame.getByRole("button", { name: "Show the file" })).toBeVisible();
});

test("folders that policies name are shown locked if listings leave them out", async ({ page, site }) => {
  const tree = { ...TREE, "/repo/closed/open/a.txt": { text: "a\n" }, "/repo/closed": { folder: true, read: "deny", write: "deny" }, "/repo/ask": { folder: true, read: "ask", write: "deny" } };
  const tools = served(tree);
  const hidden = ["/repo/closed", "/repo/ask"];
  const list_directory = async (input: Readonly<Record<string, unknown>>): Promise<unknown> => {
    if (hidden.includes(String(input["path"]))) return refused("NOT_FOUND", "there is no such folder");
    const listed = (await tools["list_directory"]?.(input)) as { structuredContent: { entries: { name: string }[] } };
    const entries = listed.structuredContent.entries.filter(({ name }) => !hidden.includes(`${String(input["path"])}/${name}`));
    return done({ ...listed.structuredContent, entries, total: entries.length });
  };
  const authority = async (input: Readonly<Record<string, unknown>>): Promise<unknown> => {
    const told = (await tools["authority"]?.(input)) as { structuredContent: object };
    return done({ ...told.structuredContent, unlisted: ["/repo/ask", "/repo/closed", "/repo/closed/open", "/elsewhere"] });
  };
  const { frame } = await host(page, site, given(tree, { list_directory, authority }));
  const row = (name: string) => frame.getByRole("treeitem", { name });
  await expect(row("closed").locator(".right")).toHaveText("denied");
  await expect(row("closed")).toHaveClass(/locked/);
  await expect(row("ask").last().locator(".right")).toHaveText("asks to read");
  await row("closed").click();
  await row("open").click();
  await row("a.txt").click();
  await expect(frame.locator("#line-1")).toContainText("a");
  await frame.locator(".row", { has: frame.getByText("ask", { exact: true }) }).click();
  await expect(row("there is no such folder")).toBeVisible();
  expect(await names(page)).not.toContain("elsewhere");
});

test("switches between roots", async ({ page, site }) => {
  const tree = { "/repo/a.txt": { text: "a\n" }, "/docs/b.txt": { text: "b\n" } };
  const list_roots = (): unknown => done({ roots: ["/repo", "/docs"], default_root: "/docs" });
  const { frame, call } = await host(page, site, given(tree, { list_roots }));
  await expect.poll(() => names(page)).toEqual(["b.txt"]);
  await frame.getByLabel("Root").selectOption("/repo");
  await expect.poll(() => names(page)).toEqual(["a.txt"]);
  await call("open-path", { path: "/docs/b.txt" });
  await expect.poll(() => names(page)).toEqual(["b.txt"]);
  await expect(frame.getByLabel("Root")).toHaveValue("/docs");
});

test("a symbolic link opens its target folder", async ({ page, site }) => {
  const tree: Readonly<Record<string, Told>> = { "/repo/real/a.txt": { text: "a\n" }, "/repo/link": { link: true } };
  const stat = ({ path }: Readonly<Record<string, unknown>>): unknown => done({ path: path === "/repo/link" ? "/repo/real" : path, kind: path === "/repo/link" ? "directory" : "file", bytes: 2 });
  const { frame } = await host(page, site, given(tree, { stat }));
  await frame.getByRole("treeitem", { name: /link/ }).click();
  await expect(frame.getByRole("treeitem", { name: "real" })).toHaveAttribute("aria-expanded", "true");
  await expect(frame.getByRole("treeitem", { name: "a.txt" })).toBeVisible();
});

test("a path is revealed while its folder is loading", async ({ page, site }) => {
  let go = (): void => {};
  const asked = new Promise<void>((done) => (go = done));
  const tools = served(TREE);
  const list_directory = async (input: Readonly<Record<string, unknown>>): Promise<unknown> => {
    if (input["path"] === "/repo/src") await asked;
    return tools["list_directory"]?.(input);
  };
  const { frame, call } = await host(page, site, given(TREE, { list_directory }));
  await frame.getByRole("treeitem", { name: "src" }).click();
  await expect(frame.getByText("Loading…")).toBeVisible();
  const opened = call("open-path", { path: "/repo/src/lib.rs" });
  go();
  await opened;
  await expect(frame.getByRole("treeitem", { name: "lib.rs" })).toHaveAttribute("aria-selected", "true");
});
