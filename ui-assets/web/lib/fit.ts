// A value from elsewhere and an example in, a value of the example's shape out.
import { isFields } from "./kinds.ts";

/** What of the value is like `like`; of the rest, `like` itself. Where that is undefined, anything fits. */
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
