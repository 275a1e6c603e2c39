// MCP Apps bridge with app-provided tools that the host can call.
import type { Fields } from "../lib/json.ts";
import { TOOLS_CHANGED } from "../lib/rpc.ts";
import type { Extra } from "../lib/rpc.ts";
import { core } from "./core.ts";
import { tools } from "./tools.ts";
import type { AppInfo, Bridge } from "./types.ts";

export type * from "./types.ts";

/** Creates an unconnected bridge: register tools and callbacks, then call `connect()`. */
export function bridge(info: AppInfo): Bridge {
  let list: Parameters<Bridge["onListTools"]>[0] = () => registry.list();
  let call: Parameters<Bridge["onCallTool"]>[0] = (params, extra) => registry.call(params, extra);
  const view = core(info, (method: string, params: Fields, extra: Extra) => {
    if (view.declared.tools === undefined) return undefined;
    if (method === "tools/list") return list(params) as Promise<Fields>;
    return method === "tools/call" ? (call(params, extra) as Promise<Fields>) : undefined;
  });
  const changed = (): void => {
    if (view.declared.tools?.listChanged === true) view.notify(TOOLS_CHANGED);
  };
  const registry = tools(changed);
  return {
    ...view,
    registerTool(name, config, cb) {
      if (view.declared.tools === undefined) {
        if (!view.isNew()) throw new Error("the host was told of no tools at `connect()`: register one before, or give the capability `tools`");
        Object.assign(view.declared, { tools: { listChanged: true } });
      }
      return registry.register(name, config, cb);
    },
    onListTools(cb) {
      list = cb;
    },
    onCallTool(cb) {
      call = cb;
    },
    sendToolListChanged: changed,
  };
}

/** Creates a bridge and connects it. */
export async function connect(info: AppInfo): Promise<Bridge> {
  const made = bridge(info);
  await made.connect();
  return made;
}
