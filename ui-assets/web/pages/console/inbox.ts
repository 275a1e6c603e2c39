// Which questions wait, how they are grouped, and what the page shows.
import { computed, signal } from "@preact/signals-core";

import { dangerWords } from "../../components/permission-prompt/dangers.ts";
import type { Outcome, Question } from "../../lib/console/api.ts";
import { state } from "../../lib/console/state.ts";
import { visible } from "../../lib/visible.ts";
import { planned } from "../../lib/words.ts";

export const idOf = (question: Question): string => question.tool_call.id;

/** What the detail pane shows: a question, several that are answered together, or the outcome of a question. */
export type Detail =
  | { readonly question: Question; readonly outcome?: undefined }
  | { readonly words: string; readonly questions: readonly Question[]; readonly question?: undefined; readonly outcome?: undefined }
  | { readonly outcome: string; readonly question?: undefined; readonly questions?: undefined };

export const detail = signal<Detail>();
export const tab = signal<"waiting" | "answered" | "blocked">("waiting");
export const filter = signal("");
/** Whether a narrow page shows the detail pane in place of the list. */
export const isDetail = signal(false);
/** Id of the question that the person answered last. */
export const last = signal("");
/** Ids of the questions that were answered on this page. */
const answered = signal<ReadonlySet<string>>(new Set());
/** Whether the next detail gets the focus. */
let moveFocus = false;

/** Returns whether the detail that is being shown gets the focus, and resets it. */
export function takesFocus(): boolean {
  const takes = moveFocus;
  moveFocus = false;
  return takes;
}

/** The open questions, oldest first. */
export const waiting = computed((): readonly Question[] => state.value?.questions.filter((one) => !answered.value.has(idOf(one))) ?? []);

/** Number of open questions, including those that the host has omitted. */
export const count = computed(() => waiting.value.length + (state.value?.omitted.questions ?? 0));

export const agentOf = ({ bailiwick }: Question): string => bailiwick.agent.join("/");

/** Whether a text fits the filter. */
const fits = (...texts: readonly unknown[]): boolean => texts.join("\n").toLowerCase().includes(filter.value.trim().toLowerCase());

export interface Group {
  readonly agent: string;
  readonly questions: readonly Question[];
}

const pathOf = ({ bailiwick }: Question): string => bailiwick.files[0]?.path ?? "";

/** The folder of the first file of a question. */
export const folderOf = (question: Question): string => pathOf(question).replace(/[^/]*$/, "");

/** The questions that fit the filter, by agent and in the order of folders and paths. */
export const groups = computed((): readonly Group[] => {
  const all = new Map<string, Question[]>();
  for (const question of waiting.value) {
    const { sentence, files, dangers } = question.bailiwick;
    const agent = agentOf(question);
    const texts = [...files, ...dangers].flatMap(Object.values);
    if (fits(agent, sentence, question.tool_call.name, texts, dangers.map(({ kind }) => dangerWords(kind)))) all.set(agent, [...(all.get(agent) ?? []), question]);
  }
  const order = (one: Question, other: Question): number => folderOf(one).localeCompare(folderOf(other)) || pathOf(one).localeCompare(pathOf(other));
  return [...all].map(([agent, questions]) => ({ agent, questions: questions.sort(order) }));
});

/** What a call wants in a few words, such as `to change files`. */
const kindOf = ({ tool_call, bailiwick }: Question): string => {
  const [first] = bailiwick.files;
  return first ? `to ${planned(first.op)} files` : `to use ${visible(tool_call.name)}`;
};

/** The questions that fit the filter, in the order of the list. */
export const listed = computed(() => groups.value.flatMap(({ questions }) => questions));

/** The listed questions by kind, if they are of several kinds; only kinds of several questions. */
export const kinds = computed(() => {
  const all = [...new Set(listed.value.map(kindOf))].map((words) => ({ words, questions: listed.value.filter((one) => kindOf(one) === words) }));
  return all.length > 1 ? all.filter(({ questions }) => questions.length > 1) : [];
});

export const outcomes = computed((): readonly Outcome[] => state.value?.outcomes.filter(({ sentence, agent, status }) => fits(sentence, agent, status)) ?? []);

/** Shows something in the detail pane, and moves the focus there. */
export function show(next: Detail): void {
  moveFocus = true;
  detail.value = next;
  isDetail.value = true;
}

/** Index of a question in the list, or -1. */
const position = (question: Question | undefined): number => listed.value.findIndex((one) => question && idOf(one) === idOf(question));

/** The question that is shown alone. */
export const current = computed(() => detail.value?.question);

/** Shows the next or the previous question of the list. */
export function step(by: 1 | -1): void {
  const at = position(current.value);
  const question = listed.value[at < 0 ? 0 : at + by];
  if (question) show({ question });
}

/** Shows the question that follows a finished one, or none. */
export function goOn(after?: Question): void {
  const at = position(after);
  const rest = listed.value.filter((_, index) => index !== at);
  const question = rest[Math.max(at, 0)] ?? rest.at(-1);
  // The person may have begun to type elsewhere while the answer was sent.
  moveFocus = !document.activeElement?.matches("input, textarea");
  detail.value = question && { question };
}

/** Removes questions that were answered on this page from the list. */
export function remove(...ids: readonly string[]): void {
  answered.value = new Set([...answered.value, ...ids]);
  last.value = ids.at(-1) ?? last.value;
}

/** The question that a link to this page names. */
const linked = new URLSearchParams(location.search).get("question");

/** Shows the linked or the first question if nothing is shown. Call it whenever the state changes. */
export function update(): void {
  if (detail.value) return;
  const [first] = listed.value;
  const question = listed.value.find((one) => idOf(one) === linked);
  if (question) show({ question });
  else if (first) detail.value = { question: first };
}
