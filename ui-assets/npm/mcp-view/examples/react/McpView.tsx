// A React component for `<mcp-view>`. It sets the properties through a ref, because React sets them as attributes.
import { useLayoutEffect, useRef } from "react";

import "@bailiwick/mcp-view";
import type { McpView as McpViewElement } from "@bailiwick/mcp-view";
import type {} from "@bailiwick/mcp-view/react";

type Properties = Partial<Pick<McpViewElement, "resolver" | "tools" | "toolCaller" | "toolInput" | "toolResult" | "hostContext" | "onopenlink" | "onmessage">>;

export interface McpViewProps extends Properties {
  /** The URI that `resolver` reads. */
  readonly uri: string;
  /** The URL of the sandbox page. */
  readonly sandboxUrl?: string;
  /** The maximum height in pixels. */
  readonly maxHeight?: number;
  readonly onFailed?: (error: unknown) => void;
}

export function McpView({ uri, sandboxUrl, maxHeight, onFailed, ...properties }: McpViewProps) {
  const ref = useRef<McpViewElement>(null);
  const previous = useRef<Properties>({});
  // The element loads its page after this task, so the properties are set before.
  useLayoutEffect(() => {
    const set = Object.entries(properties).filter(([name, value]) => value !== previous.current[name as keyof Properties]);
    previous.current = properties;
    if (ref.current) Object.assign(ref.current, Object.fromEntries(set));
  });
  useLayoutEffect(() => {
    const view = ref.current;
    const failed = (event: Event): void => onFailed?.((event as CustomEvent<unknown>).detail);
    view?.addEventListener("failed", failed);
    return () => view?.removeEventListener("failed", failed);
  }, [onFailed]);
  return <mcp-view ref={ref} src={uri} sandbox-url={sandboxUrl} auto-height max-height={maxHeight} />;
}
