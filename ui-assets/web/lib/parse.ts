// A value from elsewhere in, the same as a known type out; what does not fit is refused with the place.

/** Reads a value, or throws a `TypeError` that names the place. */
export type Parse<T> = (value: unknown, at: string) => T;
type Of<P> = P extends Parse<infer T> ? T : never;

function misfit(at: string): never {
  throw new TypeError(`${at} is not as expected`);
}

export const text: Parse<string> = (value, at) => (typeof value === "string" ? value : misfit(at));
export const number: Parse<number> = (value, at) =>
  typeof value === "number" && Number.isFinite(value) ? value : misfit(at);
export const flag: Parse<boolean> = (value, at) => (typeof value === "boolean" ? value : misfit(at));
export const anything: Parse<unknown> = (value) => value;

export function list<T>(item: Parse<T>): Parse<readonly T[]> {
  return (value, at) => (Array.isArray(value) ? value.map((one, place) => item(one, `${at}[${place}]`)) : misfit(at));
}

export function oneOf<const T extends string>(...words: readonly T[]): Parse<T> {
  return (value, at) => words.find((word) => word === value) ?? misfit(at);
}

/** Absent or null, too. */
export function maybe<T>(item: Parse<T>): Parse<T | undefined> {
  return (value, at) => (value === undefined || value === null ? undefined : item(value, at));
}

/** An object with these members at least. */
export function object<S extends Readonly<Record<string, Parse<unknown>>>>(
  shape: S,
): Parse<{ readonly [K in keyof S]: Of<S[K]> }> {
  return (value, at) => {
    if (typeof value !== "object" || value === null || Array.isArray(value)) misfit(at);
    const members = new Map(Object.entries(value));
    const read = Object.entries(shape).map(([key, item]) => [key, item(members.get(key), `${at}.${key}`)]);
    return Object.fromEntries(read) as { readonly [K in keyof S]: Of<S[K]> };
  };
}

/** What a parser makes. */
export type Parsed<P> = Of<P>;
