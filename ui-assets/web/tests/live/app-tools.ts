// Live test of an app with tools that closes itself when it is done.
import { expect, test } from "../fixtures.ts";

test("an app exchanges messages with its host and closes with its view", async ({ page }) => {
  const asked: string[] = [];
  page.on("request", (request) => void asked.push(request.url()));
  page.on("websocket", (socket) => void asked.push(socket.url()));
  const address = process.env["BAILIWICK_APP"] ?? "";
  await page.goto(address);
  // The secret is removed from the address, and does not appear in the page's own requests.
  expect(page.url()).not.toContain("#");
  await page.frameLocator("iframe").frameLocator("iframe").getByRole("button", { name: "Talk" }).click();
  await expect(page.locator("iframe")).toHaveCount(0);
  const { host, hash } = new URL(address);
  expect(asked).toContain(`ws://${host}/api/guest`);
  expect(asked.join("\n")).not.toContain(hash.slice(1));
});
