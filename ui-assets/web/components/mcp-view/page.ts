// What a resolver gives in, the page to show out: its own files put in, the host's look before everything else.
import { isFields } from "../../lib/rpc.ts";
import type { Fields } from "../../lib/rpc.ts";

/** What a resolver may give: a resource as MCP has it, the answer to `resources/read`, or what a `Response` is made of. */
export type Resolved = string | Blob | ArrayBuffer | Uint8Array<ArrayBuffer> | Response | Fields;
export type Resolver = (uri: string, extra: { readonly signal: AbortSignal }) => Promise<Resolved> | Resolved;

export interface Resource {
  readonly uri?: string;
  readonly mimeType?: string;
  readonly text?: string;
  readonly blob?: string;
  readonly _meta?: { readonly ui?: Fields };
}

const base64 = (bytes: Uint8Array): string => btoa(Array.from(bytes, (one) => String.fromCharCode(one)).join(""));

/** The contents of a resource, as MCP has them. */
export async function contents(uri: string, given: Resolved): Promise<readonly Resource[]> {
  if (isFields(given)) {
    if (Array.isArray(given.contents)) return given.contents;
    if (typeof (given.blob ?? given.text) === "string") return [{ uri, ...given }];
  }
  const response = given instanceof Response ? given : new Response(given as BodyInit);
  if (!response.ok) throw new Error(`${uri}: status ${response.status}`);
  const mimeType = response.headers.get("content-type") || "text/html";
  return [
    /^text|json|xml|script/.test(mimeType)
      ? { uri, mimeType, text: await response.text() }
      : { uri, mimeType, blob: base64(new Uint8Array(await response.arrayBuffer())) },
  ];
}

export function textOf({ text, blob = "" }: Resource): string {
  return text ?? new TextDecoder().decode(Uint8Array.from(atob(blob), (one) => one.charCodeAt(0)));
}

/** The same page with its `ui://` scripts, styles and media in it: a page without an origin can load nothing itself. */
export async function inlined(html: string, read: (uri: string) => Promise<Resource>): Promise<string> {
  if (!html.includes("ui://")) return html;
  const page = new DOMParser().parseFromString(html, "text/html");
  for (const element of page.querySelectorAll('link[href^="ui:"],[src^="ui:"]')) {
    const link = element.tagName === "LINK";
    const name = link ? "href" : "src";
    const file = await read(String(element.getAttribute(name)));
    element.removeAttribute(name);
    const made = link ? page.createElement("style") : element;
    // Nothing in a file may end the element that it is put into.
    if (link || element.tagName === "SCRIPT") made.textContent = textOf(file).replace(/<(?=\/(style|script))/gi, "\\3c ");
    else made.setAttribute(name, `data:${file.mimeType};base64,${file.blob ?? base64(new TextEncoder().encode(file.text))}`);
    element.replaceWith(made);
  }
  return `<!doctype html>${page.documentElement.getHTML()}`;
}

/** The page behind the look of its host: styles, `window.mcpData`, and changes of both. */
export function dressed(html: string, dress: Fields): string {
  return `<!doctype html><script>(${dresser})(${JSON.stringify(dress).replaceAll("<", "\\u003c")})</script>${html}`;
}

/** Runs in the page, before it; its text is put there, so it may use nothing outside itself. */
function dresser(start: Fields): void {
  const put = ({ theme, variables, data }: Fields): void => {
    const { style } = document.documentElement;
    style.colorScheme = theme as string;
    for (const [name, value] of Object.entries(variables as object)) style.setProperty(name, value);
    Object.assign(window, { mcpData: data });
    dispatchEvent(new CustomEvent("mcp-data", { detail: data }));
  };
  put(start);
  addEventListener("message", ({ source, data }) => {
    if (source === parent && data?.method === "dev.bailiwick/notifications/dress") put(data.params);
  });
}
