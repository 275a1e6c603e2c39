// A block in, the elements of its prompt out, and how each shows what is chosen.
import { el, onPress, onTick } from "../../lib/dom.ts";
import { oneLine, visible } from "../../lib/visible.ts";
import type { Block } from "./block.ts";
import { TIMES } from "./choice.ts";
import type { Choice, Time } from "./choice.ts";

/** What a prompt changes later. */
export interface Shown {
  readonly preview: HTMLElement;
  readonly effect: HTMLElement;
  readonly sure: HTMLElement;
  readonly status: HTMLElement;
  readonly clock: HTMLElement;
  readonly yes: HTMLButtonElement;
  readonly no: HTMLButtonElement;
  /** Puts each control to what is chosen. */
  readonly controls: ((choice: Choice, open: boolean) => void)[];
}

export interface Acts {
  /** Takes up a change; without one, shows again what is chosen. */
  choose(change?: Partial<Choice>): void;
  answer(allows: boolean): void;
}

const TYPES = { read: "Wants to read", write: "Wants to change or run", all: "Wants to read and change" };
const TRUST = { own: "This host’s own tool", known: "Known to this host", unknown: "⚠ Unknown server" };
const box = (name: string, ...children: (Node | string | undefined)[]): HTMLElement => el("div", { class: name }, ...children);
const quoted = (text: string): HTMLElement => el("bdi", {}, visible(text));
const code = (text: string): HTMLElement => el("code", {}, quoted(text));
const isWhole = ({ out }: Choice): boolean => out.length === 0;

/** Every argument by its name; a text that is no object as it is. */
function inputs(params: string): HTMLElement {
  let value: unknown;
  try {
    value = JSON.parse(params);
  } catch {
    value = params;
  }
  const entries = Object.entries(typeof value === "object" && value !== null ? value : { "": value });
  const all = entries.map(([key, one]: [string, unknown]) => {
    const text = typeof one === "string" ? one : JSON.stringify(one, null, 1);
    return box("argument", code(key), el("pre", { tabindex: 0, "aria-label": oneLine(key) || "text" }, visible(text)));
  });
  return el("details", {}, el("summary", {}, `All arguments (${entries.length})`), ...all);
}

export function prompt({ content, tool_call: call, extra, bailiwick: own }: Block, acts: Acts): Shown & { all: Node[] } {
  const controls: Shown["controls"] = [];
  const tick = (
    words: string,
    is: (choice: Choice) => boolean,
    change: (on: boolean) => Partial<Choice>,
    may: (choice: Choice) => boolean = () => true,
    group?: string,
    beside?: Node,
  ): HTMLElement => {
    const input = el("input", { type: group ? "radio" : "checkbox", name: group });
    onTick(input, () => acts.choose(change(input.checked)));
    controls.push((choice, open) => {
      input.checked = is(choice);
      input.disabled = !open || !may(choice);
    });
    return el("label", {}, input, el("span", {}, words, beside));
  };
  const rungs = own?.rungs.slice(0, 5).map(({ patterns, covers, count }, rung) => {
    const means = el("small", {}, quoted(covers + (count === undefined ? "" : `; ${count} now`)));
    const beside = el("span", {}, ...patterns.map(code), means);
    return tick("", (choice) => choice.rung === rung, () => ({ rung }), (choice) => !rung || isWhole(choice), "rung", beside);
  });
  const number = el("input", { type: "number", min: 2, max: 1000, value: 10, "aria-label": "How many uses" });
  number.addEventListener("input", ({ isTrusted }) => {
    const uses = number.valueAsNumber;
    acts.choose(isTrusted && uses > 1 && number.checkValidity() ? { uses, time: "uses" } : undefined);
  });
  const longer: Time = own ? "session" : "agent";
  const times = [
    tick("Remember this choice", ({ time }) => time !== "once", (on) => ({ time: on ? longer : "once" }), isWhole),
    ...(own
      ? Object.entries(TIMES).filter(([time]) => !own.sensitive || time !== "agent").map(([name, words]) => {
          const time = name as Time;
          const may = (choice: Choice): boolean => time === "once" || isWhole(choice);
          const label = tick(words, (choice) => choice.time === time, () => ({ time }), may, "time");
          return time === "uses" ? box("line", label, number) : label;
        })
      : []),
    own && tick("Its sub-agents may, too", (choice) => choice.descendants, (descendants) => ({ descendants }), ({ time }) => time !== "once"),
  ];
  const note = el("textarea", { rows: 2, maxlength: 1000, "aria-label": "Note to the agent" });
  note.addEventListener("input", ({ isTrusted }) => acts.choose(isTrusted ? { note: note.value.trim() } : undefined));
  controls.push(({ out }, open) => {
    note.disabled = !open;
    number.disabled = !open || out.length > 0;
  });
  const path = [...(own?.agent ?? []), call.name].map((name) => oneLine(name)).join(" › ");
  const parts = {
    controls,
    preview: box("preview", own?.preview && "Finding out what it would do…"),
    effect: el("p", { class: "quiet", role: "status" }),
    sure: tick("This is more than a folder, or for good. I mean it.", ({ sure }) => sure, (sure) => ({ sure })),
    status: el("p", { class: "notice", role: "status" }),
    clock: el("span", { class: "quiet end" }),
    yes: onPress(el("button", { class: "primary", type: "button" }), () => acts.answer(true)),
    no: onPress(el("button", { type: "button" }), () => acts.answer(false)),
  };
  const group = (words: string, all: readonly (Node | undefined)[]): HTMLElement => el("fieldset", {}, el("legend", {}, words), ...all);
  const all = [
    box("line", el("b", { class: `badge ${extra.permissionType}` }, TYPES[extra.permissionType]), el("bdi", { title: path }, path), parts.clock),
    el("h2", { tabindex: -1 }, el("bdi", {}, oneLine(own?.intent ?? content))),
    box(
      "line",
      el("bdi", { title: oneLine(call.server_description) }, `${oneLine(call.server_icons, 8)} ${oneLine(call.server_name)}`),
      el("span", { class: "badge" }, TRUST[own?.trust ?? "unknown"]),
    ),
    own && box("line", "Needs", ...own.needs.map(code)),
    own?.protected.length ? el("p", { class: "notice warn" }, "Protected, so only exactly this can be allowed: ", ...own.protected.map(code)) : undefined,
    inputs(call.params),
    parts.preview,
    box("two", rungs && group("How much", rungs), group("How long", times)),
    parts.effect,
    parts.sure,
    el(
      "details",
      {},
      el("summary", {}, "Deny with a note, or for longer"),
      note,
      own && tick("For the rest of the session: do not ask me this again", ({ rest }) => rest, (rest) => ({ rest })),
    ),
    parts.status,
    box("line", parts.no, parts.yes),
  ];
  return { ...parts, all: all.filter((one) => one !== undefined) };
}
