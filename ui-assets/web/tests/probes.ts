// Probes: page bodies that try to reach a site.

type Probe = (site: string, port: number) => string;
const script = (text: string): string => `<script>${text}</script>`;
const late = (text: string): string => script(`addEventListener("load", () => setTimeout(() => { ${text} }, 0))`);

/** Page bodies that reach the site when unrestricted, and keep their page in place. */
export const STILL: Readonly<Record<string, Probe>> = {
  img: (site) => `<img src="${site}/leak">`,
  "img of a script": (site) => late(`new Image().src = "${site}/leak"`),
  "img by srcset": (site) => `<img srcset="${site}/leak 1x">`,
  "svg image": (site) => `<svg><image href="${site}/leak" width=9 height=9></image></svg>`,
  "input image": (site) => `<input type=image src="${site}/leak">`,
  beacon: (site) => late(`navigator.sendBeacon("${site}/leak", "x")`),
  fetch: (site) => late(`fetch("${site}/leak", { mode: "no-cors" })`),
  "fetch that outlives its page": (site) => late(`fetch("${site}/leak", { mode: "no-cors", keepalive: true })`),
  XMLHttpRequest: (site) => late(`const x = new XMLHttpRequest(); x.open("GET", "${site}/leak"); x.send()`),
  WebSocket: (site) => late(`new WebSocket("${site.replace("http", "ws")}/leak")`),
  EventSource: (site) => late(`new EventSource("${site}/leak")`),
  prefetch: (site) => `<link rel=prefetch href="${site}/leak">`,
  preload: (site) => `<link rel=preload as=image href="${site}/leak">`,
  modulepreload: (site) => `<link rel=modulepreload href="${site}/leak">`,
  "css @import": (site) => `<style>@import "${site}/leak";</style>`,
  "css background": (site) => `<p style="background:url(${site}/leak)">p</p>`,
  "css font": (site) => `<style>@font-face{font-family:f;src:url(${site}/leak)}p{font-family:f}</style><p>p</p>`,
  stylesheet: (site) => `<link rel=stylesheet href="${site}/leak">`,
  "script of a site": (site) => `<script src="${site}/leak"></script>`,
  "import()": (site) => late(`import("${site}/leak").catch(() => {})`),
  iframe: (site) => `<iframe src="${site}/leak"></iframe>`,
  "iframe of a frame": (site) => `<iframe srcdoc="<meta http-equiv=refresh content='0;url=${site}/leak'>"></iframe>`,
  object: (site) => `<object data="${site}/leak"></object>`,
  embed: (site) => `<embed src="${site}/leak">`,
  video: (site) => `<video src="${site}/leak" poster="${site}/leak" autoplay muted></video>`,
  "address of a module map": (site) => `<script type=importmap>{"imports":{"x":"${site}/leak"}}</script><script type=module>import "x"</script>`,
};

/** Probes that navigate their page away, or that are a whole page. */
export const ALONE: Readonly<Record<string, Probe>> = {
  location: (site) => late(`location = "${site}/leak"`),
  "location.replace": (site) => late(`location.replace("${site}/leak")`),
  "location by the address of a script": (site) => late(`location = "javascript:location='${site}/leak'"`),
  "meta refresh": (site) => `<meta http-equiv=refresh content="0;url=${site}/leak">`,
  anchor: (site) => `<a id=a href="${site}/leak">a</a>${late("a.click()")}`,
  "anchor that is not in the page": (site) => late(`Object.assign(document.createElement("a"), { href: "${site}/leak" }).click()`),
  "form by get": (site) => `<form id=f action="${site}/leak"><input name=q value=1></form>${late("f.submit()")}`,
  "form by post": (site) => `<form id=f method=post action="${site}/leak"><input name=q value=1></form>${late("f.requestSubmit()")}`,
  base: (site) => `<base href="${site}/"><img src="leak">`,
  "ping of an anchor": (site) => `<a id=a href="#x" ping="${site}/leak">a</a>${late("a.click()")}`,
  "speculation rules": (site) => `<script type=speculationrules>{"prefetch":[{"source":"list","urls":["${site}/leak"],"eagerness":"immediate"}]}</script>${late(`location = "${site}/leak"`)}`,
  worker: (site) =>
    late(`const b = URL.createObjectURL(new Blob(['fetch("${site}/leak", { mode: "no-cors" })'])); try { new Worker(b) } catch {} fetch("${site}/leak", { mode: "no-cors" })`),
  WebRTC: (_, port) =>
    late(`const c = new RTCPeerConnection({ iceServers: [{ urls: "stun:127.0.0.1:${port}" }] }); c.createDataChannel("d"); c.createOffer().then((o) => c.setLocalDescription(o))`),
};

/** Probes that use another window; only the sandbox stops them, not the policy. */
export const WINDOWS: Readonly<Record<string, Probe>> = {
  "window.open": (site) => late(`window.open("${site}/leak")`),
  "window.open of the window above": (site) => late(`window.open("${site}/leak", "_parent")`),
  "location of the window above": (site) => late(`parent.location = "${site}/leak"`),
  "location of the top": (site) => late(`top.location = "${site}/leak"`),
  "anchor to a new window": (site) => `<a id=a target=_blank href="${site}/leak">a</a>${late("a.click()")}`,
  "form to the top": (site) => `<form id=f target=_top action="${site}/leak"></form>${late("f.submit()")}`,
};
