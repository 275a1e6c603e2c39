// `<mcp-view>` in a document in, a page that is not trusted shown out, and what it and the host say to each other.
import type { HostContext, ToolResult } from "../../bridge/types.ts";
import type { Fields } from "../../lib/rpc.ts";
import { framed } from "./frame.ts";
import { callTool, listTools } from "./guest.ts";
import type { AppTool, Ask } from "./guest.ts";
import type { Hooks, ModelContext, Tool, ToolParams } from "./host.ts";
import { LIMITS } from "./limits.ts";
import { lookOf, watchLook } from "./look.ts";
import { contents, dressed, inlined, textOf } from "./page.ts";
import type { Resource } from "./page.ts";
import { session } from "./session.ts";
import type { Session, Shower, Stage } from "./session.ts";

/** `shown`: the page is there, and has said nothing yet; `ready`: it and the host talk. */
export type Status = "idle" | "loading" | Stage | "failed" | "closed";

/** What a server says of a page: `_meta.ui` of its resource. */
export interface PageMeta {
  readonly csp?: Fields;
  readonly permissions?: Fields;
  readonly prefersBorder?: boolean;
}

const READ = 30_000;
const sheet = new CSSStyleSheet();
sheet.replaceSync(
  ":host{display:block}:host([hidden]){display:none}iframe{display:block;border:0;width:100%;height:100%}p{padding:12px;overflow-wrap:anywhere}",
);

export class McpView extends HTMLElement implements Shower {
  static readonly observedAttributes = ["src", "sandbox-url"];

  resolver: Hooks["resolver"];
  resourceLister: Hooks["resourceLister"];
  toolCaller: Hooks["toolCaller"];
  onopenlink: Hooks["onopenlink"];
  ondownload: Hooks["ondownload"];
  onmessage: Hooks["onmessage"];
  onmodelcontext: Hooks["onmodelcontext"];
  onrequestdisplaymode: Hooks["onrequestdisplaymode"];
  onrequestteardown: Hooks["onrequestteardown"];
  onlog: Hooks["onlog"];
  onconfirmtool: Hooks["onconfirmtool"];
  onmessagelog: Hooks["onmessagelog"];
  hostInfo = { name: "mcp-view", version: "1" };
  /** What `resources/list` says of the page, where the resource itself says nothing. */
  meta: PageMeta = {};
  /** Lets the page have less than its server asks for. */
  onpagemeta: ((meta: PageMeta) => PageMeta) | undefined;
  /** Names this view among others. */
  readonly instance = crypto.randomUUID().slice(0, 8);
  /** What the page told the model last. */
  modelContext: ModelContext = {};

  readonly #root = this.attachShadow({ mode: "open" });
  readonly #told: Record<string, Fields> = {};
  #html: string | undefined;
  #data: unknown;
  #tools: readonly Tool[] = [];
  #more: HostContext = {};
  #stay = new AbortController();
  #run = new AbortController();
  #session: Session | undefined;
  #worn: string | undefined;

  /** The page itself, in place of `src`. */
  set html(html: string) {
    this.#html = html;
    this.#soon();
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
    this.#tell("result", { ...result });
  }
  set toolCancelled(reason: string) {
    this.#tell("cancelled", { reason });
  }
  /** Anything else for the page: `window.mcpData` and the event `mcp-data` there. */
  set data(data: unknown) {
    this.#data = data;
    this.refresh();
  }
  /** More for the page to know: `{ displayMode, availableDisplayModes, locale, timeZone, toolInfo, ... }`. */
  set hostContext(more: HostContext) {
    this.#more = more;
    this.refresh();
  }
  get tools(): readonly Tool[] {
    return this.#tools;
  }
  set tools(tools: readonly Tool[]) {
    this.#tools = tools;
    if (this.status === "ready") this.#session?.notify("notifications/tools/list_changed", {});
  }
  get status(): Status {
    return (this.dataset.status ?? "idle") as Status;
  }
  /** What the page said of itself. */
  get appInfo(): Fields {
    return this.#session?.app.appInfo ?? {};
  }

  connectedCallback(): void {
    this.#root.adoptedStyleSheets = [sheet];
    this.#stay = new AbortController();
    watchLook(this, this.#stay.signal, () => this.refresh());
    this.#soon();
  }
  disconnectedCallback(): void {
    this.#stay.abort();
    this.#end("closed");
  }
  attributeChangedCallback(): void {
    this.#soon();
  }

  /** Shows the page once for all that is set in one go. With `defer`, not before `render()`. */
  #soon(): void {
    const { signal } = this.#again();
    queueMicrotask(() => {
      const deferred = this.status === "idle" && this.hasAttribute("defer");
      if (!signal.aborted && !deferred && this.isConnected && (this.#html ?? this.getAttribute("src"))) void this.render();
    });
  }
  #again(): AbortController {
    this.#run.abort(new Error("shown anew"));
    return (this.#run = new AbortController());
  }

  /** Shows the page, or shows it anew. */
  async render(): Promise<void> {
    this.#end("loading");
    const { signal } = this.#again();
    try {
      const { html, ...sandbox } = await this.#load(signal);
      signal.throwIfAborted();
      const frame = document.createElement("iframe");
      frame.title = this.ariaLabel ?? (this.title || "App");
      frame.part.add("frame");
      const received = (data: unknown): void => this.#session?.hear(data);
      const post = await framed(this.#root, frame, { html, ...sandbox }, this.getAttribute("sandbox-url"), signal, received);
      this.#session = session(this, sandbox, post);
      this.reached("shown");
    } catch (error) {
      if (signal.aborted) return;
      this.#end("failed");
      const says = document.createElement("p");
      says.role = "alert";
      says.textContent = String(error);
      this.#root.append(says);
      this.#event("failed", error);
    }
  }

  async #load(signal: AbortSignal): Promise<PageMeta & { readonly html: string }> {
    const read = async (uri: string): Promise<Resource> => {
      if (!this.resolver) throw new Error(`this host has no \`resolver\` to read ${uri}`);
      const limit = AbortSignal.any([signal, AbortSignal.timeout(READ)]);
      const late = new Promise<never>((_, reject) => limit.addEventListener("abort", () => reject(limit.reason)));
      const [found] = await contents(uri, await Promise.race([this.resolver(uri, { signal: limit }), late]));
      if (!found) throw new Error(`${uri} is empty`);
      return found;
    };
    const page = this.#html === undefined ? await read(String(this.getAttribute("src"))) : { mimeType: "text/html", text: this.#html };
    if (!/^text\/html\b/.test(page.mimeType ?? "")) throw new Error(`not a page, but \`${page.mimeType}\``);
    const html = await inlined(textOf(page), read);
    const given: PageMeta = page._meta?.ui ?? this.meta;
    const { csp, permissions, prefersBorder } = this.onpagemeta?.(given) ?? given;
    this.toggleAttribute("border", prefersBorder === true);
    // A page of MCP Apps asks for its look itself.
    const bare = page.mimeType?.includes("mcp-app");
    const wear = this.#wear();
    this.#worn = bare ? undefined : JSON.stringify(wear);
    return { html: bare ? html : dressed(html, wear), ...(csp && { csp }), ...(permissions && { permissions }) };
  }

  context(): HostContext {
    const { theme, variables, ours } = lookOf(this);
    const { clientWidth: width, clientHeight: height } = this;
    return {
      theme,
      styles: { variables },
      "dev.bailiwick/variables": ours,
      displayMode: "inline",
      availableDisplayModes: ["inline"],
      containerDimensions: this.hasAttribute("auto-height") ? { width, maxHeight: this.#most() } : { width, height },
      locale: this.closest<HTMLElement>("[lang]")?.lang || navigator.language,
      timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone,
      userAgent: this.hostInfo.name,
      platform: "web",
      ...this.#more,
    };
  }

  #wear(): Fields {
    const { theme, variables, ours } = lookOf(this);
    return { theme, variables: { ...variables, ...ours }, data: this.#data };
  }

  /** Tells the page what has changed of look, size and data. It is called for what the document shows to have changed. */
  refresh(): void {
    if (!this.#session) return;
    this.#session.refresh();
    const wear = this.#wear();
    const text = JSON.stringify(wear);
    // Nothing is said to a page that is about to be ready.
    if (this.status === "greeted" || text === this.#worn || (this.#worn ?? this.#data) === undefined) return;
    this.#worn = text;
    this.#session.notify("dev.bailiwick/notifications/dress", wear);
  }

  reached(stage: Stage): void {
    this.dataset.status = stage;
    if (stage !== "ready") return;
    for (const name of ["input", "result", "cancelled"]) if (this.#told[name]) this.#tell(name, this.#told[name]);
    this.refresh();
    this.#event("ready");
  }

  #most(): number {
    return Number(this.getAttribute("max-height")) || 10_000;
  }
  resized(height: number): void {
    if (height >= 0 && this.hasAttribute("auto-height")) this.style.height = `${Math.min(height, this.#most())}px`;
  }

  toolsChanged(): void {
    this.#event("toolschanged");
  }

  #tell(name: string, params: Fields): void {
    this.#told[name] = params;
    if (this.status === "ready") this.#session?.notify(`ui/notifications/tool-${name}`, params);
  }

  #event(name: string, detail?: unknown): void {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }

  #end(status: Status): void {
    this.#run.abort(new Error("closed"));
    this.#session?.close("the view was closed");
    this.#session = undefined;
    this.modelContext = {};
    this.#root.replaceChildren();
    this.dataset.status = status;
  }

  /** Lets the page put its things away, for a second at most, and takes it away. */
  async teardown(): Promise<void> {
    if (this.status === "ready") await this.#session?.ask("ui/resource-teardown", {}, 1000).catch(() => {});
    this.#end("closed");
  }

  /** One time for all that is asked of the page in a go. */
  #ask(): Ask {
    const signal = AbortSignal.timeout(LIMITS.call);
    return async (method, params) => {
      if (this.status !== "ready" || !this.#session) throw new Error(`the view is ${this.status}`);
      return this.#session.ask(method, params, LIMITS.call, signal);
    };
  }
  /** The tools of the page, as it names them. */
  async sendListTools(): Promise<{ readonly tools: readonly Tool[] }> {
    return { tools: this.#session?.app.appCapabilities?.tools ? await listTools(this.#ask()) : [] };
  }
  /** Calls a tool of the page, by its own name or by that of `appTools()`. */
  async sendCallTool(params: ToolParams): Promise<ToolResult> {
    return callTool(this.#ask(), { ...params, name: params.name.replace(this.#prefix, "") }, this.onconfirmtool);
  }
  /** The tools of the page as a model may be told of them: `app_<instance>__<name>`, with the app that they are of. */
  async appTools(): Promise<readonly AppTool[]> {
    const { tools } = await this.sendListTools();
    const app = { ...this.appInfo, instance: this.instance };
    return tools.map((tool) => ({ ...tool, name: this.#prefix + tool.name, untrusted: true, app }));
  }
  readonly #prefix = `app_${this.instance}__`;
}
