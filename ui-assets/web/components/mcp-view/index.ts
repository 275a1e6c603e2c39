// Registers the custom element `<mcp-view>`.
import { McpView } from "./element.ts";

export type { Content, DisplayMode, HostContext, ToolResult } from "../../bridge/types.ts";
export { McpView } from "./element.ts";
export type { PageMeta, Status } from "./element.ts";
export type { AppTool } from "./guest.ts";
export type { Hooks, Logged, ModelContext, Tool, ToolParams } from "./host.ts";
export type { Resolved, Resolver, Resource } from "./page.ts";

customElements.get("mcp-view") ?? customElements.define("mcp-view", McpView);

declare global {
  interface HTMLElementTagNameMap {
    "mcp-view": McpView;
  }
}
