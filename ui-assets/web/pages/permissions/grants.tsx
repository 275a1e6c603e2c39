// The rules that people gave: filter, narrow and revoke them.
import { computed, effect, signal } from "@preact/signals-core";

import type { ComponentChildren } from "preact";

import { local } from "../../lib/component.ts";
import { Agent, Button, Code, Name, Tick } from "../../lib/ui.tsx";
import { oneLine } from "../../lib/visible.ts";
import { counted } from "../../lib/words.ts";
import { host } from "../../lib/console/api.ts";
import type { Grant } from "../../lib/console/api.ts";
import { CalmButton } from "../../lib/console/calm.tsx";
import { agentWords, until, when } from "../../lib/console/calls.ts";
import { Confirm, confirming } from "../../lib/console/confirm.tsx";
import { Choice, Failed, Failure, Select } from "../../lib/console/parts.tsx";
import { state } from "../../lib/console/state.ts";

/** Number of rules that are rendered at first. */
const PAGE = 50;

const KINDS: readonly (readonly [string, string])[] = [
  ["", "Every operation"],
  ["read", "Read"],
  ["write", "Change"],
  ["execute", "Run"],
];

const grants = computed<readonly Grant[]>(() => state.value?.grants ?? []);
const whose = new Choice(() => [["", "Every agent"], ...[...new Set(grants.value.map(({ agent }) => agent))].sort().map((one) => [one, agentWords(one)] as const)]);
const kind = new Choice(() => KINDS);
const words = signal("");
const most = signal(PAGE);

/** Whether a rule matches the filters; a rule without a verb is for all operations. */
function matches({ agent, verb, covers, pattern }: Grant): boolean {
  const text = words.value.trim().toLowerCase();
  const isKind = !kind.value.value || !verb || verb === kind.value.value;
  return (!whose.value.value || agent === whose.value.value) && isKind && [agent, covers, pattern].some((one) => one.toLowerCase().includes(text));
}
const shown = computed(() => grants.value.filter(matches));
const isFiltered = computed(() => shown.value.length < grants.value.length);
/** The rules that are ticked. */
const ticked = signal<ReadonlySet<string>>(new Set());
const chosen = computed(() => shown.value.filter(({ grant }) => ticked.value.has(grant)));

const failure = new Failure();
/** What the last action did. */
const done = signal("");

/** A confirmation about all rules ends with the last of them. */
effect(() => {
  if (confirming.value === "shown" && shown.value.length === 0) confirming.value = "";
});

async function revoking(all: readonly Grant[]): Promise<void> {
  done.value = "";
  const came = await host<{ grants: readonly { message?: string; unfinished?: number }[] }>("revoke", { grants: all.map(({ grant }) => grant) });
  const [first, ...others] = came.grants.flatMap(({ message }) => message ?? []);
  const revoked = came.grants.length - others.length - (first === undefined ? 0 : 1);
  const unfinished = came.grants.reduce((sum, one) => sum + (one.unfinished ?? 0), 0);
  if (revoked > 0) done.value = `${counted(revoked, "rule was", "rules were")} revoked.${unfinished ? ` ${counted(unfinished, "call")} had begun and may still finish.` : ""}`;
  if (first) throw new Error(`${counted(others.length + 1, "rule")} could not be revoked: ${first}`);
}
const revoke = (all: readonly Grant[]): void => void failure.of(revoking(all));

function tick(grant: string, on: boolean): void {
  const next = new Set(ticked.value);
  if (on) next.add(grant);
  else next.delete(grant);
  ticked.value = next;
}

/** The part of a pattern before its path, and the path, if it is for files. */
function pathOf(pattern: string): readonly [before: string, path: string] | undefined {
  const found = /^([^:]+:file)(?::(.*))?$/s.exec(pattern);
  return found ? [`${found[1]}:`, found[2] ?? ""] : undefined;
}

/** How long a rule lasts. */
function Lifetime({ grant: { uses_left, expires_at, lifetime } }: { readonly grant: Grant }) {
  const limits = [...(uses_left === null ? [] : [`${counted(uses_left, "use")} left`]), ...(expires_at === null ? [] : [until(expires_at)])];
  return <span>{oneLine(limits.length > 0 ? limits.join(", ") : lifetime)}</span>;
}

/** Checkboxes with a common label. */
export const Group = ({ label, children }: { readonly label: string; readonly children: ComponentChildren }) => (
  <div class="group" role="group" aria-label={label}><span aria-hidden="true">{label}</span><div>{children}</div></div>
);

function Narrow({ grant }: { readonly grant: Grant }) {
  const { grant: id, pattern, operations, descendants } = grant;
  const file = pathOf(pattern);
  const target = local(file ? file[1] : pattern);
  const left = local<ReadonlySet<string>>(new Set(operations));
  const uses = local("");
  const minutes = local("");
  const only = local(false);
  const error = local(false);
  const number = (label: string, value: typeof uses) => (
    <label>{label} <input type="number" min={1} value={value.value} onInput={({ currentTarget }) => (value.value = currentTarget.value)} /></label>
  );
  const narrow = (): void => {
    const now = file ? file[0] + target.value.trim() : target.value.trim();
    const kept = operations.filter((one) => left.value.has(one));
    error.value = kept.length === 0;
    if (error.value) return;
    const change = {
      grant: id,
      ...(now !== pattern && now !== file?.[0] && { pattern: now }),
      ...(kept.length < operations.length && { operations: kept }),
      ...(uses.value && { uses: +uses.value }),
      ...(minutes.value && { for_ms: +minutes.value * 60_000 }),
      holder_only: only.value,
    };
    done.value = "";
    void failure.of(host("narrow", change).then(() => (done.value = "The rule was narrowed.")));
  };
  return (
    <details class="narrow">
      <summary>Narrow</summary>
      <div class="fields">
        <label class="wide-field">{file ? "Only this path" : "Only this pattern"} <input value={target.value} onInput={({ currentTarget }) => (target.value = currentTarget.value)} /></label>
        {operations.length > 1 && (
          <Group label="Operations">
            {operations.map((one) => (
              <label key={one}>
                <Tick
                  checked={left.value.has(one)}
                  change={(on) => {
                    const next = new Set(left.value);
                    if (on) next.add(one);
                    else next.delete(one);
                    left.value = next;
                  }}
                />{" "}
                {oneLine(one)}
              </label>
            ))}
          </Group>
        )}
        {number("Uses left", uses)}
        {number("Minutes left", minutes)}
        {descendants && <label><Tick checked={only.value} change={(on) => (only.value = on)} /> Not its sub-agents</label>}
        <CalmButton press={narrow}>Narrow to this</CalmButton>
        {error.value && <p class="notice bad" role="alert">Leave at least one operation, or revoke the rule.</p>}
      </div>
    </details>
  );
}

function Row({ grant }: { readonly grant: Grant }) {
  const { grant: id, pattern, covers, agent, descendants, used, used_at, given_at } = grant;
  return (
    <li class="rule">
      <div class="rule-head">
        <Tick checked={ticked.value.has(id)} label={`Choose: ${oneLine(agent)} may ${oneLine(covers)}`} change={(on) => tick(id, on)} />
        <div>
          <p><Agent name={agent} most={120} />{descendants && " and its sub-agents"}{" may "}<Name text={covers} most={400} /></p>
          <p class="quiet">
            <Lifetime grant={grant} />
            <span>{used ? `used ${counted(used, "time")} since the server started${used_at === null ? "" : `, last ${when(used_at)}`}` : "not used since the server started"}</span>
            <span>{`given ${when(given_at)}`}</span>
          </p>
        </div>
        <Confirm id={id} words="Revoke" yes="Revoke this rule" label={`Revoke: ${oneLine(agent)} may ${oneLine(covers)}`} press={() => revoke([grant])} />
      </div>
      <div class="rule-more">
        <Narrow grant={grant} />
        <details>
          <summary>Details</summary>
          <dl>
            <dt>Pattern</dt>
            <dd><Code text={pattern} /></dd>
            <dt>Rule</dt>
            <dd><Code text={id} /></dd>
          </dl>
        </details>
      </div>
    </li>
  );
}

/** Acts on exactly the rules that its label counts. */
function Bulk() {
  const some = chosen.value;
  const all = shown.value;
  return (
    <div class="chips">
      {some.length > 0 && <Confirm id="chosen" words={`Revoke ${some.length} chosen…`} yes={`Revoke ${counted(some.length, "chosen rule")}`} press={() => revoke(some)} />}
      {all.length > 1 && (
        <Confirm
          id="shown"
          words={isFiltered.value ? `Revoke the ${all.length} shown…` : `Revoke all ${all.length}…`}
          yes={isFiltered.value ? `Revoke ${all.length} of ${grants.value.length} rules` : `Revoke all ${counted(all.length, "rule")}`}
          note="Calls that these rules allow will ask you or fail. Calls under way that use them are stopped."
          press={() => revoke(all)}
        />
      )}
    </div>
  );
}

/** A change of the filters changes what a confirmation would revoke. */
const filtered = (): void => {
  confirming.value = "";
  most.value = PAGE;
};

export function Grants() {
  const omitted = state.value?.omitted.grants;
  const all = grants.value;
  return (
    <section aria-labelledby="rules">
      <h2 id="rules">{`Rules you gave${all.length > 0 ? ` (${all.length})` : ""}`}</h2>
      {all.length === 0 && <p class="quiet">No rules: agents do what the configuration allows, and ask for the rest.</p>}
      {all.length > 1 && (
        <div class="filters" role="search">
          <input
            type="search"
            aria-label="Search rules"
            placeholder="Search rules"
            value={words.value}
            onInput={({ currentTarget }) => {
              words.value = currentTarget.value;
              filtered();
            }}
          />
          <Select choice={whose} label="Agent of the rules" change={filtered} />
          <Select choice={kind} label="Operation" change={filtered} />
        </div>
      )}
      <Failed failure={failure} />
      <p role="status" class={done.value ? "notice" : undefined}>{done.value}</p>
      {all.length > 0 && shown.value.length === 0 && <p class="quiet">No rules match.</p>}
      <ul class="plain">{shown.value.slice(0, most.value).map((grant) => <Row key={grant.grant} grant={grant} />)}</ul>
      {shown.value.length > most.value && <Button press={() => (most.value += PAGE)}>{`Show ${counted(Math.min(PAGE, shown.value.length - most.value), "more rule")}`}</Button>}
      {!!omitted && <p class="notice">{`${counted(omitted, "more rule is", "more rules are")} not listed. Revoke some to see them.`}</p>}
      <Bulk />
    </section>
  );
}
