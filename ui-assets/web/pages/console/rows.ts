// Renders file changes; each hunk has a checkbox if it can be excluded.
import type { LeftOut } from "../../components/permission-prompt/choice.ts";
import { binary, counts, listing } from "../../lib/contents.ts";
import { el, onPress, onTick } from "../../lib/dom.ts";
import { oneLine, visible } from "../../lib/visible.ts";
import type { Change } from "./api.ts";

/** Maximum number of lines, and of characters per line, shown at first. */
const MOST = 300;
const LONGEST = 2000;

function row(op: string, text: string): HTMLElement {
  // Show line endings other than `\n`, because they may be the only change.
  const shown = visible(text.replace(/\n$/, ""));
  const line = el("code", { tabindex: -1 }, shown.slice(0, LONGEST));
  const rest = shown.slice(LONGEST);
  if (rest) line.append(more(`${rest.length} more characters`, line, () => line.append(rest)));
  return el("div.row", { class: { "+": "row add", "-": "row del" }[op] }, el("span", op), line);
}

/** A button that shows more content, and then moves the focus to `place`. */
function more(words: string, place: HTMLElement, show: () => void): HTMLElement {
  return onPress(el("button", `Show ${words}`), (pressed) => {
    pressed.remove();
    show();
    place.focus();
  });
}

function head({ op, path, to, before, after, added, removed, hidden, large, binary: isBinary, binary_type: type, contents }: Change): HTMLElement {
  const directory = [before, after].some(({ kind }) => kind === "directory");
  const why = contents
    ? `With everything in it: ${counts(contents)}${hidden ? ", and what the agent may not read" : ""}.`
    : `${directory ? "" : `+${added} −${removed}`}${hidden ? " The agent may not read it, so its content is not shown." : large ? " It is too large to be shown." : isBinary ? ` ${binary(type, before, after)}` : ""}`;
  const names = oneLine(path, 300) + (to === undefined ? "" : ` → ${oneLine(to, 300)}`);
  const what = `${oneLine(op.replace("_", " "))}${directory && op !== "make_directory" ? " directory" : ""}`;
  const entries = contents && el("ul.contents", ...listing(contents).map((entry) => el("li", el("bdi", oneLine(entry, 300)))));
  return el("div.file", el("b", what), " ", el("bdi", names), " ", el("span.quiet", why), entries);
}

/** `tell` receives the excluded hunks, or `undefined` if all are excluded. */
export function rows(changes: readonly Change[], tell?: false | ((out: readonly LeftOut[] | undefined) => void)): HTMLElement {
  const all = el("div.diff", { tabindex: 0, role: "group", "aria-label": "What would change" }, !changes.length && "Nothing would change.");
  const ticks = changes.map(({ path }) => ({ path, of: [] as HTMLInputElement[] }));
  const ticked = (): void => {
    const out = ticks.map(({ path, of }) => ({ path, hunks: of.flatMap(({ checked }, hunk) => (checked ? [] : hunk)) }));
    const some = ticks.some(({ of }) => of.some(({ checked }) => checked));
    if (tell) tell(some ? out.filter(({ hunks }) => hunks.length) : undefined);
  };
  const later: (() => void)[] = [];
  let left = MOST;
  changes.forEach((change, at) => {
    all.append(head(change));
    for (const { old_start: from, new_start: then, lines } of change.hunks) {
      const label = el("label.hunk", `From line ${from}${from === then ? "" : `, then ${then}`}`);
      if (tell && change.op === "modify") {
        const tick = onTick(el("input", { type: "checkbox", checked: true }), ticked);
        ticks[at]?.of.push(tick);
        label.prepend(tick, " ");
      }
      const body = el("div");
      all.append(label, body);
      for (const { op, text } of lines) {
        const show = (): void => body.append(row(op, text));
        if (left-- > 0) show();
        else later.push(show);
      }
    }
  });
  if (later.length) all.append(more(`${later.length} more lines`, all, () => later.forEach((show) => show())));
  return all;
}
