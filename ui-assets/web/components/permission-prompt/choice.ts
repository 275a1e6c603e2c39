// The person's current choice, its answer for the host and its button labels.
import { oneLine } from "../../lib/visible.ts";
import type { Details } from "./block.ts";

export type Time = "once" | "waiting" | "uses" | "hour" | "session" | "agent";

/** Hunks of a file that are excluded, by index. */
export interface LeftOut {
  readonly path: string;
  readonly hunks: readonly number[];
}

export interface Choice {
  readonly rung: number;
  readonly time: Time;
  readonly uses: number;
  readonly descendants: boolean;
  /** The extra confirmation for broad or permanent grants. */
  readonly sure: boolean;
  readonly note: string;
  readonly rest: boolean;
  readonly out: readonly LeftOut[];
}

/** The initial choice: the narrowest pattern, once. */
export const narrowest: Choice = {
  rung: 0,
  time: "once",
  uses: 10,
  descendants: false,
  sure: false,
  note: "",
  rest: false,
  out: [],
};

const patterns = (details: Details | undefined, { rung }: Choice): readonly string[] => details?.rungs[rung]?.patterns ?? [];

/** Whether a pattern has no detail part, and so covers every resource of its kind. */
export const isWide = (patterns: readonly string[]): boolean => patterns.some((pattern) => pattern.split(":").length < 3);

/** Whether the choice needs confirmation: the host asks for it, it is permanent, or it is broad. */
export function needsTick(details: Details | undefined, choice: Choice): boolean {
  const confirm = details?.rungs[choice.rung]?.confirm;
  if (confirm !== undefined && choice.time !== "agent") return confirm && (choice.rung > 0 || !(choice.time === "once" || choice.time === "waiting"));
  return choice.time === "agent" || choice.rung > 2 || (choice.rung > 0 && isWide(patterns(details, choice)));
}

/** Labels of the grant lifetimes. */
export const TIMES = {
  once: "once",
  waiting: "for all equal calls that wait",
  uses: "for the next uses:",
  hour: "for 1 hour",
  session: "for this session",
  agent: "until I revoke it",
} as const satisfies Record<Time, string>;

export function allowWords(details: Details | undefined, choice: Choice): string {
  const { rung, time, uses, descendants, out } = choice;
  const long = time === "uses" ? `for ${uses} uses` : time === "waiting" ? `for ${details?.waiting ?? 1} equal calls that wait` : TIMES[time];
  const what = rung ? `to ${oneLine(details?.rungs[rung]?.covers ?? "", 60)}` : out.length ? "what is ticked" : "this";
  return `Allow ${what} ${long}${descendants ? ", sub-agents too" : ""}`;
}

export function denyWords({ note, rest }: Choice): string {
  return `Deny ${rest ? "for the rest of the session" : "once"}${note ? ", with the note" : ""}`;
}

/** The answer in the format of the host's API. */
export function answer(details: Details | undefined, choice: Choice, allows: boolean): unknown {
  const { time, uses, descendants, out, note, rest } = choice;
  if (!allows) return { deny: { note: note || null, rest_of_session: rest } };
  const lifetime = time === "uses" ? { uses } : time === "hour" ? { for_ms: 3_600_000 } : time === "waiting" ? { waiting: details?.waiting ?? 1 } : time;
  return { allow: { patterns: details?.rungs[choice.rung]?.grants ?? patterns(details, choice), lifetime, descendants, left_out: out } };
}
