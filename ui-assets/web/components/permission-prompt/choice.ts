// The person's current choice, its answer for the host and its button labels.
import { oneLine } from "../../lib/visible.ts";
import type { Details } from "./block.ts";

export type Time = "once" | "waiting" | "uses" | "hour" | "session" | "agent";

/** An excluded change, or excluded hunks of a file, by index. */
export interface LeftOut {
  readonly path: string;
  readonly hunks?: readonly number[];
}

export interface Choice {
  /** Index of what is allowed without asking; 0 is exactly what is asked. */
  readonly reach: number;
  readonly time: Time;
  readonly uses: number;
  readonly descendants: boolean;
  /** The extra confirmation for broad or permanent grants. */
  readonly sure: boolean;
  readonly note: string;
  readonly rest: boolean;
  readonly out: readonly LeftOut[];
}

/** The initial choice: exactly what is asked, once. */
export const narrowest: Choice = {
  reach: 0,
  time: "once",
  uses: 10,
  descendants: false,
  sure: false,
  note: "",
  rest: false,
  out: [],
};

/** Whether the answer ends with the pending calls, so that nothing further is allowed. */
export const isBrief = ({ time }: Choice): boolean => time === "once" || time === "waiting";

/** Whether a pattern has no detail part, and so covers every resource of its kind. */
export const isWide = (patterns: readonly string[]): boolean => patterns.some((pattern) => pattern.split(":").length < 3);

/** The lifetimes of an answer. */
export const TIMES = {
  once: "only this call",
  waiting: "all equal calls that wait",
  uses: "for the next uses:",
  hour: "for 1 hour",
  session: "until this agent or its session ends",
  agent: "until I revoke it",
} as const satisfies Record<Time, string>;

/** A lifetime in words. Permanent grants that are not stored end with the server. */
export const timeWords = (details: Details | undefined, time: Time): string => TIMES[time] + (time === "agent" && details?.stores_grants === false ? " or the server stops" : "");

/** What a person must confirm before the choice is allowed, or an empty text. */
export function confirmation(details: Details | undefined, choice: Choice): string {
  if (isBrief(choice)) return "";
  const { confirm, outside } = details?.choices[choice.reach] ?? {};
  const reasons = [confirm && "allows much more than this call", outside && "reaches outside your project", choice.time === "agent" && `lasts ${timeWords(details, "agent")}`].filter((one) => one);
  return reasons.length > 0 ? `I understand that this ${reasons.join(" and ")}.` : "";
}

export function allowWords(details: Details | undefined, choice: Choice): string {
  const { reach, time, uses, descendants, out } = choice;
  const all = details?.preview?.files ?? 1;
  if (time === "once") return `Allow ${out.length > 0 ? "the ticked changes " : all > 1 ? `all ${all} changes ` : ""}once`;
  if (time === "waiting") return `Allow all ${details?.waiting ?? 1} equal calls that wait`;
  const covers = details?.choices[reach]?.covers;
  const what = covers === undefined ? "" : `: ${oneLine(covers, 1000)}`;
  return `Allow ${time === "uses" ? `for ${uses} uses` : timeWords(details, time)}${descendants ? ", sub-agents too" : ""}${what}`;
}

export function denyWords({ note, rest }: Choice): string {
  return `Deny${note ? " and tell why" : ""}${rest ? `${note ? "," : " and"} stop asking` : ""}`;
}

/** The answer in the format of the host's API. */
export function answer(details: Details | undefined, choice: Choice, allows: boolean): unknown {
  const { time, uses, descendants, out, note, rest } = choice;
  if (!allows) return { deny: { note: note || null, rest_of_session: rest } };
  const lifetime = time === "uses" ? { uses } : time === "hour" ? { for_ms: 3_600_000 } : time === "waiting" ? { waiting: details?.waiting ?? 1 } : time;
  return { allow: { patterns: details?.choices[choice.reach]?.grants ?? [], lifetime, descendants, left_out: out } };
}
