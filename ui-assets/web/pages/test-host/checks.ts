// Conformance checks of the connected server.
import { h, when } from "../../lib/h.ts";
import { signal } from "../../lib/signals.ts";
import { ask } from "./api.ts";
import { reason } from "./json.ts";
import { checksOf } from "./model.ts";
import type { Check } from "./model.ts";
import { badge, button, code, notice, quiet, row, said, told } from "./parts.ts";

const LOOKS: Readonly<Record<string, readonly [string, string]>> = {
  pass: ["✓ pass", "good"],
  warn: ["! warn", "warn"],
  fail: ["✕ fail", "bad"],
  skip: ["– skip", ""],
};

const line = ({ check, outcome, detail }: Check): Node =>
  h("li", badge(...(LOOKS[outcome] ?? [outcome, "bad"])), code(check, 60), quiet(said(detail, 1_000)));

export function checks(): Node {
  const shown = signal<Node | undefined>(undefined);
  const status = signal("idle");
  const run = async () => {
    status("busy");
    try {
      const made = checksOf(await ask("checks", {}));
      shown(h("ul.plain checks", made.map(line)));
      status(made.every(({ outcome }) => /pass|warn|skip/.test(outcome)) ? "passed" : "failed");
    } catch (error) {
      shown(notice(reason(error), "bad"));
      status("failed");
    }
  };
  const busy = () => status() === "busy";
  return h(
    "article",
    { "data-status": status },
    h("h2", "Checks"),
    told("checks"),
    row(button(() => (busy() ? "Checking…" : "Run the checks"), run, "primary", { disabled: busy })),
    when(shown, (made) => made),
  );
}
