// The host's connection to one rendered page.
import { stringify } from "../../lib/json.ts";
import type { Fields } from "../../lib/json.ts";
import { INTERNAL, METHOD_NOT_FOUND, TOOLS_CHANGED, fail, parsed, peer, rpcError } from "../../lib/rpc.ts";
import type { Extra, Peer } from "../../lib/rpc.ts";
import { capabilities, methods } from "./host.ts";
import type { Shown } from "./host.ts";
import { LIMITS, UI, tooLarge } from "./limits.ts";

export type Stage = "shown" | "greeted" | "ready";

/** The part of the element that this module uses. */
export interface Shower extends Shown {
  /** Called when the page reaches a stage. */
  reached(stage: Stage): void;
  resized(height: unknown): void;
  dispatchEvent(event: Event): boolean;
}

export interface Session extends Omit<Peer, "hear"> {
  readonly app: { readonly appInfo?: Fields; readonly appCapabilities?: { readonly tools?: { readonly listChanged?: boolean } } };
  hear(data: unknown): void;
  /** Returns the parts of the host context that changed since the last call. */
  news(): Fields;
  /** Sends changed host context, except during the handshake. */
  refresh(): void;
}

/** `dressed`: send theme changes before the page has sent a message. */
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

  /** Dispatches `toolschanged` immediately, then at most once per interval; the last change is never dropped. */
  function changed(): void {
    if (lists++) return;
    view.dispatchEvent(new Event("toolschanged"));
    setTimeout(() => {
      const again = lists > 1;
      lists = 0;
      if (again) changed();
    }, LIMITS.lists);
  }

  /** Counts a notification; returns whether the limit per second is exceeded. */
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
      // Answer oversized requests with an error, so that the page does not wait.
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
