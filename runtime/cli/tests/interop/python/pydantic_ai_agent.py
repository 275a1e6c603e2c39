"""pydantic-ai: an agent whose model is a function that receives the messages of each request."""

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent, BinaryContent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelResponse, RetryPromptPart, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import FunctionModel

from framework import PROGRAM, run


async def session(options, steps):
    requests = []
    wanted = []

    def model(messages, info):
        requests.append((messages, info))
        if len(messages) > 1:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart(*call) for call in wanted])

    toolset = MCPToolset(StdioTransport(PROGRAM, options))
    agent = Agent(FunctionModel(model), toolsets=[toolset])

    async def call(*wants):
        wanted[:] = [wants] if wants else []
        await agent.run("Go on.")
        return list(requests[-1][0][-1].parts) if wants else requests[-1][1].function_tools

    async with agent:
        tools = {tool.name: tool.parameters_json_schema for tool in await call()}

        async def content(name, arguments):
            parts = await call(name, arguments)
            told = [part.content for part in parts if isinstance(part, (ToolReturnPart, RetryPromptPart, UserPromptPart))]
            return told[0] if len(told) == 1 and isinstance(told[0], (str, dict)) else told

        def image(message):
            return "BinaryContent" in repr(message) or "BinaryImage" in repr(message)

        await steps(tools, content, image)


run(session)
