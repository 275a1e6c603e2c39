// Several questions that are answered together.
import { computed, signal } from "@preact/signals-core";

import { dangerLook } from "../../components/permission-prompt/dangers.ts";
import { onMount, own } from "../../lib/component.ts";
import { host } from "../../lib/console/api.ts";
import type { Question, Standing } from "../../lib/console/api.ts";
import { CalmButton } from "../../lib/console/calm.tsx";
import { Failed, Failure } from "../../lib/console/parts.tsx";
import { loadPreview } from "../../lib/console/preview.ts";
import { DiffView } from "../../lib/diff/view.tsx";
import type { Diff } from "../../lib/diff/view.tsx";
import { Agent, Button, Name, Tick } from "../../lib/ui.tsx";
import { message, oneLine } from "../../lib/visible.ts";
import { Heading } from "./heading.tsx";
import { agentOf, goOn, idOf, remove, show } from "./inbox.ts";

/** Number of previews that are loaded at a time. */
const AT_ONCE = 4;

class Item {
  readonly question: Question;
  readonly diff = signal<Diff | undefined>(undefined);
  /** What became of the question, or of the last answer without effect. */
  readonly end = signal("");
  readonly isOpen = signal(true);
  readonly ticked;
  /** Whether it can be allowed here: its preview is loaded. */
  readonly isReady = computed(() => this.diff.value !== undefined && this.isOpen.value);
  readonly isMeant = computed(() => this.ticked.value && this.isReady.value);

  constructor(question: Question) {
    this.question = question;
    this.ticked = signal(this.canJoin && question.bailiwick.dangers.length === 0);
  }

  get id(): string {
    return idOf(this.question);
  }

  /** Whether it can be allowed together with others at all. */
  get canJoin(): boolean {
    const { batchable, preview } = this.question.bailiwick;
    return batchable && preview !== null;
  }

  async load(): Promise<void> {
    try {
      this.diff.value = await loadPreview(this.id);
    } catch (error) {
      this.end.value = message(error);
    }
  }

  /** Takes an answer of the host; without a status, the person's answer had no effect. */
  answered({ status, message }: Standing): void {
    this.isOpen.value = status === undefined;
    this.end.value = status ?? message ?? "";
  }
}

function Row({ item }: { readonly item: Item }) {
  const { sentence, dangers } = item.question.bailiwick;
  const diff = item.diff.value;
  const { added, removed } = diff?.counts.value ?? { added: 0, removed: 0 };
  return (
    <li>
      <label>
        <Tick checked={item.ticked.value && item.canJoin} disabled={!item.isReady.value} change={(on) => (item.ticked.value = on)} />
        <span><Name text={sentence} /> <span class="quiet">(<Agent name={agentOf(item.question)} most={120} />)</span></span>
        <span class="quiet end" role="status">{oneLine(item.end.value)}</span>
      </label>
      <div class="more">
        {dangers.map(({ kind, text }) => <p key={text} class={`badge ${dangerLook(kind)}`}>⚠ <Name text={text} /></p>)}
        {!item.canJoin && item.isOpen.value && <Button class="flat" press={() => show({ question: item.question })}>Open: it can be allowed only alone</Button>}
        {diff && (
          <details>
            <summary>{added + removed > 0 ? `Changes: +${added} −${removed}` : "Changes"}</summary>
            <DiffView diff={diff} />
          </details>
        )}
      </div>
    </li>
  );
}

interface TogetherProps {
  readonly words: string;
  readonly questions: readonly Question[];
}

export function Together({ words, questions }: TogetherProps) {
  const items = own(() => questions.map((question) => new Item(question)));
  const failure = own(() => new Failure());
  const meant = own(() => computed(() => items.filter(({ isMeant }) => isMeant.value)));
  const open = own(() => computed(() => items.filter(({ isOpen }) => isOpen.value)));
  onMount(() => {
    const todo = items.filter(({ canJoin }) => canJoin);
    let gone = false;
    const loads = async (): Promise<void> => {
      for (let item = todo.shift(); item && !gone; item = todo.shift()) await item.load();
    };
    for (let n = 0; n < AT_ONCE; n += 1) void loads();
    return () => {
      gone = true;
      // What was answered here stays visible in this view only.
      remove(...items.filter(({ isOpen }) => !isOpen.peek()).map(({ id }) => id));
    };
  });
  const send = async (sent: readonly Item[], answer: object): Promise<void> => {
    for (const { isOpen } of sent) isOpen.value = false;
    try {
      const body = sent.map((item) => ({ question: item.id, session: item.question.bailiwick.session, answer }));
      const { answers } = await host<{ answers: readonly Standing[] }>("answer-batch", { answers: body });
      for (const one of answers) items.find(({ id }) => id === one.question)?.answered(one);
    } catch (error) {
      for (const { isOpen } of sent) isOpen.value = true;
      throw error;
    }
  };
  const count = meant.value.length;
  const left = open.value.length;
  return (
    <div class="card together">
      <Heading>{`${items.length} questions ${oneLine(words, 120)}`}</Heading>
      <p class="quiet">Ticked ones are allowed once, as asked; the others stay open. Dangerous ones are not ticked.</p>
      <ul class="plain">{items.map((item) => <Row key={item.id} item={item} />)}</ul>
      <div class="answer">
        <Failed failure={failure} />
        <div class="bar">
          <Button class="flat" press={() => goOn()}>One by one</Button>
          <CalmButton disabled={left === 0} press={() => void failure.of(send(open.value, { deny: {} }))}>{left === 1 ? "Deny it" : `Deny all ${left}`}</CalmButton>
          <CalmButton class="primary" disabled={count === 0} press={() => void failure.of(send(meant.value, { allow: { lifetime: "once" } }))}>{`Allow ${count} ticked once`}</CalmButton>
        </div>
      </div>
    </div>
  );
}
