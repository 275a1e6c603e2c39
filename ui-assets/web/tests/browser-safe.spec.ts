// Tests of the file browser with hostile file names.
import { expect, test } from "./fixtures.ts";
import { TREE, done, given, host } from "./files-host.ts";

const HOSTILE = [
  ...["<script>window.ran=1</script>", "<img src=x onerror=window.ran=1>", "<svg onload=window.ran=1>", "\"><svg/onload=window.ran=1>", "javascript:window.ran=1", "${window.ran=1}", "{{constructor.constructor('window.ran=1')()}}", "<iframe srcdoc='<script>parent.ran=1</script>'>", "</title><script>window.ran=1</script>", "<!--<script>window.ran=1//-->", "<a href=javascript:window.ran=1>x", "<style>*{display:none}</style>", "' onclick='window.ran=1", "\\u003cscript\\u003ewindow.ran=1\\u003c/script\\u003e", "<math><mtext></p><script>window.ran=1</script>", "__proto__", "constructor", "toString", "CON", ". .", "%2e%2e", "a&lt;b", "=cmd()", "\u202etxt.exe", "\u200b\u200b", "\u2066x\u2069", "e\u0301".repeat(40), "\ufeffbom", "\u0085x", "\u2028x", "x".repeat(10_000)],
  ...Array.from({ length: 19 }, (_, n) => `${String.fromCodePoint(0x2000 + n * 7)}<b onmouseover=window.ran=1>${n}`),
];

test("hostile file names run no script and are escaped", async ({ page, site }) => {
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

test("a file with an escaped name is listed but cannot be opened", async ({ page, site }) => {
  const { frame, calls } = await host(page, site, given({ "/repo/a\\u{a}b": { text: "x", raw: "YQpi" }, "/repo/b": { text: "x" } }));
  await frame.getByRole("treeitem").first().click();
  await expect(frame.getByRole("status")).toContainText("No tool can open a file with this name");
  expect(calls.some((call) => call.name === "read_file")).toBe(false);
});
