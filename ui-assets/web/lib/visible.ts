// Escapes characters that could hide or disguise text.

// The characters that runtime/core/src/escape.rs escapes, except tabs and line feeds, which layout shows: default ignorable
// characters, other line separators, annotation marks and controls.
const DECEPTIVE = /[\p{DI}\u2028\u2029\ufff9-\ufffb]|[^\P{Cc}\t\n]/gu;

/** Replaces deceptive characters with escapes such as `\u{202e}`. */
export function visible(text: string): string {
  return text.replace(DECEPTIVE, (found) => `\\u{${found.codePointAt(0)?.toString(16) ?? ""}}`);
}

/** Escapes the text, joins it to one line and truncates it to `most` characters. */
export function oneLine(text: string, most = 200): string {
  const flat = visible(text.replaceAll(/\s+/gu, " ").trim());
  return flat.length > most ? `${flat.slice(0, most - 1)}…` : flat;
}
