//! An MCP server over stdio that fails every check. Its tool `exit` ends it.

use std::io::Write;

use serde_json::{Value, json};

use crate::embedded_server;

/// The command that starts the server in the test `test` of this executable, which calls [`serve`].
pub fn command(test: &'static str) -> Vec<&'static str> {
    embedded_server::command(test, &[])
}

/// Serves and exits, if this process was started by [`command`].
pub fn serve() {
    if embedded_server::arguments().is_none() {
        return;
    }
    let mut output = embedded_server::output();
    let mut calls = 0;
    for line in std::io::stdin().lines() {
        let message: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let line = if message.get("id").is_none() {
            "this is no JSON".to_owned()
        } else {
            let result = answer(&message, &mut calls);
            json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string()
        };
        writeln!(output, "{line}").unwrap();
    }
    // With `STAY`, the server outlives its client.
    if std::env::var("STAY").is_ok_and(|stay| !stay.is_empty()) {
        std::thread::sleep(std::time::Duration::from_secs(600));
    }
    std::process::exit(0);
}

fn answer(message: &Value, calls: &mut usize) -> Value {
    match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {
                "tools": {}, "resources": {}, "experimental": {"policy": true},
                "configSchema": {"type": "object", "properties": {"field": {"type": "string", "scope": "whenever"}}},
            },
            "serverInfo": {"name": "wrong", "version": "1"},
            "dashdash": {"specVersion": "0.2.0"},
        }),
        "tools/list" => json!({"tools": tools()}),
        "tools/call" => {
            *calls += 1;
            match message["params"]["name"].as_str().unwrap_or_default() {
                "exit" => std::process::exit(3),
                "structured" => json!({"content": [], "structuredContent": {"n": "none"}}),
                _ => {
                    json!({"content": [{"type": "text", "text": "done"}], "structuredContent": {"calls": calls}})
                }
            }
        }
        "resources/list" => json!({"resources": []}),
        "resources/read" => {
            let uri = &message["params"]["uri"];
            json!({"contents": [{"uri": uri, "mimeType": "text/html", "text": "<p>page</p>"}]})
        }
        _ => json!({}),
    }
}

fn tools() -> Value {
    let object = || json!({"type": "object"});
    let arrays = json!({"a": {"type": "array", "items": {}}, "b": {"type": "array", "items": {}}});
    let contradiction =
        json!({"readOnlyHint": true, "destructiveHint": true, "scopes": ["write:file"]});
    let number =
        json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    json!([
        {"name": "twice", "inputSchema": object()},
        {"name": "twice", "inputSchema": object()},
        {"name": "no such: name", "inputSchema": object()},
        {"name": "schema", "inputSchema": {"type": "strong"}},
        {"name": "array", "inputSchema": {"type": "array"}},
        {
            "name": "template", "annotations": {"intentTemplate": "Do {missing} [{a} {b}]"},
            "inputSchema": {"type": "object", "properties": arrays},
        },
        {"name": "contradiction", "inputSchema": object(), "annotations": contradiction},
        {"name": "structured", "inputSchema": object(), "annotations": {"readOnlyHint": true}, "outputSchema": number},
        {"name": "preview", "inputSchema": object(), "annotations": {"preview": true}},
        {"name": "page", "inputSchema": object(), "_meta": {"ui": {"resourceUri": "ui://wrong/page.html"}}},
        {"name": "exit", "inputSchema": object()},
    ])
}
