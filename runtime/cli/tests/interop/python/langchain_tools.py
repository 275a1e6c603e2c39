"""langchain-mcp-adapters: the next request for three providers, built by their own converters."""

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, HumanMessage
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_openai import ChatOpenAI

from framework import PROGRAM, run

PROVIDERS = {
    "openai": (ChatOpenAI(model="model", api_key="none"), "_get_request_payload", "image_url"),
    "anthropic": (ChatAnthropic(model="model", api_key="none"), "_get_request_payload", "image/png"),
    "gemini": (ChatGoogleGenerativeAI(model="model", api_key="none"), "_prepare_request", "image/png"),
}


async def session(options, steps):
    server = {"transport": "stdio", "command": PROGRAM, "args": options}
    tools = await MultiServerMCPClient({"files": server}).get_tools()
    by_name = {tool.name: tool for tool in tools}
    for provider, (model, build, picture) in PROVIDERS.items():
        bound = model.bind_tools(tools).kwargs["tools"]
        schemas = {name: tool for name in by_name for tool in bound if repr(name) in repr(tool)}

        async def call(name, arguments):
            request = {"type": "tool_call", "id": "1", "name": name, "args": arguments}
            answer = await by_name[name].ainvoke(request)
            messages = [HumanMessage("Go on."), AIMessage("", tool_calls=[request]), answer]
            payload = getattr(model, build)(messages)
            contents = payload.get("messages", payload.get("contents"))
            return contents[-1] if isinstance(contents[-1], dict) else contents[-1].model_dump(mode="json")

        print(provider)
        await steps(schemas, call, lambda message: picture in str(message))


run(session)
