// Elements in, the same kept up to date without taking the place where a person is out.
import { el, onPress } from "../../lib/dom.ts";
import { oneLine, visible } from "../../lib/visible.ts";
import type { State } from "./api.ts";

export const code = (text: string): HTMLElement => el("code", {}, el("bdi", {}, visible(text)));
export const line = (...children: (Node | string | undefined)[]): HTMLElement => el("div", { class: "line" }, ...children);
const span = (looks: string) => (words: string): HTMLElement => el("span", { class: looks }, words);
export const badge = span("badge");
export const quiet = span("quiet");
export const clock = (at: number): string => new Date(at).toLocaleString();

/** A button; `key` names it among those that are shown anew. */
export function button(words: string, act: () => void, key?: string): HTMLButtonElement {
  return onPress(el("button", { type: "button", "data-key": key ?? oneLine(words) }), act).appendChild(
    document.createTextNode(words),
  ).parentElement as HTMLButtonElement;
}

/** Shows `children` instead of what was there; whoever stood on something stays on what is named alike. */
export function renew(place: HTMLElement, ...children: (Node | string | undefined)[]): void {
  const key = place.contains(document.activeElement) ? (document.activeElement as HTMLElement).dataset["key"] : undefined;
  place.replaceChildren(...children.filter((child) => child !== undefined));
  if (key === undefined) return;
  const again = [...place.querySelectorAll<HTMLElement>("[data-key]")].find((one) => one.dataset["key"] === key);
  (again ?? place).focus();
}

/** A choice of one of `options`, each a value and its words. */
export function select(label: string, options: readonly (readonly [string, string])[], change: () => void): HTMLSelectElement {
  const made = el("select", { "aria-label": label }, ...options.map(([value, words]) => el("option", { value }, words)));
  made.addEventListener("change", change);
  return made;
}

/** Puts other options into a choice; what was chosen stays if it is still there. */
export function offer(place: HTMLSelectElement, options: readonly (readonly [string, string])[]): void {
  const chosen = place.value;
  place.replaceChildren(...options.map(([value, words]) => el("option", { value }, oneLine(words, 80))));
  place.value = options.some(([value]) => value === chosen) ? chosen : (options[0]?.[0] ?? "");
}

/** Puts the hosts that can be meant into a choice, which is there if there are several. */
export function offerSources(place: HTMLSelectElement, sources: State["sources"]): void {
  offer(place, sources.map(({ run, server }) => [run, server === "" ? run : `${server} ${run.slice(0, 4)}`]));
  place.hidden = sources.length < 2;
}

/** A region for what went wrong. */
export function trouble(error: unknown): HTMLElement {
  return el("p", { class: "notice bad", role: "alert" }, oneLine(error instanceof Error ? error.message : String(error), 400));
}

/** Shows in `place` what went wrong. */
export const failed = (place: HTMLElement) => (error: unknown): void => renew(place, trouble(error));
