// Coerces an untrusted value to the type of an example.
import { isFields } from "./kinds.ts";

/**
 * Returns the parts of `value` whose type matches `like`, and the defaults of `like` for the rest. Where `like` is
 * undefined, any value is kept.
 */
export function fit<T>(like: T, value: unknown): T {
  if (like === undefined) return value as T;
  if (Array.isArray(like)) {
    const [one] = like as unknown[];
    const items: unknown[] = Array.isArray(value) ? value : [];
    return items.map((item) => fit(one, item)) as T;
  }
  if (!isFields(like)) return typeof value === typeof like ? (value as T) : like;
  const of = isFields(value) ? value : {};
  return Object.fromEntries(Object.entries(like).map(([key, one]) => [key, fit(one, of[key])])) as T;
}
