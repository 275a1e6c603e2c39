// The activity of agents: live calls, or the audit log.
import { signal } from "@preact/signals-core";

import { Button, Tick } from "../../lib/ui.tsx";
import { counted } from "../../lib/words.ts";
import { Failed, Failure, Select } from "../../lib/console/parts.tsx";
import { sources } from "../../lib/console/state.ts";
import { AgentCard, Agents } from "./agents.tsx";
import { calls, changesOnly, clearFilters, failure, filters, fresh, isFiltered, loadOlder, more, reload, showFresh, text, type } from "./calls.ts";
import { History, loadHistory } from "./history.tsx";
import { Calls, focusFirst } from "./rows.tsx";

/** Whether the audit log is shown. */
const isLog = signal(false);
const older = new Failure();

function view(log: boolean): void {
  isLog.value = log;
  if (log) loadHistory();
}

const Filters = () => (
  <div class="filters" role="search">
    <input type="search" aria-label="Search calls" placeholder="Search calls" maxLength={200} value={text.value} onInput={({ currentTarget }) => type(currentTarget.value)} />
    <Select choice={filters.tool} label="Tool" change={reload} />
    <Select choice={filters.result} label="Result" change={reload} />
    <Select choice={filters.run} label="Host" hidden={sources.value.length < 2} change={reload} />
    <label>
      <Tick
        checked={changesOnly.value}
        change={(on) => {
          changesOnly.value = on;
          reload();
        }}
      />{" "}
      Changes only
    </label>
    {isFiltered.value && <Button press={clearFilters}>Show all calls</Button>}
  </div>
);

/** Says how many calls came while a person was reading, and shows them on request. */
const Fresh = () => (
  <div class="fresh live">
    <span class={fresh.value ? "" : "quiet"} role="status">{fresh.value ? `${counted(fresh.value, "new call")}.` : "Live"}</span>
    {fresh.value > 0 && (
      <Button
        press={() => {
          showFresh();
          focusFirst();
        }}
      >
        Show
      </Button>
    )}
  </div>
);

function Shown() {
  if (!calls.value) return failure.error.value === undefined ? <p class="empty">Loading…</p> : null;
  if (calls.value.length === 0) return <p class="empty">{isFiltered.value ? "No calls match these filters." : "No calls yet. Each call of an agent appears here."}</p>;
  return <Calls />;
}

function Recent() {
  return (
    <div class="columns">
      <Agents />
      <div class="stream">
        <AgentCard />
        <Filters />
        {failure.error.value !== undefined && (
          <div class="chips">
            <Failed failure={failure} />
            <Button press={reload}>Try again</Button>
          </div>
        )}
        <Fresh />
        <Shown />
        <Failed failure={older} />
        {calls.value && (
          <p class="end">
            {more.value ? (
              <Button press={() => void older.of(loadOlder())}>Show older calls</Button>
            ) : (
              sources.value.some(({ recorded }) => recorded) && <span class="quiet">Earlier calls may be in the <Button class="link" press={() => view(true)}>audit log</Button>.</span>
            )}
          </p>
        )}
      </div>
    </div>
  );
}

export function Activity() {
  const hasLog = sources.value.some(({ recorded }) => recorded);
  return (
    <>
      {hasLog && (
        <div class="line views" role="group" aria-label="View">
          <Button aria-pressed={!isLog.value} press={() => view(false)}>Recent calls</Button>
          <Button aria-pressed={isLog.value} press={() => view(true)}>Audit log</Button>
        </div>
      )}
      {isLog.value && hasLog ? <History /> : <Recent />}
    </>
  );
}
