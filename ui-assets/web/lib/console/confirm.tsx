// A button that acts on the second press, after saying what it does.
import { signal } from "@preact/signals-core";

import { oneLine } from "../visible.ts";
import { CalmButton } from "./calm.tsx";

/** The button that waits for its second press; one at a time. */
export const confirming = signal("");

interface ConfirmProps {
  /** Tells this button from all others of the page. */
  readonly id: string;
  readonly words: string;
  /** What the second press does, as the label of the button. */
  readonly yes: string;
  /** What people should know before the second press. */
  readonly note?: string | undefined;
  readonly label?: string | undefined;
  readonly press: () => void;
}

/** The button stays the same element, so it keeps the focus; its changed label delays the second press. */
export function Confirm({ id, words, yes, note, label, press }: ConfirmProps) {
  const isAsked = confirming.value === id;
  const cancel = (): void => void (confirming.value = "");
  return (
    <span class={`confirm${isAsked ? " asked" : ""}`} onKeyDown={({ key }) => key === "Escape" && isAsked && cancel()}>
      {isAsked && note && <span class="note" id={`note-${id}`}>{oneLine(note, 600)}</span>}
      <CalmButton
        class={isAsked ? "danger" : undefined}
        aria-label={isAsked ? undefined : label}
        aria-describedby={isAsked && note ? `note-${id}` : undefined}
        press={() => {
          confirming.value = isAsked ? "" : id;
          if (isAsked) press();
        }}
      >
        {isAsked ? yes : words}
      </CalmButton>
      {isAsked && <CalmButton press={cancel}>Cancel</CalmButton>}
    </span>
  );
}
