// Shows a server's view in `<mcp-view>`, with a log of its messages.
import type { McpView } from "../../components/mcp-view/index.ts";
import type { Tool as Listed } from "../../components/mcp-view/index.ts";
import { h } from "../../lib/h.ts";
import type { Child } from "../../lib/h.ts";
import { effect, signal } from "../../lib/signals.ts";
import { oneLine } from "../../lib/visible.ts";
import { result } from "./api.ts";
import { isMembers, members, parsed, reason, shownAs } from "./json.ts";
import type { Members } from "./json.ts";
import type { Tool } from "./model.ts";
import { button, quiet, row, words } from "./parts.ts";
import { locale, policy, state, width } from "./store.ts";

const MOST_SAID = 50;
const MOST_TEXT = 10_000;

/** Adds a message of the view to the log, newest first. */
type Say = (title: string, what: unknown) => void;

function hooked(view: McpView, say: Say): void {
  view.hostInfo = { name: "bailiwick-test-host", version: "1" };
  view.resolver = async (uri) => members(await result("resources/read", { uri }));
  view.resourceLister = async (cursor) => members(await result("resources/list", { cursor }));
  // Calls from a view get the same permissions as calls from a model.
  view.toolCaller = async (params) => {
    return members(await result("tools/call", { ...params, _meta: policy() && { policy: policy() } }));
  };
  view.tools = state().tools.map((tool) => tool.tool as Listed);
  view.onopenlink = (url) => confirm(`The view wants to open\n${oneLine(url.href, 500)}`);
  view.onmessage = (content) => {
    say("says", content);
    return true;
  };
  view.onmodelcontext = (context) => say("tells the model", context);
  view.onconfirmtool = ({ name }, input) =>
    confirm(`Call ${oneLine(name)} of the view with ${oneLine(JSON.stringify(input), 500)}?`);
  view.onlog = (entry) => say("logs", entry);
}

/** Shows a view. It can call only tools that are visible to apps, and reach only the domains it declares. */
export function view(uri: string, tool?: Tool, input?: unknown, came?: unknown): Node {
  const said = signal<readonly (readonly [string, string])[]>([]);
  const tools = signal<readonly string[]>([]);
  const say: Say = (title, what) => said([[title, shownAs(what).slice(0, MOST_TEXT)] as const, ...said()].slice(0, MOST_SAID));
  const stage = h("div.stage", { "data-width": width, "data-uri": uri });
  const made = h("mcp-view", { "auto-height": true, "max-height": 1200, "sandbox-url": "/sandbox", src: uri });
  effect(() => {
    made.hostContext = { locale: locale(), ...(tool && { toolInfo: { tool: tool.tool as Listed & Members } }) };
  });
  const list = () =>
    made.appTools().then(
      (all) => tools(all.map(({ name }) => name)),
      (error: unknown) => say("has tools that cannot be listed:", reason(error)),
    );
  made.addEventListener("ready", () => void list());
  made.addEventListener("toolschanged", () => void list());
  hooked(made, say);
  made.title = !tool ? uri : `View of ${oneLine(tool.title, 80)}`;
  if (tool) {
    made.toolInput = members(input);
    made.toolResult = { content: [], ...members(came) };
  }
  stage.append(made);
  const lines = (): Child =>
    said().map(([title, what]) => h("details", h("summary", `The view ${title}`), words(what)));
  const given = h("input", { type: "text", class: "code", value: "{}", "aria-label": "Arguments of a tool of the view as JSON" });
  const use = async (name: string) => {
    const [input] = parsed(given.value);
    if (!isMembers(input)) return say(`was not asked for ${name}`, "The arguments are not a JSON object.");
    try {
      say(`answers ${name}`, await made.sendCallTool({ name, arguments: input }));
    } catch (error) {
      say(`refuses ${name}`, reason(error));
    }
  };
  const press = (name: string) => button(oneLine(name, 120), () => use(name), "small");
  const offered = (): Child => tools().length > 0 && [row(quiet("Tools of the view"), ...tools().map(press)), given];
  return h("div.shown", stage, offered, lines);
}
