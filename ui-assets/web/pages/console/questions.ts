// Questions tab: shows one pending question at a time, or a batch of similar ones.
import type { PermissionPrompt } from "../../components/permission-prompt/index.ts";
import { el, message, say } from "../../lib/dom.ts";
import { oneLine, visible } from "../../lib/visible.ts";
import { host } from "./api.ts";
import type { Question, Review, Standing, State, Suggested } from "./api.ts";
import { together } from "./batch.ts";
import { rows } from "./rows.ts";
import { button, code, draw, failed, go, line, trouble } from "./shown.ts";

const id = (question: Question): string => question.tool_call.id;

/** Renders the pending questions into `place`; returns a function that updates them. */
export function questions(place: HTMLElement): (state: State) => void {
  const ear = el("p.seen-by-ear", { role: "status" });
  const above = el("div.chips");
  const middle = el("div");
  const below = el("div");
  place.append(ear, above, middle, below);
  let state: State | undefined;
  let shown: Question | undefined;
  let prompt: PermissionPrompt | undefined;
  /** The open batch view, if any. */
  let batch: ReturnType<typeof together> | undefined;
  /** Ids of the questions answered on this page, and of the skipped ones in order. */
  const said = new Set<string>();
  const later = new Set<string>();
  const waiting = (): readonly Question[] => {
    const order = [...later];
    const open = state?.questions.filter((one) => !said.has(id(one))) ?? [];
    return open.sort((a, b) => order.indexOf(id(a)) - order.indexOf(id(b)));
  };

  const preview = async (question: Question, into: PermissionPrompt): Promise<void> => {
    const own = question.bailiwick;
    if (!own.preview) return;
    try {
      const { changes } = await host<Review>(`review/${id(question)}`);
      into.view = rows(changes, own.divisible && ((out) => (into.leftOut = out)));
      into.settled = true;
    } catch (error) {
      const again = go("Try again", () => void preview(question, into));
      into.view = el("div", trouble(error), el("p", "No preview is available, so it cannot be allowed here. ", again));
    }
  };

  const answer = async (question: Question, asked: PermissionPrompt, word: object): Promise<void> => {
    const { session, run, agent, worker } = question.bailiwick;
    try {
      const stands = await host<Standing>("answer", { question: id(question), session, answer: word });
      said.add(id(question));
      asked.block = ended(question, stands);
      if (stands.status === "granted") void suggest({ run, agent: agent.join("/"), session, worker });
      // Move on if the person's own answer took effect; otherwise keep showing what somebody else decided.
      if (stands.status === ("allow" in word ? "granted" : "denied")) next();
      else over();
    } catch (error) {
      asked.failed(message(error));
    }
  };

  /** Offers a rule that would avoid similar questions, if the host suggests one. */
  const suggest = async (about: object): Promise<void> => {
    const { suggestion } = await host<Suggested>("suggestions", about).catch(() => ({ suggestion: null }));
    if (!suggestion) return;
    const { agent, covers, spares, ...rule } = suggestion;
    const words = `You allowed ${spares} questions like this. Allow ${oneLine(agent)} for the rest of this session, without asking, to ${oneLine(covers, 400)}: `;
    const give = (): void => void host("grant", rule).then(() => draw(below), failed(below));
    draw(below, el("div.notice", { "data-key": agent + rule.pattern }, el("p", words, code(rule.pattern)), line(button("Add this rule", give), go("Keep asking", () => draw(below)))));
  };

  const next = (): void => {
    const inside = middle.contains(document.activeElement);
    shown = undefined;
    update();
    if (inside) (middle.querySelector("h2") ?? place).focus();
  };
  const over = (): void => {
    if (!middle.querySelector("[data-key=over]")) {
      const on = go("Next", next);
      on.dataset["key"] = "over";
      middle.append(on);
    }
  };
  const ended = (question: Question, { status, granted }: Standing): object => ({
    ...question,
    status,
    extra: { ...question.extra, grantedPermissions: granted },
  });

  const put = (question: Question): void => {
    shown = question;
    const asked = document.createElement("permission-prompt");
    prompt = asked;
    for (const word of ["granted", "denied"]) {
      asked.addEventListener(`permission-${word}`, (event) => void answer(question, asked, (event as CustomEvent<{ answer: object }>).detail.answer));
    }
    asked.block = question;
    const { arguments_bytes: bytes } = question.bailiwick;
    const whole = el("div");
    const load = (): void =>
      void host<{ readonly arguments: string }>(`arguments/${id(question)}`).then(
        (all) => draw(whole, el("pre", { tabindex: 0, "aria-label": "All arguments" }, visible(all.arguments))),
        failed(whole),
      );
    if (bytes !== null) whole.append(go(`Show all arguments (${bytes} bytes)`, load));
    middle.replaceChildren(asked, whole);
    void preview(question, asked);
  };

  const chips = (current: Question, open: readonly Question[]): void => {
    const more = open.filter((one) => id(one) !== id(current)).length + (state?.omitted.questions ?? 0);
    // Calls of third-party servers, and calls without a preview, are never batched.
    const alike = state?.batches.map((kind) => [kind, open.filter((one) => kind.questions.includes(id(one)) && one.bailiwick.trust === "own" && one.bailiwick.preview)] as const);
    const [kind, several] = alike?.find(([, of]) => of.length > 1) ?? [];
    const tally = state?.tallies.find((one) => one.session === current.bailiwick.session);
    draw(
      above,
      more && button(el("span", `${more} more waiting: next`), () => {
        later.delete(id(current));
        later.add(id(current));
        next();
      }, { "data-key": "next" }),
      kind && button(el("span", `Review ${several?.length} similar requests`), () => {
        batch = together(kind, several ?? [], () => {
          batch = undefined;
          next();
        });
        shown = undefined;
        middle.replaceChildren(batch.place);
        update();
      }),
      tally && el("span.quiet", `In this session you allowed ${tally.allowed} of ${tally.allowed + tally.denied}.`),
    );
  };

  const update = (): void => {
    if (!state) return;
    const open = waiting();
    if (batch) {
      draw(above);
      return batch.show(state);
    }
    const current = shown;
    const asked = prompt;
    if (current && !said.has(id(current)) && !open.some((one) => id(one) === id(current)) && asked?.dataset["status"] === "pending") {
      host<Standing>(`question/${id(current)}`).then(
        (stands) => {
          if (asked !== prompt || stands.status === "pending") return;
          asked.block = ended(current, stands);
          over();
        },
        () => undefined,
      );
    }
    const [first] = open;
    if (!shown && first) put(first);
    if (shown) chips(shown, open);
    else {
      draw(above);
      middle.replaceChildren(el("p.empty", "No pending requests."));
    }
    say(ear, shown ? `${open.length + state.omitted.questions} waiting. ${oneLine(shown.bailiwick.intent)}` : "");
  };

  return (now) => {
    state = now;
    update();
  };
}
