// Accessors for untyped JSON values.

export type Members = Readonly<Record<string, unknown>>;

export const isMembers = (value: unknown): value is Members =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** The value at a path of keys. */
export const at = (value: unknown, ...way: string[]): unknown =>
  way.reduce<unknown>((inner, name) => (isMembers(inner) && Object.hasOwn(inner, name) ? inner[name] : undefined), value);

// The value at the path, if it has the type.

export const members = (value: unknown, ...way: string[]): Members => {
  const found = at(value, ...way);
  return isMembers(found) ? found : {};
};

export const text = (value: unknown, ...way: string[]): string | undefined => {
  const found = at(value, ...way);
  return typeof found === "string" ? found : undefined;
};

/** The string at the path, or an empty string. */
export const string = (value: unknown, ...way: string[]): string => text(value, ...way) ?? "";

export const list = (value: unknown, ...way: string[]): readonly unknown[] => {
  const found = at(value, ...way);
  return Array.isArray(found) ? found : [];
};

export const texts = (value: unknown, ...way: string[]): string[] => list(value, ...way).filter((item) => typeof item === "string");

export const pretty = (value: unknown): string => JSON.stringify(value, null, 2) ?? "";

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

export const reason = (error: unknown): string => (error instanceof Error ? error.message : String(error));
