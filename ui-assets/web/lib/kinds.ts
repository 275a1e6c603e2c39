// A value from elsewhere in, whether it is of a kind out, or what stands in its place: an empty one, or its text.

export type Fields = Readonly<Record<string, unknown>>;

/** A name of its own, which the build can shorten. */
export const { stringify } = JSON;

export const isText = (value: unknown): value is string => typeof value === "string";

export const isFields = (value: unknown): value is Fields => Object(value) === value && !Array.isArray(value);

/** The list, or an empty one for what is none. */
export const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);
