// What a permission prompt shows.
import type { ComponentChildren } from "preact";

import { Button, Code, Name, Tick, trusted } from "../../lib/ui.tsx";
import { oneLine, visible } from "../../lib/visible.ts";
import { fromJson } from "../../lib/json.ts";
import type { Block } from "./block.ts";
import { TIMES, allowWords, denyWords, needsTick } from "./choice.ts";
import type { Choice, Time } from "./choice.ts";

const TYPES = { read: "Wants to read", write: "Wants to change or run", all: "Wants to read and change" };
const TRUST = { own: "This host’s own tool", known: "Known to this host", unknown: "⚠ Unknown server" };

/** Lists the arguments by name; arguments that are not a JSON object are shown as text. */
function Arguments({ params, whole }: { readonly params: string; readonly whole: number | undefined }) {
  const value = fromJson(params) ?? params;
  const entries = Object.entries(Object(value) === value ? (value as object) : { "": value });
  return (
    <details>
      <summary>{whole ? `The first ${params.length} characters of the arguments (${whole} bytes)` : `All arguments (${entries.length})`}</summary>
      {entries.map(([key, one]: [string, unknown]) => (
        <div class="argument">
          <Code text={key} />
          <pre tabIndex={0} aria-label={oneLine(key) || "text"}>
            {visible(typeof one === "string" ? one : JSON.stringify(one, null, 1))}
          </pre>
        </div>
      ))}
    </details>
  );
}

const Group = ({ words, children }: { readonly words: string; readonly children: ComponentChildren }) => (
  <fieldset>
    <legend>{words}</legend>
    {children}
  </fieldset>
);

export interface PromptProps {
  readonly block: Block;
  readonly choice: Choice;
  /** The host's preview of the call, once it is set. */
  readonly view: Node | undefined;
  /** Whether the question can be answered, and whether it can be allowed. */
  readonly open: boolean;
  readonly allowable: boolean;
  /** The remaining time to answer. */
  readonly left: string;
  readonly status: string;
  readonly choose: (change: Partial<Choice>) => void;
  readonly answer: (allows: boolean) => void;
}

type TickOf = <K extends keyof Choice>(words: ComponentChildren, key: K, on: Choice[K], off?: Choice[K], may?: boolean) => ComponentChildren;

/** Which resources a grant covers. */
const Rungs = ({ block: { bailiwick: own }, isWhole, tick }: { readonly block: Block; readonly isWhole: boolean; readonly tick: TickOf }) =>
  own ? (
    <Group words="How much">
      {own.rungs.slice(0, 5).map(({ patterns, covers, count }, rung) => {
        const words = (
          <span>
            {patterns.map((pattern) => <Code text={pattern} />)}
            <small><bdi>{visible(covers + (count === undefined ? "" : `; ${count} now`))}</bdi></small>
          </span>
        );
        return tick(words, "rung", rung, undefined, rung === 0 || isWhole);
      })}
    </Group>
  ) : null;

export function Prompt({ block, choice, view, open, allowable, left, status, choose, answer }: PromptProps) {
  const { content, tool_call: call, extra, bailiwick: own } = block;
  const isWhole = choice.out.length === 0;
  /** A checkbox that sets `key` to `on` or `off`; without `off`, a radio button. */
  const tick: TickOf = (words, key, on, off, may = true) => {
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
  const uses = (
    <input
      type="number"
      min={2}
      max={1000}
      defaultValue="10"
      aria-label="How many uses"
      disabled={!open || !isWhole}
      onInput={trusted(({ currentTarget }) => {
        const number = currentTarget as HTMLInputElement;
        if (number.valueAsNumber > 1 && number.checkValidity()) choose({ uses: number.valueAsNumber, time: "uses" });
      })}
    />
  );
  const times = (own ? (Object.keys(TIMES) as Time[]) : []).map((time) => {
    if ((own?.sensitive && time === "agent") || (time === "waiting" && (own?.waiting ?? 1) < 2)) return null;
    const label = tick(TIMES[time], "time", time, undefined, time === "once" || time === "waiting" || isWhole);
    return time === "uses" ? <div class="line">{label}{uses}</div> : label;
  });
  const path = [...(own?.agent ?? []), call.name].map((name) => oneLine(name)).join(" › ");
  const shownView = (place: HTMLElement | null): void => {
    if (view && place?.firstChild !== view) place?.replaceChildren(view);
  };
  return (
    <>
      <div class="line">
        <b class={`badge ${extra.permissionType}`}>{TYPES[extra.permissionType]}</b>
        <bdi title={path}>{path}</bdi>
        <span class="quiet end">{open && own ? `Ends in ${left}` : null}</span>
      </div>
      <h2 tabIndex={-1}><Name text={own?.intent ?? content} /></h2>
      <div class="line">
        <bdi title={oneLine(call.server_description)}>{`${oneLine(call.server_icons, 8)} ${oneLine(call.server_name)}`}</bdi>
        <span class="badge">{TRUST[own?.trust ?? "unknown"]}</span>
      </div>
      {own && (
        <div>
          Needs
          <ul class="needs">{own.needs.map((need) => <li><Code text={need} /></li>)}</ul>
        </div>
      )}
      {!!own?.protected.length && <p class="notice warn">Protected, so only exactly this can be allowed: {own.protected.map((name) => <Code text={name} />)}</p>}
      {(own?.waiting ?? 1) > 1 && <p class="notice">{`${own?.waiting} equal calls wait; “once” lets one of them through.`}</p>}
      <Arguments params={call.params} whole={own?.arguments_bytes} />
      <div class="preview" ref={shownView}>{!view && own?.preview && "Loading preview…"}</div>
      <div class="two">
        <Rungs block={block} isWhole={isWhole} tick={tick} />
        <Group words="How long">
          {tick("Remember this choice", "time", own ? "session" : "agent", "once", isWhole)}
          {times}
          {own && tick("Its sub-agents may, too", "descendants", true, false, choice.time !== "once" && choice.time !== "waiting")}
        </Group>
      </div>
      <p class="quiet" role="status">{own && visible(`Covers: ${own.rungs[choice.rung]?.covers ?? "exactly this"}.`)}</p>
      <div hidden={!needsTick(own, choice)}>{tick("I understand this grants broad or permanent access.", "sure", true, false)}</div>
      <details>
        <summary>Deny with a note, or for longer</summary>
        <textarea
          rows={2}
          maxlength={1000}
          aria-label="Note to the agent"
          disabled={!open}
          onInput={trusted(({ currentTarget }) => choose({ note: (currentTarget as HTMLTextAreaElement).value.trim() }))}
        />
        {own && tick("For the rest of the session, do not ask again", "rest", true, false)}
      </details>
      <p class="notice" role="status" hidden={!status}>{status ? oneLine(status) : null}</p>
      <div class="line">
        <Button disabled={!open} press={() => answer(false)}>{denyWords(choice)}</Button>
        <Button class="primary" disabled={!allowable} press={() => answer(true)}>{allowWords(own, choice)}</Button>
      </div>
    </>
  );
}
