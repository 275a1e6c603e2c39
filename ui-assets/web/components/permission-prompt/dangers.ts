// Marks for calls that delete, replace, run or reveal something.
import { visible } from "../../lib/visible.ts";

const WORDS: Readonly<Record<string, string>> = {
  recursive: "whole folder",
  rewrite: "removes lines",
  move_over: "replaces a file",
  protected: "sensitive",
  hidden_characters: "invisible characters",
  unknown_server: "unchecked tool",
};

/** The kind of a danger in words, such as `whole folder`. */
export const dangerWords = (kind: string): string => WORDS[kind] ?? visible(kind);

/** The class of a danger: those that are not known to destroy or run something are amber. */
export const dangerLook = (kind: string): string => (/^(rewrite|outside|network|unknown_server)$/.test(kind) ? "danger amber" : "danger");

/** The class of a button that allows a call: that of the worst danger. */
export function buttonLook(dangers: readonly { readonly kind: string }[]): string {
  const looks = dangers.map(({ kind }) => dangerLook(kind));
  return looks.includes("danger") ? "red" : looks.length > 0 ? "amber" : "";
}
