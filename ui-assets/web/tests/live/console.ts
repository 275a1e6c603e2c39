// Live test of the console: a grant is given and revoked.
import { barriers, expect, test } from "../fixtures.ts";

test.setTimeout(120_000);
test("a person grants two uses and revokes the grant", async ({ page }) => {
  await page.goto(process.env["BAILIWICK_CONSOLE"] ?? "");
  const allow = page.getByRole("button", { name: "Allow once" });
  await expect(allow).toBeEnabled();
  await expect(page.getByRole("heading", { name: "Create a.txt" })).toBeVisible();
  await expect(page.locator(".t.add", { hasText: "one" })).toBeVisible();
  expect(await barriers(page)).toEqual([]);
  await page.getByRole("button", { name: "More options" }).click();
  const uses = page.getByLabel("How many uses");
  await uses.focus();
  await page.keyboard.press("ControlOrMeta+a");
  await page.keyboard.type("2");
  await expect(page.getByLabel("For the next uses")).toBeChecked();
  // The secret is removed from the address, and survives a reload.
  expect(page.url()).not.toContain("#");
  const press = page.getByRole("button", { name: "Allow for 2 uses: create or change /repo/a.txt", exact: true });
  // Presses are ignored until the prompt has been unchanged for long enough.
  const over = page.getByText("No open questions");
  const answered = async (): Promise<boolean> => {
    if (await press.isVisible()) await press.click({ timeout: 1000 }).catch(() => undefined);
    return over.isVisible();
  };
  await expect.poll(answered, { timeout: 60_000 }).toBe(true);
  await page.reload();
  await page.getByRole("link", { name: "Permissions" }).click();
  const rule = page.locator("li.rule");
  await expect(rule).toContainText("1 use left");
  // The first press asks again, with another label.
  const revoke = rule.getByRole("button", { name: /^Revoke/ });
  const revoked = async (): Promise<number> => {
    if (await revoke.isVisible()) await revoke.click({ timeout: 1000 }).catch(() => undefined);
    return rule.count();
  };
  await expect.poll(revoked, { timeout: 60_000 }).toBe(0);
  await page.getByRole("link", { name: "Activity" }).click();
  await page.getByRole("button", { name: "Audit log" }).first().click();
  await expect(page.getByText(/The audit log is intact|continue the audit log/)).toBeVisible();
  await page.getByRole("button", { name: "Check again" }).click();
  await expect(page.getByText("The audit log is intact")).toBeVisible();
});
