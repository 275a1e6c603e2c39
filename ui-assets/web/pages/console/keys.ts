// Keyboard shortcuts of the inbox; the prompt has its own. `index.html` lists them all.
import { signal } from "@preact/signals-core";

import type { Diff } from "../../lib/diff/view.tsx";
import { isShortcut } from "../../lib/keys.ts";
import { step } from "./inbox.ts";

/** The changes that are shown, for `n`, `p` and `w`. */
export const changes = signal<Diff>();

/** Shows the list of keys. */
export const help = (): void => document.querySelector("dialog")?.showModal();

/** Listens to the keys until the returned function is called. */
export function listen(): () => void {
  const acts: Readonly<Record<string, () => void>> = {
    j: () => step(1),
    k: () => step(-1),
    n: () => changes.value?.go(1),
    p: () => changes.value?.go(-1),
    w: () => changes.value?.toggleWrap(),
    "?": help,
  };
  const pressed = (event: KeyboardEvent): void => {
    if (isShortcut(event)) acts[event.key]?.();
  };
  addEventListener("keydown", pressed);
  return () => removeEventListener("keydown", pressed);
}
