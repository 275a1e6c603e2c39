// Values of unknown shape in, what of them can be relied on out.

export type Members = Readonly<Record<string, unknown>>;

export const isMembers = (value: unknown): value is Members =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const NONE: Members = {};

/** The members of an object; none of anything else. */
export const members = (value: unknown): Members => (isMembers(value) ? value : NONE);

/** What stands at the end of a way of names. */
export const at = (value: unknown, ...way: string[]): unknown =>
  way.reduce<unknown>((inner, name) => {
    const found = members(inner);
    return Object.hasOwn(found, name) ? found[name] : undefined;
  }, value);

export const text = (value: unknown): string | undefined => (typeof value === "string" ? value : undefined);

export const list = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);

export const texts = (value: unknown): string[] => list(value).filter((item) => typeof item === "string");

export const pretty = (value: unknown): string => JSON.stringify(value, null, 2) ?? "";

/** A text as it is, anything else as JSON. */
export const shownAs = (value: unknown): string => (typeof value === "string" ? value : pretty(value));

/** The value of a JSON text, or why it is none. */
export function parsed(source: string): { value: unknown } | { fault: string } {
  try {
    return { value: JSON.parse(source) };
  } catch (error) {
    return { fault: error instanceof Error ? error.message : "it is no JSON" };
  }
}

export const reason = (error: unknown): string => (error instanceof Error ? error.message : String(error));
