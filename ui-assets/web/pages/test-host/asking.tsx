// Permission prompts and elicitation forms, shown one at a time. Only a trusted press by a person grants anything.
import { computed } from "@preact/signals-core";
import { createRef, render } from "preact";
import type { ComponentChild } from "preact";

import { CALM } from "../../lib/calm.ts";
import { local, onMount, own } from "../../lib/component.ts";
import { visible } from "../../lib/visible.ts";
import { ask } from "./api.ts";
import { waiting } from "./calls.ts";
import type { Permission } from "./calls.ts";
import { Fields } from "./form.tsx";
import { at, members, pretty, reason, string } from "./json.ts";
import { Message } from "./messages.tsx";
import { Button, Quiet, Row, code, notice } from "./parts.tsx";
import { Patch, diffs } from "./result.tsx";
import { initial } from "./schema.ts";
import { state } from "./store.ts";

const MOST_WORDS = 4_000;

/** The broadest kind of access of a call: derived from the scopes' verbs and, beyond reading, from the tool. */
function kindOf({ scopes, tool }: Permission): string {
  const reads = scopes.filter((scope) => scope.split(":")[0] === "read").length;
  if (reads === scopes.length && tool.readOnly) return "read";
  return reads > 0 || scopes.length === 0 ? "all" : "write";
}

const blockOf = (asked: Permission): object => ({
  type: "tool_call_permission",
  content: asked.intent || asked.tool.name,
  status: "pending",
  tool_call: {
    id: crypto.randomUUID(),
    name: asked.tool.name,
    params: pretty(asked.given),
    server_name: state.peek().name,
    server_icons: "",
    server_description: state.peek().target,
  },
  extra: { permissionType: kindOf(asked) },
});

function Asks({ asked }: { readonly asked: Permission }) {
  const slot = own(createRef<HTMLElement>);
  const needs = (
    <>
      {asked.about && <Message name={asked.about} />}
      <ul class="plain">{asked.scopes.map((scope) => <li>needs {code(scope, 500)}</li>)}</ul>
    </>
  );
  onMount(() => {
    const prompt = document.createElement("permission-prompt");
    const view = document.createElement("div");
    const show = (found: ComponentChild): void => {
      render(<div>{needs}{found}</div>, view);
      prompt.view = view;
    };
    // Loads the preview of the call; the call cannot be allowed before it is shown.
    const look = async (): Promise<void> => {
      prompt.settled = false;
      try {
        const found = asked.shown === undefined ? [] : await diffs(asked.shown);
        show(found.map((patch) => <Patch text={patch} />));
        prompt.settled = true;
      } catch (error) {
        const again = (): void => {
          slot.current?.focus();
          void look();
        };
        show([notice(`No preview: ${reason(error)}`, "bad"), <Button press={again}>Try again</Button>]);
      }
    };
    const put = async (): Promise<void> => {
      await customElements.whenDefined("permission-prompt");
      prompt.block = blockOf(asked);
      prompt.addEventListener("permission-granted", () => asked.answer(true));
      prompt.addEventListener("permission-denied", () => asked.answer(false));
      slot.current?.append(prompt);
      slot.current?.scrollIntoView({ block: "nearest" });
      await look();
    };
    void put();
    return () => render(null, view);
  });
  return <section class="asks" data-status="permission" aria-label="Permission" tabIndex={-1} ref={slot} />;
}

interface ElicitationProps {
  readonly params: unknown;
  readonly answer: (result: unknown) => void;
}

function Elicitation({ params, answer }: ElicitationProps) {
  const schema = { type: "object", ...members(params, "requestedSchema") };
  const begin = own(() => initial(schema, schema));
  const content = own(() => ({ now: begin }));
  // A new form ignores presses, so that a double press does not answer it.
  const calm = local(true);
  onMount(() => void setTimeout(() => (calm.value = false), CALM));
  const act = (label: string, action: string, look = "") => (
    <Button class={look} disabled={calm.value} press={() => answer(action === "accept" ? { action, content: content.now } : { action })}>
      {label}
    </Button>
  );
  return (
    <section class="asking" data-status="elicitation" aria-label="The server asks">
      <h2>The server asks</h2>
      <p class="said"><bdi>{visible(string(params, "message").slice(0, MOST_WORDS))}</bdi></p>
      <Fields schema={schema} root={schema} required value={begin} change={(now) => (content.now = now)} />
      <Row>
        {act("Cancel", "cancel")}
        {act("Decline", "decline")}
        {act("Answer", "accept", "primary")}
      </Row>
    </section>
  );
}

type Question = (typeof waiting.value)[number];
let last: Question | undefined;
/** The current question stays until it is answered. */
const first = computed(() => (last = waiting.value.find((one) => one === last) ?? waiting.value[0]));

function Asked({ one }: { readonly one: Question }) {
  if ("scopes" in one) return <Asks asked={one} />;
  if ("params" in one) return <Elicitation params={one.params} answer={one.answer} />;
  const { message } = one;
  return <Elicitation params={at(message, "params")} answer={(result) => void ask("reply", { id: at(message, "id"), result })} />;
}

/** The first pending question. */
export const Asking = () => (
  <div aria-live="polite">
    {waiting.value.length > 1 && (
      <p><Quiet>{`1 of ${waiting.value.length} questions`}</Quiet></p>
    )}
    {first.value && <Asked key={first.value} one={first.value} />}
  </div>
);
