// Escapes characters that could hide or disguise text.

// The characters that runtime/core/src/escape.rs escapes, except tabs and line feeds, which layout shows: default ignorable
// characters, other line separators, annotation marks and controls.
const DECEPTIVE = /([\p{DI}\u2028\u2029\ufff9-\ufffb]|[^\P{Cc}\t\n])/gu;

const escape = (found: string): string => `\\u{${(found.codePointAt(0) as number).toString(16)}}`;

/** Replaces deceptive characters with escapes such as `\u{202e}`. */
export const visible = (text: string): string => text.replace(DECEPTIVE, escape);

/** Splits the text: items with odd indexes are the escapes of deceptive characters. */
export const escaped = (text: string): string[] => text.split(DECEPTIVE).map((part, at) => (at % 2 ? escape(part) : part));

/** Joins the text to one line. Layout would show several blanks as one, so each of them is marked. */
export const flat = (text: string): string => text.replaceAll(/[^\S\ufeff]+/g, (blanks) => (blanks[1] ? "␣".repeat(blanks.length) : " "));

/** Escapes the text, joins it to one line and truncates it to `most` characters. */
export function oneLine(text: string, most = 200): string {
  const line = visible(flat(text.trim()));
  return line.length > most ? `${line.slice(0, most - 1)}…` : line;
}

export const message = (error: unknown): string => (error instanceof Error ? error.message : String(error));
