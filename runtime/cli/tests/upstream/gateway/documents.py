"""An MCP server over stdio with tools, resources, a template and prompts; the tool `publish` adds one of each."""

import json
import sys

STATE = {"published": False}
PAGE = "text/html;profile=mcp-app"


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def resources():
    found = [{"uri": "doc://guide", "name": "guide", "title": "The guide", "mimeType": "text/plain", "_meta": {"x": 1}}]
    return found + ([{"uri": "doc://new", "name": "new"}] if STATE["published"] else [])


def prompts():
    found = [{"name": "sum up", "description": "Sums up.", "arguments": [{"name": "what", "required": True}]}]
    return found + ([{"name": "twin"}, {"name": "new"}, {"name": "twin"}] if STATE["published"] else [])


def call(name):
    if name == "publish":
        STATE["published"] = True
        send({"method": "notifications/resources/list_changed"})
        send({"method": "notifications/prompts/list_changed"})
        return {"content": [{"type": "text", "text": "published"}]}
    return {"content": [{"type": "resource_link", "uri": "doc://guide", "name": "guide", "mimeType": "text/plain"}]}


def answer(method, params):
    if method == "initialize":
        capabilities = {"tools": {}, "resources": {"listChanged": True}, "prompts": {"listChanged": True}, "completions": {}}
        return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": {"name": "documents", "version": "1"}}
    if method == "tools/list":
        hints = {"readOnlyHint": True}
        names = ("find", "publish")
        return {"tools": [{"name": name, "inputSchema": {"type": "object"}, "annotations": hints} for name in names]}
    if method == "tools/call":
        return call(params["name"])
    if method == "resources/list":
        return {"resources": resources()}
    if method == "resources/templates/list":
        return {"resourceTemplates": [{"uriTemplate": "doc://page/{number}", "name": "page"}]}
    if method == "resources/read":
        if params["uri"] == "doc://secret":
            return None
        read = {"uri": params["uri"], "mimeType": "text/plain", "text": "text of " + params["uri"] + "\u202e"}
        if params["uri"].startswith("ui://"):
            read |= {"mimeType": PAGE, "_meta": {"ui": {"csp": {"connectDomains": ["https://example.org"]}}, "x": 1}}
        return {"contents": [read]}
    if method == "prompts/list":
        return {"prompts": prompts()}
    if method == "prompts/get":
        said = "Sum up " + params["arguments"]["what"]
        return {"messages": [{"role": "user", "content": {"type": "text", "text": said}}]}
    if method == "completion/complete":
        typed = params["argument"]["value"]
        others = (params.get("context") or {}).get("arguments") or {}
        about = params["ref"].get("name") or params["ref"]["uri"]
        values = [typed + "1", typed + "\u202e", about] + [key + others[key] for key in others]
        return {"completion": {"values": values, "total": 7, "hasMore": True}}
    return None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = answer(message["method"], message.get("params") or {})
    error = {"code": -32002, "message": "no such thing"}
    send({"id": message["id"], **({"result": result} if result is not None else {"error": error})})
