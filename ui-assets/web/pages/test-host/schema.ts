// Interprets JSON Schemas for forms.
import { at, isFields, list, members, string, stringify, text } from "./json.ts";
import type { Fields } from "./json.ts";

export type Kind = "text" | "number" | "choice" | "list" | "object" | "json";

export interface Field {
  readonly kind: Kind;
  readonly schema: Fields;
  readonly description: string;
  readonly choices: readonly { readonly value: unknown; readonly label: string }[];
}

const MOST_STEPS = 32;

/** Resolves references, and selects one of several alternatives. */
function resolved(schema: unknown, root: unknown): Fields {
  let said: Fields = {};
  let now: unknown = schema;
  for (let step = 0; step < MOST_STEPS; step += 1) {
    const { $ref, anyOf, oneOf, allOf, ...own } = members(now);
    said = { ...own, ...said };
    const reference = text($ref);
    const forms = list(anyOf ?? oneOf);
    const open = forms.filter((form) => at(form, "type") !== "null");
    if (reference?.startsWith("#/")) {
      const way = reference.slice(2).split("/");
      now = at(root, ...way.map((name) => name.replaceAll("~1", "/").replaceAll("~0", "~")));
    } else if (open.length > 0 && open.every((form) => Object.hasOwn(members(form), "const"))) {
      return { ...said, enum: open.map((form) => at(form, "const")), enumNames: open.map((form) => at(form, "title")) };
    } else if (open.length > 0) {
      now = open[0];
    } else if (list(allOf).length > 0) {
      now = list(allOf).reduce<Fields>((all, part) => ({ ...all, ...members(part) }), {});
    } else {
      return said;
    }
  }
  return said;
}

const KINDS: ReadonlyMap<unknown, Kind> = new Map([["string", "text"], ["integer", "number"], ["number", "number"], ["boolean", "choice"]]);

function kindOf({ type, enum: some, items, properties }: Fields): Kind {
  const types = [type].flat().filter((name) => name !== "null");
  const one = types.length === 1 && types[0];
  if (Array.isArray(some)) return "choice";
  if (one === "array") return isFields(items) ? "list" : "json";
  return KINDS.get(one) ?? (isFields(properties) ? "object" : "json");
}

export function fieldOf(schema: unknown, root: unknown): Field {
  const found = resolved(schema, root);
  const { enum: some, enumNames, description } = found;
  const names = list(enumNames);
  const kind = kindOf(found);
  return {
    kind,
    schema: found,
    description: string(description),
    choices: (Array.isArray(some) ? some : kind === "choice" ? [false, true] : []).map((value, index) => ({
      value,
      label: text(names[index]) ?? (typeof value === "string" ? value : stringify(value)),
    })),
  };
}

/** The initial value of a required field. Without a default in the schema, nothing is preselected. */
export function initial(schema: unknown, root: unknown): unknown {
  const { kind, schema: found } = fieldOf(schema, root);
  const { default: begin, required, properties } = found;
  if (begin !== undefined && begin !== null) return begin;
  if (kind !== "object") return kind === "text" ? "" : kind === "list" ? [] : undefined;
  const wanted = Object.entries(members(properties)).filter(([name]) => list(required).includes(name));
  return Object.fromEntries(wanted.map(([name, inner]) => [name, initial(inner, root)]));
}

/** The policy schema: the configuration schema without the fields that can only be set at startup. */
export function policySchema(schema: unknown): unknown {
  const { properties, items, required } = members(schema);
  const kept = Object.entries(members(properties)).filter(([, field]) => at(field, "scope") !== "configuration");
  const names = kept.map(([name]) => name);
  return {
    ...members(schema),
    ...(isFields(properties) && { properties: Object.fromEntries(kept.map(([name, field]) => [name, policySchema(field)])) }),
    ...(isFields(items) && { items: policySchema(items) }),
    ...(Array.isArray(required) && { required: required.filter((name) => names.includes(name)) }),
  };
}
