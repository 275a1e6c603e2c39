// History tab: a filterable table of audit entries, with counts and the state of the hash chain.
import { el } from "../../lib/dom.ts";
import { oneLine } from "../../lib/visible.ts";
import { fetched, host } from "./api.ts";
import type { History, State } from "./api.ts";
import { clock, code, draw, failed, go, line, name, offer, offerSources, select } from "./shown.ts";

const DECISIONS = ["granted", "denied", "expired", "cancelled"] as const;
const HEADS = ["When", "Agent", "Tool", "Result", "By", "What"];
const PAGE = 100;

function row({ at, agent, tool, entry, grant, decision, by, origin, patterns, needs, pattern, scopes, server, issuer, tool_there, note, rule, cause, outcome, code: error, message, begun, grants, brought }: History["entries"][number]): HTMLElement {
  const what = patterns?.map((one) => (typeof one === "string" ? one : `${one.operations.join(", ")}: ${one.pattern}${one.reach === "beneath" ? " and everything in it" : ""}`)) ?? needs ?? brought ?? scopes ?? (pattern ? [pattern] : []);
  const used = outcome && grants?.map((one) => `g${one}`);
  const end = outcome ?? decision;
  const cells = [
    clock(at),
    name(agent),
    oneLine(tool ?? ""),
    oneLine(entry + (grant ? ` g${grant}` : "") + (end ? `: ${end}` : "")),
    oneLine(origin && origin !== "model" ? `${by}, for ${origin}` : by),
    el("span", ...what.map(code), " ", oneLine([server, issuer, tool_there, error, begun && !error && "The effect began, but its end is not recorded.", message, note, rule, cause, used].filter(Boolean).join(" "))),
  ];
  return el("tr", ...cells.map((cell) => el("td", cell)));
}

/** Renders the history into `place`; returns a function that reloads it. */
export function past(place: HTMLElement): (state: State) => void {
  let skip = 0;
  /** Incremented on each request, to ignore outdated responses. */
  let turn = 0;
  const from = (to = 0, anew = false): void => {
    skip = to;
    void load(anew);
  };
  const first = (): void => from();
  const every = (kind: string, names: readonly (string | number)[] = []): (readonly [string, string])[] => [
    ["", `Every ${kind.toLowerCase()}`],
    ...names.map((one) => [`${one}`, typeof one === "number" ? `${kind} ${one}` : one] as const),
  ];
  const kinds = ["Agent", "Tool", "Session", "Run", "Decision"].map((kind) => [kind, select(first, every(kind, kind === "Decision" ? DECISIONS : []), kind)] as const);
  const source = select(first, [], "Where");
  const times = ["Since", "Until"].map((label) => {
    const time = el("input", { type: "datetime-local" });
    time.onchange = first;
    return [label, time] as const;
  });
  const found = el("div");
  place.append(
    line(...kinds.map(([, one]) => one), source, ...times.map(([label, time]) => el("label", `${label} `, time)), go("Check again", () => from(0, true)), go("Export", () => void save())),
    found,
  );

  const wanted = (): object => {
    const all: Record<string, unknown> = {};
    for (const [label, { value }] of [["source", source] as const, ...kinds]) if (value) all[label.toLowerCase()] = label === "Run" ? +value : value;
    for (const [label, { value }] of times) if (value) all[label.toLowerCase()] = Date.parse(value);
    return all;
  };

  const load = async (anew: boolean): Promise<void> => {
    const now = ++turn;
    try {
      const came = await host<History>("history", { ...wanted(), skip, ...(anew && { anew }) });
      if (now === turn) show(came);
    } catch (error) {
      if (now === turn) failed(found)(error);
    }
  };

  const show = ({ chain, words, tally, total, unused, entries, agents, tools, sessions, runs }: History): void => {
    [agents, tools, sessions, runs].forEach((names, at) => {
      const [kind, one] = kinds[at] ?? [];
      if (kind && one) offer(one, every(kind, names));
    });
    draw(
      found,
      el(chain.state === "broken" ? "p.notice bad" : "p.notice", { role: "status" }, oneLine(words, 400)),
      el("p", `${total} entries. Questions: ${DECISIONS.map((word) => `${tally[word]} ${word}`).join(", ")}, ${tally.open} open.`),
      unused.length && el("p", "Granted and never used: ", ...unused.slice(0, 20).map(({ pattern, grant }) => code(pattern ?? `g${grant}`))),
      entries.length
        ? el("div.wide", { tabindex: 0, role: "group", "aria-label": "Entries" }, el("table", el("thead", el("tr", ...HEADS.map((head) => el("th", head)))), el("tbody", ...entries.map(row))))
        : el("p.empty", "No matching entries."),
      line(skip && go("Newer", () => from(Math.max(0, skip - PAGE))), skip + PAGE < total && go("Older", () => from(skip + PAGE))),
    );
  };

  const save = async (): Promise<void> => {
    try {
      const href = URL.createObjectURL(await (await fetched("history/export", wanted())).blob());
      el("a", { href, download: "history.jsonl" }).click();
      URL.revokeObjectURL(href);
    } catch (error) {
      failed(found)(error);
    }
  };

  return ({ sources }) => {
    offerSources(source, sources.filter(({ recorded }) => recorded));
    void load(false);
  };
}
