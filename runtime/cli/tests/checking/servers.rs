//! Misbehaving MCP servers over stdio.

use std::fs::File;
use std::io::Write;

use bailiwick_test_support::embedded_server;
use serde_json::{Value, json};

/// The command that starts the server of this mode.
pub(crate) fn server(mode: &'static str) -> Vec<&'static str> {
    embedded_server::command("servers::checked_server_process", &[mode])
}

/// Writes a line; the server ends once nobody reads them.
fn write(mut output: &File, line: &str) {
    if output.write_all(format!("{line}\n").as_bytes()).is_err() {
        std::process::exit(0);
    }
}

#[test]
fn checked_server_process() {
    let Some(arguments) = embedded_server::arguments() else {
        return;
    };
    let mode = arguments[0].as_str();
    let output = embedded_server::output();
    if mode == "flood" {
        let output = embedded_server::output();
        let notification = json!({"jsonrpc": "2.0", "method": "notifications/x"}).to_string();
        std::thread::spawn(move || {
            loop {
                write(&output, &notification);
            }
        });
    }
    if mode == "escapes" {
        eprintln!("\u{1b}]0;title\u{7}");
    }
    for line in std::io::stdin().lines() {
        let message: Value = serde_json::from_str(&line.unwrap()).unwrap();
        if let Some(answer) = message.get("id").and_then(|_| answer(mode, &message)) {
            let mut response = json!({"jsonrpc": "2.0", "id": message["id"]});
            let members = answer.as_object().unwrap().clone();
            response.as_object_mut().unwrap().extend(members);
            write(&output, &response.to_string());
        }
    }
    std::process::exit(0);
}

/// The members of the response; none if there is no response.
fn answer(mode: &str, message: &Value) -> Option<Value> {
    let result = |result: Value| Some(json!({ "result": result }));
    let tools = !matches!(mode, "minimal" | "flood");
    let capabilities = if tools {
        json!({"tools": {}})
    } else {
        json!({})
    };
    match message["method"].as_str().unwrap() {
        "initialize" if mode == "refuses" => {
            Some(json!({"error": {"code": -32000, "message": "\u{1b}[31mno licence"}}))
        }
        "initialize" => result(json!({
            "protocolVersion": if mode == "future" { "2099-01-01" } else { "2025-11-25" },
            "capabilities": capabilities,
            "serverInfo": {"name": "test", "version": "1"},
        })),
        "tools/list" if mode == "silent" => None,
        "tools/list" => result(json!({"tools": listed(mode)})),
        "tools/call" if mode == "hangs" => None,
        "tools/call" => Some(json!({"error": {"code": -32602, "message": "unknown tool"}})),
        _ => Some(json!({"error": {"code": -32601, "message": "unknown method"}})),
    }
}

fn listed(mode: &str) -> Value {
    let read_only = json!({"readOnlyHint": true});
    match mode {
        "escapes" => json!([{"name": "\u{1b}[31m\u{202e}red", "inputSchema": {"type": "object"}}]),
        "long" => {
            let names = (0..2_000).map(|number| format!("{number} {}", "x".repeat(1_000)));
            let tools = names.map(|name| json!({"name": name, "inputSchema": {"type": "object"}}));
            tools.collect()
        }
        "undescribed" => {
            let schema = json!({"type": "object", "required": ["a"]});
            json!([{"name": "undescribed", "inputSchema": schema}])
        }
        "costly" => {
            let schema = json!({"type": "object", "allOf": [{"$ref": "#"}]});
            json!([{"name": "costly", "inputSchema": schema}])
        }
        "hangs" => {
            json!([{"name": "hangs", "inputSchema": {"type": "object"}, "annotations": read_only}])
        }
        _ => json!([]),
    }
}
