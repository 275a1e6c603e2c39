// Entry point of the approval console, with tabs for questions, permissions and history.
import { signal } from "@preact/signals-core";
import { render } from "preact";

import { watch } from "../../lib/component.ts";
import { Button, Trouble } from "../../lib/ui.tsx";
import { host, Stranger } from "./api.ts";
import type { State } from "./api.ts";
import { watchLayout } from "./calm.tsx";
import { History, loadHistory } from "./history.tsx";
import { Permissions } from "./permissions.tsx";
import { Questions, update } from "./questions.tsx";
import { state } from "./state.ts";

const AGAIN = 1000;

const PARTS = { Questions, Permissions, History };
type Part = keyof typeof PARTS;
const part = signal<Part>("Questions");
const trouble = signal("");

function App() {
  const now = state.value;
  const count = now?.questions.length ? ` (${now.questions.length})` : "";
  watch(() => {
    document.title = `${state.value?.questions.length ? ` (${state.value.questions.length})` : ""} Permissions`;
  });
  const Chosen = PARTS[part.value];
  return (
    <>
      <header>
        <h1>Permissions</h1>
        <nav aria-label="Parts">
          {(Object.keys(PARTS) as Part[]).map((name) => (
            <Button
              key={name}
              aria-current={now && part.value === name ? "page" : undefined}
              press={() => {
                part.value = name;
                // The history is loaded when its tab is opened, and on request.
                if (name === "History") loadHistory();
              }}
            >
              {name === "Questions" ? `Questions${count}` : name}
            </Button>
          ))}
        </nav>
      </header>
      <div>{trouble.value && <Trouble error={trouble.value} />}</div>
      <main ref={watched}>
        {now ? (
          <section key={part.value} tabIndex={-1} aria-label={part.value}><Chosen /></section>
        ) : (
          <p class="empty">Looking…</p>
        )}
      </main>
    </>
  );
}

let main: HTMLElement | undefined;
function watched(node: HTMLElement | null): void {
  if (!node || main) return;
  main = node;
  watchLayout(node);
}

async function follow(): Promise<void> {
  for (let tries = 0; ; tries += 1) {
    let what = "The prompt cannot be loaded";
    try {
      // Browsers cache a failed module import, so retry under another URL.
      if (!customElements.get("permission-prompt")) await import(`/permission-prompt.js?${tries}`);
      for (;;) {
        what = "The host does not answer";
        const now = await host<State>("state");
        trouble.value = "";
        state.value = now;
        update();
        await host(`events/${now.version}`);
      }
    } catch (error) {
      if (error instanceof Stranger) return void (trouble.value = error.message);
      trouble.value = `${what}. Trying again…`;
      await new Promise((resolve) => setTimeout(resolve, AGAIN));
    }
  }
}

render(<App />, document.getElementById("app") ?? document.body);
void follow();
