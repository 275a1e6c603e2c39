// Parses a message block that asks for permission.
import { anything, flag, list, maybe, number, object, oneOf, text } from "../../lib/json.ts";
import type { Parsed } from "../../lib/json.ts";

/** Additional details from bailiwick's own host. */
const details = object({
  agent: list(text),
  intent: text,
  needs: list(text),
  trust: oneOf("own", "known", "unknown"),
  sensitive: flag,
  protected: list(text),
  /** `count` is how many items the pattern covers now, if the host knows. */
  rungs: list(
    object({
      patterns: list(text),
      covers: text,
      count: maybe(number),
      /** The grants to send for exactly this choice; if absent, the patterns are sent. */
      grants: maybe(list(anything)),
      /** A grant that outlasts the call needs explicit confirmation. */
      confirm: maybe(flag),
    }),
  ),
  /** Number of identical pending calls. */
  waiting: maybe(number),
  /** Present if the host can show a preview of the call. */
  preview: maybe(object({})),
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
  extra: object({ permissionType: oneOf("read", "write", "all"), grantedPermissions: maybe(list(text)) }),
  bailiwick: maybe(details),
});

export type Block = Parsed<typeof block>;
export type Details = Parsed<typeof details>;
