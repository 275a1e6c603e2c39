// Questions of one kind in, a list to tick and one press for what is ticked out.
import { el, onTick } from "../../lib/dom.ts";
import { list, object } from "../../lib/parse.ts";
import { oneLine } from "../../lib/visible.ts";
import { host, review, standing } from "./api.ts";
import type { Question, State } from "./api.ts";
import { rows } from "./rows.ts";
import { button, code, failed, line, trouble } from "./shown.ts";

const told = object({ answers: list(standing) });
/** As long as a prompt, this stands still before anything counts. */
const CALM = 700;

export function together(batch: State["batches"][number], back: () => void): { place: HTMLElement; show(state: State): void } {
  const began = performance.now();
  const items = new Map<string, { question: Question; tick: HTMLInputElement; whole: HTMLElement; end: HTMLElement }>();
  const where = batch.folder === undefined ? "" : ` beneath ${oneLine(batch.folder)}`;
  const found = el("ul", { class: "plain" });
  const wrong = el("div", {});
  const yes = button("", () => answer(true), "yes");
  const no = button("", () => answer(false), "no");
  yes.classList.add("primary");
  const place = el(
    "div",
    { class: "card" },
    el("h2", { tabindex: -1 }, `${batch.questions.length} questions to ${oneLine(batch.verb)} ${oneLine(batch.resource)}s${where}`),
    el("p", { class: "quiet" }, "Each is answered by itself: what is ticked, exactly as asked, and once."),
    found,
    wrong,
    line(no, yes, button("One by one", back)),
  );

  const ticked = (): string[] => [...items].filter(([, { tick }]) => tick.checked && !tick.disabled).map(([id]) => id);
  const count = (): void => {
    const { length } = ticked();
    yes.textContent = `Allow ${length} ticked, once`;
    no.textContent = `Deny ${length} ticked, once`;
    yes.disabled = no.disabled = length === 0;
  };

  const answer = (allows: boolean): void => {
    if (performance.now() - began < CALM) return;
    const word = allows ? { allow: { lifetime: "once" } } : { deny: {} };
    const answers = ticked().flatMap((id) => {
      const item = items.get(id);
      if (item) item.tick.disabled = true;
      return item ? [{ question: id, session: item.question.bailiwick.session, answer: word }] : [];
    });
    count();
    host(told, "answer-batch", { answers }).then(
      (came) => {
        for (const one of came.answers) end(one.question, one.status ?? one.message ?? "");
      },
      failed(wrong),
    );
  };

  const end = (id: string, words: string): void => {
    const item = items.get(id);
    if (!item) return;
    item.tick.disabled = true;
    item.end.textContent = oneLine(words);
    count();
  };

  const add = (question: Question): void => {
    const { agent, intent, needs, preview } = question.bailiwick;
    const id = question.tool_call.id;
    const tick = onTick(el("input", { type: "checkbox", disabled: true }), () => count());
    const what = el("div", {});
    const state = el("span", { class: "quiet" });
    const whole = el(
      "li",
      {},
      el("label", {}, tick, el("span", {}, el("bdi", {}, oneLine(intent)), " ", el("bdi", { class: "quiet" }, oneLine([...agent, question.tool_call.name].join(" › "), 120)))),
      line(...needs.map(code), state),
      what,
    );
    items.set(id, { question, tick, whole, end: state });
    found.append(whole);
    if (!preview) {
      tick.disabled = false;
      return;
    }
    host(review, `review/${id}`).then(
      ({ changes }) => {
        what.append(el("details", {}, el("summary", {}, `What it would do: +${preview.added} −${preview.removed}`), rows(changes)));
        tick.disabled = false;
      },
      (error: unknown) => what.append(trouble(error)),
    );
  };

  return {
    place,
    show(state) {
      const open = new Set(state.questions.map((one) => one.tool_call.id));
      for (const one of state.questions) {
        if (batch.questions.includes(one.tool_call.id) && !items.has(one.tool_call.id)) add(one);
      }
      for (const [id, item] of items) {
        if (!open.has(id) && !item.tick.disabled) end(id, "no longer open");
      }
      count();
    },
  };
}
