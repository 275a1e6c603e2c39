// The record's entries in, a table to look back by out, with counts and whether the record is whole.
import { el } from "../../lib/dom.ts";
import { oneLine } from "../../lib/visible.ts";
import { file, history, host } from "./api.ts";
import type { History, State } from "./api.ts";
import { button, clock, code, failed, line, offer, offerSources, renew, select } from "./shown.ts";

const DECISIONS = ["granted", "denied", "expired", "cancelled"] as const;
const PAGE = 100;

function holds({ chain }: History): HTMLElement {
  const { state, records = 0, record = 0, reason = "" } = chain;
  const words = {
    verified: `✓ The record is whole: ${records} records, each continues the one before.`,
    torn: `The record is whole but for its last line, which may be about to be written: ${records} records.`,
    partial: `The record’s beginning is not kept, so it cannot be followed: ${records} records.`,
    broken: `✗ The record is broken at record ${record}: ${oneLine(reason)}. Nothing from there on is shown.`,
  }[state];
  return el("p", { class: state === "broken" ? "notice bad" : "notice", role: "status" }, words);
}

function row(entry: History["entries"][number]): HTMLElement {
  const what = entry.patterns ?? entry.needs ?? (entry.pattern === undefined ? [] : [entry.pattern]);
  const grant = entry.grant === undefined ? "" : ` g${entry.grant}`;
  const cells = [
    clock(entry.at),
    el("bdi", {}, oneLine(entry.agent)),
    oneLine(entry.tool ?? ""),
    oneLine(`${entry.entry}${grant}${entry.decision === undefined ? "" : `: ${entry.decision}`}`),
    oneLine(entry.by),
    el("span", {}, ...what.map(code), " ", oneLine([entry.note, entry.rule, entry.cause].filter(Boolean).join(" "))),
  ];
  return el("tr", {}, ...cells.map((cell) => el("td", {}, cell)));
}

export function past(): { place: HTMLElement; show(state: State): void } {
  let skip = 0;
  const from = (): void => {
    skip = 0;
    void load();
  };
  const every = (kind: string, names: readonly (string | number)[] = []): (readonly [string, string])[] => [
    ["", `Every ${kind.toLowerCase()}`],
    ...names.map((name) => [String(name), typeof name === "number" ? `${kind} ${name}` : name] as const),
  ];
  const kinds = (["Agent", "Tool", "Session", "Run"] as const).map((kind) => [kind, select(kind, every(kind), from)] as const);
  const decision = select("Decision", every("Decision", DECISIONS), from);
  const source = select("Where", [], from);
  const since = el("input", { type: "datetime-local", "aria-label": "Since" });
  const until = el("input", { type: "datetime-local", "aria-label": "Until" });
  for (const time of [since, until]) time.addEventListener("change", from);
  const found = el("div", { tabindex: -1 });
  const place = el(
    "section",
    { tabindex: -1, "aria-label": "History" },
    line(...kinds.map(([, place]) => place), decision, source, el("label", {}, "Since ", since), el("label", {}, "Until ", until), button("Look again", () => void load()), button("Export", () => void save())),
    found,
  );

  const wanted = (): object => {
    const numbers = { since: since.value && Date.parse(since.value), until: until.value && Date.parse(until.value) };
    const chosen = kinds.map(([kind, { value }]) => [kind.toLowerCase(), kind === "Run" ? value && Number(value) : value] as const);
    const all = { source: source.value, decision: decision.value, ...Object.fromEntries(chosen), ...numbers };
    return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== ""));
  };

  const load = async (): Promise<void> => {
    try {
      show(await host(history, "history", { ...wanted(), skip }));
    } catch (error) {
      failed(found)(error);
    }
  };

  const show = (now: History): void => {
    const { tally, total, unused } = now;
    const names = { Agent: now.agents, Tool: now.tools, Session: now.sessions, Run: now.runs };
    for (const [kind, place] of kinds) offer(place, every(kind, names[kind]));
    const to = (place: number) => (): void => {
      skip = place;
      void load();
    };
    const heads = ["When", "Agent", "Tool", "What became of it", "By", "What"].map((words) => el("th", { scope: "col" }, words));
    const counts = `${total} entries. Questions: ${DECISIONS.map((word) => `${tally[word]} ${word}`).join(", ")}, ${tally.open} open.`;
    renew(
      found,
      holds(now),
      el("p", {}, counts),
      unused.length > 0 ? el("p", {}, "Granted and never used: ", ...unused.slice(0, 20).map((one) => code(one.pattern ?? `g${one.grant}`))) : undefined,
      now.entries.length === 0
        ? el("p", { class: "empty" }, "Nothing is recorded that fits.")
        : el("div", { class: "wide", tabindex: 0, role: "group", "aria-label": "Entries" }, el("table", {}, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...now.entries.map(row)))),
      line(skip > 0 ? button("Newer", to(Math.max(0, skip - PAGE))) : undefined, skip + PAGE < total ? button("Older", to(skip + PAGE)) : undefined),
    );
  };

  const save = async (): Promise<void> => {
    try {
      const href = URL.createObjectURL(await file("history/export", wanted()));
      el("a", { href, download: "history.jsonl" }).click();
      URL.revokeObjectURL(href);
    } catch (error) {
      failed(found)(error);
    }
  };

  return {
    place,
    show({ sources }) {
      const recorded = sources.filter((one) => one.recorded);
      offerSources(source, recorded);
      void load();
    },
  };
}
