// What a person wants to allow without being asked in, a rule or a template's rules given out; they are shown before.
import { el } from "../../lib/dom.ts";
import { anything, list, object, text } from "../../lib/parse.ts";
import { oneLine } from "../../lib/visible.ts";
import { host } from "./api.ts";
import type { State } from "./api.ts";
import { button, code, failed, line, offer, offerSources, renew, select } from "./shown.ts";

const shownRules = object({ rules: list(text) });
const TIMES: readonly (readonly [string, string])[] = [
  ["hour", "for 1 hour"],
  ["uses", "for 10 uses"],
  ["agent", "until I revoke it"],
];

export function giving(): { place: HTMLElement; show(state: State): void; begin(verb: string): void } {
  const forget = (): void => renew(rules);
  const source = select("Where", [], forget);
  const template = select("What", [], () => {
    own.hidden = template.value !== "";
    roots.hidden = template.value === "";
    forget();
  });
  const pattern = el("input", { "aria-label": "Rule, such as write:file:/repo/docs", placeholder: "write:file:/repo/docs" });
  const directories = el("input", { "aria-label": "Directories, with spaces between" });
  const agent = el("input", { "aria-label": "Agent, by its path", placeholder: "main/tests" });
  const time = select("How long", TIMES, forget);
  const own = el("label", {}, "Rule ", pattern);
  const roots = el("label", { hidden: true }, "Directories ", directories);
  const rules = el("div", { tabindex: -1 });
  const details = el(
    "details",
    { class: "card" },
    el("summary", {}, "Allow something without being asked"),
    line(el("label", {}, "What ", template), own, roots, el("label", {}, "Agent ", agent), el("label", {}, "How long ", time), source),
    line(button("Show the rules", () => void look())),
    rules,
  );
  for (const field of [pattern, directories, agent]) field.addEventListener("input", forget);

  const wanted = (): { run: string; template: string; roots: string[] } => ({
    run: source.value,
    template: template.value,
    roots: directories.value.split(/\s+/).filter((path) => path !== ""),
  });

  const look = async (): Promise<void> => {
    try {
      const own = template.value === "";
      const found = own ? [pattern.value.trim()] : (await host(shownRules, "template-rules", wanted())).rules;
      const holder = { agent: agent.value.trim() };
      const lifetime = { hour: { for_ms: 3_600_000 }, uses: { uses: 10 }, agent: "agent" }[time.value];
      const give = (): void => {
        const { run } = wanted();
        const given = own
          ? host(anything, "grant", { run, pattern: found[0], holder, lifetime })
          : host(anything, "grant-template", { ...wanted(), holder, lifetime });
        given.then(() => renew(rules, el("p", { role: "status" }, "Given.")), failed(rules));
      };
      if (holder.agent === "" || found[0] === "") throw new Error("Name the agent and the rule.");
      const words = `Agent ${oneLine(holder.agent)} may, ${TIMES.find(([value]) => value === time.value)?.[1] ?? ""}:`;
      renew(rules, el("p", {}, words), el("ul", {}, ...found.map((one) => el("li", {}, code(one)))), button("Allow exactly this", give));
    } catch (error) {
      failed(rules)(error);
    }
  };

  return {
    place: details,
    begin(verb) {
      details.open = true;
      template.value = "";
      own.hidden = false;
      roots.hidden = true;
      pattern.value = `${verb}:file:`;
      pattern.focus();
    },
    show({ sources }) {
      const [first] = sources;
      offerSources(source, sources);
      offer(template, [["", "One rule"], ...(first?.templates ?? []).map(({ name, about }) => [name, `${name}: ${about}`] as const)]);
      if (directories.value === "") directories.value = first?.roots.join(" ") ?? "";
    },
  };
}
