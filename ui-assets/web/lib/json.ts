// Validates JSON from other programs. Parsers are made without side effects, so a page contains only those that it uses.

export type Fields = Readonly<Record<string, unknown>>;

/** A separate binding, which the minifier can shorten. */
export const stringify = JSON.stringify;

export const isText = (value: unknown): value is string => typeof value === "string";

export const isFields = (value: unknown): value is Fields => Object(value) === value && !Array.isArray(value);

/** The value if it is an array, otherwise an empty array. */
export const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);

/** The own property at a path of keys. */
export const at = (value: unknown, ...path: readonly string[]): unknown =>
  path.reduce<unknown>((inner, key) => (isFields(inner) && Object.hasOwn(inner, key) ? inner[key] : undefined), value);

/** Parses a value, or throws a `TypeError` with its path. */
export type Parse<T> = (value: unknown, path?: string) => T;
/** The result type of a parser. */
export type Parsed<P> = P extends Parse<infer T> ? T : never;

function misfit(path = "the value"): never {
  throw new TypeError(`${path} is not as expected`);
}

/* @__NO_SIDE_EFFECTS__ */
function is<T>(type: string): Parse<T> {
  return (value, path) => (typeof value === type ? (value as T) : misfit(path));
}

export const text = is<string>("string");
export const number = is<number>("number");
export const flag = is<boolean>("boolean");
export const anything: Parse<unknown> = (value) => value;
export const count: Parse<number> = (value, path) => (Number.isSafeInteger(value) && (value as number) >= 0 ? (value as number) : misfit(path));

/* @__NO_SIDE_EFFECTS__ */
export function oneOf<const T extends string>(...words: readonly T[]): Parse<T> {
  return (value, path) => words.find((word) => word === value) ?? misfit(path);
}

/* @__NO_SIDE_EFFECTS__ */
export function list<T>(item: Parse<T>): Parse<readonly T[]> {
  return (value, path) => (Array.isArray(value) ? value.map((one) => item(one, path)) : misfit(path));
}

/** Also accepts null and missing values. */
/* @__NO_SIDE_EFFECTS__ */
export function maybe<T>(item: Parse<T>): Parse<T | undefined> {
  return (value, path) => (value == null ? undefined : item(value, path));
}

/** An object with at least these keys. The keys must not name members of `Object.prototype`. */
/* @__NO_SIDE_EFFECTS__ */
export function object<S extends Readonly<Record<string, Parse<unknown>>>>(
  shape: S,
): Parse<{ readonly [K in keyof S]: Parsed<S[K]> }> {
  return (value, path = "the value") => {
    if (!isFields(value)) misfit(path);
    return Object.fromEntries(Object.entries(shape).map(([key, item]) => [key, item(value[key], `${path}.${key}`)])) as { readonly [K in keyof S]: Parsed<S[K]> };
  };
}

/** Replaces an invalid value. */
/* @__NO_SIDE_EFFECTS__ */
export function or<T, U>(item: Parse<T>, otherwise: U): Parse<T | U> {
  return (value, path) => {
    try {
      return item(value, path);
    } catch {
      return otherwise;
    }
  };
}

export const maybeText = or(text, undefined);
export const maybeCount = or(count, undefined);
export const string: Parse<string> = or(text, "");

/** The valid items of a list; none if the value is not a list. */
/* @__NO_SIDE_EFFECTS__ */
export function items<T>(item: Parse<T>): Parse<T[]> {
  return (value) =>
    listOf(value).flatMap((one) => {
      try {
        return [item(one)];
      } catch {
        return [];
      }
    });
}

export const texts = items(text);

/** Parses JSON text; returns `undefined` if it is invalid. */
export function fromJson(source: string): unknown {
  try {
    return JSON.parse(source);
  } catch {
    return undefined;
  }
}
