"""Runs a client's script with calls of third-party tools through the gateway, in place of the calls of file tools.

python through_gateway.py SCRIPT PROGRAM ARGUMENT...
"""

import asyncio
import json
import runpy
import sys
import types

SCRIPT, PROGRAM, *ARGUMENTS = sys.argv[1:]


def shown(message):
    return message if isinstance(message, str) else json.dumps(message, default=str, ensure_ascii=False)


async def exercise(schemas, call, image=None, nested=True):
    """One tool answers with content alone, one with structured content, too, and one is refused."""
    for name in ("everything__echo", "memory__search_nodes", "memory__delete_entities"):
        assert name in schemas, f"{name} is not offered: {sorted(schemas)}"
    for name, arguments, expected in [
        ("everything__echo", {"message": "harbour"}, "Echo: harbour"),
        ("memory__search_nodes", {"query": "tide"}, "high water at noon"),
        ("memory__delete_entities", {"entityNames": ["tide"]}, "SCOPE_REQUIRED"),
        ("memory__search_nodes", {"query": "tide"}, "high water at noon"),
    ]:
        message = await call(name, arguments)
        # A host that takes structured content alone has none of the first.
        if message is not None or name != "everything__echo":
            assert expected in shown(message), f"the model does not receive {expected!r} of {name}: {shown(message)}"


def run(session):
    asyncio.run(session(ARGUMENTS, exercise))


framework = types.ModuleType("framework")
framework.PROGRAM, framework.ARGUMENTS, framework.UNWANTED = PROGRAM, ARGUMENTS, []
framework.exercise, framework.run = exercise, run
sys.modules["framework"] = framework
runpy.run_path(SCRIPT, run_name="__main__")
