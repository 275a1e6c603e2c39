// Form to call a tool, and its results.
import { h, when } from "../../lib/h.ts";
import type { Child } from "../../lib/h.ts";
import { effect, signal } from "../../lib/signals.ts";
import { visible } from "../../lib/visible.ts";
import { ask } from "./api.ts";
import { asking } from "./asking.ts";
import { approved, call as make, preview } from "./calls.ts";
import type { Call, Compared, Outcome } from "./calls.ts";
import { editor } from "./form.ts";
import { at, members, reason, string, text } from "./json.ts";
import type { Tool } from "./model.ts";
import { badge, button, code, live, notice, quiet, row, said, told } from "./parts.ts";
import { results } from "./result.ts";
import { initial } from "./schema.ts";
import { policy } from "./store.ts";

const HINTS: Readonly<Record<string, string>> = {
  readOnlyHint: "reads only",
  destructiveHint: "destructive",
  idempotentHint: "idempotent",
  openWorldHint: "reaches outside",
};
const NO_PREVIEW = "This tool has no preview; the server would run the call.";

export const badges = ({ annotations, preview, ui, visibility, scopes }: Tool): Node =>
  h(
    "span.badges",
    Object.entries(HINTS).map(([key, words]) => at(annotations, key) === true && badge(words, key)),
    preview && badge("preview"),
    ui && badge("view"),
    visibility.length > 0 && !visibility.includes("model") && badge("for views only"),
    scopes.map((scope) => badge(scope, "scope")),
  );

/** The intent sentence for the current arguments; also passed to `tell`. */
function sentence(template: string, given: () => unknown, tell: (now: string) => void): Node {
  const now = signal<{ words: string; status: string }>({ words: "", status: "loading" });
  let newest = 0;
  effect(() => {
    const asked = ask("intent", { template, arguments: given() });
    newest += 1;
    const mine = newest;
    const settle = (answer: unknown) => {
      if (mine !== newest) return;
      const words = text(answer, "sentence");
      tell(words ?? "");
      now({ words: words ?? string(answer, "fault"), status: words === undefined ? "fault" : "ready" });
    };
    // The connection bar reports an unreachable host.
    asked.then(settle, () => undefined);
  });
  return h(
    "p.intent",
    { "aria-live": "polite", "data-status": () => now().status },
    quiet("Intent"),
    h("bdi", () => visible(now().words)),
  );
}

const compared = (all: readonly Compared[]): Node =>
  h(
    "ul.plain compared",
    { "data-status": all.every((one) => !one.differs) ? "equal" : "differs" },
    all.map(({ name, differs }) =>
      h("li", differs ? badge("differs", "bad") : badge("equal", "good"), " ", said(name, 80), ": ", said(differs || "the same in preview and call")),
    ),
    all.length === 0 && told("no-artifact"),
  );

/** The form of one tool. */
export function call(tool: Tool): Node {
  const schema = { type: "object", ...members(tool.inputSchema) };
  const given = signal<unknown>(initial(schema, schema) ?? {});
  const held = signal(false);
  const busy = signal(false);
  const outcome = signal<Outcome | undefined>(undefined);
  let intent = "";
  let sent: unknown;
  const run = async (act: (one: Call) => Promise<Outcome>) => {
    busy(true);
    outcome(undefined);
    sent = given();
    const began = performance.now();
    try {
      const came = await act({ tool, given: sent, intent });
      outcome({ ...came, ms: Math.round(performance.now() - began) });
    } catch (error) {
      outcome({ fault: reason(error) });
    }
    busy(false);
  };
  const stuck = () => busy() || held();
  const previewing = (label: string, act: (one: Call) => Promise<Outcome>) =>
    button(label, () => run(act), "", { disabled: () => stuck() || !tool.preview, title: tool.preview ? "" : NO_PREVIEW });
  const took = () => {
    const ms = outcome()?.ms;
    return busy() ? "Waiting…" : ms !== undefined && `${ms} ms`;
  };
  const shown = ({ note, fault, call: made, compared: pairs, preview }: Outcome): Child => [
    note && told(note),
    fault && notice(fault, "warn"),
    made !== undefined && results("Result", made, tool, sent),
    pairs && compared(pairs),
    preview !== undefined && results("Preview", preview, tool, sent),
  ];
  return h(
    "article.call",
    { "data-status": () => (busy() ? "busy" : outcome() ? "settled" : "idle"), "data-tool": tool.name },
    h(
      "header",
      h("h2", said(tool.title, 120), " ", code(tool.name, 128, "quiet")),
      badges(tool),
      h("p.said", h("bdi", visible(tool.description.slice(0, 2_000)))),
      tool.lints.map((lint) => notice(`Intent template: ${lint}`, "warn")),
    ),
    tool.intent && sentence(tool.intent, given, (now) => (intent = now)),
    editor("arguments", schema, given, held),
    when(policy, () => told("under-policy")),
    row(
      button("Call", () => run(make), "primary", { disabled: stuck }),
      previewing("Preview", preview),
      previewing("Preview, ask, call", (one) => approved(one, outcome)),
      live(took),
    ),
    asking(),
    when(outcome, shown),
  );
}
