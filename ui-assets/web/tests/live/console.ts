// Live test of the console: a grant is given and revoked.
import { barriers, expect, test } from "../fixtures.ts";

test.setTimeout(120_000);
test("a person grants two uses and revokes the grant", async ({ page }) => {
  await page.goto(process.env["BAILIWICK_CONSOLE"] ?? "");
  const allow = page.getByRole("button", { name: /^Allow/ });
  await expect(allow).toBeEnabled();
  await page.getByText("Details", { exact: true }).click();
  await expect(page.getByText("write:file:/repo/a.txt", { exact: true })).toBeVisible();
  await expect(page.locator(".t.add", { hasText: "one" })).toBeVisible();
  expect(await barriers(page)).toEqual([]);
  await page.getByRole("button", { name: "More options" }).click();
  const uses = page.getByLabel("How many uses");
  await uses.focus();
  await page.keyboard.press("ControlOrMeta+a");
  await page.keyboard.type("2");
  await expect(page.getByLabel("for the next uses")).toBeChecked();
  // The secret is removed from the address, and survives a reload.
  expect(page.url()).not.toContain("#");
  const press = page.getByRole("button", { name: /^Allow it to .*, for 2 uses$/ });
  // Presses are ignored until the prompt has been unchanged for long enough.
  const over = page.getByText("No pending requests");
  const answered = async (): Promise<boolean> => {
    if (await press.isVisible()) await press.click({ timeout: 1000 }).catch(() => undefined);
    return over.isVisible();
  };
  await expect.poll(answered, { timeout: 60_000 }).toBe(true);
  await page.reload();
  await page.getByRole("link", { name: "Permissions" }).click();
  await page.locator("summary", { hasText: "Rules" }).click();
  await expect(page.getByText("1 use left")).toBeVisible();
  const revoke = page.getByRole("button", { name: "Revoke" });
  const change = page.getByRole("switch", { name: "Change without asking" });
  const revoked = async (): Promise<string | null> => {
    if (await revoke.isVisible()) await revoke.click({ timeout: 1000 }).catch(() => undefined);
    return change.getAttribute("aria-checked");
  };
  await expect.poll(revoked, { timeout: 60_000 }).toBe("false");
  await page.getByRole("button", { name: "History" }).click();
  await expect(page.getByText(/The record is whole|continue the record/)).toBeVisible();
  await page.getByRole("button", { name: "Check again" }).click();
  await expect(page.getByText("The record is whole")).toBeVisible();
});
