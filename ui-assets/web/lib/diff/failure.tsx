// An alert about lines that could not be loaded.
import type { ComponentChild } from "preact";

import { visible } from "../visible.ts";
import type { FileDiff } from "./model.ts";

export function loadFailure(file: FileDiff): ComponentChild {
  const failure = file.failure.value;
  if (!failure) return undefined;
  return (
    <p class="notice bad" role="alert">
      <span>{visible(failure.words)}</span>{" "}
      <button
        type="button"
        onClick={({ currentTarget }) => {
          currentTarget.closest("details")?.querySelector<HTMLElement>("[role=table]")?.focus();
          failure.retry();
        }}
      >
        Try again
      </button>
    </p>
  );
}
