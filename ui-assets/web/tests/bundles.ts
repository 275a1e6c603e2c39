// Bundles TypeScript snippets into test pages.
import { fileURLToPath } from "node:url";

import { build } from "esbuild";
import type { BuildOptions } from "esbuild";

const component = fileURLToPath(new URL("../lib/component.ts", import.meta.url));
/** Compiles JSX as the build of the pages does. */
const JSX: BuildOptions = { jsx: "transform", jsxFactory: "h", jsxFragment: "Fragment", inject: [component], tsconfigRaw: {} };

/** Bundles the snippet into a classic script; imports are relative to `tests/`. */
export async function bundled(text: string): Promise<string> {
  const result = await build({
    stdin: { contents: text, resolveDir: fileURLToPath(new URL(".", import.meta.url)), loader: "ts" },
    bundle: true,
    format: "iife",
    target: "es2022",
    conditions: ["browser"],
    define: { "process.env.NODE_ENV": '"production"' },
    ...(text.includes(".tsx") && JSX),
    logLevel: "silent",
    write: false,
  });
  return (result.outputFiles?.[0]?.text ?? "").replaceAll("</script", "<\\/script");
}

/** A page with the snippet as its script. */
export async function pageOf(text: string, body = ""): Promise<string> {
  return `<!doctype html><html lang="en"><head><title>A page</title></head><body>${body}<script>${await bundled(text)}</script></body></html>`;
}
