"""An era, calls and a server in; what its tools answered, checked against their schemas, out as JSON.

python call.py legacy|auto|2026-07-28 CALLS COMMAND ARGUMENT...
"""

import asyncio
import json
import sys

import jsonschema
from mcp import Client, StdioServerParameters


async def main(mode: str, calls: str, command: str, *args: str) -> None:
    faults = []
    async with Client(StdioServerParameters(command=command, args=list(args)), mode=mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        for call in json.loads(calls):
            meta = {"preview": True} if call["preview"] else None
            # The SDK itself refuses a result that is not as the tool's schema says.
            result = await client.call_tool(call["tool"], call["arguments"], meta=meta)
            told = result.structured_content
            try:
                jsonschema.Draft202012Validator(tools[call["tool"]].output_schema).validate(told)
            except jsonschema.ValidationError as error:
                faults.append({"call": call, "error": str(error)})
            if bool(result.is_error) != call["fails"]:
                faults.append({"call": call, "result": told})
        listed = (await client.list_resources()).resources
        directory = next(one for one in listed if str(one.uri).startswith("file://"))
        read = await client.read_resource(f"{directory.uri}/a.txt")
        prompts = [prompt.name for prompt in (await client.list_prompts()).prompts]
    answer = {"tools": sorted(tools), "faults": faults, "text": read.contents[0].text, "prompts": prompts}
    print(json.dumps(answer))


asyncio.run(main(*sys.argv[1:]))
