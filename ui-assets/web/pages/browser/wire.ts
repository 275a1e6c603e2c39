// Parses tool results and resources.

export type Fields = Readonly<Record<string, unknown>>;

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

export const fieldsOf = (value: unknown): Fields => (typeof value === "object" && value !== null ? (value as Fields) : {});
export const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);
export const each = <T>(value: unknown, make: (item: Fields) => T): T[] => listOf(value).map((item) => make(fieldsOf(item)));
export const maybeText = (value: unknown): string | undefined => (typeof value === "string" ? value : undefined);
export const textOf = (value: unknown): string => maybeText(value) ?? "";
export const textsOf = (value: unknown): string[] => listOf(value).filter((item) => typeof item === "string");
export const maybeCount = (value: unknown): number | undefined =>
  Number.isSafeInteger(value) && (value as number) >= 0 ? (value as number) : undefined;

function block({ type, text, data, mimeType }: Fields): Block {
  if (type === "text") return { type, text: textOf(text) };
  // Only image and audio types are allowed, because the type becomes part of a data URL.
  const isMedia = (type === "image" || type === "audio") && /^(image|audio)\/[\w.+-]+$/.test(textOf(mimeType));
  return isMedia ? { type, address: `data:${textOf(mimeType)};base64,${textOf(data)}` } : { type: "other" };
}

/** Parses a `tools/call` result; throws an error for a failed call. */
export function told(result: unknown): Told {
  const { isError, content, structuredContent, _meta } = fieldsOf(result);
  const blocks = each(content, block);
  const fields = fieldsOf(structuredContent);
  if (isError !== true) return { fields, blocks };
  const [first] = blocks;
  const message = maybeText(fields["message"]) ?? (first?.type === "text" ? first.text : "It failed.");
  throw Object.assign(new Error(message), { refused: fields, scopes: textsOf(fieldsOf(_meta)["requested_scopes"]) });
}

/** The details of a denied call; empty for other errors. */
export const refusal = (error: unknown): Fields => fieldsOf(fieldsOf(error)["refused"]);
/** The scopes that a person would have to allow. */
export const scopesOf = (error: unknown): string[] => textsOf(fieldsOf(error)["scopes"]);
/** The error message for display. */
export const explained = (error: unknown): string => error instanceof Error ? error.message : String(error);
/** Whether the call failed for lack of permission. */
export const isLocked = (error: unknown): boolean => /^(NOT_FOUND|PERMISSION_DENIED|SCOPE_REQUIRED)$/.test(textOf(refusal(error)["code"]));
