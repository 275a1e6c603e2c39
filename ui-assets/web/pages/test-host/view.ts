// The address of a page of the server in, that page in `<mcp-view>` out.
import { h } from "../../lib/h.ts";
import { at } from "./json.ts";
import type { Tool } from "./model.ts";
import { width } from "./store.ts";

export const isApp = (contents: unknown): boolean => at(contents, "mimeType") === "text/html;profile=mcp-app";

interface Shown {
  readonly uri: string;
  readonly tool?: Tool;
  readonly input?: unknown;
  readonly result?: unknown;
}

/** Shows a page; it may call only the tools that say so, and reaches no network but what it declares. */
export function view({ uri }: Shown): Node {
  return h("div", { class: "stage", "data-width": width, "data-uri": uri });
}
