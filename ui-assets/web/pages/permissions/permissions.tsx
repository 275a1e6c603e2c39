// What agents may do, the rules that people gave, blocked calls, and a form to give a rule.
import { CalmButton } from "../../lib/console/calm.tsx";
import { host } from "../../lib/console/api.ts";
import { Failed, Failure } from "../../lib/console/parts.tsx";
import { state } from "../../lib/console/state.ts";
import { Agent, Name } from "../../lib/ui.tsx";
import { Grants } from "./grants.tsx";
import { May } from "./may.tsx";
import { Rule } from "./rule.tsx";

const failure = new Failure();

/** Calls that a person denied for the rest of a session. */
function Blocks() {
  const refusals = state.value?.refusals ?? [];
  const omitted = state.value?.omitted.refusals;
  if (refusals.length === 0) return null;
  return (
    <section aria-labelledby="blocks">
      <h2 id="blocks">Denied for the rest of a session</h2>
      <p class="quiet">You chose not to be asked about these calls any more. They fail until the session ends.</p>
      <Failed failure={failure} />
      <ul class="plain">
        {refusals.map(({ run, refusal, agent, refused }) => (
          <li key={`${run}${refusal}`}>
            <div class="rule-head">
              <p><Agent name={agent} />{": may not "}<Name text={refused} most={400} /></p>
              <CalmButton press={() => void failure.of(host("ask-again", { run, refusal }))}>End this block: ask me again</CalmButton>
            </div>
          </li>
        ))}
      </ul>
      {!!omitted && <p class="notice">{`${omitted} more are not listed.`}</p>}
    </section>
  );
}

export const Permissions = () => (
  <>
    <May />
    <Grants />
    <Blocks />
    <Rule />
  </>
);
