// Entry point of the test host's page.
import { each, h, when } from "../../lib/h.ts";
import { effect, memo, signal } from "../../lib/signals.ts";
import { oneLine } from "../../lib/visible.ts";
import { bar } from "./bar.ts";
import { badges, call } from "./call.ts";
import { waiting } from "./calls.ts";
import { checks } from "./checks.ts";
import type { App, Tool } from "./model.ts";
import { badge, button, code, row, said, search, told } from "./parts.ts";
import { configuration, policies } from "./settings.ts";
import { follow, locale, meetings, reconnect, state, theme, width } from "./store.ts";
import { view } from "./view.ts";
import { wire } from "./wire.ts";

function tools(): Node {
  const all = state().tools;
  const filter = signal("");
  const picked = signal(all[0]);
  const fits = ({ name, title, description }: Tool) => `${name} ${title} ${description}`.toLowerCase().includes(filter());
  const line = (tool: Tool) => {
    const lint = tool.lints.length > 0 && badge("! lint", "warn");
    const name = h("span.name", { title: oneLine(tool.name) }, said(tool.title, 80), lint);
    return h("li", button([name, badges(tool)], () => picked(tool), "pick-tool", { on: () => picked() === tool }));
  };
  const none = h("li.quiet", all.length === 0 ? "The server has no tools." : "No matching tools.");
  return h(
    "div.split",
    h(
      "nav",
      { "aria-label": "Tools" },
      search("Search tools", `Search ${all.length} tools`, filter),
      h("ul.plain list", each(() => all.filter(fits), line, none)),
    ),
    h("div.work", when(picked, call, () => told("no-tool"))),
  );
}

function applications(): Node {
  const { apps, tools: all } = state();
  const shows = (uri: string) => all.filter((tool) => tool.ui === uri).length;
  const picked = signal("");
  const line = ({ uri, title, name, description }: App) => {
    const open = button(said(title || name || uri, 80), () => picked(uri), "", { on: () => picked() === uri });
    const template = shows(uri) > 0 && badge(`shows what ${shows(uri)} tools answer`);
    return h("li", row(open, code(uri, 200, "quiet"), template), h("div.quiet", said(description)));
  };
  return h(
    "article",
    h("h2", "Applications"),
    h(
      "ul.plain",
      apps.toSorted((a, b) => shows(a.uri) - shows(b.uri)).map(line),
    ),
    apps.length === 0 && told("no-apps"),
    when(picked, (uri) => view(uri)),
  );
}

const PARTS = { Tools: tools, Applications: applications, Configuration: configuration, Policy: policies, Checks: checks, Wire: wire };
type Part = keyof typeof PARTS;

function app(): Node {
  const tab = signal<Part>("Tools");
  effect(() => {
    const root = document.documentElement;
    root.dataset["theme"] = theme();
    root.lang = locale();
    document.title = `${state().name === "" ? "" : `${oneLine(state().name, 60)} – `}MCP test host`;
  });
  // Keep typed input until the server completes another handshake.
  const met = memo(() => (state().greeting ? meetings() : -1));
  const why = () => told(state().status === "connecting" ? "meeting" : "no-server");
  const refused = () => state().status === "failed" && Boolean(state().configuration);
  const act = () => reconnect(state().revision, undefined);
  const anew = when(refused, () => row(button("Connect without the configuration", act)));
  const part = () => {
    const now = tab();
    if (now !== "Wire" && met() < 0) return h("div", why, anew);
    return PARTS[now]();
  };
  return h(
    "div.host",
    { "data-status": () => state().status, "data-revision": () => state().spoken, "data-width": width },
    bar(),
    h(
      "nav.tabs main",
      { "aria-label": "Parts" },
      (Object.keys(PARTS) as Part[]).map((one) => {
        const open = () => one === "Tools" && tab() !== "Tools" && waiting().length > 0;
        const made = button([one, when(open, () => [" ", badge("to answer", "warn")])], () => tab(one));
        effect(() => made.setAttribute("aria-current", tab() === one ? "page" : "false"));
        return made;
      }),
    ),
    h("main", when(() => [tab(), met()], part)),
  );
}

(document.getElementById("app") ?? document.body).append(app());
void follow();
