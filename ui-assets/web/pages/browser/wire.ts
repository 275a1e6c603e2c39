// What a tool or resource answered in, checked values out.

export type Fields = Readonly<Record<string, unknown>>;

/** One block of content. */
export type Block =
  | { readonly type: "text"; readonly text: string }
  | { readonly type: "image" | "audio"; readonly address: string }
  | { readonly type: "other" };

/** An answer that is no error. */
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
  // Only what a picture or sound may be: the type goes into an address.
  const isMedia = (type === "image" || type === "audio") && /^(image|audio)\/[\w.+-]+$/.test(textOf(mimeType));
  return isMedia ? { type, address: `data:${textOf(mimeType)};base64,${textOf(data)}` } : { type: "other" };
}

/** Reads the result of `tools/call`; throws what is no success. */
export function told(result: unknown): Told {
  const { isError, content, structuredContent, _meta } = fieldsOf(result);
  const blocks = each(content, block);
  const fields = fieldsOf(structuredContent);
  if (isError !== true) return { fields, blocks };
  const [first] = blocks;
  const message = maybeText(fields["message"]) ?? (first?.type === "text" ? first.text : "It failed.");
  throw Object.assign(new Error(message), { refused: fields, scopes: textsOf(fieldsOf(_meta)["requested_scopes"]) });
}

/** What else a refusal says; nothing of another failure. */
export const refusal = (error: unknown): Fields => fieldsOf(fieldsOf(error)["refused"]);
/** What a person would have to allow. */
export const scopesOf = (error: unknown): string[] => textsOf(fieldsOf(error)["scopes"]);
/** What a person reads of a failure. */
export const explained = (error: unknown): string => error instanceof Error ? error.message : String(error);
/** Whether it failed because somebody may not. */
export const isLocked = (error: unknown): boolean => /^(NOT_FOUND|PERMISSION_DENIED|SCOPE_REQUIRED)$/.test(textOf(refusal(error)["code"]));
