// Limits on what an untrusted page can send.
import { stringify } from "../../lib/json.ts";

export const LIMITS = {
  /** Maximum number of tools of a page. */
  tools: 50,
  /** Timeout of a call to an app-provided tool, in milliseconds. */
  call: 30_000,
  /** Maximum size of a message, in characters of JSON. */
  message: 10 * 1024 * 1024,
  /** Maximum size of a tool definition, in characters of JSON. */
  tool: 64 * 1024,
  /** Maximum number of notifications per second; further ones are dropped. */
  notifications: 100,
  /** Minimum milliseconds between two reloads of a changed tool list. */
  lists: 1000,
};

/** Rejects with the message `says` after `ms` milliseconds. */
export const late = (ms: number, says: string): Promise<never> => new Promise((_, reject) => setTimeout(() => reject(new Error(says)), ms));

/** Prefix of MCP Apps notifications. */
export const UI = "ui/notifications/";

export function tooLarge(message: unknown): boolean {
  try {
    return stringify(message).length > LIMITS.message;
  } catch {
    // The message is cyclic, or its JSON exceeds the maximum string length.
    return true;
  }
}
