// Types of `<mcp-view>` in JSX, for React 19 and later: `import type {} from "@bailiwick/mcp-view/react"`.
import type { DetailedHTMLProps, HTMLAttributes } from "react";

import type { McpView } from "@bailiwick/mcp-view";

/** Attributes of the element. Set its properties through a `ref`. */
export interface McpViewAttributes extends DetailedHTMLProps<HTMLAttributes<McpView>, McpView> {
  src?: string | undefined;
  "sandbox-url"?: string | undefined;
  defer?: boolean | undefined;
  "auto-height"?: boolean | undefined;
  "max-height"?: number | undefined;
  theme?: "light" | "dark" | undefined;
}

declare module "react" {
  namespace JSX {
    interface IntrinsicElements {
      "mcp-view": McpViewAttributes;
    }
  }
}
