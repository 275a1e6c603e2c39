// One showing of a page in, what it and its host say to each other out.
import { stringify } from "../../lib/kinds.ts";
import type { Fields } from "../../lib/kinds.ts";
import { INTERNAL, METHOD_NOT_FOUND, TOOLS_CHANGED, fail, parsed, peer, rpcError } from "../../lib/rpc.ts";
import type { Extra, Peer } from "../../lib/rpc.ts";
import { capabilities, methods } from "./host.ts";
import type { Shown } from "./host.ts";
import { LIMITS, UI, tooLarge } from "./limits.ts";

export type Stage = "shown" | "greeted" | "ready";

/** The element as this file needs it. */
export interface Shower extends Shown {
  /** The page has come to a stage. */
  reached(stage: Stage): void;
  resized(height: unknown): void;
  dispatchEvent(event: Event): boolean;
}

export interface Session extends Omit<Peer, "hear"> {
  readonly app: { readonly appInfo?: Fields; readonly appCapabilities?: { readonly tools?: { readonly listChanged?: boolean } } };
  hear(data: unknown): void;
  /** What of the context was not told yet; it counts as told from now on. */
  news(): Fields;
  /** Tells it, unless the page is about to be ready. */
  refresh(): void;
}

/** `dressed`: the page hears of its look before it speaks. */
export function session(view: Shower, sandbox: Fields, dressed: boolean, post: (message: Fields) => void): Session {
  const acts = methods(view);
  let told: Record<string, string | undefined> = {};
  let stage: Stage = "shown";
  let app: Session["app"] = {};
  let heard = 0;
  let lists = 0;

  function news(): Fields {
    const all = Object.entries(view.context());
    return Object.fromEntries(all.filter(([name, value]) => told[name] !== (told[name] = stringify(value))));
  }

  function request(method: string, params: Fields, extra: Extra): Promise<Fields> | Fields {
    if (method === "ui/initialize") {
      app = params;
      told = {};
      view.reached((stage = "greeted"));
      return {
        protocolVersion: "2026-01-26",
        hostInfo: view.hostInfo,
        hostCapabilities: capabilities(view, sandbox),
        hostContext: news(),
      };
    }
    const act = acts[method] ?? fail(`\`${method}\` is not known here`, METHOD_NOT_FOUND);
    if (stage === "shown") fail(`\`${method}\` before \`ui/initialize\``);
    return act(params, extra);
  }

  function noticed(method: string, params: Fields): void {
    if (method === `${UI}initialized` && stage === "greeted") view.reached((stage = "ready"));
    else if (stage === "ready") {
      if (method === `${UI}size-changed`) view.resized(params.height);
      else if (method === `${UI}request-teardown`) view.onrequestteardown?.();
      else if (method === "notifications/message") view.onlog?.(params);
      else if (method !== TOOLS_CHANGED) view.onnotification?.(method, params);
      else if (app.appCapabilities?.tools?.listChanged) changed();
    }
  }

  /** Tells it at once, and then no more often than so; the last change is not lost. */
  function changed(): void {
    if (lists++) return;
    view.dispatchEvent(new Event("toolschanged"));
    setTimeout(() => {
      const again = lists > 1;
      lists = 0;
      if (again) changed();
    }, LIMITS.lists);
  }

  /** So many notifications in a second, and no more. */
  function flooded(): boolean {
    if (!heard) setTimeout(() => (heard = 0), 1000);
    return ++heard > LIMITS.notifications;
  }

  const wire = peer(
    (message) => {
      view.onmessagelog?.({ from: "host", message, heard: true });
      post(message);
    },
    request,
    noticed,
  );
  return {
    ...wire,
    get app() {
      return app;
    },
    hear(data) {
      let message = parsed(data);
      // Whoever waits for an answer gets one.
      if (message && tooLarge(data)) {
        message = "method" in message ? { ...message, method: "too large", params: {} } : { id: message.id, error: rpcError(INTERNAL, "too large") };
      }
      if (message && message.id === undefined && flooded()) message = undefined;
      view.onmessagelog?.({ from: "app", message: data, heard: !!message });
      if (message) wire.hear(message);
    },
    news,
    refresh() {
      const method = stage === "ready" ? `${UI}host-context-changed` : stage === "shown" && dressed && "dev.bailiwick/notifications/dress";
      const changed = method ? news() : {};
      if (method && Object.keys(changed).length > 0) wire.notify(method, changed);
    },
  };
}
