// Keyed DOM patching that preserves focus and input, and ignores presses right after a change.
import { CALM, el, message, onPress, onTick } from "../../lib/dom.ts";
import type { Child } from "../../lib/dom.ts";
import { oneLine, visible } from "../../lib/visible.ts";
import type { State } from "./api.ts";

/** Time of the last change to the controls. */
let stirred = 0;

/** Ignores presses for the next `CALM` milliseconds. */
export function stir(): void {
  stirred = performance.now();
}

const isCalm = (): boolean => performance.now() - stirred >= CALM;

/** The child nodes by `data-key`, or by node name and position. */
function keyed(place: Node): ReadonlyMap<string, ChildNode> {
  const all = new Map<string, ChildNode>();
  for (const node of place.childNodes) {
    let key = (node as HTMLElement).dataset?.["key"] ?? node.nodeName;
    while (all.has(key)) key += "+";
    all.set(key, node);
  }
  return all;
}

/** Patches the children of `place` to match `wanted`, and reuses nodes with the same key. */
function mend(place: HTMLElement, wanted: HTMLElement): void {
  const is = keyed(place);
  const shall = keyed(wanted);
  for (const [key, node] of is) {
    if (shall.has(key)) continue;
    node.remove();
    stir();
  }
  let at = place.firstChild;
  for (const [key, node] of shall) {
    const kept = is.get(key) as HTMLElement | undefined;
    if (kept && kept === at) at = at.nextSibling;
    else {
      place.insertBefore(kept ?? node, at);
      stir();
    }
    if (kept instanceof Text) {
      if (kept.data === node.textContent) continue;
      kept.data = node.textContent ?? "";
      if (place.matches("button")) stir();
    } else if (kept) renewed(kept, node as HTMLElement);
  }
}

function renewed(kept: HTMLElement, wanted: HTMLElement): void {
  // Keep `open`, which a person may have toggled; typed input is not an attribute.
  for (const { name } of [...kept.attributes]) if (name !== "open" && !wanted.hasAttribute(name)) kept.removeAttribute(name);
  for (const { name, value } of wanted.attributes) if (kept.getAttribute(name) !== value) kept.setAttribute(name, value);
  kept.onclick = wanted.onclick;
  mend(kept, wanted);
}

/** Renders `children` into `place`. If the focused element is removed, `place` gets the focus. */
export function draw(place: HTMLElement, ...children: readonly Child[]): void {
  const inside = place.contains(document.activeElement);
  mend(place, el("div", ...children));
  if (!inside || place.contains(document.activeElement)) return;
  place.tabIndex = -1;
  place.focus();
}

export const code = (text: string): HTMLElement => el("code", el("bdi", visible(text)));
export const name = (text: string, most?: number): HTMLElement => el("bdi", oneLine(text, most));
export const line = (...children: readonly Child[]): HTMLElement => el("div.line", ...children);
export const clock = (at: number): string => new Date(at).toLocaleString();

/** A button that only affects this page, and so has no delay. */
export const go = (words: Child, act: () => void): HTMLElement => onPress(el("button", words), act);

/** A button that ignores presses right after a change. */
export function button(words: Child, act: (button: HTMLButtonElement) => void, attributes: Readonly<Record<string, string>> = {}): HTMLButtonElement {
  return onPress(el("button", attributes, words), (pressed) => {
    // Mark an early press on the button; the next accepted press removes the mark.
    if (isCalm()) {
      delete pressed.dataset["early"];
      act(pressed);
    } else pressed.dataset["early"] = "";
  });
}

/** A checkbox with a label. */
export const tick = (words: Child, act: (on: boolean) => void, attributes: object = {}): HTMLElement =>
  el("label", onTick(el("input", { type: "checkbox", ...attributes }), act), words);

/** A select element whose options `offer` sets; `label` names it if it has no visible label. */
export function select(change: () => void, options: Parameters<typeof offer>[1] = [], label?: string): HTMLSelectElement {
  const made = el("select", { "aria-label": label });
  made.onchange = change;
  offer(made, options);
  return made;
}

/** Sets the options of a select element and keeps the selected value if it still exists. */
export function offer(place: HTMLSelectElement, options: readonly (readonly [value: string, words: string])[]): void {
  draw(place, ...options.map(([value, words]) => el("option", { value, "data-key": value }, oneLine(words, 80))));
}

/** Sets the available hosts as options; hides the select element if there is only one. */
export function offerSources(place: HTMLSelectElement, sources: State["sources"]): void {
  offer(place, sources.map(({ run, server }) => [run, `${server} ${run.slice(0, 4)}`]));
  place.hidden = sources.length < 2;
}

/** An alert that shows an error. */
export const trouble = (error: unknown): HTMLElement => el("p.notice bad", { role: "alert" }, oneLine(message(error), 400));

/** Returns an error handler that shows the error in `place`. */
export const failed = (place: HTMLElement) => (error: unknown): void => draw(place, trouble(error));
