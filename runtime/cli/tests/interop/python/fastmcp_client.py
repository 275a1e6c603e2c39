"""fastmcp: what a host takes from a result, its content blocks or `data`."""

from fastmcp import Client
from fastmcp.client.transports import StdioTransport

from framework import PROGRAM, run


async def session(options, steps):
    for structured in (False, True):
        async with Client(StdioTransport(PROGRAM, options)) as client:
            tools = {tool.name: tool.model_dump() for tool in await client.list_tools()}

            async def call(name, arguments):
                result = await client.call_tool(name, arguments, raise_on_error=False)
                if structured:
                    return result.structured_content
                return [block.model_dump(mode="json") for block in result.content]

            def image(message):
                # Data has the type of a picture, and not its bytes.
                return "image/png" in str(message) if structured else message[0]["type"] == "image"

            await steps(tools, call, image)


run(session)
