"""agno: what a tool's function returns, which its agents put into the message for the model."""

from agno.tools.mcp import MCPTools
from mcp import StdioServerParameters

from framework import PROGRAM, run


async def session(options, steps):
    server = StdioServerParameters(command=PROGRAM, args=options)
    async with MCPTools(server_params=server, timeout_seconds=60) as tools:
        schemas = {name: function.to_dict() for name, function in tools.functions.items()}

        async def call(name, arguments):
            result = await tools.functions[name].entrypoint(**arguments)
            return {"content": result.content, "images": len(result.images or [])}

        await steps(schemas, call, lambda message: message["images"] == 1)


run(session)
