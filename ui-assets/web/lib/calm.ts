// Ignores presses that a person aimed at what was there before.

/**
 * Milliseconds for which a control must be unchanged before a press counts, so that a press aimed at the previous
 * content has no effect.
 */
export const CALM = 700;

/** The remaining time until `at`, formatted as `1:05`; empty once it has passed. */
export function left(at: number): string {
  const seconds = Math.ceil((at - Date.now()) / 1000);
  return seconds > 0 ? `${Math.floor(seconds / 60)}:${`0${seconds % 60}`.slice(-2)}` : "";
}
