// State of the test host's page, updated from the host's event log.
import { computed, signal } from "@preact/signals-core";

import { ask } from "./api.ts";
import { at, reason } from "./json.ts";
import { entriesOf, stateOf } from "./model.ts";
import type { Entry, State } from "./model.ts";

const MOST_ENTRIES = 2_000;
const RETRY_MS = 1_000;

export const state = signal<State>(stateOf({ status: "connecting" }));
export const entries = signal<readonly Entry[]>([]);
/** The policy for calls, or `undefined` if none is used. */
export const policy = signal<unknown>(undefined);

export type Theme = "system" | "light" | "dark";
export const theme = signal<Theme>("system");
export const width = signal("full");
export const locale = signal(navigator.language);

/** Unanswered elicitation requests of the current connection. */
export const elicitations = computed<readonly Entry[]>(() => {
  const open = new Map<unknown, Entry>();
  for (const entry of entries.value) {
    const { side, message } = entry;
    const method = at(message, "method");
    const id = at(message, "id");
    if (side === "state") open.clear();
    else if (side === "sent" && method === undefined) open.delete(id);
    else if (side !== "received") continue;
    else if (method === "elicitation/create") open.set(id, entry);
    // The server cancelled its request.
    else if (method === "notifications/cancelled") open.delete(at(message, "params", "requestId"));
  }
  return [...open.values()];
});

/** Incremented on each connection, to recreate what belongs to the previous one. */
export const meetings = signal(0);

function became(next: State): void {
  const before = state.value.status;
  state.value = next;
  if (next.status === "ready" && before !== "ready") meetings.value = meetings.value + 1;
}

const offline = (error: unknown) => (state.value = { ...state.value, status: "offline", reason: reason(error) });

async function refresh(): Promise<void> {
  became(stateOf(await ask("state", {})));
}

/** Polls the event log while the page is open. */
export async function follow(): Promise<void> {
  let after = 0;
  let begun = false;
  for (;;) {
    try {
      if (begun && state.value.status === "offline") await refresh();
      const fresh = entriesOf(await ask("events", { after }));
      after = fresh.at(-1)?.seq ?? after;
      if (fresh.length > 0) entries.value = [...entries.value, ...fresh].slice(-MOST_ENTRIES);
      const states = fresh.filter((entry) => entry.side === "state");
      // Ignore state changes from before the page was opened.
      if (begun && states.some((entry) => entry.message === "connecting")) state.value = { ...state.value, status: "connecting" };
      if (!begun || states.length > 0) await refresh();
      begun = true;
    } catch (error) {
      offline(error);
      await new Promise((waited) => setTimeout(waited, RETRY_MS));
    }
  }
}

/** Closes the connection and opens another. */
export async function reconnect(revision: string, configuration: unknown): Promise<void> {
  state.value = { ...state.value, status: "connecting", reason: "" };
  policy.value = undefined;
  try {
    became(stateOf(await ask("connect", { revision, configuration })));
  } catch (error) {
    offline(error);
  }
}
