// Requests of a page in, what its host lets be done out: the host half of MCP Apps 2026-01-26.
import type { Content, DisplayMode, HostContext } from "../../bridge/types.ts";
import { INVALID_PARAMS, METHOD_NOT_FOUND, RpcError, isFields } from "../../lib/rpc.ts";
import type { Fields } from "../../lib/rpc.ts";
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
  readonly content?: readonly Content[];
  readonly structuredContent?: Fields;
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
  toolCaller: Hook<(params: ToolParams, extra: { readonly signal: AbortSignal }) => unknown>;
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
  /** Asks the person before a tool of the page is called that does not say it only reads. */
  onconfirmtool: Hook<(tool: Tool, input: Fields) => Answer<boolean>>;
  /** Is told each message of the page before anything is done with it, and each message to it. */
  onmessagelog: Hook<(entry: Logged) => void>;
  hostInfo: { readonly name: string; readonly version: string };
  modelContext: ModelContext;
}

type Method = (params: Fields, signal: AbortSignal) => Answer<Fields>;

/** A result of a tool, whatever the host gave. */
function resultOf(given: unknown): Fields {
  if (isFields(given) && Array.isArray(given.content)) return given;
  const text = typeof given === "string" ? given : (JSON.stringify(given) ?? "");
  return { content: [{ type: "text", text }], ...(isFields(given) && { structuredContent: given }) };
}

export function capabilities(view: Hooks, sandbox: Fields): Fields {
  const any = { text: {}, image: {}, audio: {}, resource: {}, resourceLink: {}, structuredContent: {} };
  return {
    logging: {},
    sandbox,
    updateModelContext: any,
    ...(view.onmessage && { message: any }),
    ...(view.onopenlink && { openLinks: {} }),
    ...(view.ondownload && { downloadFile: {} }),
    ...(view.toolCaller && { serverTools: { listChanged: true } }),
    ...(view.resolver && { serverResources: {} }),
  };
}

export function methods(view: Hooks, context: () => HostContext): Readonly<Record<string, Method>> {
  const hook = <K extends keyof Hooks>(name: K): NonNullable<Hooks[K]> => {
    const found = view[name];
    if (!found) throw new RpcError(METHOD_NOT_FOUND, `this host has no \`${name}\``);
    return found;
  };
  const done = async (agreed: Answer<boolean>): Promise<Fields> => ((await agreed) ? {} : { isError: true });
  const blocks = (value: unknown): readonly Content[] => (Array.isArray(value) ? value : []);
  return {
    ping: () => ({}),
    async "tools/call"({ name, arguments: input }, signal) {
      const call = hook("toolCaller");
      const tool = view.tools.find((one) => one.name === name);
      // The model's tools, and those of other servers, are none of a page's business.
      if (!tool || !(tool._meta?.ui?.visibility ?? ["app"]).includes("app")) {
        throw new RpcError(INVALID_PARAMS, `\`${name}\` is not among the view's \`tools\` for apps`);
      }
      return resultOf(await call({ name: tool.name, arguments: isFields(input) ? input : {} }, { signal }));
    },
    async "resources/read"(params, signal) {
      const uri = String(params.uri);
      return { contents: await contents(uri, await hook("resolver")(uri, { signal })) };
    },
    "resources/list": ({ cursor }) => hook("resourceLister")(cursor),
    "ui/message": ({ content }) => done(hook("onmessage")(blocks(content))),
    "ui/download-file": (params) => done(hook("ondownload")(blocks(params.contents))),
    "ui/update-model-context"({ content, structuredContent }) {
      view.modelContext = {
        ...(Array.isArray(content) && { content }),
        ...(isFields(structuredContent) && { structuredContent }),
      };
      view.onmodelcontext?.(view.modelContext);
      return {};
    },
    async "ui/open-link"(params) {
      const url = new URL(String(params.url));
      if (!/^https?:$/.test(url.protocol)) throw new RpcError(INVALID_PARAMS, "only http and https links are opened");
      const agreed = await hook("onopenlink")(url);
      if (agreed) open(url, "_blank", "noopener,noreferrer");
      return done(agreed);
    },
    async "ui/request-display-mode"(params) {
      const { displayMode = "inline", availableDisplayModes = [] } = context();
      const wanted = availableDisplayModes.find((mode) => mode === params.mode);
      return { mode: (wanted && (await view.onrequestdisplaymode?.(wanted))) ?? displayMode };
    },
  };
}
