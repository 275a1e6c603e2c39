// Type guards and fallbacks for untrusted values.

export type Fields = Readonly<Record<string, unknown>>;

/** A separate binding, which the minifier can shorten. */
export const { stringify } = JSON;

export const isText = (value: unknown): value is string => typeof value === "string";

export const isFields = (value: unknown): value is Fields => Object(value) === value && !Array.isArray(value);

/** The value if it is an array, otherwise an empty array. */
export const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);
