// What became of answered, expired and cancelled questions.
import { LATE } from "../../lib/calm.ts";
import { local, onMount, own } from "../../lib/component.ts";
import type { Outcome } from "../../lib/console/api.ts";
import { Failed, Failure, clock } from "../../lib/console/parts.tsx";
import { loadChanges } from "../../lib/console/preview.ts";
import { state } from "../../lib/console/state.ts";
import { Undo } from "../../lib/console/undo.tsx";
import { DiffView } from "../../lib/diff/view.tsx";
import type { Diff } from "../../lib/diff/view.tsx";
import { Agent, Name } from "../../lib/ui.tsx";
import { oneLine } from "../../lib/visible.ts";
import { Heading } from "./heading.tsx";
import { last } from "./inbox.ts";

/** How the status of a question looks, and what became of its call. */
function statusOf({ status, by, result, undo }: Outcome): readonly [words: string, look?: "good" | "bad"] {
  const who = by && by !== "nobody" ? ` by ${oneLine(by, 80)}` : "";
  if (status === "denied") return [`Denied${who}`];
  if (status === "expired") return [LATE];
  if (status === "cancelled") return [`Cancelled${who} before an answer`];
  if (undo === "undone") return [`Allowed${who} and applied; undone later`];
  const { state = "never ran" } = result ?? {};
  if (state === "applied") return [`✓ Allowed${who} and applied`, "good"];
  if (state === "running") return [`Allowed${who}; running`];
  const why = oneLine(result?.message ?? result?.code ?? "", 300);
  const end = state === "stale" ? "not done: something had changed" : why ? `${state}: ${why}` : state;
  return [`✗ Allowed${who}, but ${end}`, "bad"];
}

export function Status({ outcome }: { readonly outcome: Outcome }) {
  const [words, look = "quiet"] = statusOf(outcome);
  return <span class={`status ${look}`}>{words}</span>;
}

export const outcomeOf = (id: string): Outcome | undefined => state.value?.outcomes.find(({ question }) => question === id);

/** What became of the question that was answered last. */
export function lastWords(): string {
  const outcome = outcomeOf(last.value);
  return outcome ? `${statusOf(outcome)[0]}: ${oneLine(outcome.sentence)}` : "";
}

/** An outcome with the changes of its call. */
export function OutcomeView({ id }: { readonly id: string }) {
  const diff = local<Diff>();
  const failure = own(() => new Failure());
  const outcome = outcomeOf(id);
  onMount(() => {
    const ran = outcome?.call;
    if (!ran) return;
    const load = async (): Promise<void> => void (diff.value = await loadChanges(`call/${ran}`, outcome.result?.state === "applied" ? "" : "Would"));
    void failure.of(load());
  });
  if (!outcome) return <p class="empty">No longer kept.</p>;
  return (
    <div class="card">
      <p class="line"><Agent name={outcome.agent} /> <span class="quiet end">{clock(outcome.at)}</span></p>
      <Heading><Name text={outcome.sentence} /></Heading>
      <p><Status outcome={outcome} /></p>
      {outcome.call && <Undo of={{ call: outcome.call }} what="this call" may={outcome.undo === "possible"} />}
      <Failed failure={failure} />
      {diff.value && diff.value.files.length + diff.value.resources.length > 0 && <DiffView diff={diff.value} />}
    </div>
  );
}
