// Small user interface components of the test host.
import { h } from "../../lib/h.ts";
import type { Child } from "../../lib/h.ts";
import { marks } from "../../lib/patch.ts";
import { oneLine, visible } from "../../lib/visible.ts";

const MOST_TEXT = 200_000;

/** Text from a server or agent on one line, isolated from the surrounding text direction. */
export const said = (text: string, most = 300): HTMLElement => h("bdi", oneLine(text, most));

export const code = (text: string, most = 300, looks = ""): HTMLElement => h("code", { class: looks }, said(text, most));

export const notice = (text: string, kind = ""): HTMLElement => h(`p.notice ${kind}`, said(text, 1_000));

export const badge = (text: string, kind = ""): HTMLElement => h(`span.badge ${kind}`, said(text, 80));

export const row = (...children: Child[]): HTMLElement => h("div.row", ...children);

export const quiet = (...children: Child[]): HTMLElement => h("span.quiet", ...children);

const { content: SAYS } = document.querySelector("template") ?? document.createElement("template");

/** Text whose changes screen readers announce. */
export const live = (what: () => Child): HTMLElement => h("span.quiet", { "aria-live": "polite" }, what);

/** A copy of a message from the page's HTML. */
export const told = (name: string): Node | undefined => SAYS.querySelector(`.${name}`)?.cloneNode(true);

/** Creates a handler of typed or selected values. */
export const typing =
  (act: (now: string) => void) =>
  ({ target }: Event): void =>
    act((target as HTMLInputElement).value);

export const search = (label: string, placeholder: string, set: (words: string) => void): HTMLElement => {
  const oninput = typing((now) => set(now.toLowerCase()));
  return h("input", { type: "search", "aria-label": label, placeholder, oninput });
};

interface Pressed {
  readonly disabled?: () => boolean;
  readonly title?: string;
  readonly on?: () => boolean;
}

/** A button that reacts to trusted presses only. */
export const button = (label: Child, act: () => unknown, looks = "", { disabled, title, on }: Pressed = {}): HTMLButtonElement =>
  h(
    "button",
    {
      type: "button",
      class: looks,
      disabled,
      title,
      "aria-pressed": on && (() => String(on())),
      onclick: (event: Event) => event.isTrusted && void act(),
    },
    label,
  );

/** A group of buttons to choose one option. */
export const choice = <T extends string>(label: string, of: readonly T[], now: () => T, set: (value: T) => void): HTMLElement =>
  h(
    "label.pick",
    quiet(label),
    h(
      "select",
      {
        onchange: typing((now) => {
          const chosen = of.find((one) => one === now);
          if (chosen) set(chosen);
        }),
      },
      () => of.map((one) => h("option", { value: one, selected: one === now() }, oneLine(one, 60))),
    ),
  );

/** Preformatted text, optionally rendered as a diff. */
export function words(text: string, diff = false): HTMLElement {
  const lines = text.slice(0, MOST_TEXT).split("\n");
  const looks = diff ? marks(lines) : [];
  const more = text.length - MOST_TEXT;
  return h(
    "pre.words",
    { tabindex: 0 },
    diff ? lines.map((line, at) => h("span", { class: looks[at] }, `${visible(line)}\n`)) : visible(lines.join("\n")),
    more > 0 && `\n… ${more} characters more`,
  );
}
