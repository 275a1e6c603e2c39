// Entry point of the approval console, with tabs for questions, permissions and history.
import { el, onPress } from "../../lib/dom.ts";
import { host, Stranger } from "./api.ts";
import type { State } from "./api.ts";
import { past } from "./past.ts";
import { questions } from "./questions.ts";
import { settings } from "./settings.ts";
import { draw, trouble } from "./shown.ts";

const AGAIN = 1000;

const banner = el("div");
const main = el("main", el("p.empty", "Looking…"));
let state: State | undefined;

interface Part {
  readonly place: HTMLElement;
  readonly tab: HTMLElement;
  show(state: State): void;
}

function part(name: string, fill: (place: HTMLElement) => Part["show"]): Part {
  const place = el("section", { tabindex: -1, "aria-label": name });
  const tab = onPress(el("button", name), () => {
    chosen = made;
    show();
  });
  const made = { place, tab, show: fill(place) };
  return made;
}

const open = part("Questions", questions);
const over = part("History", past);
const parts = [open, part("Permissions", settings), over];
let chosen = open;
document.body.append(el("header", el("h1", "Permissions"), el("nav", { "aria-label": "Parts" }, ...parts.map(({ tab }) => tab))), banner, main);

function show(): void {
  if (!state) return;
  const count = state.questions.length ? ` (${state.questions.length})` : "";
  document.title = `${count} Permissions`;
  for (const one of parts) one.tab.ariaCurrent = one === chosen ? "page" : null;
  open.tab.textContent = `Questions${count}`;
  const fresh = !chosen.place.isConnected;
  if (fresh) main.replaceChildren(chosen.place);
  // The history is loaded when its tab is opened, and on request.
  if (fresh || chosen !== over) chosen.show(state);
}

async function follow(): Promise<void> {
  for (let tries = 0; ; tries += 1) {
    let what = "The prompt cannot be loaded";
    try {
      // Browsers cache a failed module import, so retry under another URL.
      if (!customElements.get("permission-prompt")) await import(`/permission-prompt.js?${tries}`);
      for (;;) {
        what = "The host does not answer";
        state = await host<State>("state");
        draw(banner);
        show();
        await host(`events/${state.version}`);
      }
    } catch (error) {
      if (error instanceof Stranger) return draw(banner, trouble(error));
      draw(banner, trouble(`${what}. Trying again…`));
      await new Promise((resolve) => setTimeout(resolve, AGAIN));
    }
  }
}

void follow();
