"""llama-index: the content of a tool's output, which its agents put into the message for the model: the whole result as text."""

from llama_index.tools.mcp import BasicMCPClient, McpToolSpec

from framework import PROGRAM, run

async def session(options, steps):
    client = BasicMCPClient(PROGRAM, args=options, timeout=60)
    tools = {tool.metadata.name: tool for tool in await McpToolSpec(client).to_tool_list_async()}
    schemas = {name: tool.metadata.to_openai_tool() for name, tool in tools.items()}

    async def call(name, arguments):
        output = await tools[name].acall(**arguments)
        return output.content

    await steps(schemas, call, lambda message: "image/png" in message)


run(session)
