// Vercel's `ai`: what a model that records its prompts receives.
import { createMCPClient } from "@ai-sdk/mcp";
import { Experimental_StdioMCPTransport as Stdio } from "@ai-sdk/mcp/mcp-stdio";
import { generateText, stepCountIs } from "ai";
import { MockLanguageModelV3 } from "ai/test";

import { PROGRAM, run } from "./framework.mjs";

await run(async (options, steps) => {
  const client = await createMCPClient({ transport: new Stdio({ command: PROGRAM, args: options }) });
  const tools = await client.tools();
  let wanted;
  let received;
  const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
  const model = new MockLanguageModelV3({
    doGenerate: async (request) => {
      received = request;
      const call = wanted;
      wanted = undefined;
      return call
        ? { content: [{ type: "tool-call", toolCallId: "1", ...call }], finishReason: { unified: "tool-calls" }, usage, warnings: [] }
        : { content: [{ type: "text", text: "done" }], finishReason: { unified: "stop" }, usage, warnings: [] };
    },
  });

  async function call(toolName, args) {
    wanted = { toolName, input: JSON.stringify(args) };
    await generateText({ model, tools, prompt: "Go on.", stopWhen: stepCountIs(3) });
    return received.prompt.at(-1).content;
  }

  await generateText({ model, tools, prompt: "Go on." });
  const schemas = Object.fromEntries(received.tools.map((tool) => [tool.name, tool]));
  await steps(schemas, call, (message) => /image-data|image\/png/.test(JSON.stringify(message)));
  await client.close();
});
