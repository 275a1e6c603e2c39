// The review page's connection to its host.
import { link } from "../../bridge/core.ts";
import { rows } from "../../lib/diff/change.ts";
import type { Row } from "../../lib/diff/hunks.ts";
import { at, fromJson, isFields, items, listOf, object, or, string, text } from "../../lib/json.ts";
import type { Fields } from "../../lib/json.ts";
import { METHOD_NOT_FOUND, fail } from "../../lib/rpc.ts";

const TIMEOUT = 60_000;

export const host = link({ name: "bailiwick-review", title: "Review", version: "1" }, () => fail("this page serves no requests", METHOD_NOT_FOUND));

/** The handshake. Callers that need the host see its failure; the page also works without a host. */
const ready = window.parent === window ? Promise.reject(new Error("this page is not connected to its server")) : host.connect();
ready.catch(() => undefined);
export const connected = (): Promise<void> => ready;

const block = object({ type: string, name: string, text: string, uri: or(text, undefined) });

/** The content blocks of a tool result. */
export const blocks = items(block);

/** The text of the content blocks. */
export const said = (content: unknown): string =>
  blocks(content)
    .map(({ text }) => text)
    .join(" ")
    .trim();

export async function call(name: string, input: Fields): Promise<Fields> {
  await ready;
  const { isError, structuredContent, content } = await host.ask("tools/call", { name, arguments: input }, { timeout: TIMEOUT });
  if (isError || !isFields(structuredContent)) throw new Error(said(content) || "the tool gave nothing");
  return structuredContent;
}

/** Reads a resource as JSON. */
export async function load(uri: string): Promise<unknown> {
  await ready;
  const { contents } = await host.ask("resources/read", { uri }, { timeout: TIMEOUT }).catch((): Fields => ({}));
  // Some hosts do not offer resources to views.
  return fromJson(String(at(listOf(contents)[0], "text"))) ?? call("review_rows", { uri });
}

export const loadRows = async (uri: string): Promise<readonly Row[]> => rows(at(await load(uri), "rows"));
