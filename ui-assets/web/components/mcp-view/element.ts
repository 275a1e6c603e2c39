// The `<mcp-view>` custom element, which shows an untrusted page in a sandboxed frame.
import type { HostContext, ToolResult } from "../../bridge/types.ts";
import type { Fields } from "../../lib/json.ts";
import { TOOLS_CHANGED, fail } from "../../lib/rpc.ts";
import { FILL, framed, post } from "./frame.ts";
import { callTool, listTools } from "./guest.ts";
import type { AppTool, Ask } from "./guest.ts";
import type { Hooks, ModelContext, Tool, ToolParams } from "./host.ts";
import { LIMITS, UI, late } from "./limits.ts";
import { lookOf, watchLook } from "./look.ts";
import { contentOf, dressed, inlined, textOf } from "./page.ts";
import type { Resolved } from "./page.ts";
import { session } from "./session.ts";
import type { Session, Shower, Stage } from "./session.ts";

/** `shown`: the page is loaded but has not sent a message; `ready`: the handshake is complete. */
export type Status = "idle" | "loading" | Stage | "failed" | "closed";

/** Page metadata from the server: `_meta.ui` of its resource. */
export interface PageMeta {
  readonly csp?: Fields;
  readonly permissions?: Fields;
}

const READ = 30_000;
const sheet = new CSSStyleSheet();
sheet.replaceSync(`:host(:not([hidden])),iframe{display:block}iframe{${FILL}}`);

export class McpView extends HTMLElement implements Shower {
  static readonly observedAttributes = ["src", "sandbox-url"];

  declare resolver: Hooks["resolver"];
  declare resourceLister: Hooks["resourceLister"];
  declare toolCaller: Hooks["toolCaller"];
  declare onopenlink: Hooks["onopenlink"];
  declare ondownload: Hooks["ondownload"];
  declare onmessage: Hooks["onmessage"];
  declare onmodelcontext: Hooks["onmodelcontext"];
  declare onrequestdisplaymode: Hooks["onrequestdisplaymode"];
  declare onrequestteardown: Hooks["onrequestteardown"];
  declare onlog: Hooks["onlog"];
  declare onnotification: Hooks["onnotification"];
  declare onconfirmtool: Hooks["onconfirmtool"];
  declare onmessagelog: Hooks["onmessagelog"];
  /** Overrides what the page is granted. By default, a page gets the CSP domains it declares and no permissions. */
  declare onpagemeta: ((meta: PageMeta) => PageMeta) | undefined;
  /** Metadata from `resources/list`, used if the resource itself has none. */
  meta: PageMeta = {};
  hostInfo = { name: "mcp-view", version: "1" };
  /** The latest model context from the page. */
  modelContext: ModelContext = {};
  /** Identifies this view among others. */
  readonly instance = crypto.randomUUID().slice(0, 8);

  readonly #prefix = `app_${this.instance}__`;
  readonly #root = this.attachShadow({ mode: "open" });
  readonly #told: Record<string, Fields> = {};
  #html: string | undefined;
  #data: unknown;
  #tools: readonly Tool[] = [];
  #more: HostContext = {};
  #run = new AbortController();
  #session: Session | undefined;

  /** The page's HTML, as an alternative to `src`. */
  set html(html: string) {
    this.#html = html;
    void this.#soon();
  }
  set src(src: string) {
    this.setAttribute("src", src);
  }
  set toolInput(input: Fields) {
    this.#tell("input", { arguments: input });
  }
  set toolInputPartial(input: Fields) {
    this.#tell("input-partial", { arguments: input });
  }
  set toolResult(result: ToolResult) {
    this.#tell("result", result as ToolResult & Fields);
  }
  set toolCancelled(reason: string) {
    this.#tell("cancelled", { reason });
  }
  /**
   * Custom data for the page: `dev.bailiwick/data` in its host context. Pages without a bridge get `window.mcpData` and
   * the event `mcp-data`.
   */
  set data(data: unknown) {
    this.#data = data;
    this.refresh();
  }
  /** Additional host context: `{ displayMode, availableDisplayModes, locale, timeZone, toolInfo, ... }`. */
  set hostContext(more: HostContext) {
    this.#more = more;
    this.refresh();
  }
  get tools(): readonly Tool[] {
    return this.#tools;
  }
  set tools(tools: readonly Tool[]) {
    this.#tools = tools;
    this.#ready?.notify(TOOLS_CHANGED, {});
  }
  get status(): Status {
    return (this.dataset.status ?? "idle") as Status;
  }
  /** The `appInfo` of the page's `ui/initialize` request. */
  get appInfo(): Fields {
    return this.#session?.app.appInfo ?? {};
  }

  connectedCallback(): void {
    this.#root.adoptedStyleSheets = [sheet];
    void this.#soon();
  }
  disconnectedCallback(): void {
    this.#end("closed");
  }
  attributeChangedCallback(): void {
    void this.#soon();
  }

  /** Renders once after several synchronous changes. With `defer`, waits for the first `render()`. */
  async #soon(): Promise<void> {
    await null;
    const wanted = this.#html ?? this.getAttribute("src");
    if (wanted && this.isConnected && (this.dataset.status || !this.hasAttribute("defer"))) void this.render();
  }

  /** Renders the page, replacing the current one. */
  async render(): Promise<void> {
    const signal = this.#end("loading");
    try {
      // Wait for other properties that are set in the same task.
      await null;
      signal.throwIfAborted();
      const read = (uri: string): Promise<Resolved> =>
        Promise.race([
          (this.resolver || fail(`this host has no \`resolver\` to read ${uri}`))(uri, { signal }),
          late(READ, `${uri} was not read in time`),
        ]);
      const src = String(this.getAttribute("src"));
      const page = contentOf(src, this.#html ?? (await read(src)));
      const mimeType = String(page.mimeType);
      if (!/^text\/html\b/.test(mimeType)) fail(`not a page, but \`${mimeType}\``);
      const html = await inlined(textOf(page), read);
      signal.throwIfAborted();
      const given: PageMeta = page._meta?.ui ?? this.meta;
      // Declared CSP domains are allowed by default; device permissions need the host's consent.
      const { csp = {}, permissions = {} }: PageMeta = this.onpagemeta?.(given) ?? { ...given, permissions: {} };
      // MCP Apps pages request the theme through the protocol.
      const bare = mimeType.includes("mcp-app");
      const frame = document.createElement("iframe");
      frame.title = this.ariaLabel || this.title || "App";
      const granted = { csp, permissions };
      const made = session(this, granted, !bare, (message) => post(frame, message));
      const whole = { html: bare ? html : dressed(html, made.news()), ...granted };
      await framed(this.#root, frame, whole, this.getAttribute("sandbox-url"), signal, made.hear);
      this.#session = made;
      this.reached("shown");
      watchLook(this, signal, made.refresh);
    } catch (error) {
      if (signal.aborted) return;
      this.#end("failed");
      const says = document.createElement("p");
      says.role = "alert";
      // The error may contain text from a server: strip control, format and separator characters.
      says.textContent = String(error).replace(/[\p{C}\p{Z}]+/gu, " ").slice(0, 500);
      this.#root.append(says);
      this.#event("failed", error);
    }
  }

  context(): HostContext {
    const { clientWidth: width, clientHeight: height } = this;
    const maxHeight = this.#most();
    return {
      ...lookOf(this),
      "dev.bailiwick/data": this.#data,
      displayMode: "inline",
      availableDisplayModes: ["inline"],
      containerDimensions: maxHeight ? { width, maxHeight } : { width, height },
      locale: this.closest<HTMLElement>("[lang]")?.lang || navigator.language,
      timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone,
      userAgent: this.hostInfo.name,
      platform: "web",
      ...this.#more,
    };
  }

  /**
   * Sends changes of theme, size and data to the page. Called automatically when a change is observed in the document.
   */
  refresh(): void {
    this.#session?.refresh();
  }

  reached(stage: Stage): void {
    this.dataset.status = stage;
    if (stage !== "ready") return;
    for (const name of ["input", "result", "cancelled"]) if (this.#told[name]) this.#tell(name, this.#told[name]);
    this.refresh();
    this.#event("ready");
  }

  /** The maximum height of the page if `auto-height` is set, otherwise `false`. */
  #most(): number | false {
    return this.hasAttribute("auto-height") && (Number(this.getAttribute("max-height")) || 10_000);
  }
  resized(height: unknown): void {
    const most = this.#most();
    if (most && typeof height === "number" && height >= 0) this.style.height = `${Math.min(height, most)}px`;
  }

  #tell(name: string, params: Fields): void {
    this.#told[name] = params;
    this.#ready?.notify(`${UI}tool-${name}`, params);
  }

  /** The session once the page is ready. Earlier notifications are sent on `ready`, or are part of the host context. */
  get #ready(): Session | undefined {
    if (this.status === "ready") return this.#session;
  }

  #event(name: string, detail?: unknown): void {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }

  /** Ends the current run; returns the abort signal of the next one. */
  #end(status: Status): AbortSignal {
    this.#run.abort();
    this.#run = new AbortController();
    this.#session?.close("the view was closed");
    this.#session = undefined;
    this.modelContext = {};
    this.#root.replaceChildren();
    this.dataset.status = status;
    return this.#run.signal;
  }

  /** Requests teardown, waits at most one second and removes the page. */
  async teardown(): Promise<void> {
    await this.#ready?.ask("ui/resource-teardown", {}, 1000).catch(() => {});
    this.#end("closed");
  }

  /** Returns a request function whose calls share one deadline. */
  #ask(): Ask {
    const until = performance.now() + LIMITS.call;
    return (method, params) => (this.#ready ?? fail(`the view is ${this.status}`)).ask(method, params, until - performance.now());
  }
  /** The page's tools under their own names. */
  async sendListTools(): Promise<{ readonly tools: readonly Tool[] }> {
    return { tools: this.#session?.app.appCapabilities?.tools ? [...(await listTools(this.#ask())).values()] : [] };
  }
  /** Calls a tool of the page by its own name or by its name from `appTools()`. */
  async sendCallTool({ name, arguments: input = {} }: ToolParams): Promise<ToolResult> {
    return callTool(this.#ask(), name.replace(this.#prefix, ""), input, this.onconfirmtool);
  }
  /** The page's tools for a model, named `app_<instance>__<name>` and tagged with their app. */
  async appTools(): Promise<readonly AppTool[]> {
    const app = { ...this.appInfo, instance: this.instance };
    const { tools } = await this.sendListTools();
    return tools.map((tool) => ({ ...tool, name: this.#prefix + tool.name, untrusted: true, app }));
  }
}
