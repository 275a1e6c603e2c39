// What prompts and pages of the console share about time: the delay before a press counts, and the time to answer.

/**
 * Milliseconds for which a control must be unchanged before a press counts, so that a press aimed at the previous
 * content has no effect.
 */
export const CALM = 700;

/** What became of a question that nobody answered. */
export const LATE = "Denied: no answer in time";

/** The remaining time until `at`, formatted as `1:05`; empty once it has passed. */
export function left(at: number): string {
  const seconds = Math.ceil((at - Date.now()) / 1000);
  return seconds > 0 ? `${Math.floor(seconds / 60)}:${`0${seconds % 60}`.slice(-2)}` : "";
}
