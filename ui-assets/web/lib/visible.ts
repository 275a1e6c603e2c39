// Text of agents, files and servers in, the same with every character that could deceive an eye made visible out.

// What runtime/src/escape.rs escapes, but for tabs and line ends, which layout shows.
const DECEPTIVE =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/gu;

/** The text with deceptive characters as `\u{202e}`. */
export function visible(text: string): string {
  return text.replace(DECEPTIVE, (found) => `\\u{${found.codePointAt(0)?.toString(16) ?? ""}}`);
}

/** The same on one line, at most `most` characters long. */
export function oneLine(text: string, most = 200): string {
  const flat = visible(text.replaceAll(/\s+/gu, " ").trim());
  return flat.length > most ? `${flat.slice(0, most - 1)}…` : flat;
}
