// Elements in, the same kept up to date in place out: what a person is at stays where and what it is.
import { CALM, el, message, onPress, onTick } from "../../lib/dom.ts";
import type { Child } from "../../lib/dom.ts";
import { oneLine, visible } from "../../lib/visible.ts";
import type { State } from "./api.ts";

/** When something that can be pressed came, went, moved or began to mean another thing. */
let stirred = 0;

/** From now on nothing counts for a while. */
export function stir(): void {
  stirred = performance.now();
}

const isCalm = (): boolean => performance.now() - stirred >= CALM;

/** The nodes in a place by their keys; those without one by what they are and the how manieth of that. */
function keyed(place: Node): ReadonlyMap<string, ChildNode> {
  const all = new Map<string, ChildNode>();
  for (const node of place.childNodes) {
    let key = (node as HTMLElement).dataset?.["key"] ?? node.nodeName;
    while (all.has(key)) key += "+";
    all.set(key, node);
  }
  return all;
}

/** Makes `place` hold what `wanted` holds, of the nodes that are there as far as they are the same. */
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
  // What a person opened stays open; what they typed is no attribute.
  for (const { name } of [...kept.attributes]) if (name !== "open" && !wanted.hasAttribute(name)) kept.removeAttribute(name);
  for (const { name, value } of wanted.attributes) if (kept.getAttribute(name) !== value) kept.setAttribute(name, value);
  kept.onclick = wanted.onclick;
  mend(kept, wanted);
}

/** Shows `children` in `place`. Whoever stood on something that is gone stands on the place. */
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

/** A button for what changes nothing but this page. */
export const go = (words: Child, act: () => void): HTMLElement => onPress(el("button", words), act);

/** A button for what stands still. */
export function button(words: Child, act: (button: HTMLButtonElement) => void, attributes: Readonly<Record<string, string>> = {}): HTMLButtonElement {
  return onPress(el("button", attributes, words), (pressed) => {
    // A press that came too soon is marked on the button, which the next one takes away.
    if (isCalm()) {
      delete pressed.dataset["early"];
      act(pressed);
    } else pressed.dataset["early"] = "";
  });
}

/** A tick with its words beside. */
export const tick = (words: Child, act: (on: boolean) => void, attributes: object = {}): HTMLElement =>
  el("label", onTick(el("input", { type: "checkbox", ...attributes }), act), words);

/** A choice of one of some, which `offer` puts there; it has a name for those that have none beside. */
export function select(change: () => void, options: Parameters<typeof offer>[1] = [], label?: string): HTMLSelectElement {
  const made = el("select", { "aria-label": label });
  made.onchange = change;
  offer(made, options);
  return made;
}

/** Puts other options, each a value and its words, into a choice; what was chosen stays if it is still there. */
export function offer(place: HTMLSelectElement, options: readonly (readonly [value: string, words: string])[]): void {
  draw(place, ...options.map(([value, words]) => el("option", { value, "data-key": value }, oneLine(words, 80))));
}

/** Puts the hosts that can be meant into a choice, which is there if there are several. */
export function offerSources(place: HTMLSelectElement, sources: State["sources"]): void {
  offer(place, sources.map(({ run, server }) => [run, `${server} ${run.slice(0, 4)}`]));
  place.hidden = sources.length < 2;
}

/** A region for what went wrong. */
export const trouble = (error: unknown): HTMLElement => el("p.notice bad", { role: "alert" }, oneLine(message(error), 400));

/** Shows in `place` what went wrong. */
export const failed = (place: HTMLElement) => (error: unknown): void => draw(place, trouble(error));
