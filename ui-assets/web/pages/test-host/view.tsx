// Shows a server's view in `<mcp-view>`, with a log of its messages.
import { signal } from "@preact/signals-core";
import { createRef } from "preact";

import type { McpView, Tool as Listed } from "../../components/mcp-view/index.ts";
import { local, own, watch } from "../../lib/component.ts";
import { oneLine } from "../../lib/visible.ts";
import { result } from "./api.ts";
import { isFields, members, parsed, reason, shownAs, stringify } from "./json.ts";
import type { Fields } from "./json.ts";
import type { Tool } from "./model.ts";
import { Button, Quiet, Row, Words } from "./parts.tsx";
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
  view.toolCaller = async (params) => members(await result("tools/call", { ...params, _meta: policy.value && { policy: policy.value } }));
  view.tools = state.peek().tools.map((tool) => tool.tool as Listed);
  view.onopenlink = (url) => confirm(`The view wants to open\n${oneLine(url.href, 500)}`);
  view.onmessage = (content) => {
    say("says", content);
    return true;
  };
  view.onmodelcontext = (context) => say("tells the model", context);
  view.onconfirmtool = ({ name }, input) => confirm(`Call ${oneLine(name)} of the view with ${oneLine(stringify(input), 500)}?`);
  view.onlog = (entry) => say("logs", entry);
}

interface ViewProps {
  readonly uri: string;
  readonly tool?: Tool;
  readonly input?: unknown;
  readonly came?: unknown;
}

/** Shows a view. It can call only tools that are visible to apps, and reach only the domains it declares. */
export function View({ uri, tool, input, came }: ViewProps) {
  const said = own(() => signal<readonly (readonly [string, string])[]>([]));
  const tools = local<readonly string[]>([]);
  const given = own(createRef<HTMLInputElement>);
  const say: Say = (title, what) => void (said.value = [[title, shownAs(what).slice(0, MOST_TEXT)] as const, ...said.peek()].slice(0, MOST_SAID));
  const view = own(() => {
    const made = document.createElement("mcp-view");
    for (const [name, value] of Object.entries({ "auto-height": "", "max-height": "1200", "sandbox-url": "/sandbox", src: uri })) made.setAttribute(name, value);
    const list = (): void =>
      void made.appTools().then(
        (all) => (tools.value = all.map(({ name }) => name)),
        (error: unknown) => say("has tools that cannot be listed", reason(error)),
      );
    made.addEventListener("ready", list);
    made.addEventListener("toolschanged", list);
    hooked(made, say);
    made.title = !tool ? uri : `View of ${oneLine(tool.title, 80)}`;
    if (tool) {
      made.toolInput = members(input);
      made.toolResult = { content: [], ...members(came) };
    }
    return made;
  });
  watch(() => void (view.hostContext = { locale: locale.value, ...(tool && { toolInfo: { tool: tool.tool as Listed & Fields } }) }));
  const use = async (name: string): Promise<void> => {
    const [input] = parsed(given.current?.value ?? "");
    if (!isFields(input)) return say(`was not asked for ${name}`, "The arguments are not a JSON object.");
    try {
      say(`answers ${name}`, await view.sendCallTool({ name, arguments: input }));
    } catch (error) {
      say(`refuses ${name}`, reason(error));
    }
  };
  return (
    <div class="shown">
      <div class="stage" data-width={width.value} data-uri={uri} ref={(stage) => void (stage && view.parentNode !== stage && stage.append(view))} />
      {tools.value.length > 0 && (
        <>
          <Row>
            <Quiet>Tools of the view</Quiet>
            {tools.value.map((name) => <Button class="small" press={() => use(name)}>{oneLine(name, 120)}</Button>)}
          </Row>
          <input type="text" class="code" defaultValue="{}" aria-label="Arguments as JSON" ref={given} />
        </>
      )}
      {said.value.map(([title, what], at) => (
        <details key={said.value.length - at}>
          <summary>The view {title}</summary>
          <Words text={what} />
        </details>
      ))}
    </div>
  );
}
