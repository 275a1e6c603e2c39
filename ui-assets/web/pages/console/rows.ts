// Changes in, rows that show them out; each hunk has a tick where it can be left out.
import { el, onTick } from "../../lib/dom.ts";
import { oneLine, visible } from "../../lib/visible.ts";
import type { LeftOut } from "../../components/permission-prompt/choice.ts";
import type { Change } from "./api.ts";
import { button } from "./shown.ts";

/** How many lines are shown until a person wants more. */
const MOST = 300;
const LONGEST = 2000;

function row(op: string, text: string): HTMLElement {
  // A line end other than this is seen, since it can be all that changes.
  const shown = visible(text.replace(/\n$/, ""));
  const kind = op === "+" ? "add" : op === "-" ? "del" : "";
  const line = el("code", {}, shown.slice(0, LONGEST));
  if (shown.length > LONGEST) {
    const rest = button(`Show ${shown.length - LONGEST} more characters`, () => rest.replaceWith(shown.slice(LONGEST)));
    line.append(rest);
  }
  return el("div", { class: `row ${kind}` }, el("span", {}, op), line);
}

function head(change: Change): HTMLElement {
  const to = change.to === undefined ? "" : ` → ${oneLine(change.to, 300)}`;
  const unshown = change.added + change.removed > 0 ? " Too much changes to be shown." : " It is no text, or too large.";
  const why = change.hidden ? " The agent may not read it, so its content is not shown." : change.binary ? unshown : "";
  const counts = el("span", { class: "quiet" }, ` +${change.added} −${change.removed}${why}`);
  return el("div", { class: "file" }, el("b", {}, oneLine(change.op.replace("_", " "))), " ", el("bdi", {}, oneLine(change.path, 300) + to), counts);
}

/** `tell` hears what is left out, or nothing if all of it would be. */
export function rows(changes: readonly Change[], tell?: (out: readonly LeftOut[] | undefined) => void): HTMLElement {
  const all = el("div", { class: "diff", tabindex: 0, role: "group", "aria-label": "What would change" });
  if (changes.length === 0) all.append("Nothing would change.");
  const kept = new Map<HTMLInputElement, { path: string; hunk: number }>();
  const ticked = (): void => {
    const out = new Map<string, number[]>();
    for (const [tick, { path, hunk }] of kept) {
      if (!tick.checked) out.set(path, [...(out.get(path) ?? []), hunk]);
    }
    tell?.([...kept].some(([tick]) => tick.checked) ? [...out].map(([path, hunks]) => ({ path, hunks })) : undefined);
  };
  const later: (() => void)[] = [];
  let left = MOST;
  for (const change of changes) {
    all.append(head(change));
    change.hunks.forEach((hunk, place) => {
      const label = el("label", { class: "hunk" }, `From line ${hunk.old_start}${hunk.old_start === hunk.new_start ? "" : `, then ${hunk.new_start}`}`);
      if (tell && change.op === "modify") {
        const tick = el("input", { type: "checkbox", checked: true });
        kept.set(tick, { path: change.path, hunk: place });
        onTick(tick, ticked);
        label.prepend(tick, " ");
      }
      const body = el("div", {});
      all.append(label, body);
      for (const { op, text } of hunk.lines) {
        const show = (): void => body.append(row(op, text));
        if (left-- > 0) show();
        else later.push(show);
      }
    });
  }
  if (later.length > 0) {
    const more = button(`Show ${later.length} more lines`, () => {
      more.remove();
      for (const show of later) show();
    });
    all.append(more);
  }
  return all;
}
