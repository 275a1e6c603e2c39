// mcporter: what its command line prints for an agent, as text and as JSON.
import { execFile } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { PROGRAM, run } from "./framework.mjs";

const folder = mkdtempSync(join(tmpdir(), "mcporter-"));
const config = join(folder, "mcporter.json");
const cli = "node_modules/mcporter/dist/cli.js";

// It exits with 1 for a call that failed, and prints that on its standard output, too.
const mcporter = (...words) =>
  new Promise((resolve) => {
    const argv = [cli, "--config", config, ...words];
    execFile(process.execPath, argv, { timeout: 60_000 }, (_error, stdout) => resolve(stdout));
  });

await run(async (options, steps) => {
  writeFileSync(config, JSON.stringify({ mcpServers: { files: { command: PROGRAM, args: options } }, imports: [] }));
  const listed = JSON.parse(await mcporter("list", "files", "--schema", "--json"));
  const schemas = Object.fromEntries(listed.tools.map((tool) => [tool.name, tool]));
  for (const output of ["text", "json"]) {
    const call = (name, args) => mcporter("call", `files.${name}`, "--args", JSON.stringify(args), "--output", output);
    await steps(schemas, call, (printed) => printed.includes("image/png"));
  }
});
