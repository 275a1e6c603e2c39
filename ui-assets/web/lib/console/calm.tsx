// Buttons that ignore presses right after the page changed, and a focus that survives changes.
import type { ButtonHTMLAttributes, ComponentChildren } from "preact";

import { CALM } from "../calm.ts";
import { local } from "../component.ts";
import { Button } from "../ui.tsx";

/** Time of the last change of the layout or of a button. */
let changed = 0;

/**
 * Parts whose changes move no button: lines of a diff, rows of a list, live calls and agents, and the prompt, which has a
 * delay of its own.
 */
const APART = "permission-prompt, .rows, .row, .live";

const element = (node: Node): Element | null => (node instanceof Element ? node : node.parentElement);

/**
 * Watches for changes within `place` after which presses are ignored. If the focused element is removed, the section
 * gets the focus.
 */
export function watchLayout(place: HTMLElement): void {
  let focused: Element | undefined;
  place.addEventListener("focusin", ({ target }) => (focused = target as Element));
  const moves = ({ type, target }: MutationRecord): boolean => !element(target)?.closest(".undo, " + APART)?.matches(APART) && (type === "childList" || !!element(target)?.closest("button"));
  new MutationObserver((records) => {
    if (records.some(moves)) changed = performance.now();
    if (focused?.isConnected === false && document.activeElement === document.body) place.querySelector("section")?.focus();
  }).observe(place, { childList: true, characterData: true, subtree: true });
}

interface CalmButtonProps extends Omit<ButtonHTMLAttributes<HTMLButtonElement>, "onClick"> {
  readonly press: (event: MouseEvent) => void;
  readonly children: ComponentChildren;
}

/** A button that ignores presses right after a change. */
export function CalmButton({ press, ...rest }: CalmButtonProps) {
  const isEarly = local(false);
  return (
    <Button
      {...rest}
      data-early={isEarly.value ? "" : undefined}
      press={(event) => {
        // Mark an early press on the button; the next accepted press removes the mark.
        isEarly.value = performance.now() - changed < CALM;
        if (!isEarly.value) press(event);
      }}
    />
  );
}
