// The lines of a changed file as a table, unified or side by side.
import type { ComponentChildren } from "preact";

import { own, watch } from "../component.ts";
import { List, Rows } from "../list.tsx";
import { Button, Marked, Tick } from "../ui.tsx";
import { visible } from "../visible.ts";
import { counted } from "../words.ts";
import type { Row } from "./hunks.ts";
import type { Cell, Gap, Line } from "./layout.ts";
import type { FileDiff } from "./model.ts";

/** The text of a line, with its changed words marked. */
function Words({ row, failed }: { readonly row: Row | undefined; readonly failed: boolean }) {
  if (!row) return failed ? <i>Line not loaded</i> : <>…</>;
  const text = row[3].replace(/\r$/, "");
  const parts: ComponentChildren[] = [];
  let at = 0;
  for (const [start, length] of row[4] ?? []) {
    parts.push(<Marked text={text.slice(at, start)} />, <mark><Marked text={text.slice(start, start + length)} /></mark>);
    at = start + length;
  }
  return <>{parts}<Marked text={text.slice(at)} /></>;
}

interface SideProps {
  readonly file: FileDiff;
  readonly cell: Cell | undefined;
  /** The column of the side-by-side view. */
  readonly side?: "l" | "r";
}

/** Line number, sign and text of one side. */
function Side({ file, cell, side = undefined }: SideProps) {
  const look = side ? ` ${side}` : "";
  if (!cell) return <span role="cell" class={`t${look} none`} />;
  const [kind, old, now] = cell;
  const row = file.row(cell);
  const tone = { " ": "", "+": " add", "-": " del" }[kind];
  const { crlf, lf } = file.text.value;
  return (
    <>
      <span role="cell" class={`n${look}${tone}`}>{(side === "l" ? old : now) || ""}</span>
      {tone && <span role="cell" class={`g${look}${tone}`} aria-label={kind === "+" ? "added" : "removed"}>{kind === "+" ? "+" : "−"}</span>}
      <span role="cell" class={`t${look}${tone}`}>
        <Words row={row} failed={!!file.failure.value} />
        {tone && crlf && lf && row?.[3].endsWith("\r") && <small class="end">CRLF</small>}
        {!!row?.[6] && <small class="end">no line end at the end of the file</small>}
        {!!row?.[5] && <Button press={() => file.whole(cell)}>Show all {row[5]} characters</Button>}
      </span>
    </>
  );
}

function Between({ file, gap, hunk }: { readonly file: FileDiff; readonly gap: Gap; readonly hunk: number }) {
  const hidden = gap.to - gap.from + 1;
  const isBelow = hunk < file.hunks.length;
  return (
    <span role="cell">
      {file.divisible.value && isBelow && (
        <label>
          <Tick checked={!file.excluded.value.has(hunk)} change={() => file.toggle(hunk)} /> Make this change ({hunk + 1} of {file.hunks.length})
        </label>
      )}
      <span class="count">{hidden > 0 && counted(hidden, "unchanged line")}</span>
      {file.controls(gap, !isBelow)}
    </span>
  );
}

/** The cells of a line. */
function cellsOf(file: FileDiff, { left, right, gap, hunk }: Line, split: boolean): ComponentChildren {
  if (gap) return <Between file={file} gap={gap} hunk={hunk ?? 0} />;
  if (split) return [<Side file={file} cell={left} side="l" />, <Side file={file} cell={right} side="r" />];
  const cell = left ?? right;
  return cell && [<span role="cell" class="n">{cell[1] || ""}</span>, <Side file={file} cell={cell} />];
}

export const Notes = ({ file }: { readonly file: FileDiff }) => <>{file.notes.value.map((note) => <p class="note">{visible(note)}</p>)}</>;

/** The table of a file's lines. Only the rows in view are rendered. */
export function DiffTable({ file }: { readonly file: FileDiff }) {
  const rows = own(() => new Rows());
  const arrived = own<{ at: number | undefined }>(() => ({ at: undefined }));
  const { lines, starts } = file.layout.value;
  const split = file.split.value;
  const here = file.place.value === undefined ? undefined : starts[file.place.value];
  watch(() => {
    file.need(file.layout.value.lines.slice(rows.first.value, rows.last.value));
  });
  watch(() => {
    const { place, layout } = file;
    if (place.value !== undefined) rows.kept.value = layout.value.starts[place.value] ?? -1;
  });
  if (here === undefined) arrived.at = undefined;
  /** Moves the focus to the current change, once it is rendered. */
  const arrive = (node: HTMLElement | null): void => {
    if (!node || arrived.at === file.moves) return;
    arrived.at = file.moves;
    node.scrollIntoView({ block: "center" });
    node.focus({ preventScroll: true });
  };
  const row = (index: number) => {
    const line = lines[index] ?? {};
    const isOut = !line.gap && line.hunk !== undefined && file.excluded.value.has(line.hunk);
    const look = `${line.gap ? "between" : split ? "pair" : "one"}${isOut ? " out" : ""}${index === here ? " here" : ""}`;
    return (
      <div role="row" class={look} aria-rowindex={index + 1} tabIndex={index === here ? -1 : undefined} ref={index === here ? arrive : null}>
        {cellsOf(file, line, split)}
      </div>
    );
  };
  return (
    <div class="rows" role="table" tabIndex={0} aria-label={visible(`Lines of ${file.change.path}`)} aria-rowcount={lines.length}>
      <List rows={rows} count={lines.length} height={20} varies row={row} />
    </div>
  );
}
