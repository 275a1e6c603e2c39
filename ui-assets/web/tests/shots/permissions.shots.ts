// Screenshots of the page with what agents may do.
import { expect } from "../fixtures.ts";
import { asked, history, picture, pictures, test, WIDE } from "./pictures.ts";
import { permissions, questions } from "./ui.ts";

test("permissions", async ({ page, started }) => {
  await history(started);
  await permissions.open(page, started.console);
  await pictures("permissions", page);
  await page.setViewportSize(WIDE);
  await permissions.draft(page, "writer");
  await picture("permissions-rule", permissions.form(page));
  await permissions.give(page);
  await picture("permissions-rules", page);
  await permissions.narrow(page);
  await picture("permissions-narrow-rule", page);
  await permissions.revoke(page);
  await picture("permissions-revoke", page);
});

test("permissions-empty", async ({ page, started }) => {
  await permissions.open(page, started.console);
  await picture("permissions-empty", page);
});

test("permissions-template", async ({ page, started }) => {
  await started.agent("writer");
  await permissions.open(page, started.console);
  await permissions.template(page, "writer", "template:reviewer");
  await picture("permissions-template", permissions.form(page));
  await page.setViewportSize(WIDE);
  await permissions.give(page);
  await permissions.revokeAll(page);
  await picture("permissions-revoke-all", page);
});

test("permissions-future-agent", async ({ page, started }) => {
  // The console shows a program once it has had an agent.
  await started.agent("writer");
  await permissions.open(page, started.console);
  await permissions.future(page, "main/tests");
  await picture("permissions-future-agent", permissions.form(page));
});

test("permissions-suggestion", async ({ page, started }) => {
  const writer = await started.agent("writer");
  await permissions.open(page, started.console);
  await permissions.suggest(page);
  await expect(page.getByText(/^No suggestion/)).toBeVisible();
  await picture("permissions-no-suggestion", page);
  for (const name of ["one", "two", "three"]) await asked(started, writer.call("write_file", { path: `docs/${name}.md`, content: "# Page\n" }), "allow");
  await permissions.suggest(page);
  await expect(page.getByText(/^You allowed/)).toBeVisible();
  await picture("permissions-suggestion", page);
});

test("permissions-blocks", async ({ page, started }) => {
  const writer = await started.agent("writer");
  await started.asked(1, writer.call("delete", { path: "docs/style.md" }));
  await questions.open(page, started.console);
  await questions.prompt(page);
  await questions.stop(page);
  await page.getByRole("link", { name: "Permissions" }).click();
  await expect(page.getByRole("heading", { name: "Denied for the rest of a session" })).toBeVisible();
  await picture("permissions-blocks", page);
});
