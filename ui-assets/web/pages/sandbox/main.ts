// A host's page and what it may reach in, a frame that may reach nothing else out; messages pass between that frame and the host.
import { allowed, policyOf } from "../../lib/csp.ts";

const host = parent;
const kind = "ui/notifications/sandbox-";
let view: Window | null | undefined;

/**
 * A sandboxed frame may always navigate itself, which tells another site whatever it wants to; only the policy of the
 * document around it stops that. So the policy stands here, and the page in the frame inherits it.
 */
function show({ html, csp, permissions }: Record<string, unknown>): void {
  const policy = document.createElement("meta");
  policy.httpEquiv = "Content-Security-Policy";
  policy.content = policyOf(csp);
  document.head.append(policy);
  const frame = document.querySelector("iframe") as HTMLIFrameElement;
  frame.allow = allowed(permissions);
  frame.srcdoc = html as string;
  view = frame.contentWindow;
}

onmessage = ({ source, data }) => {
  const method = String(data?.method);
  if (source === host && !view && method === `${kind}resource-ready`) show(data.params);
  // What a page says of the frames themselves is forged.
  else if (view && !method.startsWith(kind)) {
    if (source === host) view.postMessage(data, "*");
    if (source === view) host.postMessage(data, "*");
  }
};
host.postMessage({ jsonrpc: "2.0", method: `${kind}proxy-ready`, params: {} }, "*");
