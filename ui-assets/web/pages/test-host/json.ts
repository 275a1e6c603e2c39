// Accessors for JSON without a schema: the value at a path of keys, if it has the type.
import { at, isFields, listOf, maybeText, stringify, texts as textsIn } from "../../lib/json.ts";
import type { Fields } from "../../lib/json.ts";
import { message } from "../../lib/visible.ts";

export { at, isFields, stringify };
export type { Fields };
export const reason = message;

export const members = (value: unknown, ...path: string[]): Fields => {
  const found = at(value, ...path);
  return isFields(found) ? found : {};
};
export const text = (value: unknown, ...path: string[]): string | undefined => maybeText(at(value, ...path));
/** The string at the path, or an empty string. */
export const string = (value: unknown, ...path: string[]): string => text(value, ...path) ?? "";
export const list = (value: unknown, ...path: string[]): readonly unknown[] => listOf(at(value, ...path));
export const texts = (value: unknown, ...path: string[]): string[] => textsIn(at(value, ...path));

export const pretty = (value: unknown): string => stringify(value, null, 2) ?? "";

/** Strings unchanged, other values as JSON. */
export const shownAs = (value: unknown): string => (typeof value === "string" ? value : pretty(value));

/** Parses JSON; returns the value, or the error message. */
export function parsed(source: string): readonly [value: unknown, fault: string] {
  try {
    return [JSON.parse(source), ""];
  } catch (error) {
    return [undefined, reason(error)];
  }
}
