"""mcp-use: the LangChain tools that its agent binds, and what they return for the model."""

from langchain_core.utils.function_calling import convert_to_openai_tool
from mcp_use import MCPClient
from mcp_use.agents.adapters import LangChainAdapter

from framework import PROGRAM, run


async def session(options, steps):
    client = MCPClient.from_dict({"mcpServers": {"files": {"command": PROGRAM, "args": options}}})
    tools = {tool.name: tool for tool in await LangChainAdapter().create_tools(client)}
    schemas = {name: convert_to_openai_tool(tool) for name, tool in tools.items()}

    async def call(name, arguments):
        request = {"type": "tool_call", "id": "1", "name": name, "args": arguments}
        return (await tools[name].ainvoke(request)).content

    await steps(schemas, call, lambda message: "image" in str(message))
    await client.close_all_sessions()


run(session)
