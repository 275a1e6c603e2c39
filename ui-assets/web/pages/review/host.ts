// Minimal MCP Apps client for the review page, without the general bridge.
import { look, root, watchSize } from "../../bridge/look.ts";
import type { HostContext } from "../../bridge/types.ts";
import { isFields } from "../../lib/kinds.ts";
import type { Fields } from "../../lib/kinds.ts";

export interface Host {
  context(): HostContext;
  /** Reads a resource as JSON. */
  load(uri: string): Promise<unknown>;
  call(tool: string, input: Fields): Promise<Fields>;
  notify(method: string, params: Fields): void;
}

/** Connects to the host; `heard` receives its notifications in order. */
export function host(heard: (method: string, params: Fields) => void): Host {
  const parent = window.parent;
  const status = root.dataset;
  const asked = new Map<unknown, (answer: Fields) => void>();
  let context: HostContext = {};
  let last = 0;
  const send = (message: Fields): void => parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
  const notify = (method: string, params: Fields = {}): void => send({ method, params });

  const dress = (changes: Fields): void => {
    look((context = { ...context, ...changes }));
    heard("", changes);
  };
  function ask(method: string, params: Fields): Promise<Fields> {
    return new Promise((resolve, reject) => {
      const id = (last += 1);
      asked.set(id, ({ result, error }) => {
        asked.delete(id);
        if (isFields(result)) resolve(result);
        else reject(new Error(isFields(error) ? String(error.message) : "the host does not answer"));
      });
      setTimeout(() => asked.get(id)?.({}), 60_000);
      send({ id, method, params });
    });
  }
  const call = async (name: string, input: Fields): Promise<Fields> => {
    const { isError, structuredContent, content } = await ask("tools/call", { name, arguments: input });
    if (isError || !isFields(structuredContent)) throw new Error(said(content) || "the tool gave nothing");
    return structuredContent;
  };

  addEventListener("message", ({ source, data }: MessageEvent) => {
    if (source !== parent || source === window || !isFields(data)) return;
    const { id, method } = data;
    const params = isFields(data.params) ? data.params : {};
    if (typeof method !== "string") asked.get(id)?.(data);
    // Other requests are rejected. Teardown needs no cleanup.
    else if (id !== undefined) send(/ping|teardown/.test(method) ? { id, result: {} } : { id, error: { code: -32601, message: "not known here" } });
    else {
      if (method.endsWith("host-context-changed")) dress(params);
      else heard(method, params);
    }
  });
  const ready = (async () => {
    if (parent === window) throw new Error("this page is not connected to its server");
    status.appStatus = "connecting";
    const { hostContext } = await ask("ui/initialize", {
      appInfo: { name: "bailiwick-review", title: "Review", version: "1" },
      appCapabilities: {},
      protocolVersion: "2026-01-26",
    });
    notify("ui/notifications/initialized");
    status.appStatus = "ready";
    if (isFields(hostContext)) dress(hostContext);
    watchSize((size) => notify("ui/notifications/size-changed", size));
  })();
  // Callers that need the host see the rejection; the page also works without a host.
  ready.catch(() => undefined);

  return {
    context: () => context,
    call: (tool, input) => ready.then(() => call(tool, input)),
    notify,
    async load(uri) {
      await ready;
      try {
        const { contents } = await ask("resources/read", { uri });
        return JSON.parse(String((contents as Fields[])[0]?.text));
      } catch {
        // Fallback for hosts that do not offer resources to views.
        return call("review_rows", { uri });
      }
    },
  };
}

/** The content blocks of a tool result. */
export const blocks = (content: unknown): readonly Fields[] => (Array.isArray(content) ? content.filter(isFields) : []);

/** The text of the content blocks. */
export const said = (content: unknown): string => blocks(content).map(({ text }) => (typeof text === "string" ? text : "")).join(" ").trim();
