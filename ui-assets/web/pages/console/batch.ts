// Batch view: several similar questions with checkboxes, answered together.
import { el, onTick, say } from "../../lib/dom.ts";
import { oneLine } from "../../lib/visible.ts";
import { host } from "./api.ts";
import type { Question, Review, Standing, State } from "./api.ts";
import { rows } from "./rows.ts";
import { button, code, failed, go, line, name, stir, trouble } from "./shown.ts";

export function together(
  { verb, resource, folder }: State["batches"][number],
  questions: readonly Question[],
  back: () => void,
): { place: HTMLElement; show(state: State): void } {
  const wrong = el("div");
  const yes = button("", () => answer(true));
  const no = button("", () => answer(false));
  yes.className = "primary";

  const items = questions.map((question) => {
    const { agent, intent, needs, preview } = question.bailiwick;
    const { id, name: tool } = question.tool_call;
    const tick = onTick(el("input", { type: "checkbox", disabled: true }), () => count());
    const end = el("span.quiet", { role: "status" });
    const whole = el(
      "li",
      el("label", tick, el("span", name(intent), " ", el("bdi.quiet", oneLine([...agent, tool].join(" › "), 120)))),
      line(...needs.map(code), end),
    );
    host<Review>(`review/${id}`).then(
      ({ changes }) => {
        whole.append(el("details", el("summary", `What it would do: +${preview?.added} −${preview?.removed}`), rows(changes)));
        tick.disabled = !!end.textContent;
        // The buttons below moved.
        stir();
      },
      (error: unknown) => whole.append(trouble(error)),
    );
    return { question: id, session: question.bailiwick.session, tick, end, whole };
  });

  const ticked = (): typeof items => items.filter(({ tick }) => tick.checked && !tick.disabled);
  const count = (): void => {
    const { length } = ticked();
    say(yes, `Allow ${length} ticked, once`);
    say(no, `Deny ${length} ticked, once`);
    yes.disabled = no.disabled = !length;
  };
  const answer = (allows: boolean): void => {
    const word = allows ? { allow: { lifetime: "once" } } : { deny: {} };
    const meant = ticked();
    for (const { tick } of meant) tick.disabled = true;
    count();
    wrong.replaceChildren();
    host<{ answers: readonly Standing[] }>("answer-batch", { answers: meant.map(({ question, session }) => ({ question, session, answer: word })) })
      .then(({ answers }) => {
        for (const { question, status, message } of answers) {
          const item = items.find((one) => one.question === question);
          if (item) say(item.end, oneLine(status ?? message ?? ""));
          // The answer had no effect, so allow another one.
          if (item && !status) item.tick.disabled = false;
        }
      })
      .catch((error: unknown) => {
        for (const { tick } of meant) tick.disabled = false;
        failed(wrong)(error);
      })
      .finally(count);
  };

  const where = folder === undefined ? "" : ` beneath ${oneLine(folder)}`;
  const place = el(
    "div.card",
    el("h2", { tabindex: -1 }, `${items.length} questions to ${oneLine(verb)} ${oneLine(resource)}s${where}`),
    el("p.quiet", "Each selected request is answered separately: exactly as asked, and once."),
    el("ul.plain", ...items.map(({ whole }) => whole)),
    wrong,
    line(no, yes, go("One by one", back)),
  );
  count();
  stir();
  return {
    place,
    show(state) {
      for (const { question, tick, end } of items) {
        if (end.textContent || state.questions.some((one) => one.tool_call.id === question)) continue;
        tick.disabled = true;
        say(end, "no longer open");
      }
      count();
    },
  };
}
