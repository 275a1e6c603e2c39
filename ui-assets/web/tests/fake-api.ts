// Fake API of the console, which records requests; each page's tests add the responses that they need.
import type { Page, Route } from "@playwright/test";

export type Json = Readonly<Record<string, unknown>>;

export const RUN = "00000000000000ab";
export const SOURCE: Json = { run: RUN, server: "files", roots: ["/a"], templates: [{ name: "reviewer", about: "Reads everything, and writes notes" }], recorded: true, stores_grants: true };

interface State extends Record<string, unknown> {
  agents: Json[];
  questions: Json[];
  outcomes: Json[];
  grants: Json[];
  refusals: Json[];
}

export abstract class FakeApi {
  state: State = {
    now: 1_700_000_000_001,
    sources: [SOURCE],
    agents: [],
    questions: [],
    outcomes: [],
    grants: [],
    refusals: [],
    omitted: { questions: 0, grants: 0, refusals: 0 },
  };
  /** Recorded POST requests. */
  readonly told: { path: string; body: unknown }[] = [];
  /** Responses by path; a promise delays the response. */
  readonly answers = new Map<string, unknown>();
  #version = 1;
  #wake: () => void = () => undefined;

  /** The response to a path that `answers` does not have. */
  protected abstract usual(path: string, body: unknown): unknown;

  /** Answers the requests of a page. */
  protected async serve(page: Page): Promise<void> {
    await page.route("**/api/**", (route) => this.#answer(route));
  }

  /** Notifies the page of a state change. */
  changed(): void {
    this.#version += 1;
    this.#wake();
  }

  /** Bodies sent to a path. */
  to(path: string): unknown[] {
    return this.told.filter((one) => one.path === path).map((one) => one.body);
  }

  async #answer(route: Route): Promise<void> {
    const request = route.request();
    const path = new URL(request.url()).pathname.slice("/api/".length);
    if (request.headers()["authorization"] !== "Bearer secret") return route.fulfill({ status: 401 });
    if (request.method() === "POST") this.told.push({ path, body: request.postDataJSON() });
    if (path.startsWith("events/")) {
      if (path === `events/${this.#version}`) await new Promise<void>((wake) => (this.#wake = wake));
      return route.fulfill({ json: { version: this.#version } }).catch(() => undefined);
    }
    const state = (): unknown => (path === "state" ? { version: this.#version, ...this.state } : undefined);
    const answer = await (this.answers.get(path) ?? state() ?? this.usual(path, request.postDataJSON()));
    if (answer instanceof Error) return route.fulfill({ status: 422, json: { code: "DOES_NOT_FIT", message: answer.message } });
    return route.fulfill({ json: answer });
  }
}
