// A host's page and what it may reach in, a frame that may reach nothing else out; messages pass between that frame and the host.
import { allowed, policyOf } from "../../lib/csp.ts";
import type { Fields } from "../../lib/kinds.ts";

const host = parent;
const kind = "ui/notifications/sandbox-";
let view: Window | undefined;

/**
 * A sandboxed frame may always navigate itself, which tells another site whatever it wants to; only the policy of the
 * document around it stops that. So the policy stands here, and the page in the frame inherits it. That frame stands in
 * index.html, never with `allow-same-origin`: whatever is asked for, the page has no origin.
 */
function show(page: Fields): void {
  const policy = document.createElement("meta");
  policy.httpEquiv = "Content-Security-Policy";
  policy.content = policyOf(page.csp);
  document.head.append(policy);
  const frame = document.querySelector("iframe") as HTMLIFrameElement;
  frame.allow = allowed(page.permissions);
  frame.srcdoc = page.html as string;
  view = frames[0];
}

onmessage = ({ source, data }) => {
  const method = String(data?.method);
  if (source === host && !view && method === `${kind}resource-ready`) show(data.params);
  // What a page says of the frames themselves is forged.
  else if (view && !method.startsWith(kind)) (source === host ? view : source === view ? host : null)?.postMessage(data, "*");
};
host.postMessage({ jsonrpc: "2.0", method: `${kind}proxy-ready`, params: {} }, "*");
