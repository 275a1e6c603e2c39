// Prepares a page's HTML: inlines its `ui://` files and adds the host's theme.
import type { HostContext } from "../../bridge/types.ts";
import type { Fields } from "../../lib/json.ts";
import { isText, stringify } from "../../lib/json.ts";
import type { Variables } from "./look.ts";

/** A resolver's result: the page as text, an MCP resource, or a `resources/read` result. */
export type Resolved = string | Resource | { readonly contents: readonly Resource[] };
export type Resolver = (uri: string, extra: { readonly signal: AbortSignal }) => Promise<Resolved> | Resolved;

export interface Resource {
  readonly uri?: string;
  readonly mimeType?: string;
  readonly text?: string;
  readonly blob?: string;
  readonly _meta?: { readonly ui?: Fields };
}

/** The contents of a `resources/read` result. */
export const contents = (uri: string, given: Resolved): readonly Resource[] =>
  isText(given) ? [{ uri, mimeType: "text/html", text: given }] : "contents" in given ? given.contents : [{ uri, ...given }];

/** The first content item, which holds the whole page or file. */
export const contentOf = (uri: string, given: Resolved): Resource => contents(uri, given)[0] ?? {};

export const textOf = ({ text, blob = "" }: Resource): string => text ?? new TextDecoder().decode(Uint8Array.fromBase64(blob));

/** Inlines `ui://` scripts, styles and media, because a page with an opaque origin cannot load them itself. */
export async function inlined(html: string, read: (uri: string) => Promise<Resolved>): Promise<string> {
  if (!html.includes("ui://")) return html;
  const page = new DOMParser().parseFromString(html, "text/html");
  for (const element of page.querySelectorAll('link[href^="ui:"],[src^="ui:"]')) {
    const link = element.matches("link");
    const name = link ? "href" : "src";
    const uri = String(element.getAttribute(name));
    const file = contentOf(uri, await read(uri));
    const made = link ? page.createElement("style") : element;
    if (link || element.matches("script")) {
      made.removeAttribute(name);
      // Prevent the file's text from closing its element.
      made.textContent = textOf(file).replace(/<\/(?=style|script)/gi, "<\\/");
    } else made.setAttribute(name, `data:${file.mimeType}${file.blob ? `;base64,${file.blob}` : `,${encodeURIComponent(textOf(file))}`}`);
    element.replaceWith(made);
  }
  return `<!doctype html>${page.documentElement.getHTML()}`;
}

declare global {
  interface Window {
    mcpData?: unknown;
  }
}

/** Runs in the page before its own scripts. The function is serialized, so it must not reference outer variables. */
const dresser = (start: HostContext): void => {
  const put = (context: HostContext): void => {
    const { style } = document.documentElement;
    if (context.theme) style.colorScheme = context.theme;
    const variables = { ...context.styles?.variables, ...(context["dev.bailiwick/variables"] as Variables) };
    for (const name in variables) style.setProperty(name, variables[name] as string);
    const data = "dev.bailiwick/data";
    if (data in context) dispatchEvent(new CustomEvent("mcp-data", { detail: (window.mcpData = context[data]) }));
  };
  put(start);
  addEventListener("message", ({ source, data }) => {
    if (source === parent && /\/(dress|host-context-changed)$/.test(data.method)) put(data.params);
  });
};

/** Prepends a script that applies the theme and sets `window.mcpData`. */
export const dressed = (html: string, context: HostContext): string =>
  `<!doctype html><script>(${dresser})(${stringify(context).replaceAll("<", "\\u003c")})</script>${html}`;
