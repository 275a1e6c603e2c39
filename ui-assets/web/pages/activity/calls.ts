// The calls that the page shows, newest first, and how newer and older ones join them.
import { computed, signal } from "@preact/signals-core";

import { host } from "../../lib/console/api.ts";
import type { CallRow } from "../../lib/console/calls.ts";
import { Choice, Failure } from "../../lib/console/parts.tsx";
import type { Option } from "../../lib/console/parts.tsx";
import { sources } from "../../lib/console/state.ts";

interface Answer {
  readonly calls: readonly CallRow[];
  /** Whether there are older calls. */
  readonly more: boolean;
  readonly agents: readonly string[];
  readonly tools: readonly string[];
  /** Number of changes of the agent that was asked for by its path, and of its sub-agents, that are in effect. */
  readonly undoable: number;
}

/** Number of calls of a request. */
const PAGE = 100;
/** Maximum number of shown calls beyond the newest that are looked up at once. */
const MOST_OPEN = 10;
const TYPING = 300;

/** The shown calls. */
export const calls = signal<readonly CallRow[] | undefined>(undefined);
/** Whether there are older calls than the shown ones. */
export const more = signal(false);
/** The last response. */
const newest = signal<Answer | undefined>(undefined);
/** Number of calls that are not shown yet, so that nothing moves while a person reads. */
export const fresh = computed(() => {
  if (!calls.value) return 0;
  const shown = new Set(calls.value.map(({ call }) => call));
  return newest.value?.calls.filter(({ call }) => !shown.has(call)).length ?? 0;
});
/** The paths of all agents with calls, also of those that have ended. */
export const callers = computed<readonly string[]>(() => newest.value?.agents ?? []);
/** Number of changes of the agent that has ended whose calls are shown. */
export const undoable = computed(() => newest.value?.undoable ?? 0);
export const failure = new Failure();

const RESULTS: readonly Option[] = [
  ["", "Any result"],
  ["done", "Done"],
  ["denied", "Denied"],
  ["failed", "Failed"],
  ["stale", "Not done: files had changed"],
  ["cancelled", "Cancelled"],
];

/** A worker or, for those that have ended, the path of an agent. */
export type Subject = { readonly worker: string } | { readonly agent: string };
/** The agent whose calls are shown. */
export const subject = signal<Subject | undefined>(undefined);
export const filters = {
  tool: new Choice(() => [["", "Any tool"], ...(newest.value?.tools ?? []).map((tool): Option => [tool, tool])]),
  result: new Choice(() => RESULTS),
  run: new Choice(() => [["", "Every host"], ...sources.value.map(({ run, server }): Option => [run, `${server} ${run.slice(0, 4)}`])]),
};
export const text = signal("");
export const changesOnly = signal(false);

export const isFiltered = computed(() => !!(subject.value || text.value || changesOnly.value) || Object.values(filters).some(({ value }) => value.value));

export function clearFilters(): void {
  for (const { picked } of Object.values(filters)) picked.value = "";
  text.value = "";
  changesOnly.value = false;
  subject.value = undefined;
  reload();
}

function query(before?: string): object {
  const chosen = Object.entries(filters).flatMap(([name, { value }]) => (value.value ? [[name, value.value]] : []));
  const words = text.value.trim();
  return { ...subject.value, ...Object.fromEntries(chosen), ...(words && { text: words }), ...(changesOnly.value && { effects_only: true }), ...(before && { before }), limit: PAGE };
}

/** Whether new calls must wait, because inserting them would move what a person reads or is about to press. */
let isHeld = (): boolean => false;
export const holdWhile = (held: () => boolean): void => void (isHeld = held);

/** Incremented by each request for the newest calls, to ignore outdated responses. */
let turn = 0;
/** Incremented when the filters change. */
let round = 0;
let isBusy = false;
let isDue = false;

function put(rows: ReadonlyMap<string, CallRow>): void {
  calls.value = calls.value?.map((row) => rows.get(row.call) ?? row);
}

/** Shows the calls of a response, followed by the shown ones that are older. */
function join(came: Answer): void {
  const last = came.calls.at(-1)?.call;
  const at = calls.value?.findIndex(({ call }) => call === last) ?? -1;
  const older = came.more && at >= 0 ? (calls.value?.slice(at + 1) ?? []) : [];
  if (older.length === 0) more.value = came.more;
  calls.value = [...came.calls, ...older];
}

/** Looks up shown calls. */
export async function renew(open: readonly CallRow[]): Promise<void> {
  const found = await Promise.allSettled(open.map(({ call }) => host<{ row: CallRow }>(`call/${call}`)));
  const rows = found.flatMap((one) => (one.status === "fulfilled" ? [one.value.row] : []));
  if (rows.length > 0) put(new Map(rows.map((row) => [row.call, row])));
}

/** Looks up shown calls that were open and are not among the newest. */
function followOpen(came: Answer): void {
  const known = new Set(came.calls.map(({ call }) => call));
  const open = calls.value?.filter(({ call, state }) => state !== "ended" && !known.has(call)) ?? [];
  void renew(open.slice(0, MOST_OPEN));
}

async function load(): Promise<void> {
  const now = (turn += 1);
  isBusy = true;
  isDue = false;
  try {
    const came = await host<Answer>("activity", query());
    if (now !== turn) return;
    failure.error.value = undefined;
    newest.value = came;
    if (!calls.value || !isHeld()) join(came);
    else put(new Map(came.calls.map((row) => [row.call, row])));
    followOpen(came);
  } catch (error) {
    if (now === turn) failure.error.value = error;
  }
  if (now !== turn) return;
  isBusy = false;
  if (isDue) void load();
}

/** Loads the newest calls, after the request under way. */
export function refresh(): void {
  if (isBusy) isDue = true;
  else void load();
}

/** Loads the calls again after a change of the filters. */
export function reload(): void {
  round += 1;
  calls.value = undefined;
  void load();
}

let typing: ReturnType<typeof setTimeout>;
/** Changes the text filter, and loads once the person pauses. */
export function type(words: string): void {
  text.value = words;
  clearTimeout(typing);
  typing = setTimeout(reload, TYPING);
}

/** Shows the new calls. */
export function showFresh(): void {
  if (newest.value) join(newest.value);
}

export async function loadOlder(): Promise<void> {
  const now = round;
  const last = calls.value?.at(-1)?.call;
  const came = await host<Answer>("activity", query(last));
  if (now !== round || calls.value?.at(-1)?.call !== last) return;
  calls.value = [...(calls.value ?? []), ...came.calls];
  more.value = came.more;
}
