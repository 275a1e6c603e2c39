// One showing of a page in, what it and its host say to each other out.
import type { HostContext } from "../../bridge/types.ts";
import { INTERNAL, METHOD_NOT_FOUND, RpcError, parsed, peer } from "../../lib/rpc.ts";
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
  resized(height: number): void;
  toolsChanged(): void;
}

export interface Session {
  readonly stage: Stage;
  readonly app: { readonly appInfo?: Fields; readonly appCapabilities?: { readonly tools?: { readonly listChanged?: boolean } } };
  hear(data: unknown): void;
  notify(method: string, params: Fields): void;
  ask(method: string, params: Fields, timeout: number, signal?: AbortSignal): Promise<Fields>;
  /** Tells what of the context was not told yet. */
  refresh(): void;
  close(reason: string): void;
}

export function session(view: Shower, sandbox: Fields, post: (message: Fields) => void): Session {
  const acts = methods(view, () => view.context());
  const changed = throttled(() => view.toolsChanged(), LIMITS.lists);
  let told: Record<string, string> = {};
  let stage: Stage = "shown";
  let app: Session["app"] = {};
  let busy = 0;
  let second = 0;
  let heard = 0;

  const reach = (next: Stage): void => view.reached((stage = next));

  function changes(): Fields {
    const all = Object.entries(view.context()).map(([name, value]) => [name, value, JSON.stringify(value)] as const);
    const news = all.filter(([name, , text]) => told[name] !== text);
    for (const [name, , text] of news) told[name] = text;
    return Object.fromEntries(news);
  }

  async function request(method: string, params: Fields, { signal }: { signal: AbortSignal }): Promise<Fields> {
    if (method === "ui/initialize") {
      app = params;
      told = {};
      reach("greeted");
      return {
        protocolVersion: "2026-01-26",
        hostInfo: view.hostInfo,
        hostCapabilities: capabilities(view, sandbox),
        hostContext: changes(),
      };
    }
    const act = Object.hasOwn(acts, method) && acts[method];
    if (!act) throw new RpcError(METHOD_NOT_FOUND, `\`${method}\` is not known here`);
    if (stage === "shown") throw new Error(`\`${method}\` before \`ui/initialize\``);
    if (busy >= LIMITS.requests) throw new Error("too many requests at once");
    busy++;
    try {
      return await act(params, signal);
    } finally {
      busy--;
    }
  }

  function noticed(method: string, params: Fields): void {
    const [, name] = /^ui\/notifications\/(.+)/.exec(method) ?? [];
    if (name === "initialized") {
      if (stage === "greeted") reach("ready");
    } else if (stage !== "ready") return;
    else if (name === "size-changed") view.resized(Number(params.height));
    else if (name === "request-teardown") view.onrequestteardown?.();
    else if (method === "notifications/message") view.onlog?.(params);
    else if (method === "notifications/tools/list_changed" && app.appCapabilities?.tools?.listChanged) changed();
  }

  /** So many notifications in a second, and no more. */
  function flooded(): boolean {
    const now = Math.floor(performance.now() / 1000);
    heard = now === second ? heard + 1 : 1;
    second = now;
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
    get stage() {
      return stage;
    },
    get app() {
      return app;
    },
    ask: wire.request,
    close: wire.close,
    notify: wire.notify,
    hear(data) {
      let message = parsed(data);
      const large = tooLarge(data);
      // A request that is too large gets no answer; one of ours, that answer.
      if (message && large) message = "method" in message ? undefined : { id: message.id, error: new RpcError(INTERNAL, "too large") };
      if (message && "method" in message && message.id === undefined && flooded()) message = undefined;
      view.onmessagelog?.({ from: "app", message: large ? "too large" : data, heard: !!message });
      if (message) wire.receive(message);
    },
    refresh() {
      const news = stage === "ready" ? changes() : {};
      if (Object.keys(news).length > 0) wire.notify("ui/notifications/host-context-changed", news);
    },
  };
}

