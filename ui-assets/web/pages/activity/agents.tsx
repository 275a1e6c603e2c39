// The tree of agents, and what the chosen one may do, has changed and asks; with pause and stop.
import { computed, signal } from "@preact/signals-core";

import { own } from "../../lib/component.ts";
import { Agent as AgentName, Button, Name, quotedName } from "../../lib/ui.tsx";
import { oneLine } from "../../lib/visible.ts";
import { counted } from "../../lib/words.ts";
import { host } from "../../lib/console/api.ts";
import type { Agent } from "../../lib/console/api.ts";
import { CalmButton } from "../../lib/console/calm.tsx";
import { agents, when } from "../../lib/console/calls.ts";
import type { AgentDetails } from "../../lib/console/calls.ts";
import { Confirm, confirming } from "../../lib/console/confirm.tsx";
import { Failed, Failure } from "../../lib/console/parts.tsx";
import { state } from "../../lib/console/state.ts";
import { Statements } from "../../lib/console/statements.tsx";
import { Undo } from "../../lib/console/undo.tsx";
import { operationWords } from "../../lib/diff/view.tsx";
import { callers, reload, subject, undoable } from "./calls.ts";

/** Number of questions of an agent that are listed. */
const MOST_QUESTIONS = 5;
const ACCESS = { read: "Reads only", interact: "Reads and changes", full: "Reads, changes and runs" } as const;

/** The worker whose calls are shown. */
const chosen = computed(() => (subject.value && "worker" in subject.value ? subject.value.worker : ""));
const live = computed(() => agents.value.find(({ worker }) => worker === chosen.value));
/** The paths of agents that have calls and no live worker. */
const ended = computed(() => callers.value.filter((path) => !agents.value.some(({ agent }) => agent === path)));

const details = signal<AgentDetails | undefined>(undefined);
const detailsFailure = new Failure();
const actions = new Failure();
/** What the last action did. */
const done = signal("");
/** The chosen agent as it was last reported, to name it once it has ended. */
const last = signal<Agent | undefined>(undefined);

/** Incremented by each request for an agent, to ignore outdated responses. */
let turn = 0;
let isBusy = false;
let isDue = false;

async function load(): Promise<void> {
  const now = (turn += 1);
  isBusy = true;
  isDue = false;
  try {
    const came = await host<AgentDetails>(`agent/${chosen.value}`);
    if (now !== turn) return;
    detailsFailure.error.value = undefined;
    details.value = came;
  } catch (error) {
    if (now === turn) detailsFailure.error.value = error;
  }
  if (now !== turn) return;
  isBusy = false;
  if (isDue) refreshAgent();
}

/** Loads the details of the chosen agent, after the request under way. */
export function refreshAgent(): void {
  if (!live.value) return;
  last.value = live.value;
  if (isBusy) isDue = true;
  else void load();
}

function choose(next: typeof subject.value): void {
  turn += 1;
  isBusy = isDue = false;
  subject.value = next;
  details.value = undefined;
  actions.error.value = detailsFailure.error.value = undefined;
  done.value = confirming.value = "";
  refreshAgent();
  reload();
}

const facts = ({ calls, questions, changed }: Agent): string =>
  [calls && counted(calls, "open call"), questions && counted(questions, "question"), changed && `${counted(changed, "file")} changed`].filter(Boolean).join(" · ");

const childrenOf = (parent: Agent | undefined): readonly Agent[] => {
  const known = new Set(agents.value.map(({ worker }) => worker));
  return agents.value.filter((one) => (parent ? one.parent === parent.worker : one.parent === null || !known.has(one.parent)));
};

/** The agents beneath one, at any depth. */
const beneath = (agent: Agent): readonly Agent[] => childrenOf(agent).flatMap((child) => [child, ...beneath(child)]);

/** The paused parent of an agent, which is paused together with it. */
const pausedParent = (agent: Agent): Agent | undefined => agents.value.find(({ worker, paused }) => paused && worker === agent.parent);

const Branch = ({ agent }: { readonly agent: Agent }) => {
  const children = childrenOf(agent);
  return (
    <li>
      <Button class="agent" aria-pressed={chosen.value === agent.worker} press={() => choose({ worker: agent.worker })}>
        <span class="name"><AgentName name={agent.name || agent.agent} most={80} />{agent.paused && <span class="badge warn">Paused</span>}</span>
        {facts(agent) && <span class="quiet">{facts(agent)}</span>}
      </Button>
      {children.length > 0 && <ul>{children.map((child) => <Branch key={child.worker} agent={child} />)}</ul>}
    </li>
  );
};

/** Choosing an agent shows its calls only. */
export function Agents() {
  const isOpen = own(() => matchMedia("(min-width: 900px)").matches);
  return (
    <aside class="live" aria-label="Agents">
      <details open={isOpen}>
        <summary><h2>Agents</h2> <span class="quiet">{counted(agents.value.length, "running agent")}</span></summary>
        <ul>
          <li><Button class="agent" aria-pressed={!subject.value} press={() => choose(undefined)}>All agents</Button></li>
          {childrenOf(undefined).map((agent) => <Branch key={agent.worker} agent={agent} />)}
        </ul>
        {ended.value.length > 0 && (
          <>
            <h3>Ended</h3>
            <ul>
              {ended.value.map((path) => (
                <li key={path}>
                  <Button class="agent" aria-pressed={!!subject.value && "agent" in subject.value && subject.value.agent === path} press={() => choose({ agent: path })}>
                    <AgentName name={path} most={80} />
                  </Button>
                </li>
              ))}
            </ul>
          </>
        )}
      </details>
    </aside>
  );
}

async function pause({ worker, paused }: Agent): Promise<void> {
  done.value = "";
  await host("pause", { worker, paused: !paused });
}

async function stop({ worker, agent }: Agent): Promise<void> {
  done.value = "";
  const { unfinished } = await host<{ unfinished: number }>("stop-worker", { worker });
  done.value = `${quotedName(agent)} was stopped.${unfinished ? ` ${counted(unfinished, "call")} had begun and may still finish.` : ""}`;
}

function Changed({ found: { changed, changed_omitted }, worker }: { readonly found: AgentDetails; readonly worker: string }) {
  return (
    <ul class="plain changed">
      {changed.map((one, at) => (
        <li key={at}>
          <span class={`badge ${one.op}`}>{operationWords(one.op)}</span>{" "}
          <Name text={one.path} most={1000} />
          {one.to !== null && <> → <Name text={one.to} most={1000} /></>}
          {one.worker !== worker && <span class="quiet"> by <AgentName name={one.agent} /></span>}
        </li>
      ))}
      {changed_omitted > 0 && <li class="quiet">{`and ${changed_omitted} more`}</li>}
    </ul>
  );
}

/** The first open questions of an agent, each with a link to its prompt. */
function Questions({ agent: { worker, questions } }: { readonly agent: Agent }) {
  const own = state.value?.questions.filter(({ bailiwick }) => bailiwick.worker === worker) ?? [];
  const first = own.slice(0, MOST_QUESTIONS);
  const more = questions - first.length;
  return (
    <>
      <h3 id="asks">Waits for your answer</h3>
      <ul class="plain" aria-labelledby="asks">
        {first.map(({ tool_call: { id }, bailiwick: { sentence } }) => (
          <li key={id}><a href={`/?question=${encodeURIComponent(id)}`}><Name text={sentence} most={300} /></a></li>
        ))}
        {more > 0 && <li><a href="/">{`and ${counted(more, "more question")}`}</a></li>}
      </ul>
    </>
  );
}

function Live({ agent }: { readonly agent: Agent }) {
  const { worker, paused, questions } = agent;
  const others = beneath(agent).length;
  const all = others ? ` and ${counted(others, "sub-agent")}` : "";
  const above = pausedParent(agent);
  const found = details.value;
  return (
    <>
      <p class="quiet">{`${ACCESS[agent.access]} · session ${oneLine(agent.session, 80)} · since ${when(agent.started_at)}`}</p>
      {paused && <p class="notice warn">{`Paused: its new calls and those of its sub-agents wait until you resume ${above ? quotedName(above.agent) : "it"} or their time is up.`}</p>}
      <div class="chips">
        {!above && <CalmButton press={() => void actions.of(pause(agent))}>{paused ? "Resume" : "Pause"}</CalmButton>}
        <Confirm
          id={`stop-${worker}`}
          words="Stop…"
          yes={`Stop ${quotedName(agent.name || agent.agent, 40)}${all}`}
          note={`Stopping revokes everything that ${quotedName(agent.agent)}${all} may do. Running calls end, and no further calls are possible. This cannot be undone.`}
          press={() => void actions.of(stop(agent))}
        />
      </div>
      {questions > 0 && <Questions agent={agent} />}
      <Failed failure={actions} />
      {detailsFailure.error.value !== undefined && <Failed failure={detailsFailure} />}
      {found ? (
        <>
          <details class="may">
            <summary>What it may do now</summary>
            <Statements all={found.may} />
          </details>
          {found.changed.length > 0 && (
            <details>
              <summary>{`${counted(found.changed.length + found.changed_omitted, "changed file")}`}</summary>
              <Changed found={found} worker={worker} />
            </details>
          )}
          <Undo of={{ worker }} what={`the changes of ${quotedName(agent.agent)}${all}`} may={found.undoable > 0} done={refreshAgent} />
        </>
      ) : (
        detailsFailure.error.value === undefined && <p class="quiet">Loading…</p>
      )}
    </>
  );
}

/** The chosen agent. */
export function AgentCard() {
  if (!subject.value) return null;
  const agent = live.value;
  const name = "agent" in subject.value ? subject.value.agent : (agent ?? last.value)?.agent;
  return (
    <div class="card agent-card">
      <h2><AgentName name={name ?? ""} /></h2>
      {agent ? <Live key={agent.worker} agent={agent} /> : <p>This agent has ended. Its calls are below.</p>}
      {!agent && name !== undefined && <Undo key={name} of={{ agent: name }} what={`the changes of ${quotedName(name)} and its sub-agents`} may={undoable.value > 0} done={reload} />}
      <p role="status" class={done.value ? "notice" : undefined}>{done.value}</p>
    </div>
  );
}
