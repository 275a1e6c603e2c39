// Packs the npm package of `<mcp-view>`, installs it into a temporary folder, and runs its host page.
import { execFile, spawn } from "node:child_process";
import { cp, mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const run = promisify(execFile);
const source = fileURLToPath(new URL("../../npm/mcp-view/", import.meta.url));

export interface Installed {
  /** The folder of a project that has the package. */
  readonly project: string;
  remove(): Promise<void>;
}

/** Installs the packed package into a new project. */
export async function installed(): Promise<Installed> {
  const project = await mkdtemp(join(tmpdir(), "mcp-view-"));
  await run("npm", ["pack", "--pack-destination", project], { cwd: source });
  const [packed] = await readdir(project);
  await run("npm", ["install", "--offline", "--no-audit", "--no-fund", join(project, String(packed))], { cwd: project });
  return { project, remove: () => rm(project, { recursive: true }) };
}

/** Copies the plain example into the project and starts it with an MCP server; returns the URL of its page. */
export async function plainHost(project: string, command: readonly string[]): Promise<{ readonly url: string; close(): Promise<void> }> {
  const folder = join(project, "plain");
  await cp(join(project, "node_modules/@bailiwick/mcp-view/examples/plain"), folder, { recursive: true });
  const child = spawn(process.execPath, ["server.mjs", ...command], { cwd: folder, stdio: ["ignore", "pipe", "inherit"], env: { PORT: "0" } });
  const ended = new Promise<void>((done) => child.once("exit", () => done()));
  const url = await new Promise<string>((started, failed) => {
    createInterface({ input: child.stdout }).once("line", started);
    void ended.then(() => failed(new Error("the host has ended")));
  });
  return {
    url,
    async close() {
      child.kill();
      await ended;
    },
  };
}
