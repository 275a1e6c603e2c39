// Parses tool results and resources.
import { isFields, items, maybeText, object, string, texts } from "../../lib/json.ts";
import type { Fields } from "../../lib/json.ts";
import { message } from "../../lib/visible.ts";

/** A content block. */
export type Block =
  | { readonly type: "text"; readonly text: string }
  | { readonly type: "image" | "audio"; readonly address: string }
  | { readonly type: "other" };

/** A successful result. */
export interface Told {
  readonly fields: Fields;
  readonly blocks: readonly Block[];
}

const fieldsOf = (value: unknown): Fields => (isFields(value) ? value : {});

const fields = object({ type: string, text: string, data: string, mimeType: string });

function block(value: unknown): Block {
  const { type, text, data, mimeType } = fields(value);
  if (type === "text") return { type, text };
  // Only image and audio types are allowed, because the type becomes part of a data URL.
  const isMedia = (type === "image" || type === "audio") && /^(image|audio)\/[\w.+-]+$/.test(mimeType);
  return isMedia ? { type, address: `data:${mimeType};base64,${data}` } : { type: "other" };
}

/** A call that the server denied or that failed. */
class Refused extends Error {
  readonly fields: Fields;
  readonly scopes: readonly string[];

  constructor(message: string, fields: Fields, scopes: readonly string[]) {
    super(message);
    this.fields = fields;
    this.scopes = scopes;
  }
}

/** Parses a `tools/call` result; throws an error for a failed call. */
export function told(result: unknown): Told {
  const { isError, content, structuredContent, _meta } = fieldsOf(result);
  const blocks = items(block)(content);
  const fields = fieldsOf(structuredContent);
  if (isError !== true) return { fields, blocks };
  const [first] = blocks;
  const text = maybeText(fields["message"]) ?? (first?.type === "text" ? first.text : "It failed.");
  throw new Refused(text, fields, texts(fieldsOf(_meta)["requested_scopes"]));
}

/** The details of a denied call; empty for other errors. */
export const refusal = (error: unknown): Fields => (error instanceof Refused ? error.fields : {});
/** The scopes that a person would have to allow. */
export const scopesOf = (error: unknown): readonly string[] => (error instanceof Refused ? error.scopes : []);
/** The error message for display. */
export const explained = message;
/** Whether the call failed for lack of permission. */
export const isLocked = (error: unknown): boolean => /^(NOT_FOUND|PERMISSION_DENIED|SCOPE_REQUIRED)$/.test(string(refusal(error)["code"]));
