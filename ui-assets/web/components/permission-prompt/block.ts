// Parses a message block that asks for permission.
import { anything, flag, list, maybe, number, object, oneOf, text } from "../../lib/json.ts";
import type { Parsed } from "../../lib/json.ts";

/** Additional details from bailiwick's own host. */
const details = object({
  agent: list(text),
  /** What the call does: verb, object and count. */
  sentence: text,
  needs: list(text),
  /** Why it asks: rules, with the layers of the policy that they belong to. */
  asked_because: list(text),
  trust: oneOf("own", "known", "unknown"),
  sensitive: flag,
  /** Whether a permanent grant outlasts the server. */
  stores_grants: maybe(flag),
  /** The worst first. */
  dangers: list(object({ kind: text, level: oneOf("caution", "severe"), text, detail: maybe(text) })),
  /** Whether the changes can be undone. */
  undo: maybe(text),
  /** The first files that the call affects; `files_total` is the number of all. */
  files: list(object({ path: text, op: text })),
  files_total: number,
  /** What an answer that outlasts the call can allow, the narrowest first. */
  choices: list(
    object({
      /** What it is about, such as `this file`. */
      label: text,
      covers: text,
      /** The grants to send for exactly this choice. */
      grants: list(anything),
      /** Whether something that it covers is outside the served roots. */
      outside: flag,
      /** Whether it is broad. */
      confirm: flag,
      /** Whether it can be allowed beyond the call: more than a person can read cannot. */
      may_last: flag,
    }),
  ),
  /** Number of equal pending calls. */
  waiting: number,
  /** Present if the host can show a preview of the call. */
  preview: maybe(object({ files: number })),
  /** Size of the full arguments, if `params` is truncated. */
  arguments_bytes: maybe(number),
  expires_at: number,
});

export const block = object({
  type: oneOf("tool_call_permission"),
  content: text,
  status: oneOf("pending", "granted", "denied", "expired", "cancelled"),
  tool_call: object({
    id: text,
    name: text,
    params: text,
    server_name: text,
    server_icons: text,
    server_description: text,
  }),
  extra: object({ permissionType: oneOf("read", "write", "all") }),
  bailiwick: maybe(details),
});

export type Block = Parsed<typeof block>;
export type Details = Parsed<typeof details>;
