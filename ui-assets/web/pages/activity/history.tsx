// The audit log: a filterable table of audit entries, with counts and the state of the hash chain.
import { signal } from "@preact/signals-core";

import { Agent, Button, Code } from "../../lib/ui.tsx";
import { oneLine } from "../../lib/visible.ts";
import { fetched, host } from "../../lib/console/api.ts";
import type { History as Answer } from "../../lib/console/api.ts";
import { Choice, Failed, Failure, Select, SelectSource, clock, sourceChoice } from "../../lib/console/parts.tsx";
import type { Option } from "../../lib/console/parts.tsx";

const DECISIONS = ["granted", "denied", "expired", "cancelled"] as const;
const HEADS = ["When", "Agent", "Tool", "Result", "By", "What"];
const PAGE = 100;

const shown = signal<Answer | undefined>(undefined);
const failure = new Failure();
const skip = signal(0);
/** Incremented on each request, to ignore outdated responses. */
let turn = 0;

const every = (kind: string, names: readonly (string | number)[] = []): Option[] => [
  ["", `Every ${kind.toLowerCase()}`],
  ...names.map((one): Option => [`${one}`, typeof one === "number" ? `${kind} ${one}` : one]),
];
const source = sourceChoice(true);
const kinds = {
  Agent: new Choice(() => every("Agent", shown.value?.agents)),
  Tool: new Choice(() => every("Tool", shown.value?.tools)),
  Session: new Choice(() => every("Session", shown.value?.sessions)),
  Run: new Choice(() => every("Run", shown.value?.runs)),
  Decision: new Choice(() => every("Decision", DECISIONS)),
};
const times = { Since: signal(""), Until: signal("") };

function filters(): object {
  const all: Record<string, unknown> = {};
  if (source.value.value) all["source"] = source.value.value;
  for (const [kind, { value }] of Object.entries(kinds)) if (value.value) all[kind.toLowerCase()] = kind === "Run" ? Number(value.value) : value.value;
  for (const [name, { value }] of Object.entries(times)) if (value) all[name.toLowerCase()] = Date.parse(value);
  return all;
}

async function load(anew: boolean): Promise<void> {
  const now = (turn += 1);
  try {
    const came = await host<Answer>("history", { ...filters(), skip: skip.value, ...(anew && { anew }) });
    if (now !== turn) return;
    failure.error.value = undefined;
    shown.value = came;
  } catch (error) {
    if (now === turn) failure.error.value = error;
  }
}

/** Loads a page of the history; `anew` checks the hash chain again. */
function from(entry: number, anew = false): void {
  skip.value = entry;
  void load(anew);
}
export const loadHistory = (): void => void load(false);
const first = (): void => from(0);

async function save(): Promise<void> {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await (await fetched("history/export", filters())).blob());
  link.download = "history.jsonl";
  link.click();
  URL.revokeObjectURL(link.href);
}

type Entry = Answer["entries"][number];

function what({ patterns, needs, brought, scopes, pattern }: Entry): readonly string[] {
  const given = patterns?.map((one) => (typeof one === "string" ? one : `${one.operations.join(", ")}: ${one.pattern}${one.reach === "beneath" ? " and everything in it" : ""}`));
  return given ?? needs ?? brought ?? scopes ?? (pattern ? [pattern] : []);
}

function Row({ entry: row }: { readonly entry: Entry }) {
  const { at, agent, tool, entry, grant, decision, by, origin, server, issuer, tool_there, note, rule, cause, outcome, code, message, begun, grants } = row;
  const used = outcome && grants?.map((one) => `g${one}`);
  const end = outcome ?? decision;
  const more = [server, issuer, tool_there, code, begun && !code && "The effect began, but its end is not recorded.", message, note, rule, cause, used];
  return (
    <tr>
      <td>{clock(at)}</td>
      <td><Agent name={agent} /></td>
      <td>{oneLine(tool ?? "")}</td>
      <td>{oneLine(entry + (grant ? ` g${grant}` : "") + (end ? `: ${end}` : ""))}</td>
      <td>{oneLine(origin && origin !== "model" ? `${by}, for ${origin}` : by)}</td>
      <td>
        {what(row).map((one) => <><Code text={one} /> </>)}
        {oneLine(more.filter(Boolean).join(" "))}
      </td>
    </tr>
  );
}

function Found({ found: { chain, words, tally, total, unused, entries } }: { readonly found: Answer }) {
  return (
    <>
      <p class={chain.state === "broken" ? "notice bad" : "notice"} role="status">{oneLine(words, 400)}</p>
      <p>{`${total} entries. Questions: ${DECISIONS.map((word) => `${tally[word]} ${word}`).join(", ")}, ${tally.open} open.`}</p>
      {unused.length > 0 && (
        <p>Granted and never used: {unused.slice(0, 20).map(({ pattern, grant }) => <><Code text={pattern ?? `g${grant}`} /> </>)}</p>
      )}
      {entries.length > 0 ? (
        <div class="wide" tabIndex={0} role="group" aria-label="Entries">
          <table>
            <thead><tr>{HEADS.map((head) => <th>{head}</th>)}</tr></thead>
            <tbody>{entries.map((entry) => <Row entry={entry} />)}</tbody>
          </table>
        </div>
      ) : (
        <p class="empty">No matching entries.</p>
      )}
      <div class="filters">
        {skip.value > 0 && <Button press={() => from(Math.max(0, skip.value - PAGE))}>Newer</Button>}
        {skip.value + PAGE < total && <Button press={() => from(skip.value + PAGE)}>Older</Button>}
      </div>
    </>
  );
}

export function History() {
  return (
    <>
      <div class="filters">
        {Object.entries(kinds).map(([kind, choice]) => <Select key={kind} choice={choice} label={kind} change={first} />)}
        <SelectSource choice={source} change={first} />
        {Object.entries(times).map(([name, time]) => (
          <label key={name}>
            {`${name} `}
            <input
              type="datetime-local"
              value={time.value}
              onChange={({ currentTarget }) => {
                time.value = currentTarget.value;
                first();
              }}
            />
          </label>
        ))}
        <Button press={() => from(0, true)}>Check again</Button>
        <Button press={() => void failure.of(save())}>Export</Button>
      </div>
      <div>
        <Failed failure={failure} />
        {failure.error.value === undefined && shown.value && <Found found={shown.value} />}
      </div>
    </>
  );
}
