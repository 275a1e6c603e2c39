// What a resolver gives in, the page to show out: its own files put in, the host's look before everything else.
import type { Fields } from "../../lib/rpc.ts";

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
export function contents(uri: string, given: Resolved): readonly Resource[] {
  if (typeof given === "string") return [{ uri, mimeType: "text/html", text: given }];
  return "contents" in given ? given.contents : [{ uri, ...given }];
}

export function textOf({ text, blob = "" }: Resource): string {
  return text ?? new TextDecoder().decode(Uint8Array.fromBase64(blob));
}

/** The same page with its `ui://` scripts, styles and media in it: a page without an origin can load nothing itself. */
export async function inlined(html: string, read: (uri: string) => Promise<Resource>): Promise<string> {
  if (!html.includes("ui://")) return html;
  const page = new DOMParser().parseFromString(html, "text/html");
  for (const element of page.querySelectorAll('link[href^="ui:"],[src^="ui:"]')) {
    const link = element.matches("link");
    const name = link ? "href" : "src";
    const file = await read(String(element.getAttribute(name)));
    element.removeAttribute(name);
    const made = link ? page.createElement("style") : element;
    // Nothing in a file may end the element that it is put into.
    if (link || element.matches("script")) made.textContent = textOf(file).replace(/<\/(?=style|script)/gi, "<\\/");
    else made.setAttribute(name, `data:${file.mimeType}${file.blob ? `;base64,${file.blob}` : `,${encodeURIComponent(textOf(file))}`}`);
    element.replaceWith(made);
  }
  return `<!doctype html>${page.documentElement.getHTML()}`;
}

/** The page behind what it is told of its host: the look, and `window.mcpData`. */
export function dressed(html: string, context: Fields): string {
  return `<!doctype html><script>(${dresser})(${JSON.stringify(context).replaceAll("<", "\\u003c")})</script>${html}`;
}

/** Runs in the page, before it; its text is put there, so it may use nothing outside itself. */
function dresser(start: Fields): void {
  const put = (context: Fields): void => {
    const { style } = document.documentElement;
    const { theme, styles } = context;
    if (theme) style.colorScheme = theme as string;
    const variables = Object(Object.assign({}, Object(styles).variables, context["dev.bailiwick/variables"]));
    for (const name in variables) style.setProperty(name, variables[name]);
    const data = "dev.bailiwick/data";
    if (!(data in context)) return;
    Object.assign(window, { mcpData: context[data] });
    dispatchEvent(new CustomEvent("mcp-data", { detail: context[data] }));
  };
  put(start);
  addEventListener("message", ({ source, data }) => {
    if (source === parent && /\/(dress|host-context-changed)$/.test(data.method)) put(data.params);
  });
}
