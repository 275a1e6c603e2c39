// Minimal JSON Schema validator for the keywords that tools use. It reports unsupported keywords.
import { isFields } from "./json.ts";
import type { Fields } from "./json.ts";

// Returns `false` if the value violates the rule, or a message about a nested value.
type Rule = (rule: unknown, value: unknown, at: string, schema: Fields) => boolean | string | undefined;

const kind = (value: unknown): string => (value === null ? "null" : Array.isArray(value) ? "array" : typeof value);
// Compares serialized values, so the order of keys matters.
const same = (one: unknown, other: unknown): boolean => JSON.stringify(one) === JSON.stringify(other);
const list = (rule: unknown): readonly unknown[] => (Array.isArray(rule) ? rule : []);
const entries = (value: unknown): [string, unknown][] => (isFields(value) ? Object.entries(value) : []);
const has = (value: unknown, key: string): value is Fields => isFields(value) && Object.hasOwn(value, key);

function first<T>(all: readonly T[], find: (one: T) => string | undefined): string | undefined {
  for (const one of all) {
    const found = find(one);
    if (found !== undefined) return found;
  }
  return undefined;
}

const fits = (rule: unknown, value: unknown, at: string): number =>
  list(rule).filter((one) => problem(one, value, at) === undefined).length;
const bound =
  (of: string, holds: (measured: number, rule: number) => boolean): Rule =>
  (rule, value) => {
    if (kind(value) !== of) return true;
    const measured = typeof value === "string" ? [...value].length : Array.isArray(value) ? value.length : Number(value);
    return holds(measured, Number(rule));
  };
const atLeast = (one: number, other: number): boolean => one >= other;
const atMost = (one: number, other: number): boolean => one <= other;

const rules: Readonly<Record<string, Rule>> = {
  type: (rule, value) =>
    [rule].flat().some((one) => (one === "integer" ? Number.isInteger(value) : kind(value) === one)),
  enum: (rule, value) => list(rule).some((one) => same(one, value)),
  const: same,
  required: (rule, value, at) =>
    first(list(rule), (key) => (!isFields(value) || has(value, String(key)) ? undefined : `${at}.${String(key)} is missing`)),
  properties: (rule, value, at) =>
    first(entries(rule), ([key, one]) => (has(value, key) ? problem(one, value[key], `${at}.${key}`) : undefined)),
  additionalProperties: (rule, value, at, { properties }) =>
    first(entries(value), ([key, one]) => (has(properties, key) ? undefined : problem(rule, one, `${at}.${key}`))),
  items: (rule, value, at) => first([...list(value).entries()], ([index, one]) => problem(rule, one, `${at}[${index}]`)),
  anyOf: (rule, value, at) => fits(rule, value, at) > 0,
  oneOf: (rule, value, at) => fits(rule, value, at) === 1,
  allOf: (rule, value, at) => first(list(rule), (one) => problem(one, value, at)),
  not: (rule, value, at) => problem(rule, value, at) !== undefined,
  pattern: (rule, value) => typeof value !== "string" || new RegExp(String(rule), "u").test(value),
  minLength: bound("string", atLeast),
  maxLength: bound("string", atMost),
  minItems: bound("array", atLeast),
  maxItems: bound("array", atMost),
  minimum: bound("number", atLeast),
  maximum: bound("number", atMost),
  exclusiveMinimum: bound("number", (one, other) => one > other),
  exclusiveMaximum: bound("number", (one, other) => one < other),
};

const silent = /^(\$schema|\$id|\$comment|title|description|default|examples|deprecated|readOnly|writeOnly|format)$/;

/** The first unsupported keyword, or `undefined`. A schema with one would accept values that it forbids. */
export function unknownKeyword(schema: unknown): string | undefined {
  return first(entries(schema), ([key, rule]) => {
    if (silent.test(key)) return undefined;
    if (!has(rules, key)) return key;
    if (key === "properties") return first(entries(rule).map(([, one]) => one), unknownKeyword);
    if (key.endsWith("Of")) return first(list(rule), unknownKeyword);
    return /^(items|add|not)/.test(key) ? unknownKeyword(rule) : undefined;
  });
}

/** The first violation, or `undefined` if the value is valid. */
export function problem(schema: unknown, value: unknown, at = "value"): string | undefined {
  if (schema === false) return `${at} is not allowed`;
  return first(entries(schema), ([key, rule]) => {
    const found = rules[key]?.(rule, value, at, schema as Fields);
    return found === false ? `${at} does not meet ${key} ${JSON.stringify(rule)}` : found === true ? undefined : found;
  });
}
