"""openai-agents: an agent whose model records the items that it is sent, with text results and with structured ones."""

import json

from agents import Agent, Runner, set_tracing_disabled
from agents.items import ModelResponse
from agents.mcp import MCPServerStdio
from agents.models.interface import Model
from agents.usage import Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from framework import PROGRAM, run


class Recorder(Model):
    def __init__(self):
        self.wanted = None

    async def get_response(self, system_instructions, input, model_settings, tools, *rest, **more):
        self.tools = {tool.name: tool.params_json_schema for tool in tools}
        if self.wanted:
            name, arguments = self.wanted
            self.wanted = None
            output = ResponseFunctionToolCall(
                type="function_call", call_id="1", name=name, arguments=json.dumps(arguments)
            )
        else:
            self.received = input
            text = ResponseOutputText(type="output_text", text="done", annotations=[])
            output = ResponseOutputMessage(id="1", type="message", role="assistant", status="completed", content=[text])
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *arguments, **more):
        raise NotImplementedError


async def session(options, steps):
    set_tracing_disabled(True)
    for structured in (False, True):
        params = {"command": PROGRAM, "args": options}
        async with MCPServerStdio(params, use_structured_content=structured, client_session_timeout_seconds=60) as server:
            model = Recorder()
            agent = Agent(name="agent", model=model, mcp_servers=[server], mcp_config={"convert_schemas_to_strict": True})

            async def call(name, arguments):
                model.wanted = (name, arguments)
                await Runner.run(agent, "Go on.")
                return model.received[-1]["output"]

            await Runner.run(agent, "Go on.")

            def image(message):
                # A structured result has the type of a picture, and not its bytes.
                return ("image/png" if structured else "input_image") in str(message)

            await steps(model.tools, call, image)


run(session)
