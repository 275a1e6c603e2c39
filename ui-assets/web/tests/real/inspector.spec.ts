// The file browser of the real program in the web page of the MCP Inspector.
import { spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

import { expect, test } from "../fixtures.ts";

/** A port that nobody uses, since the Inspector needs its number ahead. */
async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address() as AddressInfo;
  await new Promise((done) => server.close(done));
  return port;
}

/** Starts the Inspector named by `BAILIWICK_INSPECTOR` with `BAILIWICK_NODE`, and with the program over `root` as its server. */
async function inspector(home: string, root: string) {
  const config = join(home, "servers.json");
  await writeFile(config, JSON.stringify({ mcpServers: { files: { command: process.env["BAILIWICK_PROGRAM"], args: ["serve", root] } } }));
  const args = [process.env["BAILIWICK_INSPECTOR"] ?? "", "--web", "--config", config];
  const env = { PATH: process.env["PATH"], HOME: home, HOST: "127.0.0.1", CLIENT_PORT: String(await freePort()), MCP_AUTO_OPEN_ENABLED: "false" };
  const child = spawn(process.env["BAILIWICK_NODE"] ?? "", args, { stdio: ["ignore", "pipe", "ignore"], env });
  const ended = new Promise<void>((done) => child.once("exit", () => done()));
  const url = await new Promise<string>((started, failed) => {
    createInterface({ input: child.stdout }).on("line", (line) => {
      const at = /http:\/\/127\.0\.0\.1:\S+/.exec(line);
      if (at !== null) started(at[0]);
    });
    void ended.then(() => failed(new Error("the Inspector ended")));
  });
  return {
    url,
    async close() {
      child.kill();
      await ended;
    },
  };
}

test("works in the web page of the Inspector", async ({ page }) => {
  const [home, root] = [await mkdtemp(join(tmpdir(), "bailiwick-")), await mkdtemp(join(tmpdir(), "bailiwick-"))];
  await writeFile(join(root, "a.txt"), "one\n");
  const started = await inspector(home, root);
  try {
    await page.goto(started.url);
    await page.getByRole("switch").press("Space");
    await page.getByText("Apps", { exact: true }).click();
    await page.getByText("List roots").first().click();
    const frame = page.frameLocator("iframe").frameLocator("iframe");
    await frame.getByRole("treeitem", { name: "a.txt" }).click();
    await expect(frame.locator("#line-1")).toContainText("one");
  } finally {
    await started.close();
    await rm(home, { recursive: true });
    await rm(root, { recursive: true });
  }
});
