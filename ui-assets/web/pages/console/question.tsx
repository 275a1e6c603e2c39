// The prompt of one question, with the preview of its call.
import { createRef, render } from "preact";
import type { ComponentChild } from "preact";

import { PermissionPrompt } from "../../components/permission-prompt/index.tsx";
import { local, onMount, own, watch } from "../../lib/component.ts";
import { host } from "../../lib/console/api.ts";
import type { Question, Standing } from "../../lib/console/api.ts";
import { loadPreview } from "../../lib/console/preview.ts";
import { state } from "../../lib/console/state.ts";
import { DiffView } from "../../lib/diff/view.tsx";
import type { Diff } from "../../lib/diff/view.tsx";
import { Button, Trouble } from "../../lib/ui.tsx";
import { message, visible } from "../../lib/visible.ts";
import { goOn, idOf, remove, takesFocus } from "./inbox.ts";
import { changes } from "./keys.ts";
import { suggest } from "./suggestion.tsx";

/** All arguments of a call, if the question has only their beginning. */
function Arguments({ question }: { readonly question: Question }) {
  const all = local("");
  const { arguments_bytes: bytes } = question.bailiwick;
  const load = async (): Promise<void> => {
    const found = host<{ readonly arguments: string }>(`arguments/${idOf(question)}`);
    all.value = await found.then((one) => one.arguments, message);
  };
  return all.value ? (
    <pre tabIndex={0} aria-label="All arguments">{visible(all.value)}</pre>
  ) : (
    <Button press={() => void load()}>{`Show all arguments (${bytes} bytes)`}</Button>
  );
}

/** Changes details of the question in a prompt. */
const change = (into: PermissionPrompt, details: object): void => {
  const { block } = into;
  into.block = { ...block, bailiwick: { ...block?.bailiwick, ...details } };
};

/** Shows in the prompt what remains of the call; it cannot be allowed before the host has described that. */
async function remain(question: string, into: PermissionPrompt, { excluded, parts }: Diff): Promise<void> {
  const out = excluded.value;
  into.leftOut = parts.value.left > 0 ? out : undefined;
  into.settled = false;
  const described = host<object>("remaining", { question, left_out: out });
  await described.then(
    (rest) => {
      if (excluded.value !== out) return;
      change(into, rest);
      into.settled = true;
    },
    (error) => excluded.value === out && into.failed(message(error)),
  );
}

/** Shows the preview of the question's call in its prompt. */
async function preview(question: Question, into: PermissionPrompt, place: HTMLElement): Promise<void> {
  const { bailiwick } = question;
  const all = bailiwick.arguments_bytes === null ? null : <Arguments question={question} />;
  const put = (content: ComponentChild): void => {
    render(<>{content}{all}</>, place);
    into.view = place;
  };
  if (!bailiwick.preview) return all ? put(null) : undefined;
  try {
    const diff = await loadPreview(idOf(question));
    diff.divisible = bailiwick.divisible;
    diff.onExclude = () => void remain(idOf(question), into, diff);
    changes.value = diff;
    put(<DiffView diff={diff} />);
    into.settled = true;
  } catch (error) {
    put(
      <div>
        <Trouble error={error} />
        <p>
          Without a preview, it cannot be allowed here. <Button press={() => void preview(question, into, place)}>Try again</Button>
        </p>
      </div>,
    );
  }
}

export function QuestionView({ question }: { readonly question: Question }) {
  const place = own(createRef<HTMLDivElement>);
  const prompt = own(() => new PermissionPrompt());
  /** Whether it was decided elsewhere; it stays until the person goes on. */
  const over = local(false);
  const id = idOf(question);
  const end = ({ status }: Standing): void => {
    over.value = status !== "pending";
    prompt.block = { ...prompt.block, status };
  };
  const answer = async (word: object): Promise<void> => {
    const { session, run, agent, worker } = question.bailiwick;
    try {
      const stands = await host<Standing>("answer", { question: id, session, answer: word });
      // Go on if the person's own answer took effect; otherwise keep showing what somebody else decided.
      if (stands.status !== ("allow" in word ? "granted" : "denied")) return end(stands);
      if ("allow" in word) void suggest({ run, agent: agent.join("/"), session, worker });
      goOn(question);
      remove(id);
    } catch (error) {
      prompt.failed(message(error));
    }
  };
  onMount(() => {
    const view = document.createElement("div");
    for (const word of ["granted", "denied"]) {
      prompt.addEventListener(`permission-${word}`, (event) => void answer((event as CustomEvent<{ answer: object }>).detail.answer));
    }
    prompt.shortcuts = true;
    prompt.block = question;
    place.current?.append(prompt);
    void preview(question, prompt, view);
    if (takesFocus()) prompt.querySelector("h2")?.focus();
    return () => {
      changes.value = undefined;
      render(null, view);
      prompt.remove();
    };
  });
  watch(() => {
    if (!state.value || prompt.dataset["status"] !== "pending") return;
    const now = state.value.questions.find((one) => idOf(one) === id);
    if (now) change(prompt, { waiting: now.bailiwick.waiting });
    else host<Standing>(`question/${id}`).then(end, () => undefined);
  });
  return (
    <>
      <div ref={place} />
      {over.value && (
        <p><Button class="over" press={() => goOn(question)}>Next</Button></p>
      )}
    </>
  );
}
