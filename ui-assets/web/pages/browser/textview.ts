// Virtualized text view with line numbers and line selection.
import { h, set } from "../../lib/h.ts";
import { marks } from "../../lib/patch.ts";
import { effect, memo, signal, untracked } from "../../lib/signals.ts";
import { visible } from "../../lib/visible.ts";
import { selection } from "./browser.ts";
import { type Doc, docVersion, need } from "./document.ts";
import { isOther, stepped } from "./tree.ts";
import { windowed } from "./window.ts";

const HEIGHT = 20;
/** Number of characters shown per line at first. */
const LINE = 2000;
// Browsers limit the height of elements.
const MOST_LINES = 1_500_000;

export function textView(shown: Doc): HTMLElement {
  const at = signal(0);
  const whole = signal<ReadonlySet<number>>(new Set());
  const count = memo(() => (docVersion(), Math.min(MOST_LINES, shown.total + Number(shown.open))));
  const digits = memo(() => String(count()).length);
  const tones = shown.kind === "diff" ? marks([...shown.lines.values()]) : [];

  const open = (line: number): void => whole(new Set([...whole(), line]));

  function choose(line: number, extend: boolean): void {
    const now = selection();
    const far = extend && now ? (now.from === at() ? now.to : now.from) : line;
    at(line);
    selection({ from: Math.min(far, line), to: Math.max(far, line) });
  }

  function key(event: KeyboardEvent): void {
    if (isOther(event)) return;
    const next = stepped(event.key, at() - 1, count(), sight.page());
    if (next !== undefined) {
      choose(next + 1, event.shiftKey);
      sight.reveal(next);
    } else if (event.key === "Escape") selection(undefined);
    else if (event.key === "Enter") open(at());
    else return;
    event.preventDefault();
  }

  function content(number: number): readonly (Node | string)[] {
    docVersion();
    const line = shown.lines.get(number);
    if (line === undefined) return ["…"];
    const rest = whole().has(number) ? 0 : line.length - LINE;
    if (rest <= 0) return [visible(line)];
    return [visible(line.slice(0, LINE)), h("span.rest", { onclick: () => open(number) }, `… ${rest.toLocaleString()} more characters`)];
  }

  const list = h("div.text", {
    role: "listbox",
    "aria-multiselectable": "true",
    tabindex: 0,
    "aria-label": "Lines; arrows move, Shift selects more, Enter shows all of a line",
    onkeydown: key,
  });
  const sight = windowed<number>(list, {
    height: HEIGHT,
    count,
    at: (n) => n + 1,
    width: () => Math.min((docVersion(), shown.longest), whole().size > 0 ? Infinity : LINE + 30) + digits() + 4,
    row: (number) =>
      h(
        "div",
        {
          role: "option",
          id: `line-${number}`,
          "aria-posinset": number,
          "aria-setsize": count,
          "aria-selected": () => {
            const now = selection();
            return String(!!now && number >= now.from && number <= now.to);
          },
          class: () => `line ${tones[number - 1] ?? ""} ${at() === number ? "here" : ""}`,
        },
        h("span.number", { style: () => `width:${digits() + 2}ch`, onclick: (event: MouseEvent) => choose(number, event.shiftKey) },
          String(number),
        ),
        h("bdi", () => content(number)),
      ),
  });
  effect(() => set(list, "aria-activedescendant", at() > sight.first() && at() <= sight.last() ? `line-${at()}` : undefined));
  effect(() => {
    docVersion();
    const [first, last] = [sight.first() + 1, sight.last()];
    untracked(() => void need(first, last));
  });
  // Scroll to a selection that was set elsewhere.
  effect(() => {
    const now = selection();
    const here = untracked<number>(at);
    if (!now || (here >= now.from && here <= now.to)) return;
    at(now.from);
    // Wait for the layout, which determines the height.
    requestAnimationFrame(() => {
      sight.reveal(Math.min(count(), now.from + 8) - 1);
      sight.reveal(Math.max(0, now.from - 4));
    });
  });
  return list;
}
