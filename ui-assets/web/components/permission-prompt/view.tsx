// What a permission prompt shows.
import { Agent, Button, Code, Marked } from "../../lib/ui.tsx";
import { flat, oneLine, visible } from "../../lib/visible.ts";
import { fromJson } from "../../lib/json.ts";
import { planned, shortPath } from "../../lib/words.ts";
import type { Block, Details } from "./block.ts";
import { allowWords, denyWords, isBrief } from "./choice.ts";
import type { Choice } from "./choice.ts";
import { Options } from "./options.tsx";

/** What a call wants, if the host does not tell. */
const TYPES = { read: "Wants to read", write: "Wants to change or run", all: "Wants to read and change" };
/** Number of files that are listed if there is no preview. */
const MOST_FILES = 8;
/** Maximum length of a sentence. The host shortens a command so that its sentence fits. */
const LONGEST = 400;

/** The start and end of a text on one line. */
function cut(text: string): string {
  const line = flat(text.trim());
  const left = line.length - LONGEST;
  return left > 0 ? `${line.slice(0, LONGEST / 4)}[${left} characters]${line.slice((LONGEST * -3) / 4)}` : line;
}

/** Text on one line in which hidden characters are marked. */
const Sentence = ({ text }: { readonly text: string }) => <bdi><Marked text={cut(text)} /></bdi>;

/** Who asks: the name of the agent, and its path if it has a parent. */
function Who({ open, block: { tool_call: call, extra, bailiwick: own } }: { readonly open: boolean; readonly block: Block }) {
  const name = own?.agent.at(-1);
  if (!own || !name) {
    return (
      <>
        <b class={`badge ${extra.permissionType}`}>{TYPES[extra.permissionType]}</b>
        <bdi>{`${oneLine(call.server_name, 80)} › ${oneLine(call.name, 80)}`}</bdi>
      </>
    );
  }
  const path = oneLine(own.agent.join(" › "), 120);
  return (
    <span class="who">
      {name[0] === "~" && "A program that says it is "}<Agent name={name} most={60} /> {open ? "asks" : "asked"}{own.agent.length > 1 && <bdi class="quiet">{` (${path})`}</bdi>}
    </span>
  );
}

/** The first files that the call affects. */
function Files({ details: { files, files_total } }: { readonly details: Details }) {
  const first = files.slice(0, MOST_FILES);
  return (
    <ul class="affected">
      {first.map(({ path, op }) => (
        <li>
          <span class={`badge ${op === "delete" ? "danger" : ""}`}>{`Will ${planned(op)}`}</span>
          <bdi class="path" title={visible(path)}>{shortPath(path)}</bdi>
        </li>
      ))}
      {files_total > first.length && <li class="quiet">{`and ${files_total - first.length} more`}</li>}
    </ul>
  );
}

/** Lists the arguments by name; arguments that are not a JSON object are shown as text. */
function Arguments({ block: { tool_call: { params, server_name }, bailiwick: own } }: { readonly block: Block }) {
  const whole = own?.arguments_bytes;
  const words = !own || own.trust === "own" ? "What the agent sends" : `What is sent to ${oneLine(server_name, 80)}`;
  const value = fromJson(params) ?? params;
  const entries = Object.entries(Object(value) === value ? (value as object) : { "": value });
  return (
    <>
      <h3>{words}{whole && `: the first ${params.length} characters of ${whole} bytes`}</h3>
      {entries.map(([key, one]: [string, unknown]) => (
        <div class="argument">
          <span>{oneLine(key.replaceAll("_", " "))}</span>
          <pre tabIndex={0} aria-label={oneLine(key) || "text"}>
            {visible(typeof one === "string" ? one : JSON.stringify(one, null, 1))}
          </pre>
        </div>
      ))}
    </>
  );
}

/** Details of the call; they are open if something is left out of the heading. */
const More = ({ block, block: { tool_call: call, content, bailiwick: own } }: { readonly block: Block }) => (
  <details open={/\[\d+ characters]|…/.test(cut(own?.sentence ?? content))}>
    <summary>Details</summary>
    <p>
      Tool <Code text={call.name} /> of <bdi title={oneLine(call.server_description)}>{`${oneLine(call.server_icons, 8)} ${oneLine(call.server_name)}`}</bdi>{(own?.trust ?? "unknown") === "unknown" && " (unknown to this host)"}
    </p>
    {own && <h3>Needs</h3>}
    <ul class="needs">{own?.needs.map((need) => <li><Code text={need} /></li>)}</ul>
    {own?.asked_because.map((reason) => <p><Sentence text={reason} /></p>)}
    {own?.dangers.map(({ detail }) => detail && <p><Sentence text={detail} /></p>)}
    {own?.preview && <Arguments block={block} />}
  </details>
);

export interface PromptProps {
  readonly block: Block;
  readonly choice: Choice;
  /** The host's preview of the call, once it is set. */
  readonly view: Node | undefined;
  /** Whether the question can be answered, and whether it can be allowed. */
  readonly open: boolean;
  readonly allowable: boolean;
  /** Whether the options are shown. */
  readonly options: boolean;
  /** Whether the buttons name their keys. */
  readonly shortcuts: boolean;
  /** The remaining time to answer. */
  readonly left: string;
  readonly status: string;
  /** How much of the preview is below the bar. */
  readonly below: string;
  readonly scroll: () => void;
  readonly choose: (change: Partial<Choice>) => void;
  readonly toggle: () => void;
  readonly answer: (allows: boolean) => void;
}

export function Prompt({ block, choice, view, open, allowable, options, shortcuts, left, status, below, scroll, choose, toggle, answer }: PromptProps) {
  const { content, bailiwick: own } = block;
  const key = (name: string): string | undefined => (shortcuts ? name : undefined);
  const shownView = (place: HTMLElement | null): void => {
    if (view && place?.firstChild !== view) place?.replaceChildren(view);
  };
  const all = own?.dangers ?? [];
  // What a recursive deletion deletes is in the heading.
  const dangers = all.filter(({ kind }) => kind !== "delete" || all.every((other) => other.kind !== "recursive"));
  // What was decided stands first.
  const notice = <p class="notice" role="status" hidden={!status}>{status ? oneLine(status) : null}</p>;
  return (
    <>
      <div class="line">
        <Who block={block} open={block.status === "pending"} />
        {open && own && <span class="quiet end">{`${left} left, then denied`}</span>}
      </div>
      {block.status !== "pending" && notice}
      <h2 tabIndex={-1}><Sentence text={own?.sentence ?? content} /></h2>
      {dangers.length > 0 && (
        <ul class="dangers" aria-label="Dangers">
          {dangers.map(({ level, text }) => (
            <li class={`danger ${level}`}><span aria-hidden="true">⚠ </span><Sentence text={text} /></li>
          ))}
        </ul>
      )}
      {own && own.waiting > 1 && <p class="quiet">{`The agent asks for exactly this ${own.waiting} times: “once” allows one, “Deny” denies all.`}</p>}
      {own && !own.preview && own.files.some(({ path }) => !own.sentence.includes(path)) && <Files details={own} />}
      <div class="preview" ref={shownView}>{!view && own?.preview && "Loading preview…"}</div>
      {!own?.preview && <Arguments block={block} />}
      <More block={block} />
      <div class="answer">
        {options && <Options details={own} choice={choice} open={open} choose={choose} />}
        {block.status === "pending" && notice}
        {(own?.preview || view) && <Button class="below" press={scroll}>{below || null}</Button>}
        {open && own && <p class="quiet end">{choice.out.length > 0 && "What is not ticked will not be done. "}{own.waiting === 1 && choice.time === "once" && !choice.rest && "Your answer is for this call only. "}{oneLine(own.undo ?? "")}{!isBrief(choice) && " You can take the permission back in Permissions."}</p>}
        <div class="bar">
          <Button class="more" aria-expanded={options} aria-keyshortcuts={key("o")} press={toggle}>More options</Button>
          <Button class="deny" disabled={!open} aria-keyshortcuts={key("d")} press={() => answer(false)}>{denyWords(choice)}</Button>
          <Button class={`primary allow ${dangers[0]?.level ?? ""}`} disabled={!allowable} aria-keyshortcuts={key("a")} press={() => answer(true)}>{allowWords(own, choice)}</Button>
        </div>
      </div>
    </>
  );
}
