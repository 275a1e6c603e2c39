// Form to add a rule, or the rules of a template, after a preview.
import { isWide } from "../../components/permission-prompt/choice.ts";
import { el } from "../../lib/dom.ts";
import { oneLine } from "../../lib/visible.ts";
import { host } from "./api.ts";
import type { State } from "./api.ts";
import { button, code, draw, failed, go, line, offer, offerSources, select, tick, trouble } from "./shown.ts";

const TIMES: Readonly<Record<string, readonly [words: string, lifetime: unknown]>> = {
  hour: ["for 1 hour", { for_ms: 3_600_000 }],
  uses: ["for 10 uses", { uses: 10 }],
  agent: ["until I revoke it", "agent"],
};

export function giving(): { place: HTMLElement; show(state: State): void; begin(verb: string): void } {
  let sources: State["sources"] = [];
  /** Incremented when a change of the form invalidates the previewed rules. */
  let turn = 0;
  const forget = (): void => {
    turn += 1;
    draw(rules);
  };
  const input = (placeholder?: string): HTMLInputElement => {
    const made = el("input", { placeholder });
    made.oninput = forget;
    return made;
  };
  const chosen = (): State["sources"][number] | undefined => sources.find(({ run }) => run === source.value);
  /** Updates the templates and directories of the selected host. */
  const renew = (): void => {
    offer(template, [["", "One rule"], ...(chosen()?.templates ?? []).map(({ name, about }) => [name, `${name}: ${about}`] as const)]);
    own.hidden = !!template.value;
    roots.hidden = !template.value;
    directories.value = chosen()?.roots.join(" ") ?? "";
    forget();
  };
  const source = select(renew, [], "Where");
  const template = select(renew);
  const pattern = input("write:file:/repo/docs");
  const directories = input();
  const agent = input("main/tests");
  const time = select(forget, Object.entries(TIMES).map(([value, [words]]) => [value, words] as const));
  const own = el("label", "Rule ", pattern);
  const roots = el("label", "Directories, with spaces between ", directories);
  const rules = el("div");
  const place = el(
    "details.card",
    el("summary", "Allow without asking"),
    line(el("label", "What ", template), own, roots, el("label", "Agent, by its path ", agent), el("label", "How long ", time), source),
    line(go("Show the rules", () => void look())),
    rules,
  );

  const look = async (): Promise<void> => {
    forget();
    const now = turn;
    // Keep the previewed values, because the fields can change before the rules are added.
    const holder = agent.value.trim();
    const [words, lifetime] = TIMES[time.value] ?? [];
    const rule = template.value ? "" : pattern.value.trim();
    const what = { run: source.value, ...(template.value ? { template: template.value, roots: directories.value.split(/\s+/).filter(Boolean) } : { pattern: rule }) };
    if (!holder || !(rule || template.value)) return draw(rules, trouble("Name the agent and the rule."));
    try {
      const found = rule ? [rule] : (await host<{ rules: readonly string[] }>("template-rules", what)).rules;
      if (now !== turn) return;
      const give = button("Allow exactly this", () => {
        host(rule ? "grant" : "grant-template", { ...what, holder: { agent: holder }, lifetime }).then(() => draw(rules, el("p", { role: "status" }, "Rule added.")), failed(rules));
      });
      give.disabled = lifetime === "agent" || isWide(found);
      draw(
        rules,
        el("p", `Agent ${oneLine(holder)} may, ${words}:`),
        el("ul", ...found.map((one) => el("li", code(one)))),
        give.disabled && tick(" I understand this grants broad or permanent access.", (on) => (give.disabled = !on)),
        give,
      );
    } catch (error) {
      failed(rules)(error);
    }
  };

  return {
    place,
    begin(verb) {
      place.open = true;
      template.value = "";
      renew();
      pattern.value = `${verb}:file:`;
      pattern.focus();
    },
    show(state) {
      const before = JSON.stringify(chosen());
      ({ sources } = state);
      offerSources(source, sources);
      // Do not reset the form while a person is typing, unless the host's options changed.
      if (before !== JSON.stringify(chosen())) renew();
    },
  };
}
