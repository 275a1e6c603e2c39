// The details of an expanded call: its changes, output, arguments and needs.
import { signal } from "@preact/signals-core";

import { host } from "../../lib/console/api.ts";
import { allowedBy, when } from "../../lib/console/calls.ts";
import type { CallRow } from "../../lib/console/calls.ts";
import { Failed, Failure } from "../../lib/console/parts.tsx";
import { Undo } from "../../lib/console/undo.tsx";
import { planned, resources } from "../../lib/diff/change.ts";
import { Diff, DiffView } from "../../lib/diff/view.tsx";
import { items } from "../../lib/json.ts";
import { Agent, Button, Code, Marked, Name } from "../../lib/ui.tsx";
import { counted } from "../../lib/words.ts";
import { renew } from "./calls.ts";

interface Answer {
  readonly row: CallRow;
  readonly needs: readonly string[];
  readonly arguments: string;
  readonly changes: unknown;
  readonly resources: unknown;
  readonly output: string | null;
}

const changesOf = items(planned);

/** An expanded call. */
export class Opened {
  readonly answer = signal<Answer | undefined>(undefined);
  readonly diff = signal<Diff | undefined>(undefined);
  readonly failure = new Failure();
  readonly #call: string;
  /** The state of the call for which the details were requested. */
  #asked = "";
  #turn = 0;

  constructor(call: string) {
    this.#call = call;
  }

  /** Loads the details, unless the call is still as it was. */
  follow({ state, result, kept, undo }: CallRow): void {
    const now = `${state} ${result} ${kept} ${undo}`;
    if (now === this.#asked) return;
    this.#asked = now;
    this.load();
  }

  load(): void {
    const now = (this.#turn += 1);
    const loading = async (): Promise<void> => {
      const came = await host<Answer>(`call/${this.#call}`);
      if (now !== this.#turn) return;
      const changes = changesOf(came.changes);
      const diff = new Diff(changes);
      diff.resources = resources(came.resources);
      diff.plan = came.row.undo !== "undone" && made(came.row) ? "Would" : "";
      this.diff.value = changes.length + diff.resources.length > 0 ? diff : undefined;
      this.answer.value = came;
    };
    void this.failure.of(loading());
  }
}

const seconds = (from: number, to: number): string => `${((to - from) / 1000).toFixed(to - from < 10_000 ? 1 : 0)} s`;

const noChanges = ({ files, kept, state, preview }: CallRow): string | undefined => {
  if (files > 0 && !kept) return "The changes of this call are no longer kept.";
  if (files > 0) return undefined;
  return state === "ended" ? (preview ? "This call would have changed no files." : "This call changed no files.") : undefined;
};

/** Whether the shown changes were made, and are in effect. */
const made = ({ preview, state, result, undo }: CallRow): string | undefined => {
  if (undo === "undone") return "These changes were made, and undone later.";
  if (preview) return "A preview: this call did not make these changes.";
  if (state !== "ended") return "The planned changes.";
  if (result === "denied" || result === "stale") return "These changes were not made.";
  return result === "done" ? undefined : "The planned changes. The call did not succeed, so some or all of them were not made.";
};

const ORIGINS: Readonly<Record<string, string>> = { human: "a person", host: "the host", view: "an app of the server" };

const Facts = ({ row }: { readonly row: CallRow }) => (
  <dl>
    <dt>Agent</dt>
    <dd><Agent name={row.agent} /> <span class="quiet">in session <Name text={row.session} /></span></dd>
    <dt>Tool</dt>
    <dd><Name text={row.tool} />{row.server !== null && <span class="quiet"> of the server <Name text={row.server} /></span>}</dd>
    {row.origin !== "model" && <><dt>Started by</dt><dd><Name text={ORIGINS[row.origin] ?? row.origin} /></dd></>}
    <dt>Time</dt>
    <dd>{`${when(row.at)}${row.ended_at === null ? "" : `, took ${seconds(row.at, row.ended_at)}`}`}</dd>
    {row.allowed_by.length > 0 && (
      <>
        <dt>Allowed</dt>
        <dd>
          {row.allowed_by.map((one, at) => (
            <div key={at}>
              <Name text={allowedBy(one)} most={300} />
              {one.expires_at != null && ` (until ${when(one.expires_at)})`}
              {one.grant !== null && <> <a href="/permissions">Permissions</a></>}
            </div>
          ))}
        </dd>
      </>
    )}
    {(row.message !== null || row.code !== null) && (
      <>
        <dt>Reason</dt>
        <dd>{row.message !== null && <Name text={row.message} most={1000} />}{row.code !== null && <> <Code text={row.code} /></>}</dd>
      </>
    )}
  </dl>
);

export function Details({ row, opened }: { readonly row: CallRow; readonly opened: Opened }) {
  const { answer, diff, failure } = opened;
  const found = answer.value;
  const none = noChanges(row);
  return (
    <div class="details">
      <Facts row={row} />
      {row.state === "asking" && <p><a class="button" href="/">Answer the question</a></p>}
      <Undo of={{ call: row.call }} what="this call" may={row.undo === "possible"} done={() => void renew([row])} />
      {failure.error.value !== undefined && (
        <div class="chips">
          <Failed failure={failure} />
          <Button press={() => opened.load()}>Try again</Button>
        </div>
      )}
      {!found && failure.error.value === undefined && <p class="quiet" role="status">Loading…</p>}
      {found && (
        <>
          {diff.value && made(row) && <p class="quiet">{made(row)}</p>}
          {diff.value ? <DiffView diff={diff.value} /> : none && <p class="quiet">{none}</p>}
          {found.output !== null && (
            <details open={!diff.value}>
              <summary>Output</summary>
              <pre tabIndex={0} role="group" aria-label="Output"><Marked text={found.output} /></pre>
            </details>
          )}
          {found.arguments && (
            <details>
              <summary>Arguments</summary>
              <pre tabIndex={0} role="group" aria-label="Arguments"><Marked text={found.arguments} /></pre>
            </details>
          )}
          {found.needs.length > 0 && (
            <details>
              <summary>{counted(found.needs.length, "permission")} needed</summary>
              <ul class="plain needs">{found.needs.map((need) => <li key={need}><Code text={need} /></li>)}</ul>
            </details>
          )}
        </>
      )}
    </div>
  );
}
