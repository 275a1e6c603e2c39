// Batch view: several similar questions with checkboxes, answered together.
import { computed, signal } from "@preact/signals-core";

import { own, watch } from "../../lib/component.ts";
import { DiffView } from "../../lib/diff/view.tsx";
import type { Diff } from "../../lib/diff/view.tsx";
import { Button, Code, Name, Tick, Trouble } from "../../lib/ui.tsx";
import { oneLine } from "../../lib/visible.ts";
import { host } from "../../lib/console/api.ts";
import type { Question, Standing, State } from "../../lib/console/api.ts";
import { CalmButton } from "../../lib/console/calm.tsx";
import { Failed, Failure } from "../../lib/console/parts.tsx";
import { loadPreview } from "../../lib/console/preview.ts";
import { state } from "../../lib/console/state.ts";

/** A question of the batch. */
class Item {
  readonly question: Question;
  readonly ticked = signal(false);
  readonly diff = signal<Diff | undefined>(undefined);
  readonly failure = signal<unknown>(undefined);
  readonly isSent = signal(false);
  /** What became of the question. */
  readonly end = signal("");
  /** Whether the question can be answered: its preview is loaded, and there is no answer yet. */
  readonly isOpen = computed(() => this.diff.value !== undefined && !this.isSent.value && !this.end.value);
  readonly isMeant = computed(() => this.ticked.value && this.isOpen.value);

  constructor(question: Question) {
    this.question = question;
    loadPreview(this.id).then(
      (diff) => (this.diff.value = diff),
      (error: unknown) => (this.failure.value = error),
    );
  }

  get id(): string {
    return this.question.tool_call.id;
  }

  /** Takes an answer of the host; without a status, the person's answer had no effect. */
  answered({ status, message }: Standing): void {
    this.isSent.value = status !== undefined;
    this.end.value = status ?? "";
    this.failure.value = status === undefined ? (message ?? "") : undefined;
  }
}

function Row({ item }: { readonly item: Item }) {
  const { agent, intent, needs, preview } = item.question.bailiwick;
  const diff = item.diff.value;
  return (
    <li>
      <label>
        <Tick checked={item.ticked.value} disabled={!item.isOpen.value} change={(on) => (item.ticked.value = on)} />
        <span><Name text={intent} /> <bdi class="quiet">{oneLine([...agent, item.question.tool_call.name].join(" › "), 120)}</bdi></span>
      </label>
      <div class="line">
        {needs.map((need) => <Code key={need} text={need} />)}
        <span class="quiet" role="status">{oneLine(item.end.value)}</span>
      </div>
      {item.failure.value !== undefined && <Trouble error={item.failure.value} />}
      {diff && (
        <details>
          <summary>{`What it would do: +${preview?.added} −${preview?.removed}`}</summary>
          <DiffView diff={diff} />
        </details>
      )}
    </li>
  );
}

interface BatchProps {
  readonly batch: State["batches"][number];
  readonly questions: readonly Question[];
  readonly back: () => void;
}

export function Batch({ batch: { verb, resource, folder }, questions, back }: BatchProps) {
  const items = own(() => questions.map((question) => new Item(question)));
  const failure = own(() => new Failure());
  const meant = own(() => computed(() => items.filter(({ isMeant }) => isMeant.value)));
  watch(() => {
    const open = new Set(state.value?.questions.map(({ tool_call }) => tool_call.id));
    for (const item of items) if (!item.end.peek() && !item.isSent.peek() && !open.has(item.id)) item.end.value = "no longer open";
  });
  const send = async (answer: object): Promise<void> => {
    const sent = meant.value;
    for (const { isSent } of sent) isSent.value = true;
    try {
      const body = sent.map((item) => ({ question: item.id, session: item.question.bailiwick.session, answer }));
      const { answers } = await host<{ answers: readonly Standing[] }>("answer-batch", { answers: body });
      for (const one of answers) items.find(({ id }) => id === one.question)?.answered(one);
    } catch (error) {
      for (const { isSent } of sent) isSent.value = false;
      throw error;
    }
  };
  const count = meant.value.length;
  const where = folder === undefined ? "" : ` beneath ${oneLine(folder)}`;
  return (
    <div class="card">
      <h2 tabIndex={-1}>{`${items.length} questions to ${oneLine(verb)} ${oneLine(resource)}s${where}`}</h2>
      <p class="quiet">Each selected request is answered separately: exactly as asked, and once.</p>
      <ul class="plain">{items.map((item) => <Row key={item.id} item={item} />)}</ul>
      <Failed failure={failure} />
      <div class="line">
        <CalmButton disabled={count === 0} press={() => void failure.of(send({ deny: {} }))}>{`Deny ${count} ticked, once`}</CalmButton>
        <CalmButton class="primary" disabled={count === 0} press={() => void failure.of(send({ allow: { lifetime: "once" } }))}>{`Allow ${count} ticked, once`}</CalmButton>
        <Button press={back}>One by one</Button>
      </div>
    </div>
  );
}
