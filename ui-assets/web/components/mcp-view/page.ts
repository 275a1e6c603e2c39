// What a resolver gives in, the page to show out: its own files put in, the host's look before everything else.
import type { HostContext } from "../../bridge/types.ts";
import type { Fields } from "../../lib/kinds.ts";
import { isText, stringify } from "../../lib/kinds.ts";
import type { Variables } from "./look.ts";

/** What a resolver may give: a page as text, a resource as MCP has it, or the answer to `resources/read`. */
export type Resolved = string | Resource | { readonly contents: readonly Resource[] };
export type Resolver = (uri: string, extra: { readonly signal: AbortSignal }) => Promise<Resolved> | Resolved;

export interface Resource {
  readonly uri?: string;
  readonly mimeType?: string;
  readonly text?: string;
  readonly blob?: string;
  readonly _meta?: { readonly ui?: Fields };
}

/** The contents of a resource, as MCP has them. */
export const contents = (uri: string, given: Resolved): readonly Resource[] =>
  isText(given) ? [{ uri, mimeType: "text/html", text: given }] : "contents" in given ? given.contents : [{ uri, ...given }];

/** The first of them, which is the whole of a page or a file. */
export const contentOf = (uri: string, given: Resolved): Resource => contents(uri, given)[0] ?? {};

export const textOf = ({ text, blob = "" }: Resource): string => text ?? new TextDecoder().decode(Uint8Array.fromBase64(blob));

/** The same page with its `ui://` scripts, styles and media in it: a page without an origin can load nothing itself. */
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
      // Nothing in a file may end the element that it is put into.
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

/** Runs in the page, before it; its text is put there, so it may use nothing outside itself. */
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

/** The page behind what it is told of its host: the look, and `window.mcpData`. */
export const dressed = (html: string, context: HostContext): string =>
  `<!doctype html><script>(${dresser})(${stringify(context).replaceAll("<", "\\u003c")})</script>${html}`;
