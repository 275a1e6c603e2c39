// Builds the elements of a permission prompt and updates them when the choice changes.
import { el, onPress, onTick } from "../../lib/dom.ts";
import type { Child } from "../../lib/dom.ts";
import { oneLine, visible } from "../../lib/visible.ts";
import type { Block } from "./block.ts";
import { TIMES } from "./choice.ts";
import type { Choice, Time } from "./choice.ts";

/** The elements of a prompt that change later. */
export interface Shown {
  readonly preview: HTMLElement;
  readonly effect: HTMLElement;
  readonly sure: HTMLElement;
  readonly status: HTMLElement;
  readonly clock: HTMLElement;
  readonly yes: HTMLButtonElement;
  readonly no: HTMLButtonElement;
  /** Update each control to the current choice. */
  readonly controls: ((choice: Choice, open: boolean) => void)[];
}

const TYPES = { read: "Wants to read", write: "Wants to change or run", all: "Wants to read and change" };
const TRUST = { own: "This host’s own tool", known: "Known to this host", unknown: "⚠ Unknown server" };
const line = (...children: Child[]): HTMLElement => el("div.line", ...children);
const code = (text: string): HTMLElement => el("code", el("bdi", visible(text)));
const isWhole = ({ out }: Choice): boolean => !out.length;

/** Lists the arguments by name; arguments that are not a JSON object are shown as text. */
function inputs(params: string, whole: number | undefined): HTMLElement {
  let value: unknown = params;
  try {
    value = JSON.parse(params);
  } catch {
    // Not JSON: show the text unchanged.
  }
  const entries = Object.entries(Object(value) === value ? (value as object) : { "": value });
  const all = entries.map(([key, one]: [string, unknown]) => {
    const text = typeof one === "string" ? one : JSON.stringify(one, null, 1);
    return el("div.argument", code(key), el("pre", { tabindex: 0, "aria-label": oneLine(key) || "text" }, visible(text)));
  });
  const words = whole ? `The first ${params.length} characters of the arguments (${whole} bytes)` : `All arguments (${entries.length})`;
  return el("details", el("summary", words), ...all);
}

/** `choose` applies a change; without an argument it resets the controls to the current choice. */
export function prompt(
  { content, tool_call: call, extra, bailiwick: own }: Block,
  choose: (change: Partial<Choice> | false) => void,
  answer: (allows: boolean) => void,
): Shown & { all: Child[] } {
  const controls: Shown["controls"] = [];
  /** A checkbox that sets `key` to `on` or `off`; without `off`, a radio button. */
  const tick = <K extends keyof Choice>(words: Child, key: K, on: Choice[K], off?: Choice[K], may?: (choice: Choice) => boolean): HTMLElement => {
    const one = off === undefined;
    const input = el("input", { type: one ? "radio" : "checkbox", name: one && key });
    onTick(input, (ticked) => choose({ [key]: ticked ? on : off }));
    controls.push((choice, open) => {
      input.checked = one ? choice[key] === on : choice[key] !== off;
      input.disabled = !open || may?.(choice) === false;
    });
    return el("label", input, el("span", words));
  };
  const rungs = own?.rungs.slice(0, 5).map(({ patterns, covers, count }, rung) => {
    const means = el("small", el("bdi", visible(covers + (count === undefined ? "" : `; ${count} now`))));
    return tick(el("span", ...patterns.map(code), means), "rung", rung, undefined, rung ? isWhole : undefined);
  });
  const number = el("input", { type: "number", min: 2, max: 1000, value: 10, "aria-label": "How many uses" });
  number.oninput = ({ isTrusted }) => {
    const uses = number.valueAsNumber;
    choose(isTrusted && uses > 1 && number.checkValidity() && { uses, time: "uses" });
  };
  const times = [
    tick("Remember this choice", "time", own ? "session" : "agent", "once", isWhole),
    ...Object.entries(own ? TIMES : {}).map(([name, words]) => {
      const time = name as Time;
      if (own?.sensitive && time === "agent") return;
      if (time === "waiting" && (own?.waiting ?? 1) < 2) return;
      const label = tick(words, "time", time, undefined, time === "once" || time === "waiting" ? undefined : isWhole);
      return time === "uses" ? line(label, number) : label;
    }),
    own && tick("Its sub-agents may, too", "descendants", true, false, ({ time }) => time !== "once" && time !== "waiting"),
  ];
  const note = el("textarea", { rows: 2, maxlength: 1000, "aria-label": "Note to the agent" });
  note.oninput = ({ isTrusted }) => choose(isTrusted && { note: note.value.trim() });
  controls.push((choice, open) => {
    note.disabled = !open;
    number.disabled = !open || !isWhole(choice);
  });
  const path = [...(own?.agent ?? []), call.name].map((name) => oneLine(name)).join(" › ");
  const parts = {
    controls,
    preview: el("div.preview", own?.preview && "Loading preview…"),
    effect: el("p.quiet", { role: "status" }),
    sure: tick("I understand this grants broad or permanent access.", "sure", true, false),
    status: el("p.notice", { role: "status" }),
    clock: el("span.quiet end"),
    yes: onPress(el("button.primary"), () => answer(true)),
    no: onPress(el("button"), () => answer(false)),
  };
  const group = (words: string, all: readonly Child[]): HTMLElement => el("fieldset", el("legend", words), ...all);
  const all = [
    line(el(`b.badge ${extra.permissionType}`, TYPES[extra.permissionType]), el("bdi", { title: path }, path), parts.clock),
    el("h2", { tabindex: -1 }, el("bdi", oneLine(own?.intent ?? content))),
    line(
      el("bdi", { title: oneLine(call.server_description) }, `${oneLine(call.server_icons, 8)} ${oneLine(call.server_name)}`),
      el("span.badge", TRUST[own?.trust ?? "unknown"]),
    ),
    own && el("div", "Needs", el("ul.needs", ...own.needs.map((need) => el("li", code(need))))),
    own?.protected.length && el("p.notice warn", "Protected, so only exactly this can be allowed: ", ...own.protected.map(code)),
    (own?.waiting ?? 1) > 1 && el("p.notice", `${own?.waiting} equal calls wait; “once” lets one of them through.`),
    inputs(call.params, own?.arguments_bytes),
    parts.preview,
    el("div.two", rungs && group("How much", rungs), group("How long", times)),
    parts.effect,
    parts.sure,
    el(
      "details",
      el("summary", "Deny with a note, or for longer"),
      note,
      own && tick("For the rest of the session, do not ask again", "rest", true, false),
    ),
    parts.status,
    line(parts.no, parts.yes),
  ];
  return { ...parts, all };
}
