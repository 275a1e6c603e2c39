// JSON Schemas in, what a form needs to know of them out.
import { at, isMembers, list, members, string, text } from "./json.ts";
import type { Members } from "./json.ts";

export type Kind = "text" | "number" | "choice" | "list" | "object" | "json";

export interface Field {
  readonly kind: Kind;
  readonly schema: Members;
  readonly description: string;
  readonly choices: readonly { readonly value: unknown; readonly label: string }[];
}

const MOST_STEPS = 32;

/** The schema that `schema` comes to: references followed, one of several forms chosen. */
function resolved(schema: unknown, root: unknown): Members {
  let said: Members = {};
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
      now = list(allOf).reduce<Members>((all, part) => ({ ...all, ...members(part) }), {});
    } else {
      return said;
    }
  }
  return said;
}

function kindOf(schema: Members): Kind {
  const types = [schema["type"]].flat().filter((type) => type !== "null");
  if (Array.isArray(schema["enum"])) return "choice";
  switch (types.length === 1 ? types[0] : undefined) {
    case "string":
      return "text";
    case "integer":
    case "number":
      return "number";
    case "boolean":
      return "choice";
    case "array":
      return isMembers(schema["items"]) ? "list" : "json";
    case "object":
      return isMembers(schema["properties"]) ? "object" : "json";
    default:
      return isMembers(schema["properties"]) ? "object" : "json";
  }
}

export function fieldOf(schema: unknown, root: unknown): Field {
  const found = resolved(schema, root);
  const names = list(found["enumNames"]);
  const kind = kindOf(found);
  const flags = kind === "choice" && !Array.isArray(found["enum"]);
  return {
    kind,
    schema: found,
    description: string(found["description"]),
    choices: (flags ? [false, true] : list(found["enum"])).map((value, index) => ({
      value,
      label: text(names[index]) ?? (typeof value === "string" ? value : JSON.stringify(value)),
    })),
  };
}

/** What a field that must be there begins with. Nobody chooses for a person where the schema does not. */
export function initial(schema: unknown, root: unknown): unknown {
  const field = fieldOf(schema, root);
  if (field.schema["default"] !== undefined && field.schema["default"] !== null) return field.schema["default"];
  switch (field.kind) {
    case "text":
      return "";
    case "list":
      return [];
    case "object": {
      const required = list(field.schema["required"]);
      const wanted = Object.entries(members(field.schema["properties"])).filter(([name]) => required.includes(name));
      return Object.fromEntries(wanted.map(([name, inner]) => [name, initial(inner, root)]));
    }
    default:
      return undefined;
  }
}

/** The schema of a policy: that of the configuration, without the fields that can only be set at the start. */
export function policySchema(schema: unknown): unknown {
  if (!isMembers(schema)) return schema;
  const entries = Object.entries(schema).map(([key, value]): [string, unknown] => {
    if (key === "properties") {
      const kept = Object.entries(members(value)).filter(([, field]) => at(field, "scope") !== "configuration");
      return [key, Object.fromEntries(kept.map(([name, field]) => [name, policySchema(field)]))];
    }
    return [key, key === "items" ? policySchema(value) : value];
  });
  const narrowed = Object.fromEntries(entries);
  if (!Array.isArray(narrowed["required"])) return narrowed;
  const names = members(narrowed["properties"]);
  return { ...narrowed, required: narrowed["required"].filter((name) => Object.hasOwn(names, String(name))) };
}
