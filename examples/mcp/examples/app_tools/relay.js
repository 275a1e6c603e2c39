// Relays messages between a view in a sandboxed frame and the host's WebSocket.
const token = location.hash.slice(1);
history.replaceState(undefined, "", location.pathname);

// The maximum number of buffered bytes.
const maxBuffered = 32 << 20;
const response = await fetch("/api/page", { method: "POST", headers: { authorization: `Bearer ${token}` } });
if (!response.ok) throw new Error(`the host returned ${response.status}`);
const html = await response.text();

const frame = document.createElement("iframe");
frame.setAttribute("sandbox", "allow-scripts allow-forms");
[frame.width, frame.height, frame.src] = ["1000", "700", "/sandbox"];
const kind = "ui/notifications/sandbox-";
let shown = false;
const socket = new WebSocket(`ws://${location.host}/api/guest`, ["bailiwick", token]);
socket.addEventListener("open", () => document.body.append(frame));
socket.addEventListener("message", ({ data }) => frame.contentWindow?.postMessage(JSON.parse(data), "*"));
socket.addEventListener("close", () => frame.remove());

addEventListener("message", ({ source, data }) => {
  if (source !== frame.contentWindow) return;
  if (shown && socket.bufferedAmount > maxBuffered) {
    // The host does not read fast enough.
    frame.remove();
    socket.close();
  } else if (shown) socket.send(JSON.stringify(data));
  else if (data?.method === `${kind}proxy-ready`) {
    shown = true;
    source.postMessage({ jsonrpc: "2.0", method: `${kind}resource-ready`, params: { html } }, "*");
  }
});
