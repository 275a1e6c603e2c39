// A connected server in, what is right and wrong with it out.
import { h, when } from "../../lib/h.ts";
import { signal } from "../../lib/signals.ts";
import { ask } from "./api.ts";
import { list, reason } from "./json.ts";
import { checkOf } from "./model.ts";
import type { Check } from "./model.ts";
import { about, badge, button, code, notice, quiet, row, said } from "./parts.ts";

const LOOKS: Readonly<Record<Check["outcome"], readonly [string, string]>> = {
  pass: ["✓ pass", "good"],
  warn: ["! warn", "warn"],
  fail: ["✕ fail", "bad"],
  skip: ["– skip", ""],
};

const line = ({ check, outcome, detail }: Check): Node =>
  h("li", badge(...LOOKS[outcome]), code(check, 60), quiet(said(detail, 1_000)));

export function checks(): Node {
  const shown = signal<Node | undefined>(undefined);
  const status = signal("idle");
  const run = async () => {
    status("busy");
    try {
      const made = list(await ask("checks", {})).map(checkOf);
      shown(h("ul.plain checks", made.map(line)));
      status(made.some((check) => check.outcome === "fail") ? "failed" : "passed");
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
    about(
      ...["What ", code("test_host check"), " tries: lists, schemas, refusals, previews. "],
      "Nothing is changed, if the server keeps its word.",
    ),
    row(button(() => (busy() ? "Checking…" : "Run the checks"), run, "primary", { disabled: busy })),
    when(shown, (made) => made),
  );
}
