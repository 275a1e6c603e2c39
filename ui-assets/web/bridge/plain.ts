// A page without tools of its own in, its connected bridge out: half the size of the whole one.
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
