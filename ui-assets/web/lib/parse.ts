// Parsers that check untrusted values and report the path of an invalid one.

/** Parses a value, or throws a `TypeError` with its path. */
export type Parse<T> = (value: unknown, at: string) => T;
type Of<P> = P extends Parse<infer T> ? T : never;

function misfit(at: string): never {
  throw new TypeError(`${at} is not as expected`);
}

const is = <T>(type: string): Parse<T> => (value, at) => (typeof value === type ? (value as T) : misfit(at));

export const text = is<string>("string");
export const number = is<number>("number");
export const flag = is<boolean>("boolean");
export const anything: Parse<unknown> = (value) => value;

export function list<T>(item: Parse<T>): Parse<readonly T[]> {
  return (value, at) => (Array.isArray(value) ? value.map((one) => item(one, at)) : misfit(at));
}

export function oneOf<const T extends string>(...words: readonly T[]): Parse<T> {
  return (value, at) => words.find((word) => word === value) ?? misfit(at);
}

/** Also accepts null and missing values. */
export function maybe<T>(item: Parse<T>): Parse<T | undefined> {
  return (value, at) => (value == null ? undefined : item(value, at));
}

/** An object with at least these keys. The keys must not name members of `Object.prototype`. */
export function object<S extends Readonly<Record<string, Parse<unknown>>>>(
  shape: S,
): Parse<{ readonly [K in keyof S]: Of<S[K]> }> {
  return (value, at) => {
    if (Object(value) !== value || Array.isArray(value)) misfit(at);
    const members = value as Readonly<Record<string, unknown>>;
    return Object.fromEntries(Object.entries(shape).map(([key, item]) => [key, item(members[key], `${at}.${key}`)])) as { readonly [K in keyof S]: Of<S[K]> };
  };
}

/** The result type of a parser. */
export type Parsed<P> = Of<P>;
