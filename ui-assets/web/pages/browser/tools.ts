// App-provided tools that let an agent inspect and control the file browser.
import type { Fields } from "../../lib/json.ts";
import type { Rows } from "../../lib/list.tsx";
import { isFields, maybeCount, string } from "../../lib/json.ts";
import { active, filter, mode, openPath, root, rows, selection } from "./browser.ts";
import { doc } from "./document.ts";
import { rightsOf, worker } from "./rights.ts";
import { grep } from "./server.ts";
import { explained } from "./wire.ts";

type Tool = readonly [description: string, input: Fields, output: Fields, act: (input: Fields) => Promise<Fields> | Fields];

const object = (properties: Fields, required: readonly string[] = []): Fields => ({ type: "object", properties, required });
const list = (properties: Fields): Fields => ({ type: "array", items: object(properties) });
const text = { type: "string" };
const flag = { type: "boolean" };
const count = { type: "integer", minimum: 0 };
const line = { type: "integer", minimum: 1 };
const entry = { path: text, kind: text };
const file = object({ ...entry, bytes: count, lines: count, hash: text, from: line, to: line });
/** Maximum number of search matches in a result. */
const MATCHES = 100;
const MOST_TEXT = 20_000;
// The tools change the view, but no files.
const annotations = { readOnlyHint: true, openWorldHint: false };

/** Handler of the host's `tools/list` and `tools/call` requests. */
export function tools(sight: Rows): (method: string, params: Fields) => Promise<Fields> | Fields | undefined {
  function opened(): Fields {
    const { path, kind, facts, total } = doc.value ?? {};
    return { path, kind, bytes: facts?.bytes, lines: kind === "text" ? total : undefined, hash: facts?.hash, ...selection.value };
  }

  const all: Readonly<Record<string, Tool>> = {
    "get-current-view": [
      "Tells which folder, file and lines the person sees.",
      object({}),
      object({ root: text, showing: text, filter: text, worker: text, active: text, file }, ["root", "showing", "file"]),
      () => ({ root: root.value.path, showing: mode.value, filter: filter.value, worker: worker.value, active: active.value?.path, file: opened() }),
    ],
    "open-path": [
      "Shows a folder or file, at `line`.",
      object({ path: text, line }, ["path"]),
      file,
      async ({ path, line }) => {
        const at = await openPath(string(path), maybeCount(line));
        const failure = at?.folder ? at.folder.failure : doc.value?.failure;
        if (failure) throw failure;
        return at?.folder ? { path: at.path, kind: at.kind } : opened();
      },
    ],
    "select-lines": [
      "Selects and shows lines of the open text.",
      object({ from: line, to: line }, ["from"]),
      file,
      (input) => {
        const open = doc.value;
        const from = maybeCount(input["from"]) ?? 0;
        const to = Math.max(from, maybeCount(input["to"]) ?? 0);
        if (from === 0 || open?.kind !== "text" || (!open.open && to > open.total)) throw new Error(`There are ${open?.total ?? 0} lines of text open.`);
        selection.value = { from, to };
        return opened();
      },
    ],
    "search-text": [
      "Searches text in the shown folder or `path`.",
      object({ query: text, path: text }, ["query"]),
      object({ files: list({ path: text, matches: count }), lines: text, more: flag }),
      async ({ query, path = root.value.path }) => {
        const { files, text, more } = await grep(string(query), string(path), MATCHES);
        return { files, lines: text.slice(0, MOST_TEXT), more: more || text.length > MOST_TEXT };
      },
    ],
    "get-visible-nodes": [
      "Tells the visible rows and the worker's rights.",
      object({}),
      object({ total: count, nodes: list({ ...entry, level: count, open: flag, active: flag, read: text, write: text }) }),
      () => ({
        total: rows.value.length,
        nodes: rows.value
          .slice(sight.first.value, sight.last.value)
          .filter((row) => row.kind !== undefined)
          .map((row) => ({ path: row.path, kind: row.kind, level: row.level, open: row.folder?.open, active: row === active.value, ...rightsOf(row.path) })),
      }),
    ],
  };

  const said = (text: string): Fields => ({ content: [{ type: "text", text }] });

  async function call({ name, arguments: input }: Fields): Promise<Fields> {
    try {
      const [, , , act] = all[string(name)] ?? [];
      if (!act) throw new Error("There is no such tool.");
      // JSON omits undefined properties.
      const made = JSON.stringify(await act(isFields(input) ? input : {}));
      return { ...said(made), structuredContent: JSON.parse(made) as unknown };
    } catch (why) {
      return { ...said(explained(why)), isError: true };
    }
  }

  return (method, params) => {
    if (method === "tools/call") return call(params);
    if (method !== "tools/list") return undefined;
    return { tools: Object.entries(all).map(([name, [description, inputSchema, outputSchema]]) => ({ name, description, inputSchema, outputSchema, annotations })) };
  };
}
