// Wire tab: a filterable log of all messages, newest first.
import { each, h, when } from "../../lib/h.ts";
import { memo, signal } from "../../lib/signals.ts";
import { at, shownAs, text } from "./json.ts";
import type { Entry } from "./model.ts";
import { badge, button, live, notice, quiet, row, said, search, typing, words } from "./parts.ts";
import { entries } from "./store.ts";

const MOST_SHOWN = 200;
const SIDES: Readonly<Record<string, string>> = {
  sent: "→ sent",
  received: "← received",
  said: "stderr",
  state: "connection",
};

function titleOf(message: unknown): string {
  if (typeof message === "string") return message;
  const id = at(message, "id");
  const kind = at(message, "error") === undefined ? "result" : "error";
  return `${text(message, "method") ?? kind}${id === undefined ? "" : ` #${String(id)}`}`;
}

function line({ seq, at_ms, side, message, fault }: Entry): Node {
  const open = signal(false);
  return h(
    "li",
    { class: fault ? "entry faulty" : "entry" },
    h(
      "details",
      { ontoggle: (event: Event) => open((event.target as HTMLDetailsElement).open) },
      h(
        "summary",
        h("span.quiet seq", seq),
        h(`span.side ${side}`, SIDES[side]),
        said(titleOf(message), 160),
        fault && badge("not as MCP says", "bad"),
        h("span.quiet time", `${(at_ms / 1000).toFixed(3)} s`),
      ),
      when(open, () => [fault && notice(fault, "bad"), words(shownAs(message))]),
    ),
  );
}

export function wire(): Node {
  const filter = signal("");
  const side = signal("all");
  const faulty = signal(false);
  const copied = signal("");
  const fits = (entry: Entry) =>
    (side() === "all" || entry.side === side()) &&
    (!faulty() || entry.fault) &&
    (filter() === "" || JSON.stringify(entry.message).toLowerCase().includes(filter()));
  const found = memo(() => entries().filter(fits));
  const newest = () => found().slice(-MOST_SHOWN).reverse();
  const copy = async () => {
    const lines = found().map((entry) => `${JSON.stringify(entry)}\n`);
    try {
      await navigator.clipboard.writeText(lines.join(""));
      copied(`Copied ${lines.length} entries.`);
    } catch {
      copied("The browser does not allow copying.");
    }
  };
  return h(
    "article",
    { "data-entries": () => found().length },
    row(
      h("h2", "Wire"),
      search("Filter by text", "Filter", filter),
      h(
        "select",
        { "aria-label": "Which side", onchange: typing(side) },
        h("option", { value: "all" }, "everything"),
        Object.entries(SIDES).map(([key, label]) => h("option", { value: key }, label)),
      ),
      h("label", h("input", { type: "checkbox", onchange: () => faulty(!faulty()) }), " only what is not as MCP says"),
      button("Copy as JSON lines", copy, "small"),
      live(copied),
    ),
    when(() => found().length > MOST_SHOWN, () => quiet(`The last ${MOST_SHOWN} are shown.`)),
    h("ol.plain log", each(newest, line, h("li.quiet", "No matches."))),
  );
}
