// A question in, a form for the person out; nothing is granted but by a press of a person.
import { each, h, when } from "../../lib/h.ts";
import type { Child } from "../../lib/h.ts";
import { signal } from "../../lib/live.ts";
import { visible } from "../../lib/visible.ts";
import { ask } from "./api.ts";
import { question } from "./calls.ts";
import type { Question } from "./calls.ts";
import { fields } from "./form.ts";
import { at, members, pretty, reason, text } from "./json.ts";
import { button, code, notice, row, said } from "./parts.ts";
import { diffs } from "./result.ts";
import { initial } from "./schema.ts";
import { elicitations } from "./store.ts";

const MOST_WORDS = 4_000;

function permission({ tool, intent, scopes, arguments: given, shown, answer }: Extract<Question, { kind: "permission" }>): Node {
  // Nobody can allow what they cannot see yet.
  const [preview, show] = signal<Child>(shown === undefined ? [] : undefined);
  if (shown !== undefined) diffs(shown).then(show, (error: unknown) => show(notice(reason(error), "bad")));
  return h(
    "section",
    { class: "asking", "data-status": "permission", "aria-label": "Permission" },
    h("h2", {}, "Allow ", said(tool.title, 80), " this once?"),
    h("p", {}, said(intent || tool.name, 500)),
    h("ul", { class: "plain" }, scopes.map((scope) => h("li", {}, "needs ", code(scope, 500)))),
    () => preview() ?? "Loading the preview…",
    h("details", {}, h("summary", {}, "Arguments"), h("pre", {}, visible(pretty(given)))),
    row(
      button("Deny", { act: () => answer(undefined) }),
      button("Allow this call", { act: () => answer(scopes), looks: "primary", disabled: () => preview() === undefined }),
    ),
  );
}

function form(params: unknown, answer: (result: unknown) => void): Node {
  const schema = { type: "object", ...members(at(params, "requestedSchema")) };
  const value = initial(schema, schema);
  let content = value;
  return h(
    "section",
    { class: "asking", "data-status": "elicitation", "aria-label": "The server asks" },
    h("h2", {}, "The server asks"),
    h("p", { class: "said" }, h("bdi", {}, visible((text(at(params, "message")) ?? "").slice(0, MOST_WORDS)))),
    fields({ schema, root: schema, required: true, value, change: (now) => (content = now) }),
    row(
      button("Cancel", { act: () => answer({ action: "cancel" }) }),
      button("Decline", { act: () => answer({ action: "decline" }) }),
      button("Answer", { act: () => answer({ action: "accept", content }), looks: "primary" }),
    ),
  );
}

/** Whatever waits for a person. */
export const asking = (): Child =>
  h(
    "div",
    { "aria-live": "polite" },
    when(question, (asked) => (asked.kind === "permission" ? permission(asked) : form(asked.params, asked.answer))),
    each(elicitations, ({ id, params }) => form(params, (result) => ask("reply", { id, result }))),
  );
