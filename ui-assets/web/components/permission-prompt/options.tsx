// The options of a prompt: how long an answer lasts, what it allows meanwhile, and how a denial is given.
import type { ComponentChildren, TargetedInputEvent } from "preact";

import { Tick, trusted } from "../../lib/ui.tsx";
import { oneLine } from "../../lib/visible.ts";
import type { Details } from "./block.ts";
import { TIMES, confirmation, isBrief, timeWords } from "./choice.ts";
import type { Choice, Time } from "./choice.ts";

interface OptionsProps {
  readonly details: Details | undefined;
  readonly choice: Choice;
  readonly open: boolean;
  readonly choose: (change: Partial<Choice>) => void;
}

const Group = ({ words, children }: { readonly words: string; readonly children: ComponentChildren }) => (
  <fieldset>
    <legend>{words}</legend>
    {children}
  </fieldset>
);

export function Options({ details, choice, open, choose }: OptionsProps) {
  const isWhole = choice.out.length === 0;
  /** A checkbox that sets `key` to `on` or `off`; without `off`, a radio button. */
  const tick = <K extends keyof Choice>(words: ComponentChildren, key: K, on: Choice[K], off?: Choice[K], may = true) => {
    const isRadio = off === undefined;
    return (
      <label>
        <Tick
          type={isRadio ? "radio" : "checkbox"}
          name={isRadio ? key : undefined}
          checked={isRadio ? choice[key] === on : choice[key] !== off}
          disabled={!open || !may}
          change={(ticked) => choose({ [key]: ticked ? on : off })}
        />
        <span>{words}</span>
      </label>
    );
  };
  const isOffered = (time: Time): boolean => {
    if (!details) return time === "once" || time === "agent";
    // The first of equal changes of files that is applied makes the previews of the others stale.
    if (time === "waiting") return details.waiting > 1 && !details.preview?.files;
    return time === "once" || (details.choices.some(({ may_last }) => may_last) && (time !== "agent" || !details.sensitive));
  };
  const uses = (
    <input
      type="number"
      min={2}
      max={1000}
      defaultValue={`${choice.uses}`}
      aria-label="How many uses"
      disabled={!open || !isWhole}
      onInput={trusted(({ currentTarget: number }: TargetedInputEvent<HTMLInputElement>) => {
        if (number.valueAsNumber > 1 && number.checkValidity()) choose({ uses: number.valueAsNumber, time: "uses" });
      })}
    />
  );
  const times = (Object.keys(TIMES) as Time[]).filter(isOffered).map((time) => {
    const label = tick(timeWords(details, time), "time", time, undefined, time === "once" || time === "waiting" || isWhole);
    return time === "uses" ? <div class="line">{label}{uses}</div> : label;
  });
  const reaches = details?.choices.slice(0, 5).map(({ label, covers, outside, may_last }, reach) =>
    tick(
      <>
        {oneLine(label)}{outside && " ⚠ outside your project"}
        <small><bdi>{oneLine(covers, 1e4)}</bdi></small>
      </>,
      "reach",
      reach,
      undefined,
      may_last,
    ),
  );
  const sure = confirmation(details, choice);
  return (
    <>
      <div class="options">
        <Group words="If you allow: how long">{times}</Group>
        {!isBrief(choice) && details && (
          <Group words="What it may do without asking">
            {reaches}
            {tick("Its sub-agents may, too", "descendants", true, false)}
          </Group>
        )}
        <Group words="If you deny">
          <textarea
            rows={2}
            maxlength={1000}
            defaultValue={choice.note}
            placeholder="Tell the agent why"
            aria-label="Tell the agent why"
            disabled={!open}
            onInput={trusted(({ currentTarget }: TargetedInputEvent<HTMLTextAreaElement>) => choose({ note: currentTarget.value.trim() }))}
          />
          {details && tick("Stop asking for this until the session ends (it is denied each time)", "rest", true, false)}
        </Group>
      </div>
      {sure && <div class="notice warn">{tick(sure, "sure", true, false)}</div>}
    </>
  );
}
