// MCP Apps bridge without app-provided tools, at half the size of the full bridge.
import { core } from "./core.ts";
import type { AppInfo, View } from "./types.ts";

export type * from "./types.ts";

export function bridge(info: AppInfo): View {
  return core(info, () => undefined);
}

export async function connect(info: AppInfo): Promise<View> {
  const made = bridge(info);
  await made.connect();
  return made;
}
