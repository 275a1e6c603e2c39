// Small components of the console.
import { computed, signal } from "@preact/signals-core";

import { Trouble } from "../ui.tsx";
import { oneLine } from "../visible.ts";
import { sources } from "./state.ts";

export type Option = readonly [value: string, words: string];

/** A choice among options that can change; it stays the same while its option exists. */
export class Choice {
  readonly picked = signal("");
  readonly options: () => readonly Option[];
  readonly value = computed(() => {
    const options = this.options();
    return (options.find(([value]) => value === this.picked.value) ?? options[0])?.[0] ?? "";
  });

  constructor(options: () => readonly Option[]) {
    this.options = options;
  }
}

interface SelectProps {
  readonly choice: Choice;
  /** The name of the element, if it has no visible label. */
  readonly label?: string;
  readonly hidden?: boolean;
  readonly change?: () => void;
}

export const Select = ({ choice, label, hidden, change }: SelectProps) => (
  <select
    aria-label={label}
    hidden={hidden}
    value={choice.value.value}
    onChange={({ currentTarget }) => {
      choice.picked.value = currentTarget.value;
      change?.();
    }}
  >
    {choice.options().map(([value, words]) => (
      <option key={value} value={value}>{oneLine(words, 80)}</option>
    ))}
  </select>
);

/** A choice among the hosts; with `recorded`, among those that have a history. */
export const sourceChoice = (recorded = false): Choice =>
  new Choice(() => sources.value.filter((one) => !recorded || one.recorded).map(({ run, server }) => [run, `${server} ${run.slice(0, 4)}`]));

/** The hosts as options; hidden if there is only one. */
export const SelectSource = ({ choice, change }: Pick<SelectProps, "choice" | "change">) => (
  <Select choice={choice} label="Where" hidden={choice.options().length < 2} {...(change && { change })} />
);

export const clock = (at: number): string => new Date(at).toLocaleString();

/** The error of the last action, until the next one. */
export class Failure {
  readonly error = signal<unknown>();

  /** Runs an action and keeps its error. */
  async of(action: Promise<unknown>): Promise<void> {
    this.error.value = undefined;
    try {
      await action;
    } catch (error) {
      this.error.value = error;
    }
  }
}

export const Failed = ({ failure }: { readonly failure: Failure }) => failure.error.value !== undefined && <Trouble error={failure.error.value} />;
