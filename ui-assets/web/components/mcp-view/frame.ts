// Creates the sandboxed frame of a page and passes on messages from that frame only.
import { allowed, policyOf } from "../../lib/csp.ts";
import type { Fields } from "../../lib/json.ts";
import { UI, late } from "./limits.ts";

const START = 10_000;
const SANDBOX = "allow-scripts allow-forms";
const PROXY = `${UI}sandbox-`;
/** Inline style of a frame that fills its container. */
export const FILL = "border:0;width:100%;height:100%";

export const post = (frame: HTMLIFrameElement, message: Fields): void => frame.contentWindow?.postMessage(message, "*");

/**
 * Both frames as one document, for hosts that serve no sandbox page. The outer frame carries the CSP; see
 * pages/sandbox.
 */
function nested(page: Fields): string {
  return `<html style="color-scheme:light dark"><meta http-equiv=Content-Security-Policy content="${policyOf(page.csp)}"><script>onmessage=({source:s,data:d})=>(s==parent?frames[0]:s==frames[0]?parent:null)?.postMessage(d,"*");parent.postMessage({method:"${PROXY}proxy-ready"},"*")</script><iframe sandbox="${SANDBOX}" style="position:fixed;inset:0;${FILL}" allow="${allowed(page.permissions)}" srcdoc="${String(page.html).replaceAll("&", "&amp;").replaceAll('"', "&quot;")}"></iframe>`;
}

/** Appends the page's frame to `root` and calls `received` for messages from the page until `signal` aborts. */
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
    // A same-origin sandbox page must not get the host's origin; a cross-origin one may need its own.
    element.sandbox = SANDBOX + (url && url.origin !== self.origin ? " allow-same-origin" : "");
    // Delegate to any origin, since the sandbox page's header may make its origin opaque.
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
