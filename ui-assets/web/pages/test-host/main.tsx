// Entry point of the test host's page.
import { computed, effect, signal } from "@preact/signals-core";
import { render } from "preact";

import { local, own } from "../../lib/component.ts";
import { oneLine } from "../../lib/visible.ts";
import { Bar } from "./bar.tsx";
import { Badges, Call } from "./call.tsx";
import { waiting } from "./calls.ts";
import { Checks } from "./checks.tsx";
import { Message } from "./messages.tsx";
import type { App as Listed, Tool } from "./model.ts";
import { Button, Row, Search, badge, code, said } from "./parts.tsx";
import { Configuration, Policies } from "./settings.tsx";
import { follow, locale, meetings, reconnect, state, theme, width } from "./store.ts";
import { View } from "./view.tsx";
import { Wire } from "./wire.tsx";

function Tools() {
  const all = own(() => state.peek().tools);
  const filter = local("");
  const picked = local(all[0]);
  const fits = ({ name, title, description }: Tool): boolean => `${name} ${title} ${description}`.toLowerCase().includes(filter.value);
  const found = all.filter(fits);
  return (
    <div class="split">
      <nav aria-label="Tools">
        <Search label="Search tools" placeholder={`Search ${all.length} tools`} search={(words) => (filter.value = words)} />
        <ul class="plain list">
          {found.map((tool) => (
            <li key={tool.name}>
              <Button class="pick-tool" on={picked.value === tool} press={() => (picked.value = tool)}>
                <span class="name" title={oneLine(tool.name)}>
                  {said(tool.title, 80)}
                  {tool.lints.length > 0 && badge("! lint", "warn")}
                </span>
                <Badges tool={tool} />
              </Button>
            </li>
          ))}
          {found.length === 0 && <li class="quiet">{all.length === 0 ? "The server has no tools." : "No matching tools."}</li>}
        </ul>
      </nav>
      <div class="work">{picked.value ? <Call key={picked.value.name} tool={picked.value} /> : <Message name="no-tool" />}</div>
    </div>
  );
}

function Applications() {
  const { apps, tools: all } = own(() => state.peek());
  const picked = local("");
  const shows = (uri: string): number => all.filter((tool) => tool.ui === uri).length;
  const line = ({ uri, title, name, description }: Listed) => (
    <li key={uri}>
      <Row>
        <Button on={picked.value === uri} press={() => (picked.value = uri)}>{said(title || name || uri, 80)}</Button>
        {code(uri, 200, "quiet")}
        {shows(uri) > 0 && badge(`view of ${shows(uri)} tools`)}
      </Row>
      <div class="quiet">{said(description)}</div>
    </li>
  );
  return (
    <article>
      <h2>Applications</h2>
      <ul class="plain">{apps.toSorted((a, b) => shows(a.uri) - shows(b.uri)).map(line)}</ul>
      {apps.length === 0 && <Message name="no-apps" />}
      {picked.value && <View key={picked.value} uri={picked.value} />}
    </article>
  );
}

const PARTS = { Tools, Applications, Configuration, Policy: Policies, Checks, Wire };
type Part = keyof typeof PARTS;
const tab = signal<Part>("Tools");

effect(() => {
  const root = document.documentElement;
  root.dataset["theme"] = theme.value;
  root.lang = locale.value;
  document.title = `${state.value.name === "" ? "" : `${oneLine(state.value.name, 60)} – `}MCP test host`;
});
/** The number of the connection; typed input is kept until the server completes another handshake. */
const met = computed(() => (state.value.greeting ? meetings.value : -1));

function NoServer() {
  const { status, configuration, revision } = state.value;
  return (
    <div>
      <Message name="no-server" />
      {status === "failed" && !!configuration && (
        <Row><Button press={() => reconnect(revision, undefined)}>Connect without the configuration</Button></Row>
      )}
    </div>
  );
}

function App() {
  const Chosen = tab.value !== "Wire" && met.value < 0 ? NoServer : PARTS[tab.value];
  return (
    <div class="host" data-status={state.value.status} data-revision={state.value.spoken} data-width={width.value}>
      <Bar />
      <nav class="tabs main" aria-label="Parts">
        {(Object.keys(PARTS) as Part[]).map((one) => (
          <Button key={one} aria-current={tab.value === one ? "page" : "false"} press={() => (tab.value = one)}>
            {one}
            {one === "Tools" && tab.value !== "Tools" && waiting.value.length > 0 && <> {badge("to answer", "warn")}</>}
          </Button>
        ))}
      </nav>
      <main><Chosen key={`${tab.value} ${met.value}`} /></main>
    </div>
  );
}

render(<App />, document.getElementById("app") ?? document.body);
void follow();
