// Header, state updates and error messages of the console's pages.
import { signal } from "@preact/signals-core";
import { render } from "preact";
import type { ComponentType } from "preact";

import { watch } from "../component.ts";
import { Trouble } from "../ui.tsx";
import { host, Stranger } from "./api.ts";
import type { State } from "./api.ts";
import { watchLayout } from "./calm.tsx";
import { state } from "./state.ts";

const RETRY = 1000;

const PAGES = { Questions: "/", Activity: "/activity", Permissions: "/permissions" } as const;
export type PageName = keyof typeof PAGES;

const trouble = signal("");

let main: HTMLElement | undefined;
function watched(node: HTMLElement | null): void {
  if (!node || main) return;
  main = node;
  watchLayout(node);
}

function Frame({ name, Page }: { readonly name: PageName; readonly Page: ComponentType }) {
  const questions = (): string => (state.value?.questions.length ? ` (${state.value.questions.length})` : "");
  watch(() => {
    document.title = `${questions()} ${name}`.trim();
  });
  return (
    <>
      <header>
        <h1>{name}</h1>
        <nav aria-label="Pages">
          {Object.entries(PAGES).map(([page, path]) => (
            <a key={page} href={path} aria-current={page === name ? "page" : undefined}>
              {page === "Questions" ? `${page}${questions()}` : page}
            </a>
          ))}
        </nav>
      </header>
      <div>{trouble.value && <Trouble error={trouble.value} />}</div>
      <main ref={watched}>
        {state.value ? (
          <section tabIndex={-1} aria-label={name}><Page /></section>
        ) : (
          !trouble.value && <p class="empty">Loading…</p>
        )}
      </main>
    </>
  );
}

/** Loads the state again whenever it changes. */
async function follow(update: () => void): Promise<void> {
  for (;;) {
    try {
      const now = await host<State>("state");
      trouble.value = "";
      state.value = now;
      update();
      await host(`events/${now.version}`);
    } catch (error) {
      if (error instanceof Stranger) return void (trouble.value = error.message);
      trouble.value = "The host does not answer. Trying again…";
      await new Promise((resolve) => setTimeout(resolve, RETRY));
    }
  }
}

/** Shows a page; `update` is called after each change of the state. */
export function open(name: PageName, Page: ComponentType, update: () => void = () => undefined): void {
  render(<Frame name={name} Page={Page} />, document.getElementById("app") ?? document.body);
  void follow(update);
}
