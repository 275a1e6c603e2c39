// Keyboard shortcuts of the inbox; the prompt has its own. `index.html` lists them all.
import { signal } from "@preact/signals-core";

import type { Diff } from "../../lib/diff/view.tsx";
import { isShortcut } from "../../lib/keys.ts";
import { step } from "./inbox.ts";

/** The changes that are shown, for `n`, `p` and `w`. */
export const changes = signal<Diff | undefined>(undefined);

/** Shows the list of keys. */
export const help = (): void => document.querySelector("dialog")?.showModal();

/** Listens to the keys until the returned function is called. */
export function listen(): () => void {
  const pressed = (event: KeyboardEvent): void => {
    if (!isShortcut(event)) return;
    const { key } = event;
    if (key === "j" || key === "k") step(key === "j" ? 1 : -1);
    else if (key === "n" || key === "p") changes.value?.go(key === "n" ? 1 : -1);
    else if (key === "w") changes.value?.toggleWrap();
    else if (key === "?") help();
  };
  addEventListener("keydown", pressed);
  return () => removeEventListener("keydown", pressed);
}
