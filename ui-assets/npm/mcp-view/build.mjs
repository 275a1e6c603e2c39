// Puts the files of the package into `dist`: the built element and sandbox page, and the types of the sources.
import { execFileSync } from "node:child_process";
import { copyFile, mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, "dist");
const web = join(here, "../../web");

await rm(out, { recursive: true, force: true });
await mkdir(out);
for (const name of ["mcp-view.js", "sandbox.html"]) await copyFile(join(here, "../../dist", name), join(out, name));
for (const name of ["LICENSE-APACHE", "LICENSE-MIT"]) await copyFile(join(here, "../../..", name), join(here, name));
execFileSync(join(web, "node_modules/.bin/tsc"), ["--project", here], { stdio: "inherit" });

// Published types import each other by the extension of the emitted files.
for (const entry of await readdir(join(out, "types"), { recursive: true, withFileTypes: true })) {
  if (!entry.isFile()) continue;
  const path = join(entry.parentPath, entry.name);
  const text = await readFile(path, "utf8");
  await writeFile(path, text.replace(/(from "\.[^"]*)\.ts"/g, '$1.js"'));
}
