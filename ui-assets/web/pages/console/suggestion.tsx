// Suggests a rule that would have spared the last questions.
import { signal } from "@preact/signals-core";

import { host } from "../../lib/console/api.ts";
import type { Suggested } from "../../lib/console/api.ts";
import { CalmButton } from "../../lib/console/calm.tsx";
import { Failure } from "../../lib/console/parts.tsx";
import { Agent, Button, Name } from "../../lib/ui.tsx";

type Suggestion = NonNullable<Suggested["suggestion"]>;

const suggestion = signal<Suggestion>();
/** The last action of the list, or the rule that was given last. */
export const failure = new Failure();

/** Shows the rule that the host suggests after an answer, if any. */
export async function suggest(about: object): Promise<void> {
  const found = await host<Suggested>("suggestions", about).catch(() => ({ suggestion: null }));
  if (!found.suggestion) return;
  suggestion.value = found.suggestion;
}

/** Hides the suggestion while it is added, so that it cannot be added twice. */
async function add(one: Suggestion): Promise<void> {
  const { agent: _agent, covers: _covers, spares: _spares, ...rule } = one;
  suggestion.value = undefined;
  try {
    await host("grant", rule);
  } catch (error) {
    suggestion.value ??= one;
    throw error;
  }
}

export function SuggestionView() {
  const rule = suggestion.value;
  if (!rule) return null;
  const { agent, covers, spares, pattern } = rule;
  return (
    <div key={agent + pattern} class="notice">
      <p>{`You allowed ${spares} questions like this. Let `}<Agent name={agent} />{" do this without asking until it or its session ends: "}<Name text={covers} most={400} />?</p>
      <div class="line">
        <CalmButton press={() => void failure.of(add(rule))}>Add this rule</CalmButton>
        <Button press={() => (suggestion.value = undefined)}>Keep asking</Button>
      </div>
    </div>
  );
}
