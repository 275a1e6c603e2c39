// Several questions that are answered together.
import { signal } from "@preact/signals-core";

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
import { Status, outcomeOf } from "./outcomes.tsx";

class Item {
  readonly question: Question;
  /** The preview; it is loaded only for those that can be allowed together with others. */
  readonly diff = signal<Diff>();
  /** What became of the question, or of the last answer without effect. */
  readonly end = signal("");
  readonly isOpen = signal(true);
  readonly ticked = signal(false);

  constructor(question: Question) {
    this.question = question;
  }

  get id(): string {
    return idOf(this.question);
  }

  /** Whether it can be allowed together with others: a dangerous one is allowed only alone. */
  get canJoin(): boolean {
    const { batchable, preview, dangers } = this.question.bailiwick;
    return batchable && preview !== null && dangers.length === 0;
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
    this.end.value = status === "granted" ? "allowed" : status ?? message ?? "";
  }
}

function Row({ item }: { readonly item: Item }) {
  const { sentence, dangers } = item.question.bailiwick;
  const diff = item.diff.value;
  const outcome = outcomeOf(item.id);
  const { added, removed } = diff?.counts.value ?? { added: 0, removed: 0 };
  return (
    <li>
      <label>
        <Tick checked={item.ticked.value} disabled={!item.isOpen.value} change={(on) => (item.ticked.value = on)} />
        <span><Name text={sentence} /> <span class="quiet">(<Agent name={agentOf(item.question)} most={120} />)</span></span>
        <span class="quiet end" role="status">{outcome ? <Status outcome={outcome} /> : oneLine(item.end.value)}</span>
      </label>
      <div class="more">
        {dangers.map(({ level, text }) => <p key={text} class={`badge danger ${level}`}>⚠ <Name text={text} /></p>)}
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
  onMount(() => {
    for (const item of items) if (item.canJoin) void item.load();
    return () => {
      // What was answered here stays visible in this view only.
      remove(...items.filter(({ isOpen }) => !isOpen.peek()).map(({ id }) => id));
    };
  });
  const send = async (sent: readonly Item[], answer: object): Promise<void> => {
    for (const { isOpen } of sent) isOpen.value = false;
    try {
      const body = sent.map((item) => ({ question: item.id, session: item.question.bailiwick.session, answer }));
      const { answers } = await host<{ answers: readonly Standing[] }>("answer-batch", { answers: body });
      answers.forEach((one, at) => sent[at]?.answered(one));
    } catch (error) {
      for (const { isOpen } of sent) isOpen.value = true;
      throw error;
    }
  };
  const open = items.filter(({ isOpen }) => isOpen.value);
  const ticked = open.filter((item) => item.ticked.value);
  const allowed = ticked.filter(({ diff }) => diff.value);
  const answer = (words: string, sent: readonly Item[], answer: object, look = "") => (
    <CalmButton class={look} disabled={sent.length === 0} press={() => void failure.of(send(sent, answer))}>{words}</CalmButton>
  );
  const all = ticked.length;
  return (
    <div class="card together">
      <Heading>{`${items.length} questions ${oneLine(words, 120)}`}</Heading>
      <label class="line">
        <Tick
          checked={all > 0 && all === open.length}
          disabled={open.length === 0}
          change={(on) => {
            for (const item of open) item.ticked.value = on;
          }}
        />
        Select all
      </label>
      <ul class="plain">{items.map((item) => <Row key={item.id} item={item} />)}</ul>
      <div class="answer">
        <Failed failure={failure} />
        <div class="bar">
          <Button class="flat" press={() => goOn()}>One by one</Button>
          {answer(`Deny ${all} ticked`, ticked, { deny: {} })}
          {answer(`Allow ${allowed.length}${allowed.length < all ? ` of ${all}` : ""} ticked once`, allowed, { allow: { lifetime: "once" } }, "primary")}
        </div>
      </div>
    </div>
  );
}
