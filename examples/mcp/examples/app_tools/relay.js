// The messages of a page in a frame in, the same at its host out, and back: nothing of them is understood here.
const token = location.hash.slice(1);
history.replaceState(undefined, "", location.pathname);

// What may wait to be sent, in bytes: a few of the longest messages.
const most = 32 << 20;
const answer = await fetch("/api/page", { method: "POST", headers: { authorization: `Bearer ${token}` } });
if (!answer.ok) throw new Error(`the host answered ${answer.status}`);
const html = await answer.text();

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
  if (shown && socket.bufferedAmount > most) {
    // It says more than its host takes in.
    frame.remove();
    socket.close();
  } else if (shown) socket.send(JSON.stringify(data));
  else if (data?.method === `${kind}proxy-ready`) {
    shown = true;
    source.postMessage({ jsonrpc: "2.0", method: `${kind}resource-ready`, params: { html } }, "*");
  }
});
