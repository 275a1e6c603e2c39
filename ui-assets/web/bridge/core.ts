// Client side of MCP Apps for a page in a frame: handshake, host notifications and requests to the host.
import { isFields } from "../lib/json.ts";
import type { Fields } from "../lib/json.ts";
import { METHOD_NOT_FOUND, parsed, peer, rpcError } from "../lib/rpc.ts";
import type { Extra, Peer, RequestOptions } from "../lib/rpc.ts";
import { look, root, watchSize } from "./look.ts";
import type { AppInfo, Capabilities, Content, DisplayMode, HostContext, ResourceContent, ToolResult, View } from "./types.ts";

const PROTOCOL = "2026-01-26";
const GREETING = 30_000;
// Requests to the host get a long timeout because a person may have to answer first.
const ANSWER = 300_000;

/** Handles a request from the host; returns `undefined` for an unknown method. */
export type Serve = (method: string, params: Fields, extra: Extra) => Promise<Fields> | Fields | undefined;

/** The connection without a method per request, for pages that need a small script. */
export interface Link extends Pick<View, "connect" | "close" | "context" | "host"> {
  /** Capabilities sent to the host in `connect()`. */
  readonly declared: Capabilities;
  readonly isNew: () => boolean;
  readonly notify: (method: string, params?: Fields) => void;
  /** Subscribes to a notification, or to the teardown request. */
  readonly on: <T>(method: string, cb: (value: T) => unknown) => () => void;
  readonly ask: (method: string, params: object, options?: RequestOptions) => Promise<Fields>;
}

export interface Core extends View, Omit<Link, "on" | "ask"> {}

function toolResult(result: Fields): ToolResult {
  // Hosts check results; a page only relies on `content` being a list.
  return { ...result, content: Array.isArray(result.content) ? (result.content as Content[]) : [] };
}

export function link({ capabilities = {}, autoSize = true, ...appInfo }: AppInfo, serve: Serve): Link {
  const listeners = new Map<string, Set<(value: never) => unknown>>();
  const came = new Map<string, unknown>();
  const ends: (() => void)[] = [];
  const declared = { ...capabilities };
  let context: HostContext = {};
  let host: Fields = {};
  let state: "new" | "connecting" | "ready" | "closed" = "new";
  let wire: Peer | undefined;

  function on<T>(name: string, cb: (value: T) => unknown): () => void {
    const all = listeners.get(name) ?? new Set();
    listeners.set(name, all.add(cb));
    // Deliver a notification that arrived before its callback was registered.
    if (came.has(name)) queueMicrotask(() => all.has(cb) && cb(came.get(name) as T));
    return () => all.delete(cb);
  }

  const tell = (name: string, value: unknown): unknown[] => [...(listeners.get(name) ?? [])].map((cb) => cb(value as never));

  function notification(method: string, params: Fields): void {
    let value: unknown = params;
    if (method.includes("/tool-input")) value = isFields(params.arguments) ? params.arguments : {};
    else if (method.endsWith("/tool-result")) value = toolResult(params);
    else if (method.endsWith("/tool-cancelled")) value = params.reason;
    else if (method.endsWith("/host-context-changed")) look((value = context = { ...context, ...params }));
    if (/\/tool-(input|result|cancelled)$/.test(method)) came.set(method, value);
    tell(method, value);
  }

  async function request(method: string, params: Fields, extra: Extra): Promise<Fields> {
    if (method === "ui/resource-teardown") await Promise.all(tell(method, undefined));
    else if (method !== "ping") {
      const answer = serve(method, params, extra);
      if (answer === undefined) throw rpcError(METHOD_NOT_FOUND, `\`${method}\` is not known here`);
      return answer;
    }
    return {};
  }

  async function ask(method: string, params: object, options?: RequestOptions): Promise<Fields> {
    if (wire === undefined) throw new Error("not connected");
    return wire.ask(method, params as Fields, options?.timeout ?? ANSWER);
  }
  const notify = (method: string, params: Fields = {}): void => wire?.notify(method, params);

  async function greet(): Promise<void> {
    const parent = window.parent;
    if (parent === window) throw new Error("this page is in no frame of an MCP Apps host");
    const made = (wire = peer((message) => parent.postMessage(message, "*"), request, notification));
    const receive = ({ source, data }: MessageEvent): void => {
      const message = source === parent ? parsed(data) : undefined;
      if (message !== undefined) made.hear(message);
    };
    addEventListener("message", receive);
    ends.push(() => removeEventListener("message", receive));
    const hello = { appInfo, appCapabilities: declared, protocolVersion: PROTOCOL };
    host = await ask("ui/initialize", hello, { timeout: GREETING });
    if (isFields(host.hostContext)) look((context = host.hostContext));
    notify("ui/notifications/initialized");
    state = "ready";
    if (autoSize) ends.push(watchSize((size) => notify("ui/notifications/size-changed", size)));
  }

  const close = (): void => {
    state = "closed";
    for (const end of ends) end();
    wire?.close("the bridge is closed");
  };

  return {
    async connect() {
      if (state !== "new") throw new Error("`connect()` was called before");
      state = "connecting";
      const status = root.dataset;
      status.appStatus = state;
      try {
        await greet();
        status.appStatus = "ready";
      } catch (error) {
        close();
        status.appStatus = "failed";
        throw error;
      }
    },
    close,
    declared,
    isNew: () => state === "new",
    notify: (method, params) => {
      if (state === "ready") notify(method, params);
    },
    context: () => context,
    host: () => host,
    on,
    ask,
  };
}

/** The connection with a named method for each request and notification. */
export function core(info: AppInfo, serve: Serve): Core {
  const made = link(info, serve);
  const { on, ask } = made;
  const done = async (method: string, params: object, options?: RequestOptions): Promise<boolean> =>
    (await ask(method, params, options)).isError !== true;
  return {
    ...made,
    onContext: (cb) => on("ui/notifications/host-context-changed", cb),
    onToolInput: (cb) => on("ui/notifications/tool-input", cb),
    onToolInputPartial: (cb) => on("ui/notifications/tool-input-partial", cb),
    onToolResult: (cb) => on("ui/notifications/tool-result", cb),
    onToolCancelled: (cb) => on("ui/notifications/tool-cancelled", cb),
    onTeardown: (cb) => on("ui/resource-teardown", cb),
    onNotification: on,
    callTool: async (name, input = {}, options) => toolResult(await ask("tools/call", { name, arguments: input }, options)),
    async readResource(uri, options) {
      const { contents } = await ask("resources/read", { uri }, options);
      if (!Array.isArray(contents)) throw new Error(`the host gave no contents of ${uri}`);
      return contents as ResourceContent[];
    },
    listResources: (cursor, options) => ask("resources/list", cursor === undefined ? {} : { cursor }, options),
    sendMessage: (text, options) =>
      done("ui/message", { role: "user", content: typeof text === "string" ? [{ type: "text", text }] : text }, options),
    async updateModelContext(told) {
      await ask("ui/update-model-context", told);
    },
    openLink: (url) => done("ui/open-link", { url }),
    downloadFile: (contents) => done("ui/download-file", { contents }),
    requestDisplayMode: async (mode) => (await ask("ui/request-display-mode", { mode })).mode as DisplayMode,
    requestTeardown: () => made.notify("ui/notifications/request-teardown"),
    log: (level, data) => made.notify("notifications/message", { level, logger: info.name, data }),
  };
}
