// Permissions tab: a switch for each verb, and a list of all grants.
import { computed, effect, signal } from "@preact/signals-core";

import { left } from "../../lib/calm.ts";
import { Code, Name, Tick } from "../../lib/ui.tsx";
import { oneLine } from "../../lib/visible.ts";
import { host } from "../../lib/console/api.ts";
import type { Grant } from "../../lib/console/api.ts";
import { CalmButton } from "../../lib/console/calm.tsx";
import { Choice, Failed, Failure, Select, clock } from "../../lib/console/parts.tsx";
import { Rule, beginRule } from "./rule.tsx";
import { second, state } from "../../lib/console/state.ts";

const VERBS = { read: "Read", write: "Change", execute: "Run" };

const grants = computed<readonly Grant[]>(() => state.value?.grants ?? []);
const whose = new Choice(() => ["Everybody", ...new Set(grants.value.flatMap((grant) => grant.whose))].map((one, at) => [at ? one : "", one]));
const shown = computed(() => grants.value.filter((grant) => !whose.value.value || grant.whose.includes(whose.value.value)));
/** The grants that are ticked. */
const ticked = signal<ReadonlySet<string>>(new Set());
const chosen = computed(() => shown.value.map(({ grant }) => grant).filter((grant) => ticked.value.has(grant)));
/** The verb whose grants are about to be revoked, awaiting confirmation. */
const sure = signal("");
const of = (kind: string): readonly Grant[] => shown.value.filter((grant) => !grant.verb || grant.verb === kind);
effect(() => {
  if (sure.value && of(sure.value).length === 0) sure.value = "";
});
const failure = new Failure();

async function revoking(all: readonly string[]): Promise<void> {
  const came = await host<{ grants: readonly { message?: string }[] }>("revoke", { grants: all });
  const [first, ...more] = came.grants.flatMap(({ message }) => message ?? []);
  if (first) throw new Error(`${more.length + 1} could not be taken back: ${first}`);
}
const revoke = (all: readonly string[]): void => void failure.of(revoking(all));

function tick(grant: string, on: boolean): void {
  const next = new Set(ticked.value);
  if (on) next.add(grant);
  else next.delete(grant);
  ticked.value = next;
}

function narrow({ grant, pattern: before }: Grant, form: Element | null): void {
  const [pattern, uses, minutes, only] = form?.querySelectorAll("input") ?? [];
  const change = {
    grant,
    ...(pattern?.value !== before && { pattern: pattern?.value }),
    ...(uses?.value && { uses: +uses.value }),
    ...(minutes?.value && { for_ms: +minutes.value * 60_000 }),
    holder_only: only?.checked,
  };
  void failure.of(host("narrow", change));
}

const End = ({ at }: { readonly at: number }) => {
  second.value;
  return <span class="badge">{left(at) ? `ends in ${left(at)}` : "ended"}</span>;
};

function GrantRow({ grant }: { readonly grant: Grant }) {
  const { grant: id, pattern, held, descendants, uses_left: uses, expires_at: end, used, used_at } = grant;
  return (
    <li>
      <div class="line">
        <label><Tick checked={ticked.value.has(id)} label={`Choose ${oneLine(pattern)}`} change={(on) => tick(id, on)} /></label>
        <Code text={pattern} />
        <Name text={held} most={120} />
        {descendants && <span class="badge">sub-agents too</span>}
        {uses !== null && <span class="badge">{`${uses} use${uses === 1 ? "" : "s"} left`}</span>}
        {end !== null && <End at={end} />}
        <span class={used ? "quiet" : "badge"}>{used ? `used ${used}×${used_at === null ? "" : `, last ${clock(used_at)}`}` : "never used"}</span>
        <CalmButton press={() => revoke([id])}>Revoke</CalmButton>
      </div>
      <details>
        <summary>Narrow</summary>
        <div class="line">
          <input defaultValue={pattern} aria-label="Remaining" />
          <label>Uses left <input type="number" min={1} /></label>
          <label>Minutes left <input type="number" min={1} /></label>
          <label><input type="checkbox" disabled={!descendants} /> Not its sub-agents</label>
          <CalmButton press={({ currentTarget }) => narrow(grant, (currentTarget as Element).parentElement)}>Narrow to this</CalmButton>
        </div>
      </details>
    </li>
  );
}

function Verb({ kind, words }: { readonly kind: string; readonly words: string }) {
  const all = of(kind);
  const count = all.length;
  const asks = sure.value === kind && `Revoke ${count}?`;
  const press = (): void => {
    if (asks) revoke(all.map(({ grant }) => grant));
    else if (!count) return beginRule(kind);
    sure.value = asks ? "" : kind;
  };
  return (
    <div class="card verb">
      <div class="line">
        <CalmButton role="switch" aria-checked={count > 0} aria-label={`${words} without asking${asks ? `: ${asks}` : ""}`} press={press}>
          {asks || (count ? "On" : "Off")}
        </CalmButton>
        <h3>{words}</h3>
        <span class="quiet">{count ? `${count} ${count === 1 ? "rule" : "rules"}` : "asks each time, or is refused"}</span>
      </div>
      {count > 0 && (
        <details>
          <summary>Rules</summary>
          <ul class="plain">{all.map((grant) => <GrantRow key={grant.grant} grant={grant} />)}</ul>
        </details>
      )}
    </div>
  );
}

function Refusals() {
  const refusals = state.value?.refusals ?? [];
  const omitted = state.value?.omitted.refusals;
  return (
    <>
      {refusals.length > 0 && <h2>Denied for the rest of a session</h2>}
      <ul class="plain">
        {refusals.map(({ run, refusal, agent, refused }) => (
          <li key={`${run}${refusal}`}>
            <div class="line">
              <Name text={agent} />
              <Name text={refused} />
              <CalmButton press={() => void failure.of(host("ask-again", { run, refusal }))}>Ask again</CalmButton>
            </div>
          </li>
        ))}
      </ul>
      {!!omitted && <p class="notice">{`${omitted} more refusals are not listed.`}</p>}
    </>
  );
}

export function Permissions() {
  const omitted = state.value?.omitted.grants;
  return (
    <>
      <div class="line"><label>Whose <Select choice={whose} /></label></div>
      <div><Failed failure={failure} /></div>
      <div>
        {Object.entries(VERBS).map(([kind, words]) => <Verb key={kind} kind={kind} words={words} />)}
        {!!omitted && <p class="notice">{`${omitted} more rules are not listed. Revoke some to see them.`}</p>}
        {chosen.value.length > 0 && <CalmButton press={() => revoke(chosen.value)}>{`Revoke ${chosen.value.length} chosen`}</CalmButton>}
        <Refusals />
      </div>
      <Rule />
    </>
  );
}
