// Conformance checks of the connected server.
import { local } from "../../lib/component.ts";
import { ask } from "./api.ts";
import { reason } from "./json.ts";
import { Message } from "./messages.tsx";
import { checksOf } from "./model.ts";
import type { Check } from "./model.ts";
import { Button, Quiet, Row, badge, code, notice, said } from "./parts.tsx";

const LOOKS: Readonly<Record<string, readonly [string, string]>> = {
  pass: ["✓ pass", "good"],
  warn: ["! warn", "warn"],
  fail: ["✕ fail", "bad"],
  skip: ["– skip", ""],
};

function Line({ check: { check, outcome, detail } }: { readonly check: Check }) {
  const [words, kind] = LOOKS[outcome] ?? [outcome, "bad"];
  return (
    <li>
      {badge(words, kind)}
      {code(check, 60)}
      <Quiet>{said(detail, 1_000)}</Quiet>
    </li>
  );
}

interface Run {
  readonly status: "idle" | "busy" | "passed" | "failed";
  readonly made?: readonly Check[];
  readonly fault?: string;
}

export function Checks() {
  const run = local<Run>({ status: "idle" });
  const start = async (): Promise<void> => {
    run.value = { status: "busy" };
    try {
      const made = checksOf(await ask("checks", {}));
      run.value = { status: made.every(({ outcome }) => /pass|warn|skip/.test(outcome)) ? "passed" : "failed", made };
    } catch (error) {
      run.value = { status: "failed", fault: reason(error) };
    }
  };
  const now = run.value;
  const isBusy = now.status === "busy";
  return (
    <article data-status={now.status}>
      <h2>Checks</h2>
      <Message name="checks" />
      <Row><Button class="primary" disabled={isBusy} press={start}>{isBusy ? "Checking…" : "Run the checks"}</Button></Row>
      {now.fault && notice(now.fault, "bad")}
      {now.made && <ul class="plain checks">{now.made.map((check) => <Line check={check} />)}</ul>}
    </article>
  );
}
