// Builds a form for a JSON Schema. Each edit calls `change`; empty fields are omitted.
import { each, h, when } from "../../lib/h.ts";
import type { Child } from "../../lib/h.ts";
import { signal } from "../../lib/signals.ts";
import type { Signal } from "../../lib/signals.ts";
import { oneLine } from "../../lib/visible.ts";
import { at, isMembers, list, members, parsed, pretty } from "./json.ts";
import { badge, button, notice, quiet, row, said, typing } from "./parts.ts";
import { fieldOf, initial } from "./schema.ts";
import type { Field } from "./schema.ts";

interface Asked {
  readonly schema: unknown;
  readonly root: unknown;
  readonly name: string;
  readonly required: boolean;
  /** Initial value; later edits are kept in the form. */
  readonly value: unknown;
  readonly change: (value: unknown) => void;
}

type Draw = (asked: Asked, field: Field, ids: Readonly<Record<string, string>>) => Child;

/** Names of arguments that usually hold long text. */
const LONG = /text|content|body|patch|code/i;

const text: Draw = ({ name, required, value, change }, _, ids) => {
  const begin = typeof value === "string" ? value : "";
  const oninput = typing((now) => change(now || required ? now : undefined));
  return LONG.test(name)
    ? h("textarea", { ...ids, rows: 3, value: begin, oninput })
    : h("input", { ...ids, type: "text", autocomplete: "off", spellcheck: "false", value: begin, oninput });
};

const number: Draw = ({ value, change }, { schema }, ids) =>
  h("input", {
    ...ids,
    type: "number",
    step: [schema["type"]].flat().includes("integer") ? "1" : "any",
    value: typeof value === "number" ? value : "",
    oninput: typing((now) => change(now ? Number(now) : undefined)),
  });

const choice: Draw = ({ required, value, change }, { choices }, ids) => {
  const begin = choices.findIndex((one) => JSON.stringify(one.value) === JSON.stringify(value));
  return h(
    "select",
    { ...ids, onchange: typing((now) => change(now ? choices[Number(now)]?.value : undefined)) },
    (!required || begin < 0) && h("option", { value: "" }, "not set"),
    choices.map(({ label }, index) => h("option", { value: index, selected: index === begin }, oneLine(label, 80))),
  );
};

const json: Draw = ({ value, change }, _, ids) => {
  const fault = signal("");
  const oninput = typing((now) => {
    const [read, why] = now.trim() ? parsed(now) : [undefined, ""];
    fault(why);
    if (!why) change(read);
  });
  const begin = value === undefined ? "" : pretty(value);
  return [
    h("textarea", { ...ids, class: "code", rows: 3, spellcheck: "false", placeholder: "JSON", value: begin, oninput }),
    when(fault, (why) => notice(why, "bad")),
  ];
};

const items: Draw = (asked, { schema }, ids) => {
  const { root, name, required, value, change } = asked;
  const rows = signal(list(value).map((begin) => ({ value: begin })));
  const tell = () => {
    const filled = rows().flatMap((one) => (one.value === undefined ? [] : [one.value]));
    change(filled.length === 0 && !required ? undefined : filled);
  };
  const put = (next: { value: unknown }[]) => {
    rows(next);
    tell();
  };
  const inner = schema["items"];
  const told = oneLine(name, 60);
  return h(
    "div.items",
    { ...ids, role: "group" },
    each(rows, (one) =>
      h(
        "div.item",
        drawn({
          schema: inner,
          root,
          name: `${name} ${rows().indexOf(one) + 1}`,
          required: true,
          value: one.value,
          change(now) {
            one.value = now;
            tell();
          },
        }),
        button(["Remove", h("span.seen-by-ear", ` one of ${told}`)], () => put(rows().filter((other) => other !== one)), "small"),
      ),
    ),
    button(["Add", h("span.seen-by-ear", ` to ${told}`)], () => put([...rows(), { value: initial(inner, root) }]), "small"),
  );
};

const DRAWN = { text, number, choice, json, list: items };
let made = 0;

/** A field with its label and description. */
function drawn(asked: Asked): Node {
  const { schema, root, name, required } = asked;
  const field = fieldOf(schema, root);
  made += 1;
  const id = `field-${made}`;
  const limits = ["scope", "audience"].map((key) => at(schema, key)).filter((limit) => limit !== undefined && limit !== "any");
  const label: Child = [said(name, 80), required && quiet(" required"), limits.map((limit) => badge(String(limit)))];
  const about = h("small.quiet about", { id: `${id}-about` }, said(field.description));
  if (field.kind === "object") {
    return h("fieldset.field", h("legend", label), about, fields(asked));
  }
  const ids = { id, "aria-describedby": `${id}-about`, "aria-labelledby": `${id}-name` };
  const tag = field.kind === "list" ? "div" : "label";
  return h("div.field", h(tag, { id: `${id}-name`, for: id }, label), DRAWN[field.kind](asked, field, ids), about);
}

/** The fields of an object schema. */
export function fields({ schema, root, required, value, change }: Omit<Asked, "name">): Child {
  let now: Record<string, unknown> = { ...members(value) };
  const field = fieldOf(schema, root);
  const wanted = list(field.schema["required"]);
  return Object.entries(members(field.schema["properties"])).map(([name, inner]) =>
    drawn({
      schema: inner,
      root,
      name,
      required: wanted.includes(name),
      value: now[name],
      change(next) {
        const { [name]: _, ...others } = now;
        now = next === undefined ? others : { ...others, [name]: next };
        change(Object.keys(now).length === 0 && !required ? undefined : now);
      },
    }),
  );
}

/** Switches between a form and a JSON editor; `hold` is called with whether the JSON is invalid. */
export function editor(
  name: string,
  schema: unknown,
  value: Signal<unknown>,
  hold: (is: boolean) => void,
): Child {
  const raw = signal(false);
  const fault = signal("");
  const oninput = typing((now) => {
    const [read, no] = parsed(now);
    const why = no || (isMembers(read) ? "" : "it must be an object");
    fault(why);
    hold(why !== "");
    if (!why) value(read);
  });
  const form = () =>
    h(
      "form.fields",
      { onsubmit: (event: Event) => event.preventDefault() },
      fields({ schema, root: schema, required: true, value: value(), change: (now) => value(now ?? {}) }),
    );
  const label = { "aria-label": `The ${name} as JSON` };
  const source = () => h("textarea", { ...label, class: "code", rows: 8, spellcheck: "false", value: pretty(value()), oninput });
  return [
    row(
      button("Form", () => raw(false), "small", { on: () => !raw(), disabled: () => fault() !== "" }),
      button("JSON", () => raw(true), "small", { on: raw }),
    ),
    when(raw, source, form),
    when(fault, (why) => notice(why, "bad")),
  ];
}
