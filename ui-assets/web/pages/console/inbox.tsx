// The inbox: the list of what waits, was answered or is blocked, and what is chosen from it.
import { onMount } from "../../lib/component.ts";
import { Button } from "../../lib/ui.tsx";
import { oneLine } from "../../lib/visible.ts";
import { Heading } from "./heading.tsx";
import { count, current, detail, idOf, isDetail, waiting } from "./inbox.ts";
import { listen } from "./keys.ts";
import { ListPane } from "./list.tsx";
import { OutcomeView, lastWords } from "./outcomes.tsx";
import { QuestionView } from "./question.tsx";
import { Together } from "./together.tsx";

function Shown() {
  const now = detail.value;
  if (!now) {
    return <div class="empty"><Heading>No open questions</Heading></div>;
  }
  if (now.question) return <QuestionView key={idOf(now.question)} question={now.question} />;
  if (now.questions) return <Together key={now} {...now} />;
  return <OutcomeView key={now.outcome} id={now.outcome} />;
}

export function Inbox() {
  onMount(listen);
  const question = current.value ?? waiting.value[0];
  return (
    <>
      <p class="visually-hidden" role="status">{`${lastWords()} ${question && count.value > 0 ? `${count.value} waiting. ${oneLine(question.bailiwick.sentence)}` : ""}`}</p>
      <div class={`inbox ${isDetail.value ? "one" : ""}`}>
        <ListPane />
        <div class="detail">
          <div class="back"><Button press={() => (isDetail.value = false)}>{`← All questions (${count.value})`}</Button></div>
          <Shown />
        </div>
      </div>
    </>
  );
}
