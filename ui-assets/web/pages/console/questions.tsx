// Questions tab: shows one pending question at a time, or a batch of similar ones.
import { signal } from "@preact/signals-core";
import { createRef, render } from "preact";

import { PermissionPrompt } from "../../components/permission-prompt/index.tsx";
import { local, onMount, own } from "../../lib/component.ts";
import { DiffView } from "../../lib/diff/view.tsx";
import type { Diff } from "../../lib/diff/view.tsx";
import { Button, Code, Trouble } from "../../lib/ui.tsx";
import { message, oneLine, visible } from "../../lib/visible.ts";
import { host } from "../../lib/console/api.ts";
import type { Question, Standing, State, Suggested } from "../../lib/console/api.ts";
import { Batch } from "./batch.tsx";
import { CalmButton } from "../../lib/console/calm.tsx";
import { Failed, Failure } from "../../lib/console/parts.tsx";
import { loadPreview } from "../../lib/console/preview.ts";
import { state } from "../../lib/console/state.ts";

const id = (question: Question): string => question.tool_call.id;

const shown = signal<Question | undefined>(undefined);
/** Whether the shown question was decided elsewhere, and stays until the person moves on. */
const over = signal(false);
/** The open batch view, if any. */
const batch = signal<{ readonly kind: State["batches"][number]; readonly questions: readonly Question[] } | undefined>(undefined);
type Suggestion = NonNullable<Suggested["suggestion"]>;
const suggestion = signal<Suggestion | undefined>(undefined);
const giving = new Failure();
let prompt: PermissionPrompt | undefined;
/** Ids of the questions answered on this page, and of the skipped ones in order. */
const answered = new Set<string>();
const skipped = new Set<string>();
/** Whether the next question gets the focus, because the last one had it. */
let moveFocus = false;

function waiting(): readonly Question[] {
  const order = [...skipped];
  const open = state.value?.questions.filter((one) => !answered.has(id(one))) ?? [];
  return open.toSorted((a, b) => order.indexOf(id(a)) - order.indexOf(id(b)));
}

/** Shows the first question if none is shown. Call it whenever the state changes. */
export function update(): void {
  const current = shown.value;
  if (batch.value) return;
  if (!current) {
    shown.value = waiting()[0];
    return;
  }
  const asked = prompt;
  const isGone = !answered.has(id(current)) && !waiting().some((one) => id(one) === id(current));
  if (!isGone || asked?.dataset["status"] !== "pending") return;
  host<Standing>(`question/${id(current)}`).then(
    (stands) => {
      if (asked !== prompt || stands.status === "pending") return;
      asked.block = ended(current, stands);
      over.value = true;
    },
    () => undefined,
  );
}

function next(): void {
  moveFocus = document.activeElement?.closest("permission-prompt, .card, .over") != null;
  over.value = false;
  shown.value = undefined;
  update();
}

function skip(question: Question): void {
  skipped.delete(id(question));
  skipped.add(id(question));
  next();
}

const ended = (question: Question, { status, granted }: Standing): object => ({
  ...question,
  status,
  extra: { ...question.extra, grantedPermissions: granted },
});

async function answer(question: Question, asked: PermissionPrompt, word: object): Promise<void> {
  const { session, run, agent, worker } = question.bailiwick;
  try {
    const stands = await host<Standing>("answer", { question: id(question), session, answer: word });
    answered.add(id(question));
    asked.block = ended(question, stands);
    if (stands.status === "granted") void suggest({ run, agent: agent.join("/"), session, worker });
    // Move on if the person's own answer took effect; otherwise keep showing what somebody else decided.
    if (stands.status === ("allow" in word ? "granted" : "denied")) next();
    else over.value = true;
  } catch (error) {
    asked.failed(message(error));
  }
}

/** Offers a rule that would avoid similar questions, if the host suggests one. */
async function suggest(about: object): Promise<void> {
  const found = await host<Suggested>("suggestions", about).catch(() => ({ suggestion: null }));
  if (!found.suggestion) return;
  giving.error.value = undefined;
  suggestion.value = found.suggestion;
}

async function give({ agent: _, covers: _covers, spares: _spares, ...rule }: Suggestion): Promise<void> {
  suggestion.value = undefined;
  await giving.of(host("grant", rule));
}

/** Shows the preview of the question's call in its prompt. */
async function preview(question: Question, into: PermissionPrompt, place: HTMLElement): Promise<void> {
  const own = question.bailiwick;
  if (!own.preview) return;
  try {
    const diff = await loadPreview(id(question));
    diff.divisible = own.divisible;
    diff.onExclude = () => (into.leftOut = excluded(diff));
    into.view = place;
    render(diff.files.length > 0 ? <DiffView diff={diff} /> : <p>Nothing would change.</p>, place);
    into.settled = true;
  } catch (error) {
    const again = (
      <div>
        <Trouble error={error} />
        <p>
          No preview is available, so it cannot be allowed here. <Button press={() => void preview(question, into, place)}>Try again</Button>
        </p>
      </div>
    );
    into.view = place;
    render(again, place);
  }
}

/** The excluded hunks, or `undefined` if all are excluded. */
function excluded(diff: Diff): Diff["excluded"]["value"] | undefined {
  const hunks = diff.files.filter(({ divisible }) => divisible.value).reduce((sum, file) => sum + file.hunks.length, 0);
  const out = diff.excluded.value;
  return out.flatMap((file) => file.hunks).length < hunks ? out : undefined;
}

/** The prompt of a question. */
function Prompt({ question }: { readonly question: Question }) {
  const place = own(createRef<HTMLDivElement>);
  onMount(() => {
    const asked = new PermissionPrompt();
    const view = document.createElement("div");
    prompt = asked;
    for (const word of ["granted", "denied"]) {
      asked.addEventListener(`permission-${word}`, (event) => void answer(question, asked, (event as CustomEvent<{ answer: object }>).detail.answer));
    }
    asked.block = question;
    place.current?.append(asked);
    void preview(question, asked, view);
    if (moveFocus) asked.querySelector("h2")?.focus();
    moveFocus = false;
    return () => {
      render(null, view);
      asked.remove();
    };
  });
  return <div ref={place} />;
}

/** All arguments of a call, if the question has only their beginning. */
function Arguments({ question }: { readonly question: Question }) {
  const all = local<string | undefined>(undefined);
  const failure = own(() => new Failure());
  const { arguments_bytes: bytes } = question.bailiwick;
  if (bytes === null) return null;
  const load = async (): Promise<void> => {
    all.value = (await host<{ readonly arguments: string }>(`arguments/${id(question)}`)).arguments;
  };
  return (
    <div>
      {all.value === undefined ? (
        <Button press={() => void failure.of(load())}>{`Show all arguments (${bytes} bytes)`}</Button>
      ) : (
        <pre tabIndex={0} aria-label="All arguments">{visible(all.value)}</pre>
      )}
      <Failed failure={failure} />
    </div>
  );
}

/** What a person can do instead of answering the question. */
function Chips({ question }: { readonly question: Question }) {
  const open = waiting();
  const more = open.filter((one) => id(one) !== id(question)).length + (state.value?.omitted.questions ?? 0);
  // Calls of third-party servers, and calls without a preview, are never batched.
  const alike = state.value?.batches.map((kind) => ({ kind, questions: open.filter((one) => kind.questions.includes(id(one)) && one.bailiwick.trust === "own" && one.bailiwick.preview) }));
  const several = alike?.find(({ questions }) => questions.length > 1);
  const tally = state.value?.tallies.find((one) => one.session === question.bailiwick.session);
  return (
    <>
      {more > 0 && (
        <CalmButton key="next" press={() => skip(question)}><span>{`${more} more waiting: next`}</span></CalmButton>
      )}
      {several && (
        <CalmButton
          key="batch"
          press={() => {
            batch.value = several;
            shown.value = undefined;
          }}
        >
          <span>{`Review ${several.questions.length} similar requests`}</span>
        </CalmButton>
      )}
      {tally && (
        <span key="tally" class="quiet">{`In this session you allowed ${tally.allowed} of ${tally.allowed + tally.denied}.`}</span>
      )}
    </>
  );
}

function Suggestion({ rule }: { readonly rule: Suggestion }) {
  const { agent, covers, spares, pattern } = rule;
  return (
    <div key={agent + pattern} class="notice">
      <p>
        {`You allowed ${spares} questions like this. Allow ${oneLine(agent)} for the rest of this session, without asking, to ${oneLine(covers, 400)}: `}
        <Code text={pattern} />
      </p>
      <div class="line">
        <CalmButton press={() => void give(rule)}>Add this rule</CalmButton>
        <Button press={() => (suggestion.value = undefined)}>Keep asking</Button>
      </div>
    </div>
  );
}

export function Questions() {
  const current = shown.value;
  const count = waiting().length + (state.value?.omitted.questions ?? 0);
  const open = batch.value;
  const back = (): void => {
    batch.value = undefined;
    next();
  };
  return (
    <>
      <p class="seen-by-ear" role="status">{current && `${count} waiting. ${oneLine(current.bailiwick.intent)}`}</p>
      <div class="chips">{current && <Chips question={current} />}</div>
      <div>
        {open && <Batch batch={open.kind} questions={open.questions} back={back} />}
        {current && <Prompt key={`prompt ${id(current)}`} question={current} />}
        {current && <Arguments key={`arguments ${id(current)}`} question={current} />}
        {over.value && (
          <Button class="over" press={next}>Next</Button>
        )}
        {!open && !current && <p class="empty">No pending requests.</p>}
      </div>
      <div>
        {suggestion.value && <Suggestion rule={suggestion.value} />}
        <Failed failure={giving} />
      </div>
    </>
  );
}
