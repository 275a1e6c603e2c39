// Form to give a rule, or the rules of a template, with the calls of the last hour that it would have allowed.
import { effect, signal } from "@preact/signals-core";

import { host } from "../../lib/console/api.ts";
import { CalmButton } from "../../lib/console/calm.tsx";
import { when } from "../../lib/console/calls.ts";
import { Group } from "./grants.tsx";
import { Select, SelectSource } from "../../lib/console/parts.tsx";
import { Agent, Name, Tick, Trouble, quotedName } from "../../lib/ui.tsx";
import { oneLine } from "../../lib/visible.ts";
import { counted } from "../../lib/words.ts";
import { CHANGES, agent, below, changes, descendants, draft, folder, isAll, isOther, isTemplate, kind, other, pattern, changeHost, reach, source, time } from "./draft.ts";
import type { Draft } from "./draft.ts";

const TYPING = 300;

/** What a rule allows, and the calls of the last hour that it would have allowed. */
interface Effect {
  /** What the agent may do, as a sentence. */
  readonly covers: string;
  readonly calls: readonly { readonly call: string; readonly at: number; readonly agent: string; readonly sentence: string }[];
  readonly count: number;
  readonly of: number;
}

/** A rule of a template. */
interface TemplateRule {
  readonly pattern: string;
  readonly covers: string;
}

const isOpen = signal(false);
/** What the host said about a draft: its effect, or the rules of its template. */
const told = signal<{ readonly draft: string; readonly effect?: Effect; readonly rules?: readonly TemplateRule[]; readonly error?: unknown } | undefined>(undefined);
const error = signal<unknown>(undefined);
/** What was given last. */
const given = signal("");
const isSure = signal(false);

/** Identifies a draft, to ignore answers about an earlier one. */
const key = ({ path, body }: Draft): string => `${path} ${JSON.stringify(body)}`;

async function ask(now: Draft): Promise<void> {
  const id = key(now);
  const isCurrent = (): boolean => typeof draft.value !== "string" && key(draft.value) === id;
  try {
    if (now.path === "grant") {
      const effect = await host<Effect>("would-allow", now.body);
      if (isCurrent()) told.value = { draft: id, effect };
    } else {
      const { run, template, roots } = now.body as Readonly<Record<string, unknown>>;
      const { rules } = await host<{ rules: readonly TemplateRule[] }>("template-rules", { run, template, roots });
      if (isCurrent()) told.value = { draft: id, rules };
    }
  } catch (why) {
    if (isCurrent()) told.value = { draft: id, error: why };
  }
}

let asked = "";
let typing: ReturnType<typeof setTimeout>;
/** Asks the host about each draft once the person pauses. */
effect(() => {
  const now = draft.value;
  const id = isOpen.value && typeof now !== "string" ? key(now) : "";
  if (id === asked) return;
  asked = id;
  isSure.value = false;
  error.value = undefined;
  clearTimeout(typing);
  if (!id || typeof now === "string") return;
  typing = setTimeout(() => void ask(now), TYPING);
});

/** The draft that is being given, so that another press does not give it twice. */
let giving = "";

async function give(now: Draft, what?: string): Promise<void> {
  const { path, body, agent: name, time: long } = now;
  const id = key(now);
  if (giving === id) return;
  giving = id;
  error.value = undefined;
  isSure.value = false;
  given.value = "";
  try {
    await host(path, body);
    given.value = what ? `Rule given: ${quotedName(name)} may, ${long}: ${oneLine(what, 400)}.` : `Rules given to ${quotedName(name)}, ${long}.`;
  } catch (why) {
    error.value = why;
  }
  if (giving === id) giving = "";
}

const Field = ({ label, value, placeholder }: { readonly label: string; readonly value: typeof other; readonly placeholder: string }) => (
  <label>{label} <input value={value.value} placeholder={placeholder} onInput={({ currentTarget }) => (value.value = currentTarget.value)} /></label>
);

function Form() {
  return (
    <div class="form">
      {source.options().length > 1 && <label>Host <SelectSource choice={source} change={changeHost} /></label>}
      <label>Agent <Select choice={agent} /></label>
      {isOther.value && <Field label="Path of the agent" value={other} placeholder="main/tests" />}
      <label>May <Select choice={kind} /></label>
      {kind.value.value === "write" && (
        <Group label="Changes">
          {CHANGES.map((one) => (
            <label key={one}>
              <Tick
                checked={changes.value.has(one)}
                change={(on) => {
                  const next = new Set(changes.value);
                  if (on) next.add(one);
                  else next.delete(one);
                  changes.value = next;
                }}
              />{" "}
              {one}
            </label>
          ))}
        </Group>
      )}
      {kind.value.value === "pattern" ? (
        <Field label="Pattern" value={pattern} placeholder="execute:command:git" />
      ) : (
        <>
          <label>Folder <Select choice={folder} /></label>
          {!isAll.value && <Field label="Path below it" value={below} placeholder="the whole folder" />}
          {!isTemplate.value && <label>Reach <Select choice={reach} /></label>}
        </>
      )}
      <label>How long <Select choice={time} /></label>
      {!isTemplate.value && <label class="tick"><Tick checked={descendants.value} change={(on) => (descendants.value = on)} /> Its sub-agents too</label>}
    </div>
  );
}

function WouldAllow({ effect: { calls, count: number, of } }: { readonly effect: Effect }) {
  if (of === 0) return <p class="quiet">In the last hour no call needed a person.</p>;
  if (number === 0) return <p class="quiet">{`It would have allowed none of the ${counted(of, "call")} that needed a person in the last hour.`}</p>;
  return (
    <>
      <p>{`It would have allowed ${number} of the ${counted(of, "call")} that needed a person in the last hour:`}</p>
      <ul class="would" tabIndex={0} aria-label="Calls it would have allowed">
        {calls.map(({ call, at, agent: by, sentence }) => (
          <li key={call}><Name text={sentence} most={300} /> <span class="quiet">{`${oneLine(by, 80)}, ${when(at)}`}</span></li>
        ))}
        {number > calls.length && <li class="quiet">{`and ${number - calls.length} more`}</li>}
      </ul>
    </>
  );
}

/** The draft as it would be given; it is a new element for each draft, which delays a press. */
function Shown({ now }: { readonly now: Draft }) {
  const answer = told.value?.draft === key(now) ? told.value : undefined;
  const what = answer?.effect?.covers;
  const broad = now.broad || (answer?.rules?.some(({ pattern }) => !pattern.startsWith("read:")) ? "It allows more than to read." : "");
  const mayGive = !!(what ?? answer?.rules) && (!broad || isSure.value);
  return (
    <div class="draft">
      <p>
        <Agent name={now.agent} most={120} />
        {now.host && <span> on <Name text={now.host} /></span>}
        {now.descendants && " and its sub-agents"}{" may, "}{now.time}
        {what === undefined ? ":" : <>: <Name text={what} most={400} />.</>}
      </p>
      {answer?.rules && <ul>{answer.rules.map(({ pattern, covers }) => <li key={pattern}><Name text={covers} most={400} /></li>)}</ul>}
      {now.isFuture && <p class="notice warn">No agent has this name now, and none holds a rule. The rule is for agents that start later.</p>}
      {answer?.effect && <WouldAllow effect={answer.effect} />}
      {answer?.error !== undefined && <Trouble error={answer.error} />}
      {!answer && <p class="quiet">Checking…</p>}
      {broad && <label><Tick checked={isSure.value} change={(on) => (isSure.value = on)} />{` I understand what this allows. ${broad}`}</label>}
      <div><CalmButton class="primary" disabled={!mayGive} press={() => void give(now, what)}>{now.path === "grant" ? "Give this rule" : "Give exactly these rules"}</CalmButton></div>
    </div>
  );
}

export function Rule() {
  const now = draft.value;
  return (
    <details
      class="card"
      open={isOpen.value}
      onToggle={({ currentTarget }) => {
        source.picked.value ||= source.value.value;
        isOpen.value = currentTarget.open;
      }}
    >
      <summary><h2>Give a rule</h2></summary>
      <p class="quiet">A rule lets an agent do something without asking you. It never allows what the configuration denies.</p>
      <Form />
      {typeof now === "string" ? <p class="quiet">{now}</p> : <Shown key={key(now)} now={now} />}
      {error.value !== undefined && <Trouble error={error.value} />}
      <p role="status" class={given.value ? "notice" : undefined}>{given.value}</p>
    </details>
  );
}
