// State of the staff dashboard, and the tool calls that load and change it.
import { signal } from "@preact/signals-core";

import { link } from "../../bridge/core.ts";
import { isFields, list, maybe, number, object, text } from "../../lib/json.ts";
import type { Fields, Parse, Parsed } from "../../lib/json.ts";

const row = object({ id: text, name: text, department: text, title: text, salary: number });
const listed = object({ employees: list(row) });
const person = object({ id: text, name: text, department: text, title: text, salary: number, since: text, email: text });
const raises = object({ rows: list(object({ name: text, before: number, after: number })), cost: number });
const previewed = object({ intent: text, preview_token: text });
const failure = object({ code: maybe(text), message: maybe(text) });

export type Row = Parsed<typeof row>;
export type Person = Parsed<typeof person>;

/** A value before and after a change, formatted for display. */
interface Change {
  readonly name: string;
  readonly before: string;
  readonly after: string;
}

/** A previewed change that has not been made. */
export interface Plan {
  readonly tool: string;
  readonly input: Fields;
  readonly intent: string;
  readonly token: string;
  readonly changes: readonly Change[];
  /** Additional cost per year. */
  readonly cost: number;
}

/** Status of the latest action. */
export interface News {
  readonly kind: "busy" | "done" | "refused" | "unasked" | "failed";
  readonly text: string;
}

export const host = link({ name: "hr-dashboard", title: "Staff", version: "1" }, () => undefined);
export const staff = signal<readonly Row[] | undefined>(undefined);
export const failed = signal<string>("");
export const opened = signal<Person | undefined>(undefined);
export const plan = signal<Plan | undefined>(undefined);
export const news = signal<News | undefined>(undefined);

export const amount = (value: number): string => value.toLocaleString(document.documentElement.lang);
export const reason = (why: unknown): string => (why instanceof Error ? why.message : String(why));

/** An error result from the server. */
class Refused extends Error {
  readonly code: string;
  constructor(told: unknown) {
    const { code, message } = failure(isFields(told) ? told : {}, "the failure");
    super(message ?? "The call failed.");
    this.code = code ?? "";
  }
}

async function called<T>(tool: string, input: Fields, parse: Parse<T>): Promise<T> {
  const { isError, structuredContent } = await host.ask("tools/call", { name: tool, arguments: input });
  if (isError === true) throw new Refused(structuredContent);
  return parse(structuredContent, tool);
}

/** Loads the list of employees. */
export async function load(): Promise<void> {
  try {
    staff.value = (await called("list_employees", {}, listed)).employees;
    failed.value = "";
  } catch (why) {
    failed.value = reason(why);
  }
}

/** Runs an action and reports its errors. If two actions overlap, only the later one reports. */
let turn = 0;
async function trying(busy: string, act: (mine: () => boolean) => Promise<void>): Promise<void> {
  const now = (turn += 1);
  news.value = { kind: "busy", text: busy };
  try {
    await act(() => now === turn);
  } catch (why) {
    if (now === turn) news.value = { kind: "failed", text: reason(why) };
  }
}

export const open = (id: string): Promise<void> =>
  trying("Opening…", async (mine) => {
    const found = await called("employee_details", { id }, person);
    if (!mine()) return;
    opened.value = found;
    news.value = undefined;
  });

/** Previews a call without changing anything. */
async function preview(tool: string, input: Fields, changes: () => Promise<Pick<Plan, "changes" | "cost">>): Promise<void> {
  plan.value = undefined;
  await trying("Looking at what would change…", async (mine) => {
    const [shown, made] = await Promise.all([changes(), called("preview_call", { tool, arguments: input }, previewed)]);
    if (!mine()) return;
    plan.value = { tool, input, intent: made.intent, token: made.preview_token, ...shown };
    news.value = undefined;
  });
}

export function raise(department: string, percent: number): Promise<void> {
  const input = { percent, ...(department !== "" && { department }) };
  return preview("raise_salaries", input, async () => {
    const { rows, cost } = await called("list_raises", input, raises);
    return { cost, changes: rows.map(({ name, before, after }) => ({ name, before: amount(before), after: amount(after) })) };
  });
}

/** Previews an update of the changed fields. */
export async function update(old: Person, title: string, department: string, salary: number): Promise<void> {
  const differs = { ...(title !== old.title && { title }), ...(department !== old.department && { department }), ...(salary !== old.salary && { salary }) };
  const input: Fields = { id: old.id, ...differs };
  const shown = (value: unknown): string => (typeof value === "number" ? amount(value) : String(value));
  const changes = Object.entries(differs).map(([key, after]) => ({ name: `${old.name}, ${key}`, before: shown(old[key as keyof Person]), after: shown(after) }));
  if (changes.length > 0) return preview("update_employee", input, async () => ({ changes, cost: salary - old.salary }));
  plan.value = undefined;
  news.value = { kind: "done", text: "Nothing is different." };
}

const ENDS: Readonly<Record<string, News>> = {
  SCOPE_REQUIRED: { kind: "unasked", text: "Nothing was changed: this host asks nobody for a page." },
  PERMISSION_DENIED: { kind: "refused", text: "Refused: nothing was changed." },
  STALE_PREVIEW: { kind: "failed", text: "Somebody changed the staff meanwhile, so nothing was done. Preview it again." },
};

/** Requests the previewed change; a person allows or denies it outside of this page. */
export const commit = ({ tool, input, token }: Plan): Promise<void> =>
  trying("A person is asked…", async (mine) => {
    const asked = { tool, arguments: input, preview_token: token };
    let end: News = { kind: "done", text: "Done." };
    try {
      await called("commit_call", asked, (value) => value);
    } catch (why) {
      const known = why instanceof Refused ? ENDS[why.code] : undefined;
      if (!known) throw why;
      end = known;
    }
    await load();
    if (!mine()) return;
    if (end.kind !== "unasked") {
      plan.value = undefined;
      opened.value = undefined;
    }
    news.value = end;
  });

/** Sends the previewed change to the chat, so that the model can request it. */
export const say = ({ tool, input, intent }: Plan): Promise<void> =>
  trying("Putting it into the chat…", async () => {
    const words = `${intent}. Please call \`${tool}\` with ${JSON.stringify(input)}.`;
    const { isError } = await host.ask("ui/message", { role: "user", content: [{ type: "text", text: words }] });
    news.value = isError !== true ? { kind: "done", text: "It stands in the chat." } : { kind: "failed", text: "The host did not take it." };
  });

export function discard(): void {
  turn += 1;
  plan.value = undefined;
  news.value = undefined;
}
