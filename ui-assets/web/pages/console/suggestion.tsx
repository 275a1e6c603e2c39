// Suggests a rule that would have spared the last questions.
import { signal } from "@preact/signals-core";

import { host } from "../../lib/console/api.ts";
import type { Suggested } from "../../lib/console/api.ts";
import { CalmButton } from "../../lib/console/calm.tsx";
import { Failed, Failure } from "../../lib/console/parts.tsx";
import { Button, quotedName } from "../../lib/ui.tsx";
import { oneLine } from "../../lib/visible.ts";

type Suggestion = NonNullable<Suggested["suggestion"]>;

const suggestion = signal<Suggestion | undefined>(undefined);
const giving = new Failure();

/** Shows the rule that the host suggests after an answer, if any. */
export async function suggest(about: object): Promise<void> {
  const found = await host<Suggested>("suggestions", about).catch(() => ({ suggestion: null }));
  if (!found.suggestion) return;
  giving.error.value = undefined;
  suggestion.value = found.suggestion;
}

async function give({ agent: _, covers: _covers, spares: _spares, ...rule }: Suggestion): Promise<void> {
  suggestion.value = undefined;
  await giving.of(host("grant", rule));
}

export function SuggestionView() {
  const rule = suggestion.value;
  if (!rule) return <Failed failure={giving} />;
  const { agent, covers, spares, pattern } = rule;
  return (
    <div key={agent + pattern} class="notice">
      <p>{`You allowed ${spares} questions like this. Let ${quotedName(agent)} do this without asking until the session ends: ${oneLine(covers, 400)}?`}</p>
      <div class="line">
        <CalmButton press={() => void give(rule)}>Add this rule</CalmButton>
        <Button press={() => (suggestion.value = undefined)}>Keep asking</Button>
      </div>
    </div>
  );
}
