// The displayed review, as the host sends it or the page loads it.
import { batch, signal } from "@preact/signals-core";

import { resources, reviewed } from "../../lib/diff/change.ts";
import { loadFailure } from "../../lib/diff/failure.tsx";
import { PagedDiff } from "../../lib/diff/paged.tsx";
import { Diff } from "../../lib/diff/view.tsx";
import { at, flag, isFields, items, listOf, number, object, or, string } from "../../lib/json.ts";
import type { Parsed } from "../../lib/json.ts";
import { message, oneLine } from "../../lib/visible.ts";
import { blocks, call, connected, host, load, loadRows, said } from "./host.ts";

const schema = object({
  version: number,
  uri: string,
  tool: string,
  agent: string,
  intent: string,
  preview: or(flag, false),
  changes: items(reviewed),
  resources,
});
export type Review = Parsed<typeof schema>;

/** Parses a review; `undefined` if it is none, or has another version. */
export function review(value: unknown): Review | undefined {
  const found = or(schema, undefined)(value);
  return found?.version === 1 ? found : undefined;
}

/** The review that is shown, or a message. */
export const shown = signal<{ readonly review: Review; readonly diff: Diff } | { readonly words: string; readonly failed: boolean }>({ words: "", failed: false });
/** Whether a person may exclude hunks. */
export const asked = signal(false);
/** The files that have changed since the review was made. */
export const changed = signal("");

// Incremented when the host sends data, to ignore outdated responses.
let turn = 0;
let given: unknown;

export function show(data: Review): void {
  const diff = new Diff(data.changes, (change, at, onExclude) => new PagedDiff(change, onExclude, (query) => loadRows(`${data.uri}.rows?change=${at}&${query}`)));
  diff.plan = data.preview ? "Will" : "";
  diff.resources = data.resources;
  diff.alert = loadFailure;
  diff.divisible = asked.value;
  diff.onExclude = () => host.notify("dev.bailiwick/notifications/left-out", { left_out: diff.excluded.value });
  const before = shown.value;
  if ("diff" in before) diff.setSplit(before.diff.split.value);
  shown.value = { review: data, diff };
  changed.value = "";
  recheck();
}

/** Shows a message instead of a review. */
export function none(words: string, failed = false): void {
  shown.value = { words, failed };
}

/** Checks whether the files still match the review. Without an answer, nothing is shown. */
async function check(): Promise<void> {
  const of = shown.value;
  if (!("review" in of) || !of.review.uri) return;
  const states = at(await load(`${of.review.uri}.state`), "changes");
  if (shown.value !== of || !Array.isArray(states)) return;
  const { changes, preview } = of.review;
  const paths = changes.filter((_, at) => listOf(states)[at] === "changed").map(({ path, to }) => (preview ? path : to || path));
  changed.value = oneLine(paths.join(", "), 400);
}
export const recheck = (): void => void check().catch(() => undefined);

/** Shows the review at an address that is not known yet. */
async function follow(address: Promise<unknown> | unknown, without: string): Promise<void> {
  const mine = (turn += 1);
  try {
    const uri = await address;
    const data = typeof uri === "string" ? review(await load(`${uri}.rows`)) : undefined;
    if (mine !== turn) return;
    if (data) show(data);
    else none(without);
  } catch (error) {
    if (mine === turn) none(message(error), true);
  }
}

/** Shows what the host has sent: a review, whether a person is asked, or both. */
function take(data: unknown): void {
  if (data === given || !isFields(data)) return;
  given = data;
  batch(() => {
    if (typeof data.asked === "boolean") asked.value = data.asked;
    const told = review(data.review);
    if (told) {
      turn += 1;
      show(told);
    } else if ("diff" in shown.value) shown.value.diff.divisible = asked.value;
  });
}

/** Follows the host; with an embedded review, only its data is used. */
export function listen(embedded: boolean): void {
  const takeContext = (): void => take(host.context()["dev.bailiwick/data"]);
  host.on("dev.bailiwick/notifications/review", take);
  host.on("ui/notifications/host-context-changed", takeContext);
  if (!embedded) {
    host.on("ui/notifications/tool-input", (input) => {
      const tool = host.context().toolInfo?.tool.name;
      if (tool && turn === 0) void follow(call("preview_call", { tool, arguments: input }).then((made) => made.review), "This call changes nothing.");
    });
    host.on("ui/notifications/tool-result", ({ content, isError }: { content: unknown; isError?: unknown }) => {
      const link = blocks(content).find(({ type, name }) => type === "resource_link" && name === "review");
      if (isError) void follow(Promise.reject(new Error(said(content) || "The call failed.")), "");
      else void follow(link?.uri, "This call changed nothing.");
    });
    host.on("ui/notifications/tool-cancelled", () => void follow(undefined, "The call was cancelled."));
  }
  connected().then(takeContext, () => undefined);
}
