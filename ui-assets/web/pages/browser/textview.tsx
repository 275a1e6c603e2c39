// Virtual text view with line numbers and line selection.
import { computed } from "@preact/signals-core";

import { local, own, watch } from "../../lib/component.ts";
import { List, Rows } from "../../lib/list.tsx";
import { visible } from "../../lib/visible.ts";
import { selection } from "./browser.ts";
import { docVersion, need } from "./document.ts";
import type { Doc } from "./document.ts";
import { isOther, stepped } from "./tree.ts";

const HEIGHT = 20;
/** Maximum number of rendered rows, regardless of the window height. */
const MOST = 58;
/** Number of characters shown per line at first. */
const LINE = 2000;
// Browsers limit the height of elements.
const MOST_LINES = 1_500_000;

interface TextProps {
  readonly line: string | undefined;
  readonly isWhole: boolean;
  readonly expand: () => void;
}

function Text({ line, isWhole, expand }: TextProps) {
  if (line === undefined) return <>…</>;
  const rest = isWhole ? 0 : line.length - LINE;
  if (rest <= 0) return <>{visible(line)}</>;
  return (
    <>
      {visible(line.slice(0, LINE))}
      <span class="rest" onClick={expand}>{`… ${rest.toLocaleString()} more characters`}</span>
    </>
  );
}

export function TextView({ shown }: { readonly shown: Doc }) {
  const rows = own(() => new Rows());
  /** The current line. */
  const at = local(0);
  const whole = local<ReadonlySet<number>>(new Set());
  const count = own(() => computed(() => (docVersion.value, Math.min(MOST_LINES, shown.total + Number(shown.open)))));
  const expand = (line: number): void => void (whole.value = new Set([...whole.value, line]));

  function choose(line: number, extend: boolean): void {
    const now = selection.value;
    const far = extend && now ? (now.from === at.value ? now.to : now.from) : line;
    at.value = line;
    selection.value = { from: Math.min(far, line), to: Math.max(far, line) };
  }

  function key(event: KeyboardEvent): void {
    if (isOther(event)) return;
    const next = stepped(event.key, at.value - 1, count.value, rows.page);
    if (next !== undefined) {
      choose(next + 1, event.shiftKey);
      rows.reveal(next);
    } else if (event.key === "Escape") selection.value = undefined;
    else if (event.key === "Enter") expand(at.value);
    else return;
    event.preventDefault();
  }

  watch(() => {
    docVersion.value;
    void need(rows.first.value + 1, rows.last.value);
  });
  // Scroll to a selection that was set elsewhere.
  watch(() => {
    const now = selection.value;
    const here = at.peek();
    if (!now || (here >= now.from && here <= now.to)) return;
    at.value = now.from;
    rows.reveal(Math.min(count.peek(), now.from + 8) - 1);
    rows.reveal(Math.max(0, now.from - 4));
  });

  docVersion.value;
  const digits = String(count.value).length;
  const now = selection.value;
  const isRendered = at.value > rows.first.value && at.value <= rows.last.value;
  const row = (index: number) => {
    const number = index + 1;
    return (
      <div
        role="option"
        id={`line-${number}`}
        aria-posinset={number}
        aria-setsize={count.value}
        aria-selected={!!now && number >= now.from && number <= now.to}
        class={at.value === number ? "line here" : "line"}
      >
        <span class="number" style={{ width: `${digits + 2}ch` }} onClick={(event) => choose(number, event.shiftKey)}>{number}</span>
        <bdi><Text line={shown.lines.get(number)} isWhole={whole.value.has(number)} expand={() => expand(number)} /></bdi>
      </div>
    );
  };
  return (
    <div
      class="text"
      role="listbox"
      aria-multiselectable="true"
      tabIndex={0}
      aria-label="Lines: arrows move, Shift selects, Enter shows a whole line"
      aria-activedescendant={isRendered ? `line-${at.value}` : undefined}
      onKeyDown={key}
    >
      <List
        rows={rows}
        count={count.value}
        height={HEIGHT}
        most={MOST}
        width={Math.min(shown.longest, whole.value.size > 0 ? Infinity : LINE + 30) + digits + 4}
        row={row}
      />
    </div>
  );
}
