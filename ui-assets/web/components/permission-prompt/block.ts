// A message block that asks for permission in, the same with known types out.
import { anything, flag, list, maybe, number, object, oneOf, text } from "../../lib/parse.ts";
import type { Parsed } from "../../lib/parse.ts";

/** What bailiwick's own host says beside the block. */
const details = object({
  agent: list(text),
  intent: text,
  needs: list(text),
  trust: oneOf("own", "known", "unknown"),
  sensitive: flag,
  protected: list(text),
  /** `count` is how many things a rung covers now, where a host knows. */
  rungs: list(
    object({
      patterns: list(text),
      covers: text,
      count: maybe(number),
      /** What an answer says to grant just this; without it, the patterns. */
      grants: maybe(list(anything)),
      /** For longer than the call, a person has to confirm it. */
      confirm: maybe(flag),
    }),
  ),
  /** How many equal calls wait. */
  waiting: maybe(number),
  /** Something, if the host shows what the call would do. */
  preview: maybe(object({})),
  /** How long the arguments are, if `params` has only their beginning. */
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
