// Registry of app-provided tools: lists them and handles `tools/call` requests from the host.
import { isFields } from "../lib/json.ts";
import type { Fields } from "../lib/json.ts";
import { INTERNAL, INVALID_PARAMS, rpcError } from "../lib/rpc.ts";
import type { Extra } from "../lib/rpc.ts";
import { problem, unknownKeyword } from "../lib/schema.ts";
import type { RegisteredTool, Schema, StandardSchema, ToolAnswer, ToolConfig } from "./types.ts";

// Called with the input and an `Extra`, or with the `Extra` only.
type Call = (...values: never[]) => Promise<ToolAnswer> | ToolAnswer;
type Direction = "input" | "output";

interface Tool {
  config: ToolConfig;
  enabled: boolean;
  readonly takesInput: boolean;
  readonly call: Call;
}

export interface Tools {
  register(name: string, config: ToolConfig, call: Call): RegisteredTool;
  list(): { tools: Fields[] };
  call(params: Fields, extra: Extra): Promise<Fields>;
}

function isStandard(schema: unknown): schema is StandardSchema {
  return (typeof schema === "object" || typeof schema === "function") && schema !== null && "~standard" in schema;
}

/** Returns the JSON Schema that is sent to the host; throws an error that says which schemas are supported. */
function described(tool: string, direction: Direction, schema: Schema): Fields {
  const standard = isStandard(schema);
  const told: unknown = standard ? schema["~standard"].jsonSchema?.[direction]({ target: "draft-2020-12" }) : schema;
  const says = `the ${direction} schema of tool \`${tool}\``;
  if (!isFields(told) || told.type !== "object" || !(standard || [Object.prototype, null].includes(Object.getPrototypeOf(told)))) {
    throw new Error(`${says} must be a JSON Schema with type "object", or a Standard Schema that has \`~standard.jsonSchema\``);
  }
  const unknown = standard ? undefined : unknownKeyword(told);
  if (unknown !== undefined) throw new Error(`${says} has \`${unknown}\`, which is not checked here`);
  return told;
}

/** Validates the value and returns the schema's output; throws the schema's issues. */
async function checked(schema: Schema, value: unknown, code: number, says: string): Promise<unknown> {
  const found = isStandard(schema)
    ? await schema["~standard"].validate(value)
    : { value, issues: [problem(schema, value)].flatMap((message) => message ?? []).map((message) => ({ message })) };
  if (!found.issues?.length) return found.value;
  throw rpcError(code, `${says}: ${found.issues.map(({ message }) => message).join("; ")}`);
}

/** Normalizes a tool's answer to a complete `tools/call` result. */
function whole(answer: unknown): Fields {
  if (!isFields(answer)) throw new Error("the tool gave no result");
  const { content, structuredContent } = answer;
  if (Array.isArray(content)) return answer;
  return { ...answer, content: structuredContent === undefined ? [] : [{ type: "text", text: JSON.stringify(structuredContent) }] };
}

export function tools(changed: () => void): Tools {
  const registered = new Map<string, Tool>();
  const judged = (name: string, config: ToolConfig): ToolConfig => {
    told(name, config);
    return config;
  };
  const told = (name: string, { inputSchema, outputSchema, ...rest }: ToolConfig): Fields => {
    const all = {
      name,
      ...rest,
      inputSchema: inputSchema === undefined ? { type: "object" } : described(name, "input", inputSchema),
      outputSchema: outputSchema && described(name, "output", outputSchema),
    };
    return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
  };

  return {
    register(name, config, call) {
      if (registered.has(name)) throw new Error(`tool \`${name}\` is already registered`);
      const tool: Tool = { config: judged(name, config), enabled: true, takesInput: config.inputSchema !== undefined, call };
      registered.set(name, tool);
      changed();
      // The handle of a removed tool must not affect a newer tool of the same name.
      const change = (act: () => void): void => {
        if (registered.get(name) !== tool) return;
        act();
        changed();
      };
      return {
        enable: () => change(() => (tool.enabled = true)),
        disable: () => change(() => (tool.enabled = false)),
        update: (changes) => change(() => (tool.config = judged(name, { ...tool.config, ...changes }))),
        remove: () => change(() => registered.delete(name)),
      };
    },
    list: () => ({ tools: [...registered].filter(([, { enabled }]) => enabled).map(([name, { config }]) => told(name, config)) }),
    async call(params, extra) {
      const name = String(params.name);
      const tool = registered.get(name);
      if (!tool?.enabled) throw rpcError(INVALID_PARAMS, `tool \`${name}\` is ${tool ? "disabled" : "not registered"}`);
      const { inputSchema, outputSchema } = tool.config;
      const input = params.arguments ?? {};
      const given = inputSchema && (await checked(inputSchema, input, INVALID_PARAMS, `wrong input for tool \`${name}\``));
      const answer = whole(await (tool.takesInput ? tool.call((given ?? input) as never, extra as never) : tool.call(extra as never)));
      if (outputSchema === undefined || answer.isError === true) return answer;
      const structuredContent = await checked(outputSchema, answer.structuredContent, INTERNAL, `wrong output of tool \`${name}\``);
      return { ...answer, structuredContent };
    },
  };
}
