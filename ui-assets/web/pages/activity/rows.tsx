// The list of calls: one row for each, which expands to its details.
import { signal } from "@preact/signals-core";

import { own, watch } from "../../lib/component.ts";
import { List, Rows } from "../../lib/list.tsx";
import { Agent, Button, Name } from "../../lib/ui.tsx";
import { oneLine } from "../../lib/visible.ts";
import { allowedBy, when } from "../../lib/console/calls.ts";
import type { CallRow } from "../../lib/console/calls.ts";
import { Counts } from "../../lib/diff/view.tsx";
import { calls, holdWhile } from "./calls.ts";
import { Details, Opened } from "./details.tsx";

const HEIGHT = 59;

/** The expanded calls. */
const expanded = signal<ReadonlyMap<string, Opened>>(new Map());
/** The row that Tab moves to. */
const current = signal("");
/** The row that gets the focus once it is rendered. */
let arriving = "";
let list: HTMLElement | null = null;

const isAtTop = (): boolean => !list || list.getBoundingClientRect().top >= 0;
holdWhile(() => !!calls.value?.some(({ call }) => expanded.value.has(call)) || !isAtTop() || !!list?.matches(":hover, :focus-within"));

/** Moves the focus to the newest call. */
export function focusFirst(): void {
  arriving = current.value = calls.value?.[0]?.call ?? "";
  list?.scrollIntoView({ block: "nearest" });
}

function toggle(row: CallRow): void {
  current.value = row.call;
  const next = new Map(expanded.value);
  if (!next.delete(row.call)) next.set(row.call, new Opened(row.call));
  expanded.value = next;
}

const OPEN = { preparing: "Preparing", asking: "Waits for your answer", queued: "Queued", running: "Running", ended: "Ended" } as const;

const Result = ({ row: { state, result, end } }: { readonly row: CallRow }) => (
  <span class={`badge ${result ?? state}`}>{end ?? OPEN[state]}</span>
);

const by = ({ allowed_by: all }: CallRow): string => all.map(allowedBy).join(", ");

const Line = ({ row }: { readonly row: CallRow }) => (
  <>
    <span class="what">
      <Name text={row.sentence || row.tool} most={300} />
      <span class="ends">
        {row.result === "done" && !row.preview && <Counts added={row.added} removed={row.removed} />}
        {row.preview && <span class="badge">Preview</span>}
        <Result row={row} />
        {row.undo === "undone" && <span class="badge">Undone</span>}
      </span>
    </span>
    <span class="quiet facts">
      <time dateTime={new Date(row.at).toISOString()}>{when(row.at)}</time>
      <span>{row.origin === "human" ? "A person" : <Agent name={row.agent} most={80} />}</span>
      {row.sentence && <Name text={row.tool} most={60} />}
      {by(row) && <span>{oneLine(by(row), 160)}</span>}
    </span>
  </>
);

function Row({ row, index, of, isCurrent }: { readonly row: CallRow; readonly index: number; readonly of: number; readonly isCurrent: boolean }) {
  const opened = expanded.value.get(row.call);
  watch(() => {
    const now = calls.value?.find(({ call }) => call === row.call);
    if (now) expanded.value.get(row.call)?.follow(now);
  });
  const arrive = (node: HTMLElement | null): void => {
    if (!node || arriving !== row.call) return;
    arriving = "";
    node.querySelector("button")?.focus();
  };
  return (
    <div role="listitem" class={`call${opened ? " open" : ""}`} aria-setsize={of} aria-posinset={index + 1} ref={arrive}>
      <Button class="row" aria-expanded={!!opened} data-call={row.call} tabIndex={isCurrent ? 0 : -1} press={() => toggle(row)}>
        <Line row={row} />
      </Button>
      {opened && <Details row={row} opened={opened} />}
    </div>
  );
}

const STEPS: Readonly<Record<string, number>> = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity };

export function Calls() {
  const rows = own(() => new Rows());
  const all = calls.value ?? [];
  const at = Math.max(0, all.findIndex(({ call }) => call === current.value));
  const key = (event: KeyboardEvent): void => {
    const step = STEPS[event.key];
    if (step === undefined || !(event.target as Element).matches(".row")) return;
    event.preventDefault();
    const from = all.findIndex(({ call }) => call === (event.target as HTMLElement).dataset["call"]);
    const next = Math.min(all.length - 1, Math.max(0, from + step));
    arriving = current.value = all[next]?.call ?? "";
    rows.kept.value = next;
    rows.reveal(next);
  };
  const row = (index: number) => {
    const call = all[index];
    return call ? <Row row={call} index={index} of={all.length} isCurrent={index === at} /> : <div />;
  };
  return (
    <div role="list" aria-label="Calls" class="calls live" onKeyDown={key} ref={(node) => void (list = node)}>
      <List rows={rows} count={all.length} height={HEIGHT} varies row={row} keyOf={(index) => all[index]?.call ?? index} />
    </div>
  );
}
