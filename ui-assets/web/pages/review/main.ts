// Entry point of the review page, which shows the changes of a call.
import { root } from "../../bridge/look.ts";
import { isFields } from "../../lib/kinds.ts";
import { oneLine } from "../../lib/visible.ts";
import { review } from "./data.ts";
import type { Review } from "./data.ts";
import { file } from "./file.ts";
import type { File } from "./file.ts";
import { blocks, host, said } from "./host.ts";
import { by, copy, counts, message, part, say } from "./part.ts";
import { stand } from "./virtual.ts";

const sections = by("sections");
let shown: Review | undefined;
let files: readonly File[] = [];
let split = false;
let asked = false;
// Index of the current change for `n` and `p`.
let here = -1;
// Incremented when the host sends data, to ignore outdated responses.
let turn = 0;

const pressed = (id: string, on: boolean): void => by(id).setAttribute("aria-pressed", String(on));

/** Sets line wrapping, or toggles it without an argument. */
const wrap = (on?: boolean): void => pressed("wrap", root.classList.toggle("wrap", on));

function view(beSplit: boolean): void {
  split = beSplit;
  pressed("unified", !split);
  pressed("beside", split);
  // The split view always wraps, because long lines would be cut off.
  by<HTMLButtonElement>("wrap").disabled = split;
  root.classList.toggle("split", split);
  for (const one of files) one.look(split, asked);
}

/** Moves to the next or previous change across all files. */
function go(step: number): void {
  const all = files.flatMap((one) => Array.from({ length: one.places() }, (_, at) => () => one.place(at)));
  const row = all[here + step]?.();
  if (!row) return;
  here += step;
  document.querySelector(".here")?.classList.remove("here");
  row.scrollIntoView({ block: "center" });
  stand(row, true);
  say(by("where"), `${here + 1} of ${all.length}`);
}

/** Shows a message instead of a review. */
function none(text: string, failed = false): void {
  shown = undefined;
  by("app").hidden = true;
  const node = by("none");
  node.hidden = false;
  node.className = failed ? "notice bad" : "";
  root.dataset.review = failed ? "failed" : "empty";
  say(node, text);
}

/** Shows the number of excluded hunks, and sends the hunks to the host after a change. */
function left(tell = false): void {
  const parts = files.filter(({ out }) => out.size > 0).map(({ change, out }) => ({ path: change.path, hunks: [...out] }));
  const count = parts.flatMap(({ hunks }) => hunks).length;
  const all = files.flatMap(({ change }) => change.hunks).length;
  by("left").hidden = !asked || count === 0;
  say(by("left"), count === all ? "No changes are left: deny the call instead." : `${count} of ${all} changes are left out.`);
  if (tell) page.notify("dev.bailiwick/notifications/left-out", { left_out: parts });
}

/** Checks whether the files still match the review. Without an answer, nothing is shown. */
async function check(): Promise<void> {
  const of = shown;
  const state = await (of?.uri ? page.load(`${of.uri}.state`) : undefined);
  if (!of || shown !== of || !isFields(state) || !Array.isArray(state.changes)) return;
  const states: unknown[] = state.changes;
  const changed = of.changes.filter((_, at) => states[at] === "changed").map(({ path, to }) => (of.preview ? path : to || path));
  by("stale").hidden = changed.length === 0;
  say(by("changed"), oneLine(changed.join(", "), 400));
}
const recheck = (): void => void check().catch(() => undefined);

function show(data: Review): void {
  shown = data;
  here = -1;
  files = data.changes.map((change, at) => file(change, (query) => page.load(`${data.uri}.rows?change=${at}&${query}`), () => left(true)));
  root.classList.toggle("is-preview", data.preview);
  say(by("intent"), oneLine(data.intent || data.tool, 400));
  say(by("agent"), oneLine(data.agent));
  say(by("tool"), data.tool);
  say(by("where"), "");
  counts(by("sum"), data);
  const list = by("files");
  list.hidden = files.length < 2;
  say(part(list, "summary"), `${files.length} files`);
  const items = files.map(({ change, node }) => {
    const item = copy("item");
    say(part(item, "bdi"), change.to || change.path);
    counts(item, change);
    part(item, "button").onclick = () => node.scrollIntoView();
    return item;
  });
  part(list, "ul").replaceChildren(...items);
  sections.replaceChildren(...files.map(({ node }) => node));
  by("stale").hidden = by("none").hidden = true;
  by("app").hidden = false;
  root.dataset.review = "ready";
  view(split);
  left();
  recheck();
}

/** Shows the review at an address that is not known yet. */
async function follow(address: Promise<unknown> | unknown, without: string): Promise<void> {
  const mine = (turn += 1);
  try {
    const uri = await address;
    const data = typeof uri === "string" ? review(await page.load(`${uri}.rows`)) : undefined;
    if (mine !== turn) return;
    if (data) show(data);
    else none(without);
  } catch (error) {
    if (mine === turn) none(message(error), true);
  }
}

/** Handles a notification from the host. */
function heard(method: string, params: Record<string, unknown>): void {
  const given = method === "dev.bailiwick/notifications/review" ? params : params["dev.bailiwick/data"];
  if (isFields(given)) {
    const told = review(given.review);
    if (typeof given.asked === "boolean") asked = given.asked;
    if (told) {
      turn += 1;
      show(told);
    } else {
      view(split);
      left();
    }
  }
  if (embedded) return;
  const tool = page.context().toolInfo?.tool.name;
  if (method.endsWith("/tool-input") && tool && turn === 0) {
    const input = isFields(params.arguments) ? params.arguments : {};
    void follow(page.call("preview_call", { tool, arguments: input }).then((made) => made.review), "This call changes nothing.");
  } else if (method.endsWith("/tool-result")) {
    const { content, isError } = params;
    const link = blocks(content).find(({ type, name }) => type === "resource_link" && name === "review");
    if (isError) void follow(Promise.reject(new Error(said(content) || "The call failed.")), "");
    else void follow(link?.uri, "This call changed nothing.");
  } else if (method.endsWith("/tool-cancelled")) void follow(undefined, "The call was cancelled.");
}

function data(): unknown {
  try {
    return JSON.parse(document.getElementById("data")?.textContent ?? "");
  } catch {
    return undefined;
  }
}

const embedded = review(data());
const page = host(heard);
by("unified").onclick = () => view(false);
by("beside").onclick = () => view(true);
by("wrap").onclick = () => wrap();
by("next").onclick = () => go(1);
by("previous").onclick = () => go(-1);
addEventListener("keydown", ({ key, ctrlKey, metaKey, altKey }) => {
  if (ctrlKey || metaKey || altKey) return;
  if (key === "n") go(1);
  else if (key === "p") go(-1);
  else if (key === "w" && !split) wrap();
});
addEventListener("focus", recheck);
wrap(true);
if (embedded) show(embedded);
else none(window.parent === window ? "Nothing to review." : "Waiting for the call…");
