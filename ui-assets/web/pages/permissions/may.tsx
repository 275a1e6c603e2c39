// What a chosen agent may do now, and a rule that the host suggests for it.
import { computed, signal } from "@preact/signals-core";

import { Button, Name } from "../../lib/ui.tsx";
import { host } from "../../lib/console/api.ts";
import type { Agent, Suggested } from "../../lib/console/api.ts";
import { CalmButton } from "../../lib/console/calm.tsx";
import { agentWords, agents } from "../../lib/console/calls.ts";
import type { AgentDetails } from "../../lib/console/calls.ts";
import { Choice, Failed, Failure, Select } from "../../lib/console/parts.tsx";
import { Statements } from "../../lib/console/statements.tsx";

/** Whether an agent is a program that is connected over MCP, or beneath one. */
const isConnected = ({ agent }: Agent): boolean => agent.startsWith("~");

/** The name of an agent, and where it comes from. Agents with the same path are told apart by their sessions. */
function words(one: Agent): string {
  const { agent, parent, session } = one;
  const from = parent !== null ? "" : isConnected(one) ? " (connected over MCP)" : " (started by the host)";
  const isTwice = agents.value.some((other) => other !== one && other.agent === agent);
  return `${agentWords(agent)}${from}${isTwice ? `, session ${session}` : ""}`;
}

/** The chosen live worker; programs that are connected come first. */
const picked = new Choice(() =>
  [...agents.value].sort((a, b) => Number(isConnected(b)) - Number(isConnected(a))).map((one) => [one.worker, words(one)] as const),
);
const found = signal<AgentDetails | undefined>(undefined);
const failure = new Failure();

type Suggestion = NonNullable<Suggested["suggestion"]>;
/** The last suggestion; `null` if there was none. */
const suggestion = signal<Suggestion | null | undefined>(undefined);
const suggesting = new Failure();

const live = computed(() => agents.value.find(({ worker }) => worker === picked.value.value));
/** The details of the chosen agent, not of the one before. */
const details = computed(() => (found.value?.agent.worker === picked.value.value ? found.value : undefined));

/** Incremented by each request for an agent, to ignore outdated responses. */
let turn = 0;
/** Incremented when another agent is chosen. */
let round = 0;
let asked = "";
let isBusy = false;
let isDue = false;

async function load(worker: string): Promise<void> {
  const now = (turn += 1);
  asked = worker;
  isBusy = true;
  isDue = false;
  try {
    const came = await host<AgentDetails>(`agent/${worker}`);
    if (now !== turn) return;
    failure.error.value = undefined;
    found.value = came;
  } catch (error) {
    if (now === turn) failure.error.value = error;
  }
  if (now !== turn) return;
  isBusy = false;
  if (isDue) refresh();
}

/** Loads the statements again; another agent's at once, the same agent's after the request under way. */
export function refresh(): void {
  const worker = picked.value.value;
  if (!worker) return;
  if (worker !== asked) {
    round += 1;
    suggestion.value = undefined;
    failure.error.value = suggesting.error.value = undefined;
  } else if (isBusy) return void (isDue = true);
  void load(worker);
}

async function suggest(): Promise<void> {
  const agent = live.value;
  if (!agent) return;
  const now = round;
  const { suggestion: came } = await host<Suggested>("suggestions", { run: agent.run, agent: agent.agent, session: agent.session, worker: agent.worker });
  if (now === round) suggestion.value = came;
}

/** Hides the suggestion while it is added, so that it cannot be added twice. */
async function add(one: Suggestion): Promise<void> {
  const { spares: _spares, agent: _agent, covers: _covers, ...rule } = one;
  const now = round;
  suggestion.value = undefined;
  try {
    await host("grant", rule);
  } catch (error) {
    if (now === round) suggestion.value = one;
    throw error;
  }
}

function Suggest() {
  const one = suggestion.value;
  return (
    <div class="chips">
      {one ? (
        <>
          <p>{`You allowed ${one.spares} calls like this. Let it do this without asking until it or its session ends: `}<Name text={one.covers} most={400} />?</p>
          <CalmButton press={() => void suggesting.of(add(one))}>Add this rule</CalmButton>
          <Button press={() => (suggestion.value = undefined)}>No</Button>
        </>
      ) : (
        <>
          <Button press={() => void suggesting.of(suggest())}>Suggest a rule from your answers</Button>
          {one === null && <p role="status" class="quiet">No suggestion: you have not allowed it the same kind of call often enough.</p>}
        </>
      )}
      <Failed failure={suggesting} />
    </div>
  );
}

export function May() {
  return (
    <section aria-labelledby="may">
      <h2 id="may">What an agent may do</h2>
      {agents.value.length === 0 ? (
        <p class="quiet">No agent is running.</p>
      ) : (
        <>
          <div class="line"><label>Agent <Select choice={picked} change={refresh} /></label></div>
          <Failed failure={failure} />
          {details.value ? (
            <>
              <Statements all={details.value.may} />
              <Suggest />
            </>
          ) : (
            failure.error.value === undefined && <p class="quiet">Loading…</p>
          )}
        </>
      )}
    </section>
  );
}
