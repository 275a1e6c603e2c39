// Lists and calls tools that an untrusted page provides, within limits.
import type { ToolResult } from "../../bridge/types.ts";
import { isFields, isText, listOf, stringify } from "../../lib/json.ts";
import type { Fields } from "../../lib/json.ts";
import { fail } from "../../lib/rpc.ts";
import type { Tool } from "./host.ts";
import { LIMITS } from "./limits.ts";

/** An app-provided tool as presented to a model. */
export interface AppTool extends Tool {
  /** The page's description of the tool is untrusted. */
  readonly untrusted: true;
  readonly app: Fields;
}

/** Sends a request to the page. */
export type Ask = (method: string, params: Fields) => Promise<Fields>;

export const listTools = async (ask: Ask): Promise<ReadonlyMap<string, Tool>> => {
  const found = new Map<string, Tool>();
  let more: Fields | undefined = {};
  while (more) {
    const before = found.size;
    const { tools, nextCursor }: Fields = await ask("tools/list", more);
    for (const tool of listOf(tools) as readonly Tool[]) {
      const name: unknown = tool?.name;
      // Only the first tool of each name is listed, up to the limit.
      if (isText(name) && /^[\w.-]{1,64}$/.test(name) && !found.has(name) && found.size < LIMITS.tools && stringify(tool).length <= LIMITS.tool) found.set(name, tool);
    }
    // Stop paging when a page of the list adds no tool.
    more = nextCursor && found.size > before ? { cursor: nextCursor } : undefined;
  }
  return found;
};

export async function callTool(
  ask: Ask,
  name: string,
  input: Fields,
  confirm: ((tool: Tool, input: Fields) => unknown) | undefined,
): Promise<ToolResult> {
  const tool = (await listTools(ask)).get(name) ?? fail(`no tool \`${name}\` here`);
  if (tool.annotations?.readOnlyHint !== true && (await confirm?.(tool, input)) !== true) {
    fail(`nobody confirmed \`${name}\`, which may change things`);
  }
  const result = await ask("tools/call", { name, arguments: input });
  const { content, isError, structuredContent } = result;
  const blocks = Array.isArray(content) && content.every((block) => isText(block?.type));
  if (!blocks || (tool.outputSchema && isError !== true && !isFields(structuredContent))) {
    fail(`\`${name}\` gave no result as it promises`);
  }
  return result as Fields & ToolResult;
}
