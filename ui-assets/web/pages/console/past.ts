// The record's entries in, a table to look back by out, with counts and whether the record is whole.
import { el } from "../../lib/dom.ts";
import { oneLine } from "../../lib/visible.ts";
import { file, history, host } from "./api.ts";
import type { History, State } from "./api.ts";
import { button, clock, code, line, offer, renew, select, trouble } from "./shown.ts";

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
  const any = (words: string): readonly [string, string] => ["", words];
  const agent = select("Agent", [any("Every agent")], from);
  const tool = select("Tool", [any("Every tool")], from);
  const session = select("Session", [any("Every session")], from);
  const run = select("Run", [any("Every run")], from);
  const decision = select("Decision", [any("Every decision"), ...DECISIONS.map((word) => [word, word] as const)], from);
  const source = select("Where", [], from);
  const since = el("input", { type: "datetime-local", "aria-label": "Since" });
  const until = el("input", { type: "datetime-local", "aria-label": "Until" });
  for (const time of [since, until]) time.addEventListener("change", from);
  const found = el("div", { tabindex: -1 });
  const place = el(
    "section",
    { tabindex: -1, "aria-label": "History" },
    line(agent, tool, decision, session, run, source, el("label", {}, "Since ", since), el("label", {}, "Until ", until), button("Look again", () => void load()), button("Export", () => void save())),
    found,
  );

  const wanted = (): object => ({
    ...(source.value !== "" && { source: source.value }),
    ...(agent.value !== "" && { agent: agent.value }),
    ...(tool.value !== "" && { tool: tool.value }),
    ...(decision.value !== "" && { decision: decision.value }),
    ...(session.value !== "" && { session: session.value }),
    ...(run.value !== "" && { run: Number(run.value) }),
    ...(since.value !== "" && { since: Date.parse(since.value) }),
    ...(until.value !== "" && { until: Date.parse(until.value) }),
  });

  const load = async (): Promise<void> => {
    try {
      show(await host(history, "history", { ...wanted(), skip }));
    } catch (error) {
      renew(found, trouble(error));
    }
  };

  const show = (now: History): void => {
    const { tally, total, unused } = now;
    offer(agent, [any("Every agent"), ...now.agents.map((name) => [name, name] as const)]);
    offer(tool, [any("Every tool"), ...now.tools.map((name) => [name, name] as const)]);
    offer(session, [any("Every session"), ...now.sessions.map((name) => [name, name] as const)]);
    offer(run, [any("Every run"), ...now.runs.map((number) => [String(number), `Run ${number}`] as const)]);
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
      renew(found, trouble(error));
    }
  };

  return {
    place,
    show({ sources }) {
      const recorded = sources.filter((one) => one.recorded);
      offer(source, recorded.map(({ run, server }) => [run, server === "" ? run : `${server} ${run.slice(0, 4)}`]));
      source.hidden = recorded.length < 2;
      void load();
    },
  };
}
