// What a page that nobody vouches for sends in, how much of it is heard out.
import { stringify } from "../../lib/kinds.ts";

/** The most that a page may take of its host. */
export const LIMITS = {
  /** Tools that a page may offer. */
  tools: 50,
  /** Milliseconds that a tool of a page may take. */
  call: 30_000,
  /** Characters of a message, as JSON. */
  message: 10 * 1024 * 1024,
  /** Characters of a tool that a page offers, as JSON. */
  tool: 64 * 1024,
  /** Notifications of a page in a second; the others are not heard. */
  notifications: 100,
  /** Milliseconds between two looks at a changed list of tools. */
  lists: 1000,
};

/** Fails after so many milliseconds, with what it says. */
export const late = (ms: number, says: string): Promise<never> => new Promise((_, reject) => setTimeout(() => reject(new Error(says)), ms));

/** What notifications of MCP Apps start with. */
export const UI = "ui/notifications/";

export function tooLarge(message: unknown): boolean {
  try {
    return stringify(message).length > LIMITS.message;
  } catch {
    // A loop, or longer than any string may be.
    return true;
  }
}
