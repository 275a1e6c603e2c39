// One showing of a page in, what it and its host say to each other out.
import type { HostContext } from "../../bridge/types.ts";
import { INTERNAL, METHOD_NOT_FOUND, parsed, peer, rpcError } from "../../lib/rpc.ts";
import type { Fields } from "../../lib/rpc.ts";
import { capabilities, methods } from "./host.ts";
import type { Hooks } from "./host.ts";
import { LIMITS, throttled, tooLarge } from "./limits.ts";

export type Stage = "shown" | "greeted" | "ready";

/** The element as this file needs it. */
export interface Shower extends Hooks {
  context(): HostContext;
  /** The page has come to a stage. */
  reached(stage: Stage): void;
  resized(height: unknown): void;
  toolsChanged(): void;
}

export interface Session {
  readonly app: { readonly appInfo?: Fields; readonly appCapabilities?: { readonly tools?: { readonly listChanged?: boolean } } };
  hear(data: unknown): void;
  notify(method: string, params: Fields): void;
  ask(method: string, params: Fields, timeout: number): Promise<Fields>;
  /** What of the context was not told yet; it counts as told from now on. */
  news(): Fields;
  /** Tells it, unless the page is about to be ready. */
  refresh(): void;
  close(reason: string): void;
}

/** `dressed`: the page hears of its look before it speaks. */
export function session(view: Shower, sandbox: Fields, dressed: boolean, post: (message: Fields) => void): Session {
  const acts = methods(view, () => view.context());
  const changed = throttled(() => view.toolsChanged(), LIMITS.lists);
  let told: Record<string, string | undefined> = {};
  let stage: Stage = "shown";
  let app: Session["app"] = {};
  let heard = 0;

  function news(): Fields {
    const all = Object.entries(view.context());
    return Object.fromEntries(all.filter(([name, value]) => told[name] !== (told[name] = JSON.stringify(value))));
  }

  async function request(method: string, params: Fields, { signal }: { signal: AbortSignal }): Promise<Fields> {
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
    const act = acts[method];
    if (!act) throw rpcError(METHOD_NOT_FOUND, `\`${method}\` is not known here`);
    if (stage === "shown") throw new Error(`\`${method}\` before \`ui/initialize\``);
    return act(params, signal);
  }

  function noticed(method: string, params: Fields): void {
    if (method === "ui/notifications/initialized" && stage === "greeted") view.reached((stage = "ready"));
    else if (stage !== "ready") return;
    else if (method === "ui/notifications/size-changed") view.resized(params.height);
    else if (method === "ui/notifications/request-teardown") view.onrequestteardown?.();
    else if (method === "notifications/message") view.onlog?.(params);
    else if (method !== "notifications/tools/list_changed") view.onnotification?.(method, params);
    else if (app.appCapabilities?.tools?.listChanged) changed();
  }

  /** So many notifications in a second, and no more. */
  function flooded(): boolean {
    if (++heard === 1) setTimeout(() => (heard = 0), 1000);
    return heard > LIMITS.notifications;
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
    get app() {
      return app;
    },
    ask: wire.request,
    close: wire.close,
    notify: wire.notify,
    hear(data) {
      let message = parsed(data);
      // Whoever waits for an answer gets one.
      if (message && tooLarge(data)) {
        message = "method" in message ? { ...message, method: "too large", params: {} } : { id: message.id, error: rpcError(INTERNAL, "too large") };
      }
      if (message && "method" in message && message.id === undefined && flooded()) message = undefined;
      view.onmessagelog?.({ from: "app", message: data, heard: !!message });
      if (message) wire.receive(message);
    },
    news,
    refresh() {
      const ready = stage === "ready";
      if (!ready && (stage !== "shown" || !dressed)) return;
      const changed = news();
      if (Object.keys(changed).length > 0) wire.notify(ready ? "ui/notifications/host-context-changed" : "dev.bailiwick/notifications/dress", changed);
    },
  };
}
