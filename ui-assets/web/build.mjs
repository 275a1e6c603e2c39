// Builds each page and component into one self-contained file: `node build.mjs [FOLDER EXAMPLES]`. FOLDER defaults to
// ../dist; the pages of examples are written next to their Rust code.
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

import { build } from "esbuild";

import { budgets, examples } from "./sizes.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const out = resolve(process.argv[2] ?? join(here, "../dist"));
const shown = resolve(process.argv[3] ?? join(here, "../../examples/mcp/examples"));

/** Removes the only place where Preact parses markup, so no page can turn text into elements. */
const withoutMarkup = {
  name: "without-markup",
  setup({ onLoad }) {
    onLoad({ filter: /\/preact\/dist\/preact\.mjs$/ }, async ({ path }) => {
      const source = await readFile(path, "utf8");
      if (!source.includes(".innerHTML")) throw new Error("`dangerouslySetInnerHTML` of Preact was not found");
      return { contents: source.replaceAll(".innerHTML", ".textContent"), loader: "js" };
    });
  },
};

async function bundled(folder, name, format) {
  const entry = ["ts", "tsx"].map((extension) => join(folder, `${name}.${extension}`)).find(existsSync);
  const result = await build({
    entryPoints: [entry],
    absWorkingDir: here,
    bundle: true,
    minify: true,
    legalComments: "none",
    charset: "utf8",
    target: "es2022",
    format,
    // Smaller than calls with all children in a property, which is what `react-jsx` in tsconfig.json stands for.
    jsx: "transform",
    jsxFactory: "h",
    jsxFragment: "Fragment",
    inject: entry.endsWith("x") ? [join(here, "lib/component.ts")] : [],
    tsconfigRaw: {},
    conditions: ["browser"],
    write: false,
    plugins: [withoutMarkup],
  });
  // The HTML parser ends a script element at the first `</script`, even inside a string.
  return result.outputFiles[0].text.trimEnd().replaceAll("</script", "<\\/script");
}

async function style(entry) {
  const result = await build({
    entryPoints: [entry],
    absWorkingDir: here,
    bundle: true,
    minify: true,
    legalComments: "none",
    target: "es2022",
    write: false,
  });
  return result.outputFiles[0].text.trimEnd();
}

const allowed = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;

/**
 * Builds a page: inlines script and style into `index.html`, and puts their hashes into its Content Security Policy.
 */
async function page(folder) {
  const script = await bundled(folder, "main", "iife");
  const css = await style(join(folder, "style.css"));
  const html = await readFile(join(folder, "index.html"), "utf8");
  const replaced = html
    .replaceAll(/\n\s*/g, "")
    .replace("STYLE_HASH", allowed(css))
    .replace("SCRIPT_HASH", allowed(script))
    .replace("<!--style-->", () => `<style>${css}</style>`)
    .replace("<!--script-->", () => `<script>${script}</script>`);
  return { text: `${replaced}\n`, script };
}

async function folders(name) {
  const found = await readdir(join(here, name), { withFileTypes: true });
  return found.filter((entry) => entry.isDirectory()).map((entry) => entry.name).sort();
}

async function main() {
  const made = new Map();
  /** Style sheets of components that render into the host's own document, and those that servers serve. */
  const sheets = new Map();
  for (const name of ["tokens.css", "utilities.css"]) sheets.set(name, `${await style(join(here, "lib/static", name))}\n`);
  for (const name of await folders("pages")) {
    made.set(`${name}.html`, await page(join(here, "pages", name)));
  }
  for (const name of await folders("components")) {
    const script = await bundled(join(here, "components", name), "index", "esm");
    made.set(`${name}.js`, { text: `${script}\n`, script });
    const sheet = join(here, "components", name, "style.css");
    if (existsSync(sheet)) sheets.set(`${name}.css`, `${await style(sheet)}\n`);
  }
  await rm(out, { recursive: true, force: true });
  await mkdir(out, { recursive: true });
  for (const [name, text] of sheets) await writeFile(join(out, name), text);
  const over = [];
  for (const [name, { text, script }] of made) {
    await writeFile(join(out, name), text);
    const size = Buffer.byteLength(script);
    const budget = budgets[name];
    console.log(`${name.padEnd(24)} script ${String(size).padStart(7)} of ${budget ?? "?"}, file ${Buffer.byteLength(text)}`);
    if (budget === undefined || size > budget) {
      over.push(`${name}: ${size} bytes of script, ${budget === undefined ? "and sizes.mjs names no most" : `at most ${budget}`}`);
    }
  }
  for (const [name, most] of Object.entries(examples)) {
    const { text, script } = await page(join(here, "examples", name));
    await mkdir(join(shown, name), { recursive: true });
    await writeFile(join(shown, name, "dashboard.html"), text);
    const size = Buffer.byteLength(script);
    console.log(`${name.padEnd(24)} script ${String(size).padStart(7)} of ${most}, an example's`);
    if (size > most) over.push(`${name}: ${size} bytes of script, at most ${most}`);
  }
  if (over.length > 0) throw new Error(`too large:\n  ${over.join("\n  ")}`);
}

await main();
