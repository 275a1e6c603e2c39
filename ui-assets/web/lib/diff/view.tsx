// Shows the changes of a call: a toolbar, the list of files, and a section with the lines of each file.
import { computed, signal } from "@preact/signals-core";
import type { ComponentChild } from "preact";

import { counts as summary, listing, reason } from "./contents.ts";
import { Button, Tick } from "../ui.tsx";
import { oneLine, visible } from "../visible.ts";
import { planned } from "../words.ts";
import type { Change, resources } from "./change.ts";
import type { Parsed } from "../json.ts";
import { FileDiff } from "./model.ts";
import { DiffTable, Notes } from "./table.tsx";

const OPERATIONS: Readonly<Record<string, string>> = { create: "New", modify: "Changed", delete: "Deleted", move: "Moved", copy: "Copied", make_directory: "New folder" };

/** An operation that was made, in words. */
export const operationWords = (op: string): string => OPERATIONS[op] ?? visible(op);

/** The numbers of added and removed lines without those of excluded hunks. */
function countsOf({ change, excluded, hunks }: FileDiff): { readonly added: number; readonly removed: number } {
  const out = [...excluded.value].flatMap((hunk) => hunks[hunk]?.runs ?? []);
  const sum = (kind: 1 | 2): number => out.reduce((all, run, at) => (at % 3 === kind ? all + run : all), 0);
  return { added: Math.max(0, change.added - sum(2)), removed: Math.max(0, change.removed - sum(1)) };
}

/** The displayed changes and how they are displayed. */
export class Diff {
  readonly files: readonly FileDiff[];
  /** What changes that is not a file. */
  resources: Parsed<typeof resources> = [];
  readonly split = signal(false);
  readonly wrap = signal(true);
  /** Index of the current change for `n` and `p`, across all files. */
  readonly place = signal(-1);
  readonly places = computed(() => this.files.flatMap((file) => file.layout.value.starts.map((_, at) => ({ file, at }))));
  /** The excluded files. */
  readonly out = signal<ReadonlySet<FileDiff>>(new Set());
  /** What is excluded: whole changes, or hunks of a file. */
  readonly excluded = computed(() =>
    this.files.flatMap((file): { readonly path: string; readonly hunks?: readonly number[] }[] => {
      const { change: { path }, from, excluded } = file;
      if (this.isOut(file)) return [{ path }, ...(from ? [{ path: from.path }] : [])];
      return excluded.value.size > 0 ? [{ path, hunks: [...excluded.value].sort((a, b) => a - b) }] : [];
    }),
  );
  /** Whether a person can exclude files. */
  readonly hasTicks = signal(false);
  /** How many changes there are, and how many are included. */
  readonly parts = computed(() => {
    let [all, left] = [0, 0];
    for (const file of this.files) {
      const parts = file.divisible.value ? file.hunks.length : 1;
      all += parts;
      if (!this.isOut(file)) left += parts - file.excluded.value.size;
    }
    return { all, left };
  });
  /** Number of hunks. */
  readonly hunks: number;
  /** Set unless the changes were made: whether they are to be made, or were to be made. */
  plan: "" | "Will" | "Would" = "";
  /** Shown above the lines of a file, such as why they could not be loaded. */
  alert: (file: FileDiff) => ComponentChild = () => undefined;
  /** Called when a person excludes or includes a hunk. */
  onExclude: () => void = () => undefined;
  readonly counts = computed(() => {
    const all = this.files.filter((file) => !this.isOut(file)).map(countsOf);
    const sum = (key: "added" | "removed"): number => all.reduce((sum, one) => sum + one[key], 0);
    return { added: sum("added"), removed: sum("removed") };
  });

  /** `fileOf` makes the state of a change by its index. */
  constructor(changes: readonly Change[], fileOf = (change: Change, _at: number, onExclude: () => void) => new FileDiff(change, onExclude)) {
    const files = changes.map((change, at) => fileOf(change, at, () => this.onExclude()));
    // A move or copy over a file is shown as the replacement of that file.
    for (const file of files) file.from = changes.find(({ to }) => file.change.op === "modify" && to === file.change.path);
    // What is deleted comes first.
    const rank = ({ change }: FileDiff): number => Number(change.op !== "delete");
    this.files = files.filter(({ change }) => files.every(({ from }) => from !== change)).sort((a, b) => rank(a) - rank(b));
    this.hunks = changes.flatMap(({ hunks }) => hunks).length;
  }

  /** Allows a person to exclude files, if there are several, and hunks of modified files. */
  set divisible(divisible: boolean) {
    this.hasTicks.value = divisible && this.files.length > 1;
    for (const file of this.files) file.divisible.value = divisible && this.hunks > 1 && file.change.op === "modify";
  }

  /** Whether a file is excluded. */
  isOut(file: FileDiff): boolean {
    return this.out.value.has(file);
  }

  /** Excludes or includes a file. */
  toggle(file: FileDiff): void {
    const out = new Set(this.out.value);
    if (!out.delete(file)) out.add(file);
    this.out.value = out;
    this.onExclude();
  }

  setSplit(split: boolean): void {
    this.split.value = split;
    for (const file of this.files) file.split.value = split;
  }

  toggleWrap(): void {
    // The split view always wraps, because long lines would be cut off.
    if (!this.split.value) this.wrap.value = !this.wrap.value;
  }

  /** Moves to the next or previous change. */
  go(step: 1 | -1): void {
    const next = this.places.value[this.place.value + step];
    if (!next) return;
    this.place.value += step;
    for (const file of this.files) file.place.value = undefined;
    next.file.isOpen.value = true;
    next.file.moves += 1;
    next.file.place.value = next.at;
  }
}

export const Counts = ({ added, removed }: { readonly added: number; readonly removed: number }) =>
  added + removed > 0 && (
    <span class="counts">
      <span class="plus">+{added}</span>
      <span class="minus">−{removed}</span>
    </span>
  );

interface FileProps {
  readonly file: FileDiff;
  readonly diff: Diff;
}

/** What happens to a file. */
function Badge({ file, diff }: FileProps) {
  const { plan } = diff;
  const { op } = file.from ?? file.change;
  if (diff.isOut(file)) return <span class="badge">Left out</span>;
  return op && <span class={`badge ${op}`}>{plan ? `${plan} ${planned(op)}` : operationWords(op)}</span>;
}

function File({ file, diff }: FileProps) {
  const { change, from } = file;
  const { path, to, contents, hidden } = change;
  const entries = contents ? listing(contents) : [];
  const why = reason(change);
  return (
    <details class={diff.isOut(file) ? "file out" : "file"} open={file.isOpen.value} onToggle={({ currentTarget }) => (file.isOpen.value = currentTarget.open)}>
      <summary>
        <Badge file={file} diff={diff} />
        {path && (
          <h2>
            {from && <><bdi>{visible(from.path)}</bdi> → </>}
            <bdi>{visible(path)}</bdi>{from && " (replaced)"}
            {to && <span class="to"> → <bdi>{visible(to)}</bdi></span>}
          </h2>
        )}
        <Counts {...countsOf(file)} />
      </summary>
      {diff.alert(file)}
      {entries.length > 0 && contents ? (
        <>
          <p class="note">With everything in it: {summary(contents)}{hidden && ", and what the agent may not read"}</p>
          <ul class="contents">{entries.map((entry) => <li><bdi>{visible(entry)}</bdi></li>)}</ul>
        </>
      ) : (
        why && <p class="note">{visible(why)}</p>
      )}
      <Notes file={file} />
      {!why && entries.length === 0 && change.hunks.length > 0 && <DiffTable file={file} />}
    </details>
  );
}

export function Toolbar({ diff }: { readonly diff: Diff }) {
  const { files, split, wrap, place, places, counts } = diff;
  const move = (sign: string, key: string, words: string, step: 1 | -1) => (
    <Button aria-keyshortcuts={key} title={words} aria-label={words} press={() => diff.go(step)}>{sign}</Button>
  );
  return (
    <div class={places.value.length > 1 ? "bar" : "bar one-change"} role="toolbar" aria-label="View">
      <Button class="side" aria-pressed={split.value} press={() => diff.setSplit(!split.value)}>Side by side</Button>
      <Button aria-pressed={wrap.value} disabled={split.value} aria-keyshortcuts="w" press={() => diff.toggleWrap()}>Wrap lines</Button>
      <span class="joined">{move("↑", "p", "Previous change", -1)}{move("↓", "n", "Next change", 1)}</span>
      <span class="where quiet" role="status">{place.value >= 0 && `${place.value + 1} of ${places.value.length}`}</span>
      {files.length > 1 && <Counts {...counts.value} />}
    </div>
  );
}

/** The list of the changes, with buttons that scroll to them. */
function Files({ diff }: { readonly diff: Diff }) {
  const { files } = diff;
  const out = diff.out.value.size;
  return (
    <details class="files" open>
      <summary>{out > 0 && `${files.length - out} of `}{files.length} changes</summary>
      <ul>
        {files.map((file, at) => (
          <li>
            {diff.hasTicks.value && <Tick label={`Make this change: ${oneLine(file.change.path)}`} checked={!diff.isOut(file)} change={() => diff.toggle(file)} />}
            <Badge file={file} diff={diff} />
            <Button
              class="jump"
              press={({ currentTarget }) => (currentTarget as Element).closest(".diff")?.querySelectorAll(".file")[at]?.scrollIntoView()}
            >
              <bdi>{visible(file.change.to || file.change.path)}</bdi>{file.from && " (replaced)"}
              {file.change.contents && ` (${summary(file.change.contents)})`}
            </Button>
            <Counts {...countsOf(file)} />
          </li>
        ))}
      </ul>
    </details>
  );
}

export function DiffView({ diff }: { readonly diff: Diff }) {
  const { files, resources, split, wrap } = diff;
  return (
    <div class={`diff${split.value ? " split" : wrap.value ? " wrap" : ""}`}>
      {resources.map(({ resource, summary, before, after, detail }) => {
        const states = [before, after].filter((state) => state).join(" → ");
        return (
          <>
            <p><bdi><b>{visible(resource)}</b>: {visible(summary)}</bdi></p>
            {states && <pre>{visible(states)}</pre>}
            {detail && <details><summary>More about it</summary><pre>{visible(detail)}</pre></details>}
          </>
        );
      })}
      {files.length > 0 ? <Toolbar diff={diff} /> : !resources.length && <p>No files change.</p>}
      {files.length > 1 && <Files diff={diff} />}
      {files.map((file, at) => <File key={at} file={file} diff={diff} />)}
    </div>
  );
}
