// Page layout of the file browser: a toolbar, the tree and the open file, or one pane at a time on narrow screens.
import { signal } from "@preact/signals-core";
import { createRef } from "preact";

import { own, watch } from "../../lib/component.ts";
import { Name } from "../../lib/ui.tsx";
import { oneLine, visible } from "../../lib/visible.ts";
import { changes, enter, failure, filter, find, leave, mode, onFile, reload, root, roots, rows, said, showChanged, start } from "./browser.ts";
import { FileView, State } from "./fileview.tsx";
import { Icon, IconButton } from "./icon.tsx";
import { lookAs, worker, workers } from "./rights.ts";
import { TreeView } from "./treeview.tsx";

const [NARROWEST, WIDEST, STEP] = [180, 640, 24];
const width = signal(320);

interface ChoiceProps {
  readonly label: string;
  readonly all: readonly string[];
  readonly now: string | undefined;
  readonly set: (one: string) => void;
}

const Choice = ({ label, all, now, set }: ChoiceProps) => (
  <select aria-label={label} value={now} onChange={({ currentTarget }) => set(currentTarget.value)}>
    {all.map((one) => (
      <option key={one} value={one}>{oneLine(one, 80)}</option>
    ))}
  </select>
);

function Toolbar() {
  const box = own(createRef<HTMLInputElement>);
  const clear = (): void => {
    if (box.current) box.current.value = "";
  };
  const isChanged = mode.value === "changed";
  return (
    <header class="bar">
      <h1 class="visually-hidden">Files</h1>
      {roots.value.length > 1 ? (
        <Choice label="Root" all={roots.value} now={root.value.path} set={(path) => void enter(path)} />
      ) : (
        <p class="root" title={visible(root.value.path)}>
          <Icon name="directory" />
          <Name text={root.value.path} most={120} />
        </p>
      )}
      <span class="search">
        <Icon name="find" />
        <input
          ref={box}
          type="search"
          placeholder="Filter; Enter finds everywhere"
          onInput={({ currentTarget: { value } }) => {
            leave();
            filter.value = value;
          }}
          onKeyDown={({ key, currentTarget: { value } }) => {
            if (key === "Enter") void find(value);
            else if (key === "Escape") {
              clear();
              leave();
            }
          }}
        />
      </span>
      {changes.value && (
        <button
          aria-pressed={isChanged}
          onClick={() => {
            clear();
            void (isChanged ? leave() : showChanged());
          }}
        >
          Changed <span class="badge">{changes.value.size}</span>
        </button>
      )}
      {workers.value.length > 1 && (
        <label>
          <span class="quiet">As </span>
          <Choice label="Permissions of worker" all={workers.value} now={worker.value} set={lookAs} />
        </label>
      )}
      <IconButton name="again" title="Refresh list" press={() => void reload()} />
    </header>
  );
}

function Splitter() {
  const set = (wanted: number): void => void (width.value = Math.max(NARROWEST, Math.min(WIDEST, Math.round(wanted))));
  return (
    <div
      class="splitter"
      role="separator"
      tabIndex={0}
      aria-orientation="vertical"
      aria-label="Width of the tree"
      aria-valuenow={width.value}
      aria-valuemin={NARROWEST}
      aria-valuemax={WIDEST}
      onKeyDown={(event) => {
        const to: Readonly<Record<string, number>> = { ArrowLeft: width.value - STEP, ArrowRight: width.value + STEP, Home: NARROWEST, End: WIDEST };
        const wanted = to[event.key];
        if (wanted === undefined) return;
        set(wanted);
        event.preventDefault();
      }}
      onPointerDown={(event) => {
        event.currentTarget.setPointerCapture(event.pointerId);
        event.preventDefault();
      }}
      onPointerMove={({ currentTarget, pointerId, clientX }) => {
        if (currentTarget.hasPointerCapture(pointerId)) set(clientX);
      }}
    />
  );
}

/** Tells how many rows are shown. */
function Foot() {
  const count = rows.value.filter((row) => row.kind).length;
  const what = mode.value === "tree" ? (filter.value === "" ? "shown" : "of what is loaded; Enter finds all") : mode.value;
  return <p class="foot">{`${count.toLocaleString()} ${what}`}</p>;
}

export function App() {
  const panes = own(createRef<HTMLDivElement>);
  // If only one pane fits, move the keyboard focus with it.
  watch(() => {
    const order = onFile.value ? [".main", ".tree"] : [".tree", ".main"];
    requestAnimationFrame(() => {
      const [to, other] = order.map((selector) => panes.current?.querySelector<HTMLElement>(selector));
      if (other?.offsetParent === null) to?.focus();
    });
  });
  return (
    <main class="files">
      <Toolbar />
      <div class={onFile.value ? "panes on-file" : "panes"} ref={panes} style={{ "--side": `${width.value}px` }}>
        <section class="side" aria-label="Folders">
          <TreeView />
          <Foot />
        </section>
        <Splitter />
        <FileView />
      </div>
      {failure.value && (
        <div class="failure" role="alert">
          <State sign="lock" head={oneLine(failure.value, 600)}><button onClick={() => void start()}>Try again</button></State>
        </div>
      )}
      <p class="said" role="status">{said.value}</p>
    </main>
  );
}
