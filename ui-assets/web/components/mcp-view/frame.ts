// A page and where to show it in, its frame out, with messages of that page alone.
import { allowed, policyOf } from "../../lib/csp.ts";
import type { Fields } from "../../lib/rpc.ts";

const START = 10_000;
const SANDBOX = "allow-scripts allow-forms";
const PROXY = "ui/notifications/sandbox-";

const quoted = (text: unknown): string => `"${String(text).replaceAll("&", "&amp;").replaceAll('"', "&quot;")}"`;

/** The two frames as one text, for a host that serves no sandbox page; the outer one has the policy, see pages/sandbox. */
function nested({ html, csp, permissions }: Fields): string {
  const style = "position:fixed;inset:0;width:100%;height:100%;border:0";
  return `<!doctype html><html style="color-scheme:light dark"><meta http-equiv=Content-Security-Policy content=${quoted(policyOf(csp))}><script>addEventListener("message",({source:s,data:d})=>{s==parent?frames[0].postMessage(d,"*"):s==frames[0]&&parent.postMessage(d,"*")});parent.postMessage({method:"${PROXY}proxy-ready"},"*")</script><iframe sandbox="${SANDBOX}" style="${style}" allow="${allowed(permissions)}" srcdoc=${quoted(html)}></iframe>`;
}

/** Puts the frame with the page into `root`, and calls `received` with what the page posts, until `signal`. */
export function framed(
  root: Node,
  element: HTMLIFrameElement,
  page: Fields,
  sandbox: string | null,
  signal: AbortSignal,
  received: (data: unknown) => void,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const url = sandbox === null ? undefined : new URL(sandbox, document.baseURI);
    // A page of this origin must not get the origin; one of another may need its own.
    element.setAttribute("sandbox", SANDBOX + (url && url.origin !== self.origin ? " allow-same-origin" : ""));
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
        if (url) element.contentWindow?.postMessage({ jsonrpc: "2.0", method: `${PROXY}resource-ready`, params: page }, "*");
        resolve();
      }
    };
    addEventListener("message", receive, { signal });
    signal.addEventListener("abort", () => reject(signal.reason));
    setTimeout(() => reject(new Error(`no sandbox started: ${url ?? "does the policy of this document allow it?"}`)), START);
    root.appendChild(element);
  });
}
