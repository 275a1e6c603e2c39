// Text of agents, files and servers in, the same with every character that could deceive an eye made visible out.

// What runtime/src/escape.rs escapes, but for tabs and line ends, which layout shows: what is ignored where it is drawn,
// other ends of lines, marks within annotations, controls.
const DECEPTIVE = /[\p{DI}\u2028\u2029\ufff9-\ufffb]|[^\P{Cc}\t\n]/gu;

/** The text with deceptive characters as `\u{202e}`. */
export function visible(text: string): string {
  return text.replace(DECEPTIVE, (found) => `\\u{${found.codePointAt(0)?.toString(16) ?? ""}}`);
}

/** The same on one line, at most `most` characters long. */
export function oneLine(text: string, most = 200): string {
  const flat = visible(text.replaceAll(/\s+/gu, " ").trim());
  return flat.length > most ? `${flat.slice(0, most - 1)}…` : flat;
}
