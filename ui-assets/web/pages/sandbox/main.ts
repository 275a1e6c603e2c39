// Sandbox page of `<mcp-view>`: shows an untrusted page in a nested frame and forwards its messages.
import { allowed, policyOf } from "../../lib/csp.ts";
import type { Fields } from "../../lib/json.ts";

const host = parent;
const kind = "ui/notifications/sandbox-";
let view: Window | undefined;

/**
 * A sandboxed frame can always navigate itself, and so send data to any site; only the CSP of the embedding document
 * prevents that. So the policy is set here and the frame inherits it. The frame is part of index.html and never has
 * `allow-same-origin`: the page always has an opaque origin.
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
  // Do not forward messages that belong to the sandbox protocol; from a page they are forged.
  else if (view && !method.startsWith(kind)) (source === host ? view : source === view ? host : null)?.postMessage(data, "*");
};
host.postMessage({ jsonrpc: "2.0", method: `${kind}proxy-ready`, params: {} }, "*");
