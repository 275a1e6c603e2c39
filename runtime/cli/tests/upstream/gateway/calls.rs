//! Tests of calls of third-party tools.

use super::client::{Workspace, hostile, list};
use bailiwick_test_support::server::{Server, text};
use serde_json::json;

/// The server repeats what it is sent.
#[track_caller]
fn answers(client: &mut Server, server: &str) {
    let result = client.text(&format!("{server}__note"), json!({"a": 7}));
    assert!(result.contains(r#""arguments":{"a":7}"#), "{result}");
}

#[test]
fn without_a_root_only_server_tools_are_offered() {
    let workspace = Workspace::new(&json!({"mcpServers": {"notes": hostile(&["plain"])}}));
    let mut client = workspace.client(&[]);
    let names = list(&mut client, "tools", "name");
    assert!(names.contains(&"notes__note".to_owned()), "{names:?}");
    assert!(
        names.iter().all(|name| name.starts_with("notes__")),
        "{names:?}"
    );
    assert!(
        client.initialized["instructions"]
            .as_str()
            .unwrap()
            .contains("`notes`")
    );
    std::fs::create_dir(workspace.path("repo")).unwrap();
    let mut both = workspace.client(&["repo"]);
    let names = list(&mut both, "tools", "name");
    let has = |name: &str| names.iter().any(|it| it == name);
    assert!(has("notes__note") && has("read_file"), "{names:?}");
}

#[test]
fn server_calls_need_approval_unless_allowed() {
    let workspace = Workspace::new(&json!({"mcpServers": {"notes": hostile(&["plain"])}}));
    let mut client = workspace.client(&[]);
    let (code, message) = client.failure("notes__note", json!({}));
    assert_eq!(code, "SCOPE_REQUIRED");
    assert!(!message.contains('~'), "{message}");
    let mut allowed = workspace.client(&["--allow", "read:mcp:notes"]);
    answers(&mut allowed, "notes");
    assert_eq!(
        allowed.failure("notes__edit", json!({})).0,
        "SCOPE_REQUIRED"
    );
}

#[test]
fn denials_use_the_tool_names_of_models() {
    let workspace = Workspace::new(&json!({"mcpServers": {"notes": hostile(&["plain"])}}));
    let mut client = workspace.client(&[
        "--deny-scopes",
        "write:mcp:notes:edit",
        "--allow",
        "read:mcp",
    ]);
    let (code, message) = client.failure("notes__edit", json!({}));
    assert_eq!(code, "PERMISSION_DENIED");
    assert!(message.contains("write:mcp:notes:edit"), "{message}");
    assert!(!message.contains('~'), "{message}");
    answers(&mut client, "notes");
}

#[test]
fn crashed_server_is_reported_and_others_continue() {
    let servers = json!({"dies": hostile(&["plain"]), "stays": hostile(&["plain"])});
    let workspace = Workspace::new(&json!({ "mcpServers": servers }));
    let mut client = workspace.client(&["--allow", "read:mcp", "--allow", "write:mcp"]);
    let (code, message) = client.failure("dies__note", json!({"do": "die"}));
    assert_eq!(code, "SERVER_GONE");
    assert!(message.contains("`dies`"), "{message}");
    answers(&mut client, "stays");
}

#[test]
fn server_start_failure_is_reported_and_others_are_offered() {
    let servers = json!({"gone": {"command": "/nonexistent"}, "notes": hostile(&["plain"])});
    let workspace = Workspace::new(&json!({ "servers": servers }));
    let mut client = workspace.client(&["--allow", "read:mcp"]);
    let instructions = client.initialized["instructions"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        instructions.contains("Not available now: `gone`"),
        "{instructions}"
    );
    answers(&mut client, "notes");
    let stderr = client.end().1;
    assert!(
        stderr.contains("the server `gone` is not available: it cannot be started"),
        "{stderr}"
    );
}

#[test]
fn results_always_have_text_and_keep_structured_content() {
    let workspace = Workspace::new(&json!({"mcpServers": {"h": hostile(&["plain"])}}));
    let mut client = workspace.client(&["--allow", "read:mcp", "--allow", "write:mcp"]);
    let text_only = client.call("h__note", json!({}));
    assert_eq!(text_only.get("structuredContent"), None, "{text_only}");
    assert!(text(&text_only).contains("note"), "{text_only}");
    let structured_only = client.call("h__counted", json!({"n": 7}));
    assert_eq!(structured_only["structuredContent"], json!({"n": 7}));
    assert_eq!(text(&structured_only), r#"{"n":7}"#);
}

#[test]
fn server_requests_reach_the_client_of_the_program() {
    let workspace = Workspace::new(&json!({"mcpServers": {"notes": hostile(&["plain"])}}));
    let allow = ["--allow", "write:mcp:notes"];
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    let params = json!({"mode": "form", "message": "Who?", "requestedSchema": schema});
    let arguments = json!({"do": "ask", "method": "elicitation/create", "params": params});
    let call = json!({"name": "notes__edit", "arguments": arguments});
    let mut client = workspace.client_with(&allow, &[], &json!({"elicitation": {}}));
    client.send(&json!({"jsonrpc": "2.0", "id": "call", "method": "tools/call", "params": call}));
    let asked = loop {
        let message = client.receive();
        if message["method"] == "elicitation/create" {
            break message;
        }
    };
    let message = asked["params"]["message"].as_str().unwrap();
    assert!(message.contains("The MCP server `notes` asks"), "{message}");
    let content = json!({"name": "Ada"});
    client.send(
        &json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": content}}),
    );
    let response = loop {
        let message = client.receive();
        if message["id"] == "call" {
            break message;
        }
    };
    assert!(text(&response["result"]).contains("Ada"), "{response}");
    let mut plain = workspace.client(&allow);
    let refused = plain.text("notes__edit", arguments);
    assert!(
        refused.contains("of a client that supports it"),
        "{refused}"
    );
}
