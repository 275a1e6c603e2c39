// Unit tests of schemas, parsers, policies and text functions, without a browser.
import { readFile } from "node:fs/promises";

import { allowed, policyOf } from "../lib/csp.ts";
import { planned } from "../lib/diff/change.ts";
import { fromPatch } from "../lib/diff/patch.ts";
import { parsed, peer } from "../lib/rpc.ts";
import type { Fields } from "../lib/json.ts";
import { problem, unknownKeyword } from "../lib/schema.ts";
import { oneLine, visible } from "../lib/visible.ts";
import { shortPath } from "../lib/words.ts";
import { expect, test } from "./fixtures.ts";

/** A schema, a valid value and an invalid value. */
const SCHEMAS: readonly (readonly [object | boolean, unknown, unknown])[] = [
  [{ type: "string" }, "a", 1],
  [{ type: "integer" }, 1, 1.5],
  [{ type: "number" }, 1.5, "1"],
  [{ type: ["null", "boolean"] }, null, 0],
  [{ type: "array" }, [], {}],
  [{ type: "object" }, {}, []],
  [{ enum: ["a", { b: 1 }] }, { b: 1 }, "c"],
  [{ const: 3 }, 3, "3"],
  [{ required: ["a"] }, { a: undefined }, {}],
  [{ required: ["toString"] }, { toString: 1 }, {}],
  [{ properties: { a: { type: "number" } } }, { a: 1, b: "x" }, { a: "1" }],
  [{ properties: { a: {} }, additionalProperties: false }, { a: 1 }, { b: 1 }],
  [{ additionalProperties: { type: "number" } }, { a: 1 }, { a: "1" }],
  [{ items: { type: "number" } }, [1, 2], [1, "2"]],
  [{ minItems: 1, maxItems: 2 }, [1], [1, 2, 3]],
  [{ minLength: 2 }, "ab", "a"],
  [{ maxLength: 1 }, "😀", "ab"],
  [{ minimum: 1, maximum: 2 }, 2, 3],
  [{ exclusiveMinimum: 1 }, 2, 1],
  [{ exclusiveMaximum: 1 }, 0, 1],
  [{ pattern: "^a+$" }, "aa", "b"],
  [{ anyOf: [{ type: "string" }, { minimum: 5 }] }, 6, 4],
  [{ oneOf: [{ minimum: 1 }, { minimum: 5 }] }, 2, 6],
  [{ allOf: [{ minimum: 1 }, { maximum: 3 }] }, 2, 4],
  [{ not: { type: "string" } }, 1, "a"],
  [{ properties: { a: false } }, {}, { a: 1 }],
];

test("runs of blanks are visible in texts of one line", () => {
  expect(oneLine(" a b\nc ")).toBe("a b c");
  expect(oneLine("a  b\u00a0 c\ufeffd")).toBe("a␣␣b␣␣c\\u{feff}d");
  expect(oneLine(`a${" ".repeat(1000)}b`)).toHaveLength(200);
  expect(shortPath("/r/a  b.txt")).toBe("/r/a␣␣b.txt");
  const long = shortPath(`/r/a${" ".repeat(1000)}b.txt`);
  expect(long).toHaveLength(40);
  expect(long).toMatch(/^\/r\/a␣+…␣+b\.txt$/);
});

test("the schema validator accepts valid and rejects invalid values", () => {
  for (const [schema, good, bad] of SCHEMAS) {
    expect(problem(schema, good), JSON.stringify([schema, good])).toBeUndefined();
    expect(problem(schema, bad), JSON.stringify([schema, bad])).toContain("value");
    expect(unknownKeyword(schema)).toBeUndefined();
  }
  expect(problem({ properties: { a: { items: { type: "number" } } } }, { a: [1, "x"] })).toBe('value.a[1] does not meet type "number"');
});

test("unsupported schema keywords are reported at any depth", () => {
  for (const schema of [{ $ref: "#" }, { properties: { a: { uniqueItems: true } } }, { items: { if: {} } }, { anyOf: [{ contains: {} }] }, { constructor: 1 }]) {
    expect(unknownKeyword(schema)).toMatch(/^(\$ref|uniqueItems|if|contains|constructor)$/);
  }
  expect(unknownKeyword({ title: "t", properties: { $ref: { format: "uri", description: "d" } } })).toBeUndefined();
});

test("a policy contains only declared and valid origins", () => {
  expect(policyOf(undefined)).toBe(
    "default-src data: blob: ;script-src 'unsafe-inline' ;style-src 'unsafe-inline' ;connect-src ;frame-src ;base-uri ;object-src;form-action",
  );
  const hostile = ["*", "https:", "data:", "'unsafe-eval'", "https://a.com;script-src *", "https://a.com https://b.com", "https://a.com/path", "https://a.com\n", "javascript://a", 7, null];
  expect(policyOf({ connectDomains: hostile, resourceDomains: hostile, frameDomains: hostile, baseUriDomains: "https://a.com" })).toBe(policyOf({}));
  const declared = policyOf({ connectDomains: ["wss://a.com:8080"], resourceDomains: ["https://*.b.com"], frameDomains: ["https://c.com"] });
  expect(declared).toContain("connect-src wss://a.com:8080;frame-src https://c.com;");
  expect(declared).toContain("script-src 'unsafe-inline' https://*.b.com;");
});

test("only MCP Apps permissions are delegated", () => {
  expect(allowed({ camera: {}, clipboardWrite: {}, fullscreen: {}, "geolocation *": {} })).toBe("camera;clipboard-write");
  expect(allowed(undefined)).toBe("");
});

test("lines of a patch are classified by hunk position", () => {
  const of = (text: string) => fromPatch(text).map(({ path, to, op, notes, rows }) => [path, to, op, notes, rows.map(([kind, old, now, text]) => `${kind}${old},${now} ${text}`)]);
  expect(of("diff --git a/x b/x\nindex 1..2\n--- a/x\n+++ b/x\n@@ -1,2 +1,3 @@ fn\n--- x\n+++ x\n+@@ -1 +1 @@\n kept\n\\ No newline at end of file\n--- /dev/null\n+++ b/y\n@@ -0,0 +1 @@\n+b")).toEqual([
    ["x", "", "modify", [], ["-1,0 -- x", "+0,1 ++ x", "+0,2 @@ -1 +1 @@", " 2,3 kept"]],
    ["y", "", "create", [], ["+0,1 b"]],
  ]);
  // Additions and removals are recognized even if the counts are wrong, and other lines are kept.
  expect(of("@@ -1 +1 @@\n-a\n+b\n+more\n-less\n@@ nonsense\n+c")).toEqual([["", "", "", ["@@ nonsense"], ["-1,0 a", "-2,0 less", "+0,1 b", "+0,2 more", "+0,3 c"]]]);
  // Facts that are no lines become notes, and belong to their file.
  expect(of("# Delete directory old\n#   a.txt\ndiff --git a/p b/q\nold mode 100644\nnew mode 100755\nrename from p\nrename to q\n--- a/p\n+++ b/q\n@@ -1 +1 @@\n-a\n+b\n")).toEqual([
    ["", "", "", ["Delete directory old", "  a.txt"], []],
    ["p", "q", "move", ["Mode: 100644 → 100755."], ["-1,0 a", "+0,1 b"]],
  ]);
});

test("files of a patch without lines have their path and operation", () => {
  const of = (text: string) => fromPatch(text).map(({ path, to, op, notes, rows }) => [path, to, op, notes, rows.length]);
  expect(of("diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n")).toEqual([["x", "y", "move", [], 0]]);
  expect(of("diff --git a/x b/y\ncopy from x\ncopy to y\n--- a/x\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n")).toEqual([["x", "y", "copy", [], 2]]);
  expect(of("diff --git a/x b/x\nold mode 100644\nnew mode 100755\n")).toEqual([["x", "", "modify", ["Mode: 100644 → 100755."], 0]]);
  expect(of("diff --git a/x b/x\nnew file mode 100644\ndiff --git a/run b/run\nnew file mode 100755\ndiff --git a/z b/z\ndeleted file mode 100644\nindex e69de29..0000000\n")).toEqual([
    ["x", "", "create", [], 0],
    ["run", "", "create", [], 0],
    ["z", "", "delete", [], 0],
  ]);
  expect(of('--- "a/my file"\n+++ "b/my file"\n@@ -1 +1 @@\n-a\n+b\n')).toEqual([["my file", "", "modify", [], 2]]);
  const binary = ["Binary file, not shown."];
  expect(of("diff --git a/a.png b/a.png\nindex 1..2 100644\nBinary files a/a.png and b/a.png differ\n")).toEqual([["a.png", "", "modify", binary, 0]]);
  expect(of("diff --git a/a.png b/a.png\nindex 1..2 100644\nGIT binary patch\nliteral 3\nKcmZ\n\nliteral 2\n-x\n\ndiff --git a/b b/b\nnew file mode 100644\n")).toEqual([
    ["a.png", "", "modify", binary, 0],
    ["b", "", "create", [], 0],
  ]);
});

test("changed words of local diffs are marked, and missing line ends are known", () => {
  const lines = (...all: string[]) => all.map((text) => ({ op: text[0], text: text.slice(1) }));
  const hunk = { old_start: 1, new_start: 1, lines: lines(" kept\n", "-the old word\n", "-gone\n", "+the new word\n", "+other 😀") };
  const { rows, hunks } = planned({ path: "a", op: "modify", hunks: [hunk] });
  expect(hunks).toEqual([[1, 3, 1, 3, 1, 2, 2]]);
  expect(rows.map((row) => [row[3], row[4], row[6]])).toEqual([
    ["kept", [], false],
    ["the old word", [[4, 3]], false],
    ["gone", [], false],
    ["the new word", [[4, 3]], false],
    ["other 😀", [], true],
  ]);
  expect(planned({ path: 7, hunks: "none" })).toMatchObject({ path: "", hunks: [], rows: [] });
});

test("limits concurrent requests in both directions", async () => {
  const sent: Fields[] = [];
  const wire = peer((message) => sent.push(message), () => new Promise<Fields>(() => undefined), () => undefined);
  for (let id = 0; id < 40; id += 1) wire.hear({ id, method: "m", params: {} });
  // A second request with a pending id is ignored.
  wire.hear({ id: 1, method: "m", params: {} });
  expect(sent.map(({ id }) => id)).toEqual([32, 33, 34, 35, 36, 37, 38, 39]);
  expect(sent[0]).toMatchObject({ error: { code: -32603, message: "too many requests at once" } });
  const asked = Array.from({ length: 1001 }, () => wire.ask("m", {}, 60_000).catch(String));
  expect(await asked.at(-1)).toContain("too many requests");
  wire.close("the end");
  expect(await asked[0]).toContain("the end");
});

test("parses the four kinds of JSON-RPC messages and nothing else", () => {
  const message = (fields: object): unknown => parsed({ jsonrpc: "2.0", ...fields });
  expect(message({ id: 1, method: "m", params: { a: 1 } })).toEqual({ id: 1, method: "m", params: { a: 1 } });
  expect(message({ method: "m", params: [1] })).toEqual({ method: "m", params: {}, id: undefined });
  expect(message({ id: "x", result: {} })).toEqual({ id: "x", result: {} });
  expect(message({ id: 1, error: { code: -1, message: "no" } })).toMatchObject({ id: 1, error: { message: "no", code: -1 } });
  for (const none of [null, "text", [], { id: 1, method: "m" }]) expect(parsed(none)).toBeUndefined();
  for (const none of [{ id: null, method: "m" }, { id: {}, method: "m" }, { id: 1 }, { id: 1, result: 3 }, { result: {} }, { method: 3 }]) expect(message(none)).toBeUndefined();
});

/** The characters that the runtime treats as deceptive; its own tests read the same list. */
const DECEPTIVE = JSON.parse(await readFile(new URL("deceptive.json", import.meta.url), "utf8")) as [string, string][];

test("escapes the same characters as the runtime, except tabs and line feeds", () => {
  const ranges = DECEPTIVE.map(([first, last]) => [Number.parseInt(first, 16), Number.parseInt(last, 16)] as const);
  const wrong: string[] = [];
  for (let code = 0; code <= 0x10ffff; code += 1) {
    // Skip surrogates.
    if (code >= 0xd800 && code <= 0xdfff) continue;
    const told = code !== 9 && code !== 10 && ranges.some(([first, last]) => code >= first && code <= last);
    const text = String.fromCodePoint(code);
    if (visible(text) !== (told ? `\\u{${code.toString(16)}}` : text)) wrong.push(code.toString(16));
  }
  expect(wrong).toEqual([]);
});
