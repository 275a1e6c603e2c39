// A question in, a form for the person out; nothing is granted but by a press of a person.
import { each, h, when } from "../../lib/h.ts";
import type { Child } from "../../lib/h.ts";
import { visible } from "../../lib/visible.ts";
import { ask } from "./api.ts";
import { question } from "./calls.ts";
import type { Question } from "./calls.ts";
import { fields } from "./form.ts";
import { at, members, pretty, reason, text } from "./json.ts";
import { button, code, notice, row } from "./parts.ts";
import { diffs } from "./result.ts";
import { initial } from "./schema.ts";
import { elicitations, state } from "./store.ts";

type Permission = Extract<Question, { kind: "permission" }>;

const MOST_WORDS = 4_000;

/** What the call needs and would do, to look at before anything can be allowed. */
async function view({ scopes, shown }: Permission): Promise<Node> {
  const needs = h("ul", { class: "plain" }, scopes.map((scope) => h("li", {}, "needs ", code(scope, 500))));
  const made: Child = shown === undefined ? [] : await diffs(shown).catch((error: unknown) => notice(reason(error), "bad"));
  return h("div", {}, needs, made);
}

function permission(asked: Permission): Node {
  const { tool, intent, scopes, arguments: given, answer } = asked;
  const slot = h("section", { class: "asks", "data-status": "permission", "aria-label": "Permission" });
  const verbs = new Set(scopes.map((scope) => (scope.startsWith("read") ? "read" : "write")));
  const put = async () => {
    await customElements.whenDefined("permission-prompt");
    const prompt = document.createElement("permission-prompt");
    prompt.block = {
      type: "tool_call_permission",
      content: intent || tool.name,
      status: "pending",
      tool_call: {
        id: crypto.randomUUID(),
        name: tool.name,
        params: pretty(given),
        server_name: state().name,
        server_icons: "",
        server_description: state().target,
      },
      extra: { permissionType: verbs.size === 1 ? [...verbs][0] : "all" },
    };
    prompt.addEventListener("permission-granted", (event) => {
      const { detail } = event as CustomEvent<unknown>;
      answer(at(detail, "remember") === true ? "kept" : "once");
    });
    prompt.addEventListener("permission-denied", () => answer("denied"));
    prompt.settled = false;
    slot.append(prompt);
    slot.scrollIntoView({ block: "nearest" });
    prompt.view = await view(asked);
    prompt.settled = true;
  };
  void put();
  return slot;
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
