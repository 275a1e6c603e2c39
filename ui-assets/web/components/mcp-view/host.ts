// Requests of a page in, what its host lets be done out: the host half of MCP Apps 2026-01-26.
import type { Content, DisplayMode, HostContext } from "../../bridge/types.ts";
import { isFields, listOf } from "../../lib/kinds.ts";
import type { Fields } from "../../lib/kinds.ts";
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
  /** Whether anything is done with it. */
  readonly heard: boolean;
}

type Answer<T> = T | Promise<T>;
type Hook<T> = T | undefined;

/** What a host sets on the element. What is not set is refused to the page. */
export interface Hooks {
  /** Reads `ui://` and other resources of the server that the page is from. */
  resolver: Hook<Resolver>;
  /** Lists them: `{ resources, nextCursor? }`. */
  resourceLister: Hook<(cursor: unknown) => Answer<Fields>>;
  /** Calls a tool of that server; it is asked only for those among `tools` that are for apps. */
  toolCaller: Hook<(params: ToolParams, extra: Extra) => Answer<Fields>>;
  /** The tools of that server, as `tools/list` gave them. */
  tools: readonly Tool[];
  /** Asks the person; the link, http or https, is opened after `true`. */
  onopenlink: Hook<(url: URL) => Answer<boolean>>;
  /** Asks the person and saves the contents; `true` if it did. */
  ondownload: Hook<(contents: readonly Content[]) => Answer<boolean>>;
  /** Asks the person and says it in the conversation; `true` if it did. */
  onmessage: Hook<(content: readonly Content[]) => Answer<boolean>>;
  /** What the page tells the model, in place of what it told before. */
  onmodelcontext: Hook<(context: ModelContext) => void>;
  /** Answers the mode that is shown from now on. */
  onrequestdisplaymode: Hook<(mode: DisplayMode) => Answer<DisplayMode>>;
  onrequestteardown: Hook<() => void>;
  onlog: Hook<(entry: Fields) => void>;
  /** Hears every other notification of the page. */
  onnotification: Hook<(method: string, params: Fields) => void>;
  /** Asks the person before a tool of the page is called that does not say it only reads. */
  onconfirmtool: Hook<(tool: Tool, input: Fields) => Answer<boolean>>;
  /** Is told each message of the page before anything is done with it, and each message to it. */
  onmessagelog: Hook<(entry: Logged) => void>;
  hostInfo: { readonly name: string; readonly version: string };
  modelContext: ModelContext;
}

/** An element with its hooks set, as this file needs it. */
export interface Shown extends Hooks {
  context(): HostContext;
}

type Method = (params: Fields, extra: Extra) => Answer<Fields>;

/** What a page may tell the model, or have said. */
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
  /** What `ask` says of what a page may want done, for a method that takes it as `key`. */
  const consent =
    (name: "onmessage" | "ondownload", key: string): Method =>
    async (params) => (await hook(name)(listOf(params[key]) as readonly Content[])) ? {} : { isError: true };
  return {
    __proto__: null as never,
    ping: () => ({}),
    "tools/call"({ name, arguments: input }, extra) {
      const call = hook("toolCaller");
      const tool = view.tools.find((one) => one.name === name);
      // The model's tools, and those of other servers, are none of a page's business.
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
