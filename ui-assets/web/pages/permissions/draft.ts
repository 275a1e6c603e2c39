// The rule that the form describes: what it says to people, and the request that gives it.
import { computed, signal } from "@preact/signals-core";

import { isWide } from "../../components/permission-prompt/choice.ts";
import { agentWords, agents } from "../../lib/console/calls.ts";
import { Choice, sourceChoice } from "../../lib/console/parts.tsx";
import type { Option } from "../../lib/console/parts.tsx";
import { sources, state } from "../../lib/console/state.ts";

/** A rule, or the rules of a template, ready to be given. */
export interface Draft {
  readonly agent: string;
  /** The host, if there are several. */
  readonly host: string;
  /** How long. */
  readonly time: string;
  readonly descendants: boolean;
  /** Whether no agent has the name yet. */
  readonly isFuture: boolean;
  /** Why the rule needs an extra confirmation; empty if it does not. */
  readonly broad: string;
  readonly path: "grant" | "grant-template";
  readonly body: object;
}

const TEMPLATE = "template:";
/** The option for an agent that is not in the list. */
const OTHER = "*other";
const ALL = "*all";

const KINDS: readonly Option[] = [
  ["read", "Read files"],
  ["write", "Change files"],
  ["pattern", "A scope pattern"],
];
export const CHANGES = ["create", "change", "delete", "move"] as const;

/** A choice whose picked option stays, even when the host no longer reports it. */
class KeptChoice extends Choice {
  constructor(options: () => readonly Option[], words: (value: string) => string) {
    super(() => {
      const all = options();
      const { value } = this.picked;
      return !value || all.some(([one]) => one === value) ? all : [...all, [value, words(value)]];
    });
  }
}

const hosts = sourceChoice();
export const source = new KeptChoice(hosts.options, () => "A host that has ended");
const chosen = computed(() => sources.value.find(({ run }) => run === source.value.value));

/** The paths of the agents that run or hold a rule. */
const known = computed(() => new Set([...agents.value.map(({ agent }) => agent), ...(state.value?.grants.map(({ agent }) => agent) ?? [])]));
export const agent = new KeptChoice(
  () => [["", "Choose an agent"], ...[...known.value].sort().map((path): Option => [path, agentWords(path)]), [OTHER, "Another agent…"]],
  (path) => `${agentWords(path)} (ended)`,
);
export const isOther = computed(() => agent.value.value === OTHER);
export const other = signal("");
export const kind = new KeptChoice(
  () => [...KINDS, ...(chosen.value?.templates ?? []).map(({ name, about }): Option => [TEMPLATE + name, `${name}: ${about}`])],
  (value) => value.slice(TEMPLATE.length),
);
const template = computed(() => (kind.value.value.startsWith(TEMPLATE) ? kind.value.value.slice(TEMPLATE.length) : undefined));
export const isTemplate = computed(() => template.value !== undefined);
export const changes = signal<ReadonlySet<string>>(new Set(["create", "change"]));
export const folder = new KeptChoice(
  () => {
    const roots = chosen.value?.roots ?? [];
    return [...roots.map((root): Option => [root, root]), ...(isTemplate.value && roots.length > 1 ? [[ALL, "All folders"] as const] : [])];
  },
  (root) => root,
);
export const isAll = computed(() => folder.value.value === ALL && isTemplate.value);
export const below = signal("");
export const reach = new Choice(() => [
  ["beneath", "and everything in it"],
  ["exact", "only itself"],
]);
export const pattern = signal("");
export const descendants = signal(false);

/** Forgets what belongs to another host than the chosen one. */
export function changeHost(): void {
  for (const choice of [agent, kind, folder]) choice.picked.value = "";
}

/** The live worker of the agent, if there is exactly one: rules for a session belong to a worker. */
const worker = computed(() => {
  const all = agents.value.filter((one) => one.agent === agent.value.value && one.run === source.value.value);
  return all.length === 1 ? all[0] : undefined;
});
const TIMES = {
  hour: ["for 1 hour", { for_ms: 3_600_000 }],
  uses: ["for 10 uses", { uses: 10 }],
  session: ["until the agent or its session ends", "session"],
  agent: ["until you revoke it", "agent"],
} as const;
type Time = keyof typeof TIMES;
/** A lifetime in words. Permanent rules that are not stored end with the server. */
const timeWords = (value: Time): string => TIMES[value][0] + (value === "agent" && !chosen.value?.stores_grants ? " or the server stops" : "");
export const time = new KeptChoice(
  () => (Object.keys(TIMES) as Time[]).flatMap((value): Option[] => (value === "session" && !worker.value ? [] : [[value, timeWords(value)]])),
  () => "until its session ends (it has ended)",
);

/** The chosen path; an error if it cannot be one. */
function target(): string | Error {
  const root = folder.value.value;
  const names = below.value.trim().split("/").filter(Boolean);
  if (!root) return new Error("The host has no folders.");
  if (names.some((name) => name === ".." || name === "." || name === "*" || name === "**")) return new Error("The path below the folder cannot contain `.`, `..` or `*`.");
  return [root === "/" ? "" : root, ...names].join("/") || "/";
}

/** The rule of the form, or what is missing, as a sentence for people. The host says what the rule allows. */
export const draft = computed((): Draft | string => {
  const path = isOther.value ? other.value.trim() : agent.value.value;
  const run = source.value.value;
  if (!run) return "No host is connected.";
  if (!path) return isOther.value ? "Write the path of the agent, such as main/tests." : "Choose an agent.";
  const timeValue = time.value.value as Time;
  const [, lifetime] = TIMES[timeValue];
  if (timeValue === "session" && !worker.value) return "The session of this agent has ended: choose another time.";
  const held = worker.value;
  const holder = held && timeValue === "session" ? { session: { session: held.session, worker: Number(held.worker.slice(held.worker.indexOf("-") + 1)) } } : { agent: path };
  const isFuture = !known.value.has(path);
  const more = { holder, lifetime, ...(isFuture && { future_agent: true }) };
  const permanent = lifetime === "agent" ? `It stays ${timeWords(lifetime)}.` : "";
  const common = { agent: path, host: sources.value.length > 1 ? (chosen.value?.server ?? "") : "", time: timeWords(timeValue), isFuture };
  if (kind.value.value === "pattern") {
    const scope = pattern.value.trim();
    if (!scope) return "Enter a pattern, such as execute:command:git.";
    const broad = isWide([scope]) ? "It is not limited to one folder, server or command." : permanent;
    return { ...common, descendants: descendants.value, broad, path: "grant", body: { run, pattern: scope, ...more, ...(descendants.value && { descendants: true }) } };
  }
  const place = isAll.value ? "" : target();
  if (place instanceof Error) return place.message;
  if (template.value !== undefined) {
    const roots = isAll.value ? (chosen.value?.roots ?? []) : [place];
    return { ...common, descendants: false, broad: permanent, path: "grant-template", body: { run, template: template.value, roots, ...more } };
  }
  const isRead = kind.value.value === "read";
  const operations = isRead ? ["read"] : CHANGES.filter((one) => changes.value.has(one));
  if (operations.length === 0) return "Choose what it may do.";
  const beneath = reach.value.value === "beneath";
  const broad = !isRead && beneath && chosen.value?.roots.includes(place) ? `It covers everything in ${place}.` : permanent;
  const body = { run, pattern: `${kind.value.value}:file:${place}`, reach: reach.value.value, operations, ...more, ...(descendants.value && { descendants: true }) };
  return { ...common, descendants: descendants.value, broad, path: "grant", body };
});
