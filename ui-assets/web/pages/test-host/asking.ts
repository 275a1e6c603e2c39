// Permission prompts and elicitation forms, shown one at a time. Only a trusted press by a person grants anything.
import { h, when } from "../../lib/h.ts";
import type { Child } from "../../lib/h.ts";
import { memo, signal } from "../../lib/signals.ts";
import { visible } from "../../lib/visible.ts";
import { ask } from "./api.ts";
import { waiting } from "./calls.ts";
import type { Permission } from "./calls.ts";
import { fields } from "./form.ts";
import { at, members, pretty, reason, string } from "./json.ts";
import { button, code, notice, quiet, row } from "./parts.ts";
import { diffs } from "./result.ts";
import { initial } from "./schema.ts";
import { state } from "./store.ts";

const MOST_WORDS = 4_000;
/** Milliseconds in which a new form ignores presses, so that a double press does not answer it. */
const CALM = 700;

/** The broadest kind of access of a call: derived from the scopes' verbs and, beyond reading, from the tool. */
function kindOf({ scopes, tool }: Permission): string {
  const reads = scopes.filter((scope) => scope.split(":")[0] === "read").length;
  if (reads === scopes.length && tool.readOnly) return "read";
  return reads > 0 || scopes.length === 0 ? "all" : "write";
}

function permission(asked: Permission): Node {
  const { tool, intent, scopes, given, shown, answer } = asked;
  const slot = h("section.asks", { "data-status": "permission", "aria-label": "Permission", tabindex: -1 });
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
      extra: { permissionType: kindOf(asked) },
    };
    prompt.addEventListener("permission-granted", () => answer(true));
    prompt.addEventListener("permission-denied", () => answer(false));
    // Loads the preview of the call; the call cannot be allowed before it is shown.
    const look = async () => {
      prompt.settled = false;
      const view = (...found: Child[]) => h("div", h("ul.plain", scopes.map((scope) => h("li", "needs ", code(scope, 500)))), found);
      try {
        prompt.view = view(shown === undefined ? [] : await diffs(shown));
        prompt.settled = true;
      } catch (error) {
        const again = () => {
          slot.focus();
          void look();
        };
        prompt.view = view(notice(`No preview: ${reason(error)}`, "bad"), button("Try again", again));
      }
    };
    slot.append(prompt);
    slot.scrollIntoView({ block: "nearest" });
    await look();
  };
  void put();
  return slot;
}

function form(params: unknown, answer: (result: unknown) => void): Node {
  const schema = { type: "object", ...members(params, "requestedSchema") };
  const value = initial(schema, schema);
  let content = value;
  const calm = signal(true);
  setTimeout(() => calm(false), CALM);
  const act = (label: string, action: string, looks = "") =>
    button(label, () => answer(action === "accept" ? { action, content } : { action }), looks, { disabled: calm });
  return h(
    "section.asking",
    { "data-status": "elicitation", "aria-label": "The server asks" },
    h("h2", "The server asks"),
    h("p.said", h("bdi", visible(string(params, "message").slice(0, MOST_WORDS)))),
    fields({ schema, root: schema, required: true, value, change: (now) => (content = now) }),
    row(act("Cancel", "cancel"), act("Decline", "decline"), act("Answer", "accept", "primary")),
  );
}

/** The first pending question. */
export function asking(): Child {
  let last: ReturnType<typeof waiting>[number] | undefined;
  // Keep the current question until it is answered.
  const first = memo(() => (last = waiting().find((one) => one === last) ?? waiting()[0]));
  const more = () => waiting().length > 1 && h("p", quiet(`1 of ${waiting().length} questions`));
  return h(
    "div",
    { "aria-live": "polite" },
    more,
    when(first, (one) => {
      if ("scopes" in one) return permission(one);
      if ("params" in one) return form(one.params, one.answer);
      const { message } = one;
      return form(at(message, "params"), (result) => void ask("reply", { id: at(message, "id"), result }));
    }),
  );
}
