// The file browser in a host that speaks the wire, what people see and do in it out.
import type { Page } from "@playwright/test";

import { barriers, expect, test } from "./fixtures.ts";
import { type Given, type Told, done, host, refused, served } from "./files-host.ts";

type Tree = Readonly<Record<string, Told>>;

const TREE: Tree = {
  "/repo/src/lib.rs": { text: "pub mod a;\n" },
  "/repo/src/deep/inner.rs": { text: "fn inner() {}\n" },
  "/repo/docs": { folder: true },
  "/repo/frozen.toml": { text: "a = 1\n", write: "deny" },
  "/repo/guarded.toml": { text: "b = 2\n", write: "ask" },
  "/repo/secret.key": { text: "k", read: "deny", write: "deny" },
  "/repo/asked": { folder: true, read: "ask", write: "ask" },
  "/repo/README.md": { text: "# Read me\nsecond\nthird\n" },
};
const given = (tree: Tree = TREE, more: Given["tools"] = {}): Given => ({ tools: served(tree, more) });
const lines = (count: number): string => Array.from({ length: count }, (_, n) => `line ${n + 1}\n`).join("");
/** What stands in the tree, top to bottom. */
const names = (page: Page): Promise<string[]> => page.frames()[1]?.locator(".row .name").allTextContents() ?? Promise.resolve([]);

test("the tree shows folders before files, and opens them by the server's own tools", async ({ page, site }) => {
  const { frame, calls } = await host(page, site, given());
  await expect.poll(() => names(page)).toEqual(["asked", "docs", "src", "frozen.toml", "guarded.toml", "README.md", "secret.key"]);
  await frame.getByRole("treeitem", { name: "src" }).click();
  await expect.poll(() => names(page)).toEqual(["asked", "docs", "src", "deep", "lib.rs", "frozen.toml", "guarded.toml", "README.md", "secret.key"]);
  await frame.getByRole("treeitem", { name: "docs" }).click();
  await expect(frame.getByText("Empty folder")).toBeVisible();
  await frame.getByRole("treeitem", { name: "README.md" }).click();
  await expect(frame.getByRole("option").first()).toContainText("# Read me");
  expect(new Set(calls.map((call) => call.name))).toEqual(new Set(["list_roots", "list_directory", "changed_files", "authority", "read_file", "stat"]));
  // The page itself reaches no network.
  expect(site.requests.filter((one) => one !== "GET /favicon.ico")).toEqual(["GET /", "GET /browser.html"]);
});

test("rows say what the worker may do, and denied ones are locked", async ({ page, site }) => {
  const { frame } = await host(page, site, given());
  const badge = (name: string): Promise<string | null> => frame.getByRole("treeitem", { name }).locator(".right").textContent();
  await expect.poll(() => badge("README.md")).toBe("rw");
  expect([await badge("frozen.toml"), await badge("guarded.toml"), await badge("secret.key"), await badge("asked")]).toEqual(["r", "r · asks", "denied", "asks"]);
  await expect(frame.getByRole("treeitem", { name: /secret.key.*may not be read/ })).toHaveClass(/locked/);
  await expect(frame.getByRole("treeitem", { name: /guarded.toml.*writing would ask a person/ })).not.toHaveClass(/locked/);
});

test("what is denied is told as locked, with what a person would have to allow", async ({ page, site }) => {
  const asked = refused("SCOPE_REQUIRED", "a person must allow this", { _meta: { requested_scopes: ["read:file:/repo/secret.key"] } });
  const { frame } = await host(page, site, given({ ...TREE, "/repo/secret.key": { answer: asked } }));
  await frame.getByRole("treeitem", { name: "secret.key" }).click();
  await expect(frame.getByText("Not here, or not open to you")).toBeVisible();
  await expect(frame.getByText("read:file:/repo/secret.key")).toBeVisible();
});

test("another worker's eyes are one choice away", async ({ page, site }) => {
  const authority = ({ paths, worker = "main" }: Readonly<Record<string, unknown>>): unknown =>
    done({ worker, workers: ["main", "main/tests"], paths: (paths as string[]).map((path) => ({ path, read: "allow", write: worker === "main" ? "allow" : "deny" })) });
  const { frame } = await host(page, site, given(TREE, { authority }));
  const badge = frame.getByRole("treeitem", { name: "README.md" }).locator(".right");
  await expect(badge).toHaveText("rw");
  await frame.getByLabel("Show what this worker may do").selectOption("main/tests");
  await expect(badge).toHaveText("r");
});

test("a folder of 100,000 entries is windowed, and goes on by its cursor", async ({ page, site }) => {
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
    expect(await frame.getByRole("treeitem").count()).toBeLessThan(60);
    await expect(frame.locator(".foot")).toHaveText(`${(Math.min(pages + 1, 10) * 10_000).toLocaleString()} shown`);
  }
  expect(listed()).toBe(10);
  await page.keyboard.press("End");
  await expect(frame.getByRole("treeitem", { name: "file-099999.txt" })).toHaveAttribute("aria-selected", "true");
  await expect(frame.getByRole("treeitem", { name: "file-099999.txt" })).toHaveAttribute("aria-posinset", "100000");
  expect(await frame.getByRole("treeitem").count()).toBeLessThan(60);
  // From one end to the other within a few frames each.
  const slowest = await frame.evaluate(async () => {
    const tree = document.querySelector('[role="tree"]');
    if (tree === null) return Infinity;
    let slowest = 0;
    for (let at = 0; at <= 20; at += 1) {
      tree.scrollTop = (tree.scrollHeight * at) / 20;
      const before = performance.now();
      await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
      slowest = Math.max(slowest, performance.now() - before);
    }
    return slowest;
  });
  expect(slowest).toBeLessThan(1000);
});

test("a listing that fails says why and is tried again", async ({ page, site }) => {
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

test("a server without files says so, and can be tried again", async ({ page, site }) => {
  const { frame } = await host(page, site, { tools: {} });
  await expect(frame.getByRole("alert")).toContainText("there is no tool `list_roots`");
  await expect(frame.getByRole("button", { name: "Try again" })).toBeVisible();
});

test("a server without authority or changes is browsed without badges", async ({ page, site }) => {
  const { list_roots, list_directory, read_file } = served(TREE);
  const { frame } = await host(page, site, { tools: { list_roots, list_directory, read_file } as Given["tools"] });
  await frame.getByRole("treeitem", { name: "README.md" }).click();
  await expect(frame.getByRole("option").first()).toContainText("# Read me");
  await expect(frame.locator(".right")).toHaveCount(0);
  await expect(frame.getByRole("button", { name: /^Changed/ })).toHaveCount(0);
});

test("names are filtered as they are typed, and found in every folder on Enter", async ({ page, site }) => {
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

test("what calls changed is listed, with the change of each", async ({ page, site }) => {
  const changed_files = (): unknown => done({ changes: [{ path: "/repo/src/lib.rs", op: "modify", added: 2, removed: 1, calls: 1, review: "ui://edit_file/1", diff: "ui://edit_file/1.diff" }] });
  const resources = (uri: string): string | undefined => (uri === "ui://edit_file/1.diff" ? "--- a/src/lib.rs\n+++ b/src/lib.rs\n@@ -1,1 +1,2 @@\n-<b>old</b>\n+new\n" : undefined);
  const context = { "dev.bailiwick/open-resource": true };
  const { frame, sent } = await host(page, site, { tools: served(TREE, { changed_files }), resources, context });
  await expect(frame.getByRole("treeitem", { name: "src" }).getByLabel("holds changes")).toBeVisible();
  await frame.getByRole("button", { name: "Changed 1" }).click();
  await expect(frame.getByRole("treeitem", { name: /lib.rs.*\+2 −1/ })).toBeVisible();
  await expect(frame.getByRole("treeitem")).toHaveCount(1);
  await frame.getByRole("treeitem").click();
  await expect(frame.getByRole("option", { name: "-<b>old</b>" })).toHaveClass(/removed/);
  await frame.getByRole("button", { name: "Show the file" }).click();
  await expect(frame.getByRole("option").first()).toContainText("pub mod a;");
  await frame.getByRole("button", { name: "Review" }).click();
  await expect.poll(() => sent.find((message) => message["method"] === "dev.bailiwick/notifications/open-resource")?.["params"]).toEqual({ uri: "ui://edit_file/1" });
  await frame.getByRole("button", { name: "Changed 1" }).click();
  await expect.poll(() => names(page)).toContain("README.md");
});

test("a file of 10 MB is read by ranges, and jumped in", async ({ page, site }) => {
  const { frame, calls, call } = await host(page, site, given({ "/repo/big.log": { text: lines(1_000_000) } }));
  await frame.getByRole("treeitem", { name: "big.log" }).click();
  await expect(frame.getByRole("option").first()).toContainText("line 1");
  await expect(frame.getByText("1,000,000 lines")).toBeVisible();
  await frame.getByRole("listbox").focus();
  await page.keyboard.press("End");
  await expect(frame.locator("#line-1000000")).toContainText("line 1000000");
  expect(await frame.getByRole("option").count()).toBeLessThan(60);
  await call("select-lines", { from: 500_000, to: 500_002 });
  await expect(frame.locator("#line-500001")).toHaveAttribute("aria-selected", "true");
  await expect(frame.locator("#line-500001")).toContainText("line 500001");
  expect(calls.filter(({ name }) => name === "read_file").length).toBeLessThan(8);
  for (const { name, input } of calls) if (name === "read_file") expect(input["limit"]).toBe(500);
});

test("lines are selected by mouse and keys", async ({ page, site }) => {
  const { frame } = await host(page, site, given({ "/repo/a.txt": { text: lines(50) } }));
  await frame.getByRole("treeitem", { name: "a.txt" }).click();
  await frame.locator("#line-3 .number").click();
  await frame.locator("#line-6 .number").click({ modifiers: ["Shift"] });
  await expect(frame.getByText("lines 3–6 selected")).toBeVisible();
  await frame.getByRole("listbox").focus();
  await page.keyboard.press("Shift+ArrowDown");
  await expect(frame.getByText("lines 3–7 selected")).toBeVisible();
  await page.keyboard.press("Shift+ArrowUp");
  await expect(frame.getByText("lines 3–6 selected")).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(frame.getByText("selected")).toHaveCount(0);
});

test("hidden characters and long lines are shown for what they are", async ({ page, site }) => {
  const { frame } = await host(page, site, given({ "/repo/a.txt": { text: `a\u202eb\u0000\u200bc\r\n${"x".repeat(5000)}\r\n` } }));
  await frame.getByRole("treeitem", { name: "a.txt" }).click();
  await expect(frame.locator("#line-1 bdi")).toHaveText("a\\u{202e}b\\u{0}\\u{200b}c");
  await expect(frame.getByText("CRLF")).toBeVisible();
  expect((await frame.locator("#line-2 bdi").textContent())?.length).toBeLessThan(2100);
  await frame.getByText("3,000 more characters").click();
  await expect(frame.locator("#line-2 bdi")).toHaveText("x".repeat(5000));
});

const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAoAAAAKCAYAAACNMs+9AAAAFUlEQVR42mNk+M9Qz0AEYBxVSF+FABJADveWkH6oAAAAAElFTkSuQmCC";
const media = (path: string, type: string, mimeType: string): Told => ({ bytes: 99, answer: done({ files: [{ path, bytes: 99, mime: mimeType, hash: "sha256:1" }] }, { type, data: PNG, mimeType }) });

test("pictures, sounds and other files are shown as what they are", async ({ page, site }) => {
  const { frame } = await host(
    page,
    site,
    given({
      "/repo/a.png": media("/repo/a.png", "image", "image/png"),
      "/repo/b.wav": media("/repo/b.wav", "audio", "audio/wav"),
      "/repo/c.zip": { text: "PK", bytes: 2_000, answer: { ...refused("NOT_TEXT", "it is no text"), structuredContent: { code: "NOT_TEXT", message: "no text", guess: "a ZIP archive" } } },
      "/repo/d.png": media("/repo/d.png", "image", 'image/png;x"><script>'),
      "/repo/e.txt": { text: "" },
    }),
  );
  await frame.getByRole("treeitem", { name: "a.png" }).click();
  await expect.poll(() => frame.getByRole("img", { name: "a.png" }).evaluate((image) => (image as HTMLImageElement).naturalWidth)).toBe(10);
  await frame.getByRole("treeitem", { name: "b.wav" }).click();
  await expect(frame.locator("audio")).toHaveAttribute("src", /^data:audio\/wav;base64,/);
  await frame.getByRole("treeitem", { name: "c.zip" }).click();
  await expect(frame.getByText("No text, but a ZIP archive")).toBeVisible();
  await expect(frame.getByText("sha256:2")).toBeVisible();
  await frame.getByRole("treeitem", { name: "d.png" }).click();
  await expect(frame.getByText("The file is empty")).toBeVisible();
  await expect(frame.locator("img")).toHaveCount(0);
  await frame.getByRole("treeitem", { name: "e.txt" }).click();
  await expect(frame.getByRole("heading", { name: "/repo/e.txt" })).toBeVisible();
  await expect(frame.getByText("The file is empty")).toBeVisible();
});

test("it is told whether a file changed on disk", async ({ page, site }) => {
  const tree: Record<string, Told> = { "/repo/a.txt": { text: lines(5000) } };
  const { frame } = await host(page, site, given(tree));
  await frame.getByRole("treeitem", { name: "a.txt" }).click();
  await frame.getByRole("button", { name: "Look whether it changed" }).click();
  await expect(frame.getByRole("status")).toContainText("Unchanged at");
  tree["/repo/a.txt"] = { text: `first\n${lines(5000)}` };
  await frame.getByRole("listbox").focus();
  await page.keyboard.press("End");
  await expect(frame.getByText("It changed on disk since it was opened.")).toBeVisible();
  await frame.getByRole("button", { name: "Read it again" }).click();
  await expect(frame.getByRole("status")).toContainText("It had changed on disk");
  await expect(frame.getByText("5,001 lines")).toBeVisible();
  await expect(frame.getByText("It changed on disk since")).toHaveCount(0);
});

const HOSTILE = [
  ...["<script>window.ran=1</script>", "<img src=x onerror=window.ran=1>", "<svg onload=window.ran=1>", "\"><svg/onload=window.ran=1>", "javascript:window.ran=1", "${window.ran=1}", "{{constructor.constructor('window.ran=1')()}}", "<iframe srcdoc='<script>parent.ran=1</script>'>", "</title><script>window.ran=1</script>", "<!--<script>window.ran=1//-->", "<a href=javascript:window.ran=1>x", "<style>*{display:none}</style>", "' onclick='window.ran=1", "\\u003cscript\\u003ewindow.ran=1\\u003c/script\\u003e", "<math><mtext></p><script>window.ran=1</script>", "__proto__", "constructor", "toString", "CON", ". .", "%2e%2e", "a&lt;b", "=cmd()", "\u202etxt.exe", "\u200b\u200b", "\u2066x\u2069", "e\u0301".repeat(40), "\ufeffbom", "\u0085x", "\u2028x", "x".repeat(10_000)],
  ...Array.from({ length: 19 }, (_, n) => `${String.fromCodePoint(0x2000 + n * 7)}<b onmouseover=window.ran=1>${n}`),
];

test("50 hostile names run nothing and deceive nobody", async ({ page, site }) => {
  const entries = HOSTILE.map((name, n) => ({ name, kind: n % 5 === 0 ? "directory" : "file", bytes: 1, ...(n % 3 === 0 ? { raw: "eA==" } : {}) }));
  expect(entries.length).toBe(50);
  const list_directory = (): unknown => done({ path: "/repo", entries, total: entries.length });
  const read_file = ({ path }: Readonly<Record<string, unknown>>): unknown => done({ files: [{ path, bytes: 9, lines: 1, hash: "h" }] }, { type: "text", text: `${String(path)}\n` });
  const find = (): unknown => done({ paths: HOSTILE.map((name) => `/repo/${name}`), total: 50 });
  const { frame } = await host(page, site, given(TREE, { list_directory, read_file, find }));
  const problems: string[] = [];
  page.on("dialog", (dialog) => problems.push(dialog.message()));
  page.on("console", (message) => /Content Security/.test(message.text()) && problems.push(message.text()));
  await frame.getByRole("tree").focus();
  for (let n = 0; n < entries.length + 2; n += 1) {
    const row = frame.locator('.row[aria-selected="true"]');
    await expect(row).toHaveCount(1);
    if ((await row.getAttribute("aria-expanded")) === null) await page.keyboard.press("Enter");
    await page.keyboard.press("ArrowDown");
  }
  await frame.getByRole("searchbox").fill("<script>");
  await frame.getByRole("searchbox").press("Enter");
  await expect(frame.getByRole("status")).toHaveText("50 found");
  const text = await frame.evaluate(() => document.body.innerText + [...document.querySelectorAll("[title], [aria-label]")].map((one) => `${one.getAttribute("title")}${one.getAttribute("aria-label")}`).join(""));
  expect(text).not.toMatch(/[\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff\u0085\u2028]/);
  expect(await frame.evaluate(() => [Reflect.get(window, "ran"), document.querySelectorAll("script, iframe, style, svg, b").length])).toEqual([undefined, 2]);
  expect(problems).toEqual([]);
});

test("a name that is not what it shows is listed, and not opened", async ({ page, site }) => {
  const { frame, calls } = await host(page, site, given({ "/repo/a\\u{a}b": { text: "x", raw: "YQpi" }, "/repo/b": { text: "x" } }));
  await frame.getByRole("treeitem").first().click();
  await expect(frame.getByRole("status")).toContainText("No tool can open it by this name");
  expect(calls.some((call) => call.name === "read_file")).toBe(false);
});

test("everything is done by keys alone", async ({ page, site }) => {
  const { frame } = await host(page, site, given());
  await expect(frame.getByRole("treeitem").first()).toBeVisible();
  await page.keyboard.press("Tab");
  await expect(frame.getByRole("searchbox")).toBeFocused();
  await page.keyboard.press("Tab");
  if ((await frame.getByRole("button", { name: /^Changed/ }).count()) > 0) await page.keyboard.press("Tab");
  await page.keyboard.press("Tab");
  await expect(frame.getByRole("tree")).toBeFocused();
  const active = (): Promise<string | null> =>
    frame.evaluate(() => document.getElementById(document.querySelector('[role="tree"]')?.getAttribute("aria-activedescendant") ?? "")?.querySelector(".name")?.textContent ?? null);
  await expect.poll(active).toBe("asked");
  await page.keyboard.press("s");
  await expect.poll(active).toBe("src");
  await page.keyboard.press("ArrowRight");
  await expect(frame.getByRole("treeitem", { name: "lib.rs" })).toBeVisible();
  await page.keyboard.press("ArrowRight");
  await expect.poll(active).toBe("deep");
  await page.keyboard.press("*");
  await expect(frame.getByRole("treeitem", { name: "inner.rs" })).toBeVisible();
  await page.keyboard.press("ArrowLeft");
  await expect(frame.getByRole("treeitem", { name: "inner.rs" })).toHaveCount(0);
  await page.keyboard.press("ArrowLeft");
  await expect.poll(active).toBe("src");
  await page.keyboard.press("End");
  await expect.poll(active).toBe("secret.key");
  await page.keyboard.press("Home");
  await expect.poll(active).toBe("asked");
  await page.keyboard.press("PageDown");
  await page.keyboard.type("re");
  await expect.poll(active).toBe("README.md");
  await page.keyboard.press("Enter");
  await expect(frame.getByRole("option").first()).toContainText("# Read me");
  await page.keyboard.press("Tab");
  await expect(frame.getByRole("separator")).toBeFocused();
  const width = frame.getByRole("separator");
  const before = Number(await width.getAttribute("aria-valuenow"));
  await page.keyboard.press("ArrowRight");
  await expect(width).toHaveAttribute("aria-valuenow", String(before + 24));
  await page.keyboard.press("Home");
  await expect(width).toHaveAttribute("aria-valuenow", "180");
  await page.keyboard.press("Tab");
  await expect(frame.getByRole("button", { name: "Look whether it changed" })).toBeFocused();
  await page.keyboard.press("Tab");
  await expect(frame.getByRole("listbox")).toBeFocused();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowDown");
  await expect(frame.getByText("line 2 selected")).toBeVisible();
});

test("where it is narrow, one pane takes the other's place, and the keys go with it", async ({ page, site }) => {
  await page.setViewportSize({ width: 320, height: 640 });
  const { frame } = await host(page, site, given());
  await frame.getByRole("tree").focus();
  await page.keyboard.type("R");
  await page.keyboard.press("Enter");
  await expect(frame.getByRole("tree")).toBeHidden();
  const back = frame.getByRole("button", { name: "Back to the files" });
  await expect(frame.getByRole("region", { name: "File" })).toBeFocused();
  await expect(back).toBeVisible();
  await page.keyboard.press("Tab");
  await expect(back).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(frame.getByRole("tree")).toBeFocused();
  await expect(frame.getByRole("listbox")).toBeHidden();
  expect(await frame.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(320);
});

const LOOKS = [
  ["light", { colorScheme: "light" }, { width: 1000, height: 700 }],
  ["dark", { colorScheme: "dark" }, { width: 1000, height: 700 }],
  ["200 %", { colorScheme: "light" }, { width: 500, height: 350 }],
  ["forced colors", { forcedColors: "active" }, { width: 1000, height: 700 }],
  ["320 px, dark", { colorScheme: "dark" }, { width: 320, height: 640 }],
] as const;
for (const [look, media, size] of LOOKS) {
  test(`nobody is kept out: ${look}`, async ({ page, site }, info) => {
    await page.emulateMedia(media);
    await page.setViewportSize(size);
    const { frame } = await host(page, site, given());
    await frame.getByRole("treeitem", { name: "src" }).click();
    await expect(frame.getByRole("treeitem", { name: "lib.rs" })).toBeVisible();
    expect(await barriers(frame)).toEqual([]);
    await page.screenshot({ path: info.outputPath("tree.png") });
    await frame.getByRole("treeitem", { name: "README.md" }).click();
    await frame.locator("#line-2 .number").click();
    expect(await barriers(frame)).toEqual([]);
    await page.screenshot({ path: info.outputPath("file.png") });
  });
}

test("an agent looks and shows by tools of the page", async ({ page, site }) => {
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

test("tools of the page fail in words", async ({ page, site }) => {
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

test("it opens what the host was asked to show", async ({ page, site }) => {
  const { frame, tell } = await host(page, site, given());
  await expect(frame.getByRole("treeitem").first()).toBeVisible();
  await tell("ui/notifications/tool-input", { arguments: { path: "/repo/src/lib.rs" } });
  await expect(frame.getByRole("heading", { name: "/repo/src/lib.rs" })).toBeVisible();
  await expect(frame.getByRole("treeitem", { name: "lib.rs" })).toHaveAttribute("aria-selected", "true");
});

test("the roots are switched between", async ({ page, site }) => {
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

test("a link is followed to the folder where it leads", async ({ page, site }) => {
  const tree: Tree = { "/repo/real/a.txt": { text: "a\n" }, "/repo/link": { link: true } };
  const stat = ({ path }: Readonly<Record<string, unknown>>): unknown => done({ path: path === "/repo/link" ? "/repo/real" : path, kind: path === "/repo/link" ? "directory" : "file", bytes: 2 });
  const { frame } = await host(page, site, given(tree, { stat }));
  await frame.getByRole("treeitem", { name: /link/ }).click();
  await expect(frame.getByRole("treeitem", { name: "real" })).toHaveAttribute("aria-expanded", "true");
  await expect(frame.getByRole("treeitem", { name: "a.txt" })).toBeVisible();
});

test("a path is shown in its folder even while that is being listed", async ({ page, site }) => {
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
