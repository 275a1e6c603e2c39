"""Requests of MCP by HTTP in, answers that come late or not at all out: what fails is named by a call's argument."""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

released = threading.Event()
lost = threading.Event()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answered(self, status, message=None):
        body = b"" if message is None else json.dumps(message).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answered(405)

    def do_DELETE(self):
        self.answered(405)

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "id" not in message:
            return self.answered(202)
        said = {"jsonrpc": "2.0", "id": message["id"]}
        kind = (message.get("params", {}).get("arguments") or {}).get("do")
        if message["method"] == "initialize":
            said["result"] = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                              "serverInfo": {"name": "hostile", "version": "1"}}
        elif lost.is_set():
            return self.answered(500)
        elif message["method"] == "tools/list":
            said["result"] = {"tools": [{"name": "edit", "inputSchema": {"type": "object"}}]}
        elif message["method"] == "tools/call":
            if kind == "fail":
                return self.answered(500)
            if kind == "lose":
                lost.set()
                return self.answered(500)
            if kind == "wait":
                released.wait(60)
            if kind == "release":
                released.set()
            said["result"] = {"content": [{"type": "text", "text": f"did {kind}"}]}
        else:
            said["error"] = {"code": -32601, "message": "no such method"}
        self.answered(200, said)


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
threading.Thread(target=lambda: (sys.stdin.read(), server.shutdown()), daemon=True).start()
server.serve_forever()
