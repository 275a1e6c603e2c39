// The address of a page that a host closes once it has talked enough in, how it goes then out.
import { expect, test } from "../fixtures.ts";

test("a page talks to its host and goes when its view does", async ({ page }) => {
  const asked: string[] = [];
  page.on("request", (request) => void asked.push(request.url()));
  page.on("websocket", (socket) => void asked.push(socket.url()));
  const address = process.env["BAILIWICK_APP"] ?? "";
  await page.goto(address);
  // The address has lost its secret, and no request has it in its own.
  expect(page.url()).not.toContain("#");
  await page.frameLocator("iframe").frameLocator("iframe").getByRole("button", { name: "Talk" }).click();
  await expect(page.locator("iframe")).toHaveCount(0);
  const { host, hash } = new URL(address);
  expect(asked).toContain(`ws://${host}/api/guest`);
  expect(asked.join("\n")).not.toContain(hash.slice(1));
});
