"""Checks that the converters of model SDKs keep what the schemas of our tools say.

python converters.py CONVERTER,... COMMAND ARGUMENT...

Starts the server, lists its tools, and compares each converted schema with the listed one, member by member. Prints the faults as JSON.
"""

import copy
import json
import os
import subprocess
import sys

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def listed(command):
    """The tools that the server lists."""
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
    done = subprocess.run(
        command,
        input=json.dumps(request) + "\n",
        capture_output=True,
        text=True,
        timeout=60,
        # Variables of the server's name would be taken for its configuration.
        env={"PATH": os.environ["PATH"]},
    )
    for line in done.stdout.splitlines():
        message = json.loads(line)
        if message.get("id") == 1:
            return message["result"]["tools"]
    raise RuntimeError(done.stdout + done.stderr)


def openai_strict(tool):
    from agents.strict_schema import ensure_strict_json_schema

    return ensure_strict_json_schema(copy.deepcopy(tool["inputSchema"]))


def anthropic(tool):
    from anthropic.types import ToolParam
    from pydantic import TypeAdapter

    given = {"name": tool["name"], "description": tool["description"], "input_schema": tool["inputSchema"]}
    return TypeAdapter(ToolParam).validate_python(given)["input_schema"]


def gemini(tool):
    from google.genai import types

    schema = types.JSONSchema.model_validate(tool["inputSchema"])
    made = types.Schema.from_json_schema(json_schema=schema, api_option="GEMINI_API")
    types.FunctionDeclaration(name=tool["name"], description=tool["description"], parameters=made)
    return made.model_dump(mode="json", exclude_none=True)


def langchain(tool):
    from langchain_core.tools import StructuredTool
    from langchain_core.utils.function_calling import convert_to_openai_tool

    made = StructuredTool(
        name=tool["name"],
        description=tool["description"],
        args_schema=tool["inputSchema"],
        func=lambda **given: given,
    )
    return convert_to_openai_tool(made)["function"]["parameters"]


def kind(schema):
    """The one type of a schema, null aside, in lower case."""
    said = schema.get("type")
    kinds = said if isinstance(said, list) else [said]
    return [str(one).lower() for one in kinds if str(one).lower() != "null"]


def values(schema):
    return sorted(value for value in schema.get("enum", []) if value is not None)


def compare(at, own, made, strict, faults):
    """Notes each member whose name, type, values, description or need was lost."""

    def expect(what, wanted, got):
        if wanted != got:
            faults.append({"at": f"{at}/{what}", "wanted": wanted, "got": got})

    expect("type", kind(own), kind(made))
    expect("enum", values(own), values(made))
    expect("description", own.get("description"), made.get("description"))
    members, others = own.get("properties", {}), made.get("properties") or {}
    expect("properties", sorted(members), sorted(others))
    required = sorted(members) if strict else sorted(own.get("required", []))
    expect("required", required, sorted(made.get("required") or []))
    for name, member in members.items():
        compare(f"{at}/{name}", member, others.get(name, {}), strict, faults)
    if "items" in own:
        compare(f"{at}/items", own["items"], made.get("items") or {}, strict, faults)


def main():
    known = {convert.__name__: convert for convert in (openai_strict, anthropic, gemini, langchain)}
    # Not all of these SDKs fit into one environment.
    converters = [known[name] for name in sys.argv[1].split(",")]
    tools = listed(sys.argv[2:])
    faults = []
    for convert in converters:
        for tool in tools:
            at = f"{convert.__name__}/{tool['name']}"
            compare(at, tool["inputSchema"], convert(tool), convert is openai_strict, faults)
    print(json.dumps({"tools": len(tools), "faults": faults}))


main()
