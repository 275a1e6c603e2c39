// Tests of the diff that all pages share.
import { fileURLToPath } from "node:url";

import { build } from "esbuild";

import { pageOf } from "./bundles.ts";
import { expect, test } from "./fixtures.ts";

const style = (
  await build({ entryPoints: [fileURLToPath(new URL("../pages/review/style.css", import.meta.url))], bundle: true, write: false, logLevel: "silent" })
).outputFiles[0]?.text;

/** A page that shows the changes; `show(changes)` waits until they are painted. */
const page = (): Promise<string> =>
  pageOf(
    `
    import { render } from "preact";
    import { h } from "../lib/component.ts";
    import { planned } from "../lib/diff/change.ts";
    import { fromPatch } from "../lib/diff/patch.ts";
    import { Diff, DiffView } from "../lib/diff/view.tsx";
    window.show = async (changes) => {
      const diff = new Diff(typeof changes === "string" ? fromPatch(changes) : changes.map((change) => planned(change)));
      render(h(DiffView, { diff }), document.querySelector("main"));
      await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    };`,
    `<style>${style}</style><main></main>`,
  );
const show = (changes: unknown) => (window as unknown as { show(changes: unknown): Promise<void> }).show(changes);

test("a rewrite of 5,000 lines is shown with few elements", async ({ page: tab, site }) => {
  site.put("/", await page());
  await tab.goto(site.origin);
  const lines = ["-", "+"].flatMap((op) => Array.from({ length: 5000 }, (_, n) => ({ op, text: `${op === "-" ? "old" : "new"} text of line ${n}\n` })));
  await tab.evaluate(show, [{ path: "/a", op: "modify", added: 5000, removed: 5000, hunks: [{ old_start: 1, new_start: 1, lines }] }]);
  expect(await tab.locator("*").count()).toBeLessThan(1000);
  await expect(tab.getByText("old text of line 0", { exact: true })).toBeVisible();
  await tab.getByRole("button", { name: "Side by side" }).click();
  await expect(tab.getByText("new text of line 0", { exact: true })).toBeVisible();
  await expect(tab.getByRole("table")).toHaveAttribute("aria-rowcount", "5000");
  await tab.evaluate(() => scrollTo(0, document.documentElement.scrollHeight));
  await expect(tab.getByText("new text of line 4999", { exact: true })).toBeVisible();
  expect(await tab.locator("*").count()).toBeLessThan(1000);
});

test("line ends, missing line ends, hidden characters, modes and renames are pointed out", async ({ page: tab, site }) => {
  site.put("/", await page());
  await tab.goto(site.origin);
  const patch = "diff --git a/old.txt b/new.txt\nold mode 100644\nnew mode 100755\nrename from old.txt\nrename to new.txt\n--- a/old.txt\n+++ b/new.txt\n@@ -1,3 +1,3 @@\n kept\n-dos\r\n+unix\n-end\n+e\u202end\n\\ No newline at end of file\n";
  await tab.evaluate(show, patch);
  await expect(tab.locator("h2")).toHaveText("old.txt → new.txt");
  await expect(tab.locator(".badge")).toHaveText("Moved");
  await expect(tab.locator(".note")).toHaveText(["Mode: 100644 → 100755.", "Invisible characters are shown as codes such as \\u{202e}.", "Some lines end in CRLF."]);
  await expect(tab.locator(".t.del")).toHaveText(["dosCRLF", "end"]);
  await expect(tab.locator(".t.add")).toHaveText(["unix", "e\\u{202e}ndno line end at the end of the file"]);
  await expect(tab.locator(".escape")).toHaveText("\\u{202e}");
});

test("scrolling through wrapped lines shows every line once", async ({ page: tab, site }) => {
  site.put("/", await page());
  await tab.setViewportSize({ width: 400, height: 600 });
  await tab.goto(site.origin);
  const lines = Array.from({ length: 400 }, (_, n) => ({ op: "+", text: `${n}:${" word".repeat((n * 7) % 60)}\n` }));
  await tab.evaluate(show, [{ path: "/a", op: "create", added: 400, hunks: [{ old_start: 0, new_start: 1, lines }] }]);
  const seen = new Set<string>();
  for (let step = 0; step < 200; step += 1) {
    const rows = await tab.getByRole("row").evaluateAll((all) => all.map((row) => [row.getAttribute("aria-rowindex"), row.getBoundingClientRect().top, row.getBoundingClientRect().bottom] as const));
    rows.forEach(([index], at) => {
      seen.add(String(index));
      const next = rows[at + 1];
      if (next) expect(Math.abs(next[1] - rows[at]![2])).toBeLessThan(1);
    });
    const isEnd = await tab.evaluate(() => {
      scrollBy(0, 300);
      return new Promise<boolean>((done) => requestAnimationFrame(() => setTimeout(() => done(scrollY + innerHeight >= document.documentElement.scrollHeight - 1))));
    });
    if (isEnd && seen.has("400")) break;
  }
  expect(seen.size).toBe(400);
});
