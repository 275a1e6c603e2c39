// Calls and agents as the host reports them, and words for their times.
import { computed } from "@preact/signals-core";

import { counted } from "../words.ts";
import type { Agent, UndoState } from "./api.ts";
import { second, state } from "./state.ts";

/** What allowed a call. */
export interface AllowedBy {
  readonly kind: "policy" | "grant" | "person" | "host";
  readonly text: string;
  readonly grant: string | null;
  /** When the grant expires. */
  readonly expires_at?: number | null;
}

/** A call of an agent. */
export interface CallRow {
  /** The call across runtimes: `RUN-NUMBER`. */
  readonly call: string;
  readonly run: string;
  readonly worker: string;
  readonly agent: string;
  readonly session: string;
  readonly tool: string;
  readonly server: string | null;
  readonly sentence: string;
  /** Whether the call only previewed its changes. */
  readonly preview: boolean;
  readonly origin: string;
  readonly at: number;
  readonly ended_at: number | null;
  readonly state: "preparing" | "asking" | "queued" | "running" | "ended";
  readonly result: "done" | "denied" | "failed" | "stale" | "cancelled" | null;
  /** How it ended and by whom or why, such as `Denied by you`. */
  readonly end: string | null;
  readonly code: string | null;
  readonly message: string | null;
  readonly allowed_by: readonly AllowedBy[];
  readonly files: number;
  readonly added: number;
  readonly removed: number;
  /** Whether its changes are still kept. */
  readonly kept: boolean;
  /** Whether its changes can be undone, or were. */
  readonly undo: UndoState | null;
}

/** What an agent may do, or may not, and why. */
export interface Statement {
  readonly verdict: "allowed" | "asks" | "denied" | "protected";
  readonly text: string;
  readonly operations: readonly string[];
  readonly path: string | null;
  readonly source: { readonly kind: "configuration" | "parent" | "spawn" | "client" | "grant" | "built_in"; readonly text: string };
  readonly grant: string | null;
  readonly expires_at: number | null;
  readonly uses_left: number | null;
}

export interface AgentDetails {
  readonly agent: Agent;
  readonly may: readonly Statement[];
  readonly changed: readonly { readonly path: string; readonly op: string; readonly to: string | null; readonly worker: string; readonly agent: string }[];
  readonly changed_omitted: number;
  /** Number of its changes, with those of its sub-agents, that can be undone. */
  readonly undoable: number;
}

export const agents = computed<readonly Agent[]>(() => state.value?.agents ?? []);

/** The path of an agent, in words: a program that is connected over MCP gives its name itself. */
export const agentWords = (path: string): string => path.replace(/^~/, "says it is ");

/** What allowed a call, in words. */
export const allowedBy = ({ kind, text }: AllowedBy): string => (kind === "grant" ? `by a rule: ${text}` : kind === "person" ? `by a person: ${text}` : text);

/** The time of day, with the date unless it is today. */
export function when(at: number): string {
  const date = new Date(at);
  const time = date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  return date.toDateString() === new Date().toDateString() ? time : `${date.toLocaleDateString()} ${time}`;
}

/** When something ends, such as `until 14:05 (59 minutes left)`; updated once a second. */
export function until(at: number): string {
  second.value;
  const seconds = Math.ceil((at - Date.now()) / 1000);
  if (seconds <= 0) return "ended";
  const rest = seconds < 60 ? counted(seconds, "second") : seconds < 7200 ? counted(Math.round(seconds / 60), "minute") : counted(Math.round(seconds / 3600), "hour");
  const end = new Date(at);
  const time = end.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  return `until ${end.toDateString() === new Date().toDateString() ? time : `${end.toLocaleDateString()} ${time}`} (${rest} left)`;
}
