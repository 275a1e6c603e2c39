// Handles a page's requests: the host side of MCP Apps 2026-01-26.
import type { Content, DisplayMode, HostContext } from "../../bridge/types.ts";
import { isFields, listOf } from "../../lib/json.ts";
import type { Fields } from "../../lib/json.ts";
import { INVALID_PARAMS, METHOD_NOT_FOUND, fail } from "../../lib/rpc.ts";
import type { Extra } from "../../lib/rpc.ts";
import { contents } from "./page.ts";
import type { Resolver } from "./page.ts";

export interface Tool {
  readonly name: string;
  readonly title?: string;
  readonly description?: string;
  readonly inputSchema?: Fields;
  readonly outputSchema?: Fields;
  readonly annotations?: { readonly readOnlyHint?: boolean; readonly [key: string]: unknown };
  readonly _meta?: Fields & { readonly ui?: { readonly visibility?: readonly string[] } };
}

export interface ToolParams {
  readonly name: string;
  readonly arguments?: Fields;
}

export interface ModelContext {
  readonly content?: readonly Content[] | undefined;
  readonly structuredContent?: Fields | undefined;
}

export interface Logged {
  readonly from: "app" | "host";
  readonly message: unknown;
  /** Whether the message was processed; `false` if it was dropped. */
  readonly heard: boolean;
}

type Answer<T> = T | Promise<T>;
type Hook<T> = T | undefined;

/** Callbacks and properties that a host sets on the element. Requests without their callback are rejected. */
export interface Hooks {
  /** Reads `ui://` and other resources of the page's server. */
  resolver: Hook<Resolver>;
  /** Lists the resources of the page's server: `{ resources, nextCursor? }`. */
  resourceLister: Hook<(cursor: unknown) => Answer<Fields>>;
  /** Calls a tool of the page's server. Only called for tools in `tools` that are visible to apps. */
  toolCaller: Hook<(params: ToolParams, extra: Extra) => Answer<Fields>>;
  /** The server's tools, as returned by `tools/list`. */
  tools: readonly Tool[];
  /** Asks the person for consent; the http(s) link is opened if the result is `true`. */
  onopenlink: Hook<(url: URL) => Answer<boolean>>;
  /** Asks the person for consent and saves the contents; returns whether it did. */
  ondownload: Hook<(contents: readonly Content[]) => Answer<boolean>>;
  /** Asks the person for consent and adds the message to the conversation; returns whether it did. */
  onmessage: Hook<(content: readonly Content[]) => Answer<boolean>>;
  /** Called when the page replaces its model context. */
  onmodelcontext: Hook<(context: ModelContext) => void>;
  /** Returns the resulting display mode. */
  onrequestdisplaymode: Hook<(mode: DisplayMode) => Answer<DisplayMode>>;
  onrequestteardown: Hook<() => void>;
  onlog: Hook<(entry: Fields) => void>;
  /** Called for every other notification from the page. */
  onnotification: Hook<(method: string, params: Fields) => void>;
  /** Asks the person before a call to an app-provided tool without `readOnlyHint: true`. */
  onconfirmtool: Hook<(tool: Tool, input: Fields) => Answer<boolean>>;
  /** Called for each message from the page before it is processed, and for each message to the page. */
  onmessagelog: Hook<(entry: Logged) => void>;
  hostInfo: { readonly name: string; readonly version: string };
  modelContext: ModelContext;
}

/** The part of the element that this module uses. */
export interface Shown extends Hooks {
  context(): HostContext;
}

type Method = (params: Fields, extra: Extra) => Answer<Fields>;

/** Content types that a page may send in model context and messages. */
const SAID = { text: {}, image: {}, structuredContent: {} };

export const capabilities = (view: Hooks, sandbox: Fields): Fields => ({
  logging: {},
  sandbox,
  updateModelContext: SAID,
  message: view.onmessage && SAID,
  openLinks: view.onopenlink && {},
  downloadFile: view.ondownload && {},
  serverTools: view.toolCaller && { listChanged: true },
  serverResources: view.resolver && {},
});

export function methods(view: Shown): Readonly<Record<string, Method>> {
  const hook = <K extends keyof Hooks>(name: K): NonNullable<Hooks[K]> =>
    view[name] || fail(`this host has no \`${name}\``, METHOD_NOT_FOUND);
  /** Handles a method by passing `params[key]` to a callback that asks for consent. */
  const consent =
    (name: "onmessage" | "ondownload", key: string): Method =>
    async (params) => (await hook(name)(listOf(params[key]) as readonly Content[])) ? {} : { isError: true };
  return {
    __proto__: null as never,
    ping: () => ({}),
    "tools/call"({ name, arguments: input }, extra) {
      const call = hook("toolCaller");
      const tool = view.tools.find((one) => one.name === name);
      // A page can call only tools of its own server that are visible to apps.
      if (!tool || !(tool._meta?.ui?.visibility ?? ["app"]).includes("app")) {
        fail(`\`${name}\` is not among the view's \`tools\` for apps`, INVALID_PARAMS);
      }
      return call({ name: tool.name, arguments: isFields(input) ? input : {} }, extra);
    },
    async "resources/read"(params, extra) {
      const uri = String(params.uri);
      return { contents: contents(uri, await hook("resolver")(uri, extra)) };
    },
    "resources/list": ({ cursor }) => hook("resourceLister")(cursor),
    "ui/message": consent("onmessage", "content"),
    "ui/download-file": consent("ondownload", "contents"),
    "ui/update-model-context"({ content, structuredContent }) {
      view.modelContext = { content, structuredContent } as ModelContext;
      view.onmodelcontext?.(view.modelContext);
      return {};
    },
    async "ui/open-link"(params) {
      const url = new URL(params.url as string);
      if (!/^https?:$/.test(url.protocol)) fail("only http(s) is opened", INVALID_PARAMS);
      if (!(await hook("onopenlink")(url))) return { isError: true };
      open(url, "_blank", "noreferrer");
      return {};
    },
    async "ui/request-display-mode"({ mode }) {
      const { displayMode, availableDisplayModes } = view.context();
      const wanted = availableDisplayModes?.find((one) => one === mode);
      return { mode: (wanted && (await view.onrequestdisplaymode?.(wanted))) ?? displayMode };
    },
  };
}
