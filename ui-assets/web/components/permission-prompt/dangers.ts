// Marks for calls that delete, replace, run or reveal something.
import { visible } from "../../lib/visible.ts";

const WORDS: Readonly<Record<string, string>> = {
  recursive: "whole folder",
  move_over: "replaces a file",
  irreversible: "cannot be undone",
  protected: "sensitive",
  hidden_characters: "invisible characters",
  third_party: "unchecked tool",
  execute: "runs a program",
};

/** The kind of a danger in words, such as `whole folder`. */
export const dangerWords = (kind: string): string => WORDS[kind] ?? visible(kind);
