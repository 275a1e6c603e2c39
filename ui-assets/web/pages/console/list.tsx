// The list pane: questions that wait, outcomes, and calls that are denied without asking.
import { computed } from "@preact/signals-core";
import type { ComponentChild, ComponentChildren } from "preact";

import { own, watch } from "../../lib/component.ts";
import { dangerWords } from "../../components/permission-prompt/dangers.ts";
import { left } from "../../lib/calm.ts";
import { host } from "../../lib/console/api.ts";
import type { Agent as Running, Outcome, Question } from "../../lib/console/api.ts";
import { CalmButton } from "../../lib/console/calm.tsx";
import { Failed } from "../../lib/console/parts.tsx";
import { second, state } from "../../lib/console/state.ts";
import { List, Rows } from "../../lib/list.tsx";
import { Agent, Button, Name } from "../../lib/ui.tsx";
import { visible } from "../../lib/visible.ts";
import { counted, shortPath } from "../../lib/words.ts";
import { count, current, detail, filter, folderOf, groups, idOf, kinds, listed, outcomes, show, tab, waiting } from "./inbox.ts";
import type { Group } from "./inbox.ts";
import { help } from "./keys.ts";
import { Status, lastWords } from "./outcomes.tsx";
import { SuggestionView, failure } from "./suggestion.tsx";

const pause = (agents: readonly Running[], paused: boolean): void => {
  void failure.of(Promise.all(agents.map(({ worker }) => host("pause", { worker, paused }))));
};

const none = (words: string): ComponentChild => <p class="quiet none">{words}</p>;

/** The remaining time, which changes each second. */
function Left({ at }: { readonly at: number }) {
  void second.value;
  return <span class="end">{left(at)} left</span>;
}

interface RowProps {
  readonly text: string;
  readonly isShown: boolean;
  readonly press: () => void;
  readonly children: ComponentChildren;
}

const Row = ({ text, isShown, press, children }: RowProps) => (
  <Button class="row" aria-current={isShown} press={press}>
    <span class="what"><Name text={text} /></span>
    <span class="facts quiet">{children}</span>
  </Button>
);

function QuestionRow({ question }: { readonly question: Question }) {
  const { sentence, files, files_total, dangers, expires_at } = question.bailiwick;
  const path = files[0]?.path;
  const kinds = dangers.filter((one) => dangers.find(({ kind }) => kind === one.kind) === one);
  return (
    <Row text={sentence} isShown={!!current.value && idOf(current.value) === idOf(question)} press={() => show({ question })}>
      {kinds.map(({ kind, level }) => <span key={kind} class={`badge danger ${level}`}>⚠ {dangerWords(kind)}</span>)}
      {path && <bdi class="path" title={visible(path)}>{shortPath(path)}</bdi>}
      {files_total > 1 && `and ${counted(files_total - 1, "more file")}`}
      <Left at={expires_at} />
    </Row>
  );
}

function GroupHeader({ group: { agent, questions } }: { readonly group: Group }) {
  const workers = new Set(questions.map(({ bailiwick }) => bailiwick.worker));
  const agents = state.value?.agents.filter(({ worker, paused }) => workers.has(worker) && !paused) ?? [];
  return (
    <div class="group">
      <h2><Agent name={agent} most={80} /> <span class="quiet">{questions.length}</span></h2>
      {agents.length > 0 && <CalmButton class="flat" press={() => pause(agents, true)}>Pause</CalmButton>}
      {questions.length > 1 && <CalmButton class="flat" press={() => show({ words: `of ${agent}`, questions })}>{`Allow or deny ${questions.length}…`}</CalmButton>}
    </div>
  );
}

function OutcomeRow({ outcome }: { readonly outcome: Outcome }) {
  const id = outcome.question;
  return (
    <Row text={outcome.sentence} isShown={detail.value?.outcome === id} press={() => show({ outcome: id })}>
      <Status outcome={outcome} />
      <span class="end"><Agent name={outcome.agent} most={40} /></span>
    </Row>
  );
}

/** The questions of a group, with a header for each folder if there are several. */
function byFolder({ agent, questions }: Group) {
  const folders = questions.map(folderOf);
  const isMany = folders[0] !== folders.at(-1);
  return questions.flatMap((question, at) => {
    const folder = folders[at] ?? "";
    const row = { key: idOf(question), row: <QuestionRow question={question} /> };
    return isMany && folder !== (folders[at - 1] ?? "") ? [{ key: agent + folder, row: <h3 class="folder quiet" title={visible(folder)}>{shortPath(folder)}</h3> }, row] : [row];
  });
}

/** The rows of the list: outcomes, or the header of each group and its questions. */
const all = computed((): readonly { readonly key: string; readonly row: ComponentChild }[] =>
  tab.value === "answered"
    ? outcomes.value.map((outcome) => ({ key: outcome.question, row: <OutcomeRow outcome={outcome} /> }))
    : groups.value.flatMap((group) => [
        { key: group.agent, row: <GroupHeader group={group} /> },
        ...byFolder(group),
      ]),
);

/** The rows, of which only those in view are rendered. */
function Items() {
  const rows = own(() => new Rows());
  watch(() => {
    const id = current.value && idOf(current.value);
    const at = all.peek().findIndex(({ key }) => key === id);
    if (at >= 0) rows.reveal(at);
  });
  const shown = all.value;
  // If nothing waits, the detail pane says so.
  if (shown.length === 0) return filter.value ? none("No matching questions.") : tab.value === "answered" && none("Nothing yet.");
  return <List key={tab.value} rows={rows} count={shown.length} height={62} varies keyOf={(index) => shown[index]?.key ?? index} row={(index) => shown[index]?.row} />;
}

interface StoppedProps {
  readonly agent: string;
  readonly children: ComponentChildren;
  readonly act: string;
  readonly press: () => void;
}

/** What an agent may not do for now, and a button that ends it. */
const Stopped = ({ agent, children, act, press }: StoppedProps) => (
  <p class="notice line">
    <span><Agent name={agent} />: {children}.</span>
    <CalmButton press={press}>{act}</CalmButton>
  </p>
);

/** Calls that are denied for the rest of a session. */
const Blocked = () => (
  <>
    {state.value?.refusals.length === 0 && none("Nothing is blocked.")}
    {state.value?.refusals.map(({ run, refusal, agent, refused }) => (
      <Stopped key={`${run} ${refusal}`} agent={agent} act="End this block: ask me again" press={() => void failure.of(host("ask-again", { run, refusal }))}>
        may not <Name text={refused} /> until its session ends
      </Stopped>
    ))}
  </>
);

const Paused = () => (
  <>
    {state.value?.agents.filter(({ paused }) => paused).map((one) => (
      <Stopped key={one.worker} agent={one.agent} act="Resume" press={() => pause([one], false)}>paused, its new calls wait</Stopped>
    ))}
  </>
);

function Tabs() {
  const now = state.value;
  if (!now) return null;
  if (tab.value === "answered") sessionStorage.setItem("seen", `${now.now}`);
  const seen = Number(sessionStorage.getItem("seen"));
  /** Questions that expired since the person last looked at the outcomes. */
  const missed = now.outcomes.filter(({ status, at }) => status === "expired" && at > seen).length;
  const tabs: readonly (readonly [typeof tab.value, string])[] = [
    ["waiting", `Waiting ${count.value}`],
    ["answered", `Answered ${missed ? `(${missed} missed)` : /^[✓✗]?/u.exec(lastWords())}`],
    ["blocked", `Blocked ${now.refusals.length + now.omitted.refusals}`],
  ];
  return (
    <div class="tabs" role="group" aria-label="Show">
      {tabs.map(([name, words]) => (
        <Button key={name} aria-pressed={tab.value === name} press={() => (tab.value = name)}>{words}</Button>
      ))}
    </div>
  );
}

export function ListPane() {
  const now = tab.value;
  const isMany = listed.value.length > 1;
  const omitted = count.value - waiting.value.length;
  return (
    <div class="list-pane">
      <div class="head">
        <div class="line"><Tabs /><Button class="flat end" aria-label="Keys" aria-keyshortcuts="?" press={help}>?</Button></div>
        {now !== "blocked" && (isMany || filter.value || now === "answered") && (
          <input type="search" placeholder="Filter by agent, file or kind" aria-label="Filter" value={filter.value} onInput={({ currentTarget }) => (filter.value = currentTarget.value)} />
        )}
        {now === "waiting" && isMany && (
          <p class="line">
            <span class="quiet">{`${counted(groups.value.length, "agent")}, ${counted(listed.value.reduce((sum, { bailiwick }) => sum + bailiwick.files_total, 0), "file")}`}</span>
            <CalmButton class="flat end" press={() => show({ words: filter.value && `with “${filter.value}”`, questions: listed.value })}>{`Allow or deny all ${listed.value.length}…`}</CalmButton>
            {kinds.value.map((kind) => <CalmButton key={kind.words} class="flat end" press={() => show(kind)}>{`All ${kind.questions.length} ${kind.words}…`}</CalmButton>)}
          </p>
        )}
        <Paused />
        <SuggestionView />
        <Failed failure={failure} />
      </div>
      <div class="scroll">
        {now === "blocked" ? <Blocked /> : <Items />}
        {now === "waiting" && omitted > 0 && none(`${omitted} more appear as you answer these.`)}
      </div>
    </div>
  );
}
