"""google-adk: an agent whose model records the contents of each request. It hands the whole result to the model, `_meta` too."""

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams
from google.genai import types
from mcp import StdioServerParameters

from framework import PROGRAM, run

class Recorder(BaseLlm):
    wanted: list = []
    requests: list = []

    async def generate_content_async(self, llm_request, stream=False):
        self.requests.append(llm_request)
        if self.wanted:
            name, arguments = self.wanted.pop()
            part = types.Part.from_function_call(name=name, args=arguments)
        else:
            part = types.Part(text="done")
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


async def session(options, steps):
    server = StdioServerParameters(command=PROGRAM, args=options)
    toolset = McpToolset(connection_params=StdioConnectionParams(server_params=server, timeout=60))
    model = Recorder(model="recorder")
    agent = LlmAgent(name="agent", model=model, tools=[toolset])
    runner = InMemoryRunner(agent=agent, app_name="app")

    async def run():
        session = await runner.session_service.create_session(app_name="app", user_id="user")
        go_on = types.Content(role="user", parts=[types.Part(text="Go on.")])
        async for _ in runner.run_async(user_id="user", session_id=session.id, new_message=go_on):
            pass
        return model.requests[-1]

    async def call(name, arguments):
        model.wanted.append((name, arguments))
        request = await run()
        return [part.model_dump(mode="json", exclude_none=True) for part in request.contents[-1].parts]

    declared = (await run()).config.tools[0].function_declarations
    tools = {tool.name: tool.model_dump(mode="json", exclude_none=True) for tool in declared}
    await steps(tools, call, lambda message: "image/png" in str(message))
    await toolset.close()


run(session)
