// Types of the bridge API. The wire format is MCP Apps 2026-01-26.
import type { Fields } from "../lib/json.ts";
import type { Extra, RequestOptions } from "../lib/rpc.ts";

export type { Extra, Fields, RequestOptions };
export type DisplayMode = "inline" | "fullscreen" | "pip";
export type LogLevel = "debug" | "info" | "notice" | "warning" | "error" | "critical" | "alert" | "emergency";

export interface HostContext {
  readonly theme?: "light" | "dark";
  readonly styles?: {
    readonly variables?: Readonly<Record<string, string | undefined>>;
    readonly css?: { readonly fonts?: string };
  };
  readonly displayMode?: DisplayMode;
  readonly availableDisplayModes?: readonly DisplayMode[];
  readonly containerDimensions?: {
    readonly width?: number;
    readonly maxWidth?: number;
    readonly height?: number;
    readonly maxHeight?: number;
  };
  readonly locale?: string;
  readonly timeZone?: string;
  readonly userAgent?: string;
  readonly platform?: "web" | "desktop" | "mobile";
  readonly deviceCapabilities?: { readonly touch?: boolean; readonly hover?: boolean };
  readonly safeAreaInsets?: { readonly top: number; readonly right: number; readonly bottom: number; readonly left: number };
  readonly toolInfo?: { readonly id?: string | number; readonly tool: Fields & { readonly name: string } };
  readonly [key: string]: unknown;
}

/** A content block; the other keys depend on `type`. */
export type Content =
  | { readonly type: "text"; readonly text: string; readonly [key: string]: unknown }
  | { readonly type: "image" | "audio"; readonly data: string; readonly mimeType: string; readonly [key: string]: unknown }
  | { readonly type: "resource_link"; readonly uri: string; readonly name: string; readonly [key: string]: unknown }
  | { readonly type: "resource"; readonly resource: ResourceContent; readonly [key: string]: unknown };

export interface ResourceContent {
  readonly uri: string;
  readonly mimeType?: string;
  readonly text?: string;
  readonly blob?: string;
  readonly [key: string]: unknown;
}

export interface ToolResult {
  readonly content: readonly Content[];
  readonly structuredContent?: Fields;
  readonly isError?: boolean;
  readonly _meta?: Fields;
}

export interface Capabilities {
  readonly tools?: { readonly listChanged?: boolean };
  readonly availableDisplayModes?: readonly DisplayMode[];
  readonly experimental?: Readonly<Record<string, Fields>>;
}

export interface AppInfo {
  readonly name: string;
  readonly version: string;
  readonly title?: string;
  readonly capabilities?: Capabilities;
  /** Reports size changes of the document to the host; `true` by default. */
  readonly autoSize?: boolean;
}

/** A schema that implements Standard Schema (Zod 4, ArkType, Valibot), with its JSON Schema. */
export interface StandardSchema {
  readonly "~standard": {
    readonly validate: (value: unknown) => StandardResult | Promise<StandardResult>;
    readonly jsonSchema?: Readonly<Record<"input" | "output", (options: { readonly target: string }) => Fields>>;
  };
}

export interface StandardResult {
  readonly value?: unknown;
  readonly issues?: readonly { readonly message: string }[] | undefined;
}

/** A Standard Schema, or a JSON Schema with `type: "object"`. */
export type Schema = StandardSchema | Fields;

export interface ToolConfig {
  readonly title?: string | undefined;
  readonly description?: string | undefined;
  readonly inputSchema?: Schema | undefined;
  readonly outputSchema?: Schema | undefined;
  readonly annotations?: Fields | undefined;
  readonly _meta?: Fields | undefined;
}

/** The result of an app-provided tool; if `content` is omitted, it is generated from `structuredContent`. */
export type ToolAnswer = Partial<ToolResult>;
export type ToolCall = (input: Fields, extra: Extra) => Promise<ToolAnswer> | ToolAnswer;
export type BareToolCall = (extra: Extra) => Promise<ToolAnswer> | ToolAnswer;

export interface RegisteredTool {
  enable(): void;
  disable(): void;
  update(changes: ToolConfig): void;
  remove(): void;
}

type Off = () => void;

/** Methods available to every page. */
export interface View {
  /** Sends `ui/initialize`. The root's `data-app-status` is `connecting`, then `ready` or `failed`. */
  connect(): Promise<void>;
  close(): void;
  context(): HostContext;
  /** The host's response to `ui/initialize`: `hostInfo`, `hostCapabilities`, ... */
  host(): Fields;
  /**
   * Each `on...` method returns a function that removes the callback. A tool input, result or cancellation that arrived
   * before its callback is delivered to it immediately.
   */
  onContext(cb: (context: HostContext) => void): Off;
  onToolInput(cb: (input: Fields) => void): Off;
  onToolInputPartial(cb: (input: Fields) => void): Off;
  onToolResult(cb: (result: ToolResult) => void): Off;
  onToolCancelled(cb: (reason: string | undefined) => void): Off;
  /** The host waits for the callback before it removes the page. */
  onTeardown(cb: () => void | Promise<void>): Off;
  /** Any other notification, for example `notifications/resources/list_changed`. */
  onNotification(method: string, cb: (params: Fields) => void): Off;
  callTool(name: string, input?: Fields, options?: RequestOptions): Promise<ToolResult>;
  readResource(uri: string, options?: RequestOptions): Promise<readonly ResourceContent[]>;
  listResources(cursor?: string, options?: RequestOptions): Promise<{ readonly resources?: readonly Fields[]; readonly nextCursor?: string }>;
  /** `sendMessage`, `openLink` and `downloadFile` return whether the host performed the action. */
  sendMessage(text: string | readonly Content[], options?: RequestOptions): Promise<boolean>;
  /** Replaces the previous model context. */
  updateModelContext(told: { readonly content?: readonly Content[]; readonly structuredContent?: Fields }): Promise<void>;
  openLink(url: string): Promise<boolean>;
  downloadFile(contents: readonly Content[]): Promise<boolean>;
  /** Returns the resulting display mode, which may differ from the requested one. */
  requestDisplayMode(mode: DisplayMode): Promise<DisplayMode>;
  requestTeardown(): void;
  log(level: LogLevel, data: unknown): void;
}

/** The bridge with app-provided tools. */
export interface Bridge extends View {
  registerTool(name: string, config: ToolConfig & { readonly inputSchema: Schema }, cb: ToolCall): RegisteredTool;
  registerTool(name: string, config: ToolConfig & { readonly inputSchema?: undefined }, cb: BareToolCall): RegisteredTool;
  /** Replaces the handlers of the built-in tool registry. */
  onListTools(cb: (params: Fields) => Promise<Fields> | Fields): void;
  onCallTool(cb: (params: Fields, extra: Extra) => Promise<Fields> | Fields): void;
  sendToolListChanged(): void;
}
