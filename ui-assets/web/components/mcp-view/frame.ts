// A page and where to show it in, its frame out, with messages of that page alone.
import { allowed, policyOf } from "../../lib/csp.ts";
import type { Fields } from "../../lib/kinds.ts";
import { UI, late } from "./limits.ts";

const START = 10_000;
const SANDBOX = "allow-scripts allow-forms";
const PROXY = `${UI}sandbox-`;
/** How a frame fills what holds it. */
export const FILL = "border:0;width:100%;height:100%";

export const post = (frame: HTMLIFrameElement, message: Fields): void => frame.contentWindow?.postMessage(message, "*");

/** The two frames as one text, for a host that serves no sandbox page; the outer one has the policy, see pages/sandbox. */
function nested(page: Fields): string {
  return `<html style="color-scheme:light dark"><meta http-equiv=Content-Security-Policy content="${policyOf(page.csp)}"><script>onmessage=({source:s,data:d})=>(s==parent?frames[0]:s==frames[0]?parent:null)?.postMessage(d,"*");parent.postMessage({method:"${PROXY}proxy-ready"},"*")</script><iframe sandbox="${SANDBOX}" style="position:fixed;inset:0;${FILL}" allow="${allowed(page.permissions)}" srcdoc="${String(page.html).replaceAll("&", "&amp;").replaceAll('"', "&quot;")}"></iframe>`;
}

/** Puts the frame with the page into `root`, and calls `received` with what the page posts, until `signal`. */
export function framed(
  root: ShadowRoot,
  element: HTMLIFrameElement,
  page: Fields,
  sandbox: string | null,
  signal: AbortSignal,
  received: (data: unknown) => void,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const url = sandbox ? new URL(sandbox, document.baseURI) : undefined;
    // A page of this origin must not get the origin; one of another may need its own.
    element.sandbox = SANDBOX + (url && url.origin !== self.origin ? " allow-same-origin" : "");
    // To whatever origin the sandbox page has: its header takes the one away that it is from.
    element.allow = allowed(page.permissions).replace(/[\w-]+/g, "$& *");
    if (url) element.src = String(url);
    else element.srcdoc = nested(page);
    let holds = false;
    const receive = ({ source, origin, data }: MessageEvent): void => {
      if (!source || source !== element.contentWindow || (origin !== "null" && origin !== url?.origin)) return;
      if (holds) received(data);
      else if (data?.method === `${PROXY}proxy-ready`) {
        holds = true;
        if (url) post(element, { jsonrpc: "2.0", method: `${PROXY}resource-ready`, params: page });
        resolve();
      }
    };
    addEventListener("message", receive, { signal });
    signal.onabort = reject;
    late(START, `no sandbox started: ${url ?? "does the policy of this document allow it?"}`).catch(reject);
    root.append(element);
  });
}
