// Wire tab: a filterable log of all messages, newest first.
import { local } from "../../lib/component.ts";
import { at, shownAs, stringify, text } from "./json.ts";
import type { Entry } from "./model.ts";
import { Button, Live, Quiet, Row, Search, Words, badge, notice, said, typing } from "./parts.tsx";
import { entries } from "./store.ts";

const MOST_SHOWN = 200;
const SIDES: Readonly<Record<string, string>> = {
  sent: "→ sent",
  received: "← received",
  said: "stderr",
  state: "connection",
};

function titleOf(message: unknown): string {
  if (typeof message === "string") return message;
  const id = at(message, "id");
  const kind = at(message, "error") === undefined ? "result" : "error";
  return `${text(message, "method") ?? kind}${id === undefined ? "" : ` #${String(id)}`}`;
}

function Line({ entry: { seq, at_ms, side, message, fault } }: { readonly entry: Entry }) {
  const isOpen = local(false);
  return (
    <li class={fault ? "entry faulty" : "entry"}>
      <details onToggle={({ currentTarget }) => (isOpen.value = currentTarget.open)}>
        <summary>
          <span class="quiet seq">{seq}</span>
          <span class={`side ${side}`}>{SIDES[side]}</span>
          {said(titleOf(message), 160)}
          {fault && badge("invalid", "bad")}
          <span class="quiet time">{`${(at_ms / 1000).toFixed(3)} s`}</span>
        </summary>
        {isOpen.value && (
          <>
            {fault && notice(fault, "bad")}
            <Words text={shownAs(message)} />
          </>
        )}
      </details>
    </li>
  );
}

export function Wire() {
  const copied = local("");
  const filter = local("");
  const side = local("all");
  const faulty = local(false);
  const found = entries.value.filter(
    (entry) =>
      (side.value === "all" || entry.side === side.value) &&
      (!faulty.value || entry.fault) &&
      (filter.value === "" || stringify(entry.message).toLowerCase().includes(filter.value)),
  );
  const copy = async (): Promise<void> => {
    const lines = found.map((entry) => `${stringify(entry)}\n`);
    try {
      await navigator.clipboard.writeText(lines.join(""));
      copied.value = `Copied ${lines.length} entries.`;
    } catch {
      copied.value = "Copying is not allowed.";
    }
  };
  const newest = found.slice(-MOST_SHOWN).reverse();
  return (
    <article data-entries={found.length}>
      <Row>
        <h2>Wire</h2>
        <Search label="Filter by text" placeholder="Filter" search={(words) => (filter.value = words)} />
        <select aria-label="Which side" value={side.value} onChange={typing((now) => (side.value = now))}>
          <option value="all">everything</option>
          {Object.entries(SIDES).map(([key, label]) => <option value={key}>{label}</option>)}
        </select>
        <label>
          <input type="checkbox" checked={faulty.value} onChange={() => (faulty.value = !faulty.value)} /> only invalid messages
        </label>
        <Button class="small" press={copy}>Copy as JSON lines</Button>
        <Live>{copied.value}</Live>
      </Row>
      {found.length > MOST_SHOWN && <Quiet>{`The last ${MOST_SHOWN} are shown.`}</Quiet>}
      <ol class="plain log">{newest.length > 0 ? newest.map((entry) => <Line key={entry.seq} entry={entry} />) : <li class="quiet">No matches.</li>}</ol>
    </article>
  );
}
