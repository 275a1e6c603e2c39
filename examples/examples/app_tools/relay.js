// The messages of a page in a frame in, the same at its host out, and back: nothing of them is understood here.
const token = location.hash.slice(1);
history.replaceState(undefined, "", location.pathname);

async function post(what, body = "") {
  const answer = await fetch(`/api/${what}`, { method: "POST", headers: { authorization: `Bearer ${token}` }, body });
  if (!answer.ok) throw new Error(`the host answered ${answer.status} to \`${what}\``);
  return answer;
}

const frame = document.createElement("iframe");
frame.setAttribute("sandbox", "allow-scripts allow-forms");
[frame.width, frame.height, frame.src] = ["1000", "700", "/sandbox"];
const kind = "ui/notifications/sandbox-";
const html = await (await post("page")).text();
let shown = false;
// One after the other, as they were said.
let said = Promise.resolve();

addEventListener("message", ({ source, data }) => {
  if (source !== frame.contentWindow) return;
  if (shown) said = said.then(() => post("said", JSON.stringify(data)));
  else if (data?.method === `${kind}proxy-ready`) {
    shown = true;
    source.postMessage({ jsonrpc: "2.0", method: `${kind}resource-ready`, params: { html } }, "*");
  }
});
document.body.append(frame);

for (let open = true; open; ) {
  const heard = await (await post("heard")).json();
  for (const message of heard.messages) frame.contentWindow.postMessage(JSON.parse(message), "*");
  open = heard.open;
}
frame.remove();
