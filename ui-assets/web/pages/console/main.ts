// The host's state in, the console out: questions, permissions and history, each on a tab of its own.
import { el, onPress } from "../../lib/dom.ts";
import { number, object } from "../../lib/parse.ts";
import { host, look, Stranger } from "./api.ts";
import type { State } from "./api.ts";
import { past } from "./past.ts";
import { questions } from "./questions.ts";
import { settings } from "./settings.ts";
import { trouble } from "./shown.ts";

const AGAIN = 1000;
const newer = object({ version: number });

const parts = [
  ["Questions", questions()],
  ["Permissions", settings()],
  ["History", past()],
] as const;
const banner = el("div", {});
const main = el("main", {}, el("p", { class: "empty" }, "Looking…"));
let chosen = 0;
let state: State | undefined;

const tabs = parts.map(([words], place) =>
  onPress(el("button", { type: "button" }, words), () => {
    chosen = place;
    show();
  }),
);
document.body.append(el("header", {}, el("h1", {}, "Permissions"), el("nav", { "aria-label": "Parts" }, ...tabs)), banner, main);

function show(): void {
  if (!state) return;
  const waiting = state.questions.length;
  const part = parts[chosen];
  document.title = waiting > 0 ? `(${waiting}) Permissions` : "Permissions";
  tabs.forEach((tab, place) => {
    if (place === chosen) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
    if (place === 0) tab.textContent = waiting > 0 ? `Questions (${waiting})` : "Questions";
  });
  if (!part) return;
  if (!main.contains(part[1].place)) {
    main.replaceChildren(part[1].place);
    part[1].show(state);
  } else if (part[0] !== "History") part[1].show(state);
}

async function follow(): Promise<void> {
  await customElements.whenDefined("permission-prompt");
  for (;;) {
    try {
      state = await look();
      banner.replaceChildren();
      show();
      await host(newer, `events/${state.version}`);
    } catch (error) {
      if (error instanceof Stranger) return banner.replaceChildren(trouble(error));
      banner.replaceChildren(trouble("The host does not answer. Trying again…"));
      await new Promise((resolve) => setTimeout(resolve, AGAIN));
    }
  }
}

void follow();
