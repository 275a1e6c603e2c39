// Form to call a tool, and its results.
import { local, own, watch } from "../../lib/component.ts";
import { visible } from "../../lib/visible.ts";
import { ask } from "./api.ts";
import { Asking } from "./asking.tsx";
import { approved, call as make, preview } from "./calls.ts";
import type { Call as Made, Compared, Outcome } from "./calls.ts";
import { Editor } from "./form.tsx";
import { at, members, reason, string, text } from "./json.ts";
import { Message } from "./messages.tsx";
import type { Tool } from "./model.ts";
import { Button, Live, Quiet, Row, badge, code, notice, said } from "./parts.tsx";
import { Results } from "./result.tsx";
import { initial } from "./schema.ts";
import { policy } from "./store.ts";

const HINTS: Readonly<Record<string, string>> = {
  readOnlyHint: "reads only",
  destructiveHint: "destructive",
  idempotentHint: "idempotent",
  openWorldHint: "reaches outside",
};
const NO_PREVIEW = "The tool has no preview.";

export const Badges = ({ tool: { annotations, preview, ui, visibility, scopes } }: { readonly tool: Tool }) => (
  <span class="badges">
    {Object.entries(HINTS).map(([key, words]) => at(annotations, key) === true && badge(words, key))}
    {preview && badge("preview")}
    {ui && badge("view")}
    {visibility.length > 0 && !visibility.includes("model") && badge("for views only")}
    {scopes.map((scope) => badge(scope, "scope"))}
  </span>
);

interface SentenceProps {
  readonly template: string;
  readonly given: () => unknown;
  readonly tell: (now: string) => void;
}

/** The intent sentence for the current arguments; also passed to `tell`. */
function Sentence({ template, given, tell }: SentenceProps) {
  const now = local({ words: "", status: "loading" });
  const turn = own(() => ({ newest: 0 }));
  watch(() => {
    const asked = ask("intent", { template, arguments: given() });
    const mine = (turn.newest += 1);
    const settle = (answer: unknown): void => {
      if (mine !== turn.newest) return;
      const words = text(answer, "sentence");
      tell(words ?? "");
      now.value = { words: words ?? string(answer, "fault"), status: words === undefined ? "fault" : "ready" };
    };
    // The connection bar reports an unreachable host.
    asked.then(settle, () => undefined);
  });
  return (
    <p class="intent" aria-live="polite" data-status={now.value.status}>
      <Quiet>Intent</Quiet>
      <bdi>{visible(now.value.words)}</bdi>
    </p>
  );
}

const Comparison = ({ all }: { readonly all: readonly Compared[] }) => (
  <ul class="plain compared" data-status={all.every((one) => !one.differs) ? "equal" : "differs"}>
    {all.map(({ name, differs }) => (
      <li>
        {differs ? badge("differs", "bad") : badge("equal", "good")} {said(name, 80)}{differs && <>: {said(differs)}</>}
      </li>
    ))}
    {all.length === 0 && <li><Message name="no-artifact" /></li>}
  </ul>
);

interface ShownProps {
  readonly outcome: Outcome;
  readonly tool: Tool;
  readonly sent: unknown;
}

const Shown = ({ outcome: { note, fault, call, compared, preview: before }, tool, sent }: ShownProps) => (
  <>
    {note && <Message name={note} />}
    {fault && notice(fault, "warn")}
    {call !== undefined && <Results title="Result" response={call} tool={tool} input={sent} />}
    {compared && <Comparison all={compared} />}
    {before !== undefined && <Results title="Preview" response={before} tool={tool} input={sent} />}
  </>
);

/** The form of one tool. */
export function Call({ tool }: { readonly tool: Tool }) {
  const schema = own(() => ({ type: "object", ...members(tool.inputSchema) }));
  const given = local<unknown>(initial(schema, schema) ?? {});
  const held = local(false);
  const busy = local(false);
  const outcome = local<Outcome | undefined>(undefined);
  const last = own<{ intent: string; sent: unknown }>(() => ({ intent: "", sent: undefined }));
  const run = async (act: (one: Made) => Promise<Outcome>): Promise<void> => {
    busy.value = true;
    outcome.value = undefined;
    last.sent = given.value;
    const began = performance.now();
    try {
      const came = await act({ tool, given: last.sent, intent: last.intent });
      outcome.value = { ...came, ms: Math.round(performance.now() - began) };
    } catch (error) {
      outcome.value = { fault: reason(error) };
    }
    busy.value = false;
  };
  const now = outcome.value;
  const isStuck = busy.value || held.value;
  const previewing = (label: string, act: (one: Made) => Promise<Outcome>) => (
    <Button disabled={isStuck || !tool.preview} title={tool.preview ? "" : NO_PREVIEW} press={() => run(act)}>{label}</Button>
  );
  return (
    <article class="call" data-status={busy.value ? "busy" : now ? "settled" : "idle"} data-tool={tool.name}>
      <header>
        <h2>{said(tool.title, 120)} {code(tool.name, 128, "quiet")}</h2>
        <Badges tool={tool} />
        <p class="said"><bdi>{visible(tool.description.slice(0, 2_000))}</bdi></p>
        {tool.lints.map((lint) => notice(`Intent template: ${lint}`, "warn"))}
      </header>
      {tool.intent && <Sentence template={tool.intent} given={() => given.value} tell={(now) => (last.intent = now)} />}
      <Editor name="arguments" schema={schema} value={given} held={held} />
      {policy.value !== undefined && <Message name="under-policy" />}
      <Row>
        <Button class="primary" disabled={isStuck} press={() => run(make)}>Call</Button>
        {previewing("Preview", preview)}
        {previewing("Preview, ask, call", (one) => approved(one, (before) => (outcome.value = before)))}
        <Live>{busy.value ? "Waiting…" : now?.ms !== undefined && `${now.ms} ms`}</Live>
      </Row>
      <Asking />
      {now && <Shown key={now} outcome={now} tool={tool} sent={last.sent} />}
    </article>
  );
}
