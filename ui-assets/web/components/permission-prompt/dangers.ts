// Marks for calls that delete, replace, run or reveal something.
import { visible } from "../../lib/visible.ts";

/** The kind of a danger in words, such as `hidden characters`. */
export const dangerWords = (kind: string): string => visible(kind).replaceAll("_", " ");

/** The class of a danger: those that go beyond the project rather than destroy something are amber. */
export const dangerLook = (kind: string): string => (/^(outside|network|unknown_server)$/.test(kind) ? "danger amber" : "danger");

/** Whether one of the dangers is shown in red. */
export const isRed = (dangers: readonly { readonly kind: string }[]): boolean => dangers.some(({ kind }) => dangerLook(kind) === "danger");
