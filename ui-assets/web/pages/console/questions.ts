// What waits for a word in, one prompt at a time out, or several of a kind together.
import type { PermissionPrompt } from "../../components/permission-prompt/index.ts";
import { el } from "../../lib/dom.ts";
import { anything, maybe, number, object, text } from "../../lib/parse.ts";
import { oneLine } from "../../lib/visible.ts";
import { host, review, standing } from "./api.ts";
import type { Question, State } from "./api.ts";
import { together } from "./batch.ts";
import { rows } from "./rows.ts";
import { button, code, failed, line, renew, trouble } from "./shown.ts";

const suggested = object({
  suggestion: maybe(object({ run: text, agent: text, pattern: text, spares: number, holder: anything, lifetime: anything })),
});
/** After how many allowed questions of a session a rule may be suggested. */
const OFTEN = 3;

export function questions(): { place: HTMLElement; show(state: State): void } {
  const above = el("div", { class: "chips" });
  const middle = el("div", {});
  const below = el("div", {});
  const place = el("section", { tabindex: -1, "aria-label": "Questions" }, above, middle, below);
  let state: State | undefined;
  let shown: Question | undefined;
  let prompt: PermissionPrompt | undefined;
  /** Those that a person wants to see together. */
  let batch: ReturnType<typeof together> | undefined;
  /** Those that were answered here, and those to be looked at later. */
  const said = new Set<string>();
  const later = new Set<string>();
  const id = (question: Question): string => question.tool_call.id;
  const waiting = (): readonly Question[] => {
    const open = state?.questions.filter((one) => !said.has(id(one))) ?? [];
    return [...open.filter((one) => !later.has(id(one))), ...open.filter((one) => later.has(id(one)))];
  };

  const preview = async (question: Question, into: PermissionPrompt): Promise<void> => {
    const own = question.bailiwick;
    if (own.preview === undefined) return;
    try {
      const { changes } = await host(review, `review/${id(question)}`);
      into.view = rows(changes, own.divisible ? (out) => (into.leftOut = out) : undefined);
      into.settled = true;
    } catch (error) {
      const again = button("Try again", () => void preview(question, into));
      into.view = el("div", {}, trouble(error), el("p", {}, "What it would do cannot be shown, so it cannot be allowed here. ", again));
    }
  };

  const answer = async (question: Question, asked: PermissionPrompt, word: unknown): Promise<void> => {
    const { session, run, agent, worker } = question.bailiwick;
    try {
      const stands = await host(standing, "answer", { question: id(question), session, answer: word });
      said.add(id(question));
      asked.block = ended(question, stands);
      const allowed = state?.tallies.find((one) => one.session === session)?.allowed ?? 0;
      if (stands.status === "granted" && allowed + 1 >= OFTEN) void suggest({ run, agent: agent.join("/"), session, worker });
      // What was said here needs no more looking at; what somebody else said does.
      if (asked.matches(`[data-status="${Object.hasOwn(word as object, "allow") ? "granted" : "denied"}"]`)) next();
      else over();
    } catch (error) {
      asked.failed(error instanceof Error ? error.message : String(error));
    }
  };

  const suggest = async (about: { run: string; agent: string; session: string; worker: number }): Promise<void> => {
    const { suggestion } = await host(suggested, "suggestions", about).catch(() => ({ suggestion: undefined }));
    if (suggestion === undefined) return;
    const { run, pattern, holder, lifetime } = suggestion;
    const give = (): void => {
      host(anything, "grant", { run, pattern, holder, lifetime, descendants: false }).then(() => renew(below), failed(below));
    };
    const words = `You allowed ${suggestion.spares} questions like this. Allow ${oneLine(suggestion.agent)} for the rest of this session, without asking:`;
    renew(below, el("div", { class: "notice" }, el("p", {}, words, " ", code(pattern)), line(button("Add this rule", give), button("Keep asking", () => renew(below)))));
  };

  const next = (): void => {
    const inside = prompt?.contains(document.activeElement);
    shown = undefined;
    update();
    if (inside) (prompt?.querySelector("h2") ?? place).focus();
  };
  const over = (): void => {
    const go = button("Go on", next);
    if (prompt?.nextSibling === null) prompt.after(line(go));
  };

  const ended = (question: Question, { status, granted }: { status?: string | undefined; granted?: readonly string[] | undefined }): unknown => {
    const raw = object({ extra: object({}) })(question.raw, "question");
    const extra = { ...(question.raw as { extra: object }).extra, needsUserAction: false, grantedPermissions: granted };
    return { ...(question.raw as object), ...(raw && { extra }), status };
  };

  const put = (question: Question): void => {
    shown = question;
    const asked = document.createElement("permission-prompt");
    prompt = asked;
    for (const word of ["granted", "denied"]) {
      asked.addEventListener(`permission-${word}`, (event) => {
        if (event instanceof CustomEvent) void answer(question, asked, (event.detail as { answer: unknown }).answer);
      });
    }
    asked.block = question.raw;
    middle.replaceChildren(asked);
    void preview(question, asked);
  };

  const chips = (): void => {
    if (!state || !shown) return renew(above);
    const open = waiting();
    const current = shown;
    const more = open.filter((one) => id(one) !== id(current)).length;
    const skip = (): void => {
      later.delete(id(current));
      later.add(id(current));
      next();
    };
    const kind = state.batches.find((one) => one.questions.filter((name) => open.some((question) => id(question) === name)).length > 1);
    const tally = state.tallies.find((one) => one.session === current.bailiwick.session);
    renew(
      above,
      more > 0 ? button(`${more} more waiting: next`, skip, "next") : undefined,
      kind && button(`Look at ${kind.questions.length} of a kind together`, () => {
        batch = together(kind, () => {
          batch = undefined;
          shown = undefined;
          update();
        });
        update();
      }, "together"),
      tally && el("span", { class: "quiet" }, `In this session you allowed ${tally.allowed} of ${tally.allowed + tally.denied}.`),
    );
  };

  const update = (): void => {
    if (!state) return;
    if (batch) {
      renew(above);
      if (!middle.contains(batch.place)) middle.replaceChildren(batch.place);
      return batch.show(state);
    }
    const current = shown;
    if (current && !state.questions.some((one) => id(one) === id(current)) && !said.has(id(current))) {
      const asked = prompt;
      host(standing, `question/${id(current)}`).then(
        (stands) => {
          if (!asked || asked !== prompt || stands.status === "pending") return;
          asked.block = ended(current, stands);
          over();
        },
        () => undefined,
      );
    }
    const first = waiting()[0];
    if (!shown && first) put(first);
    else if (!shown) renew(middle, el("p", { class: "empty" }, "Nothing waits for an answer. Agents go on with what is allowed."));
    chips();
  };

  return {
    place,
    show(next) {
      state = next;
      update();
    },
  };
}
