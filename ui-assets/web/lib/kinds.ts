// A value from elsewhere in, whether it is of a kind out, or an empty one in its place.

export type Fields = Readonly<Record<string, unknown>>;

export const { stringify } = JSON;

export const isText = (value: unknown): value is string => typeof value === "string";

export function isFields(value: unknown): value is Fields {
  return Object(value) === value && !Array.isArray(value);
}

/** The list, or an empty one for what is none. */
export function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}
