"""smolagents: an agent whose model records the messages of each request."""

import re

from mcp import StdioServerParameters
from smolagents import MCPClient, Model, ToolCallingAgent
from smolagents.models import ChatMessage, ChatMessageToolCall, ChatMessageToolCallFunction, MessageRole
from smolagents.models import get_tool_json_schema

from framework import PROGRAM, run


def filled(parameters, arguments):
    """All arguments: those that a call has no use for are empty, or what they are by default."""

    def empty(schema):
        said = re.search(r"default (\d+)", schema["description"])
        integer = schema.get("default", int(said[1]) if said else 1)
        return {"string": "", "boolean": False, "array": [], "integer": integer}[schema["type"]]

    return {name: empty(schema) for name, schema in parameters["properties"].items()} | arguments


class Recorder(Model):
    def generate(self, messages, tools_to_call_from=None, **more):
        self.received = messages
        name, arguments = self.wanted.pop(0)
        function = ChatMessageToolCallFunction(name=name, arguments=arguments)
        call = ChatMessageToolCall(id="1", type="function", function=function)
        return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=[call])


async def session(options, steps):
    for structured in (False, True):
        server = StdioServerParameters(command=PROGRAM, args=options)
        with MCPClient(server, structured_output=structured) as tools:
            model = Recorder()
            agent = ToolCallingAgent(tools=tools, model=model, verbosity_level=0)

            schemas = {tool.name: get_tool_json_schema(tool) for tool in tools}

            async def call(name, arguments):
                parameters = schemas[name]["function"]["parameters"]
                # It tells a model that every argument is required, and refuses a call that lacks one.
                assert sorted(parameters["required"]) == sorted(parameters["properties"])
                model.wanted = [(name, filled(parameters, arguments)), ("final_answer", {"answer": "done"})]
                agent.run("Go on.")
                return str(model.received[-1].content)

            await steps(schemas, call, lambda message: "image" in message)


run(session)
