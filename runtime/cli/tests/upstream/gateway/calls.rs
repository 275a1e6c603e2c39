//! Calls of third-party tools through the program.

use serde_json::json;

use super::client::{Client, Place, hostile, text_of};

/// The server repeats what it is sent.
#[track_caller]
fn answers(client: &mut Client, server: &str) {
    let said = client.text(&format!("{server}__note"), json!({"a": 7}));
    assert!(said.contains(r#""arguments":{"a":7}"#), "{said}");
}

#[test]
fn tools_of_servers_are_offered_and_no_others_without_a_root() {
    let place = Place::new(&json!({"mcpServers": {"notes": hostile(&["plain"])}}));
    let mut client = place.client(&[]);
    let names = client.names("tools", "name");
    assert!(names.contains(&"notes__note".to_owned()), "{names:?}");
    assert!(
        names.iter().all(|name| name.starts_with("notes__")),
        "{names:?}"
    );
    assert!(
        client.greeting["instructions"]
            .as_str()
            .unwrap()
            .contains("`notes`")
    );
    std::fs::create_dir(place.path("repo")).unwrap();
    let mut both = place.client(&["repo"]);
    let names = both.names("tools", "name");
    let has = |name: &str| names.iter().any(|it| it == name);
    assert!(has("notes__note") && has("read_file"), "{names:?}");
}

#[test]
fn calls_of_servers_ask_unless_they_are_allowed() {
    let place = Place::new(&json!({"mcpServers": {"notes": hostile(&["plain"])}}));
    let mut client = place.client(&[]);
    let (code, message) = client.failure("notes__note", json!({}));
    assert_eq!(code, "SCOPE_REQUIRED");
    assert!(!message.contains('~'), "{message}");
    let mut allowed = place.client(&["--allow", "read:mcp:notes"]);
    answers(&mut allowed, "notes");
    assert_eq!(
        allowed.failure("notes__edit", json!({})).0,
        "SCOPE_REQUIRED"
    );
}

#[test]
fn denials_name_servers_and_tools_as_models_know_them() {
    let place = Place::new(&json!({"mcpServers": {"notes": hostile(&["plain"])}}));
    let mut client = place.client(&[
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
fn a_server_that_dies_is_named_with_its_cause_and_the_others_go_on() {
    let servers = json!({"dies": hostile(&["plain"]), "stays": hostile(&["plain"])});
    let place = Place::new(&json!({ "mcpServers": servers }));
    let mut client = place.client(&["--allow", "read:mcp", "--allow", "write:mcp"]);
    let (code, message) = client.failure("dies__note", json!({"do": "die"}));
    assert_eq!(code, "SERVER_GONE");
    assert!(message.contains("`dies`"), "{message}");
    answers(&mut client, "stays");
}

#[test]
fn a_server_that_does_not_start_is_named_and_the_others_are_offered() {
    let servers = json!({"gone": {"command": "/nonexistent"}, "notes": hostile(&["plain"])});
    let place = Place::new(&json!({ "servers": servers }));
    let mut client = place.client(&["--allow", "read:mcp"]);
    let instructions = client.greeting["instructions"].as_str().unwrap().to_owned();
    assert!(
        instructions.contains("Not available now: `gone`"),
        "{instructions}"
    );
    answers(&mut client, "notes");
    let said = client.end();
    assert!(
        said.contains("the server `gone` is not available: it cannot be started"),
        "{said}"
    );
}

#[test]
fn results_have_structured_content_if_the_server_sent_it_and_always_text() {
    let place = Place::new(&json!({"mcpServers": {"h": hostile(&["plain"])}}));
    let mut client = place.client(&["--allow", "read:mcp", "--allow", "write:mcp"]);
    let text_only = client.call("h__note", json!({}));
    assert_eq!(text_only.get("structuredContent"), None, "{text_only}");
    assert!(text_of(&text_only).contains("note"), "{text_only}");
    let structured_only = client.call("h__counted", json!({"n": 7}));
    assert_eq!(structured_only["structuredContent"], json!({"n": 7}));
    assert_eq!(text_of(&structured_only), r#"{"n":7}"#);
}

#[test]
fn servers_ask_the_client_of_the_program() {
    let place = Place::new(&json!({"mcpServers": {"notes": hostile(&["plain"])}}));
    let allow = ["--allow", "write:mcp:notes"];
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    let params = json!({"mode": "form", "message": "Who?", "requestedSchema": schema});
    let arguments = json!({"do": "ask", "method": "elicitation/create", "params": params});
    let call = json!({"name": "notes__edit", "arguments": arguments});
    let mut client = place.client_with(&allow, &[], json!({"elicitation": {}}));
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
    assert!(text_of(&response["result"]).contains("Ada"), "{response}");
    let mut plain = place.client(&allow);
    let refused = plain.text("notes__edit", arguments);
    assert!(
        refused.contains("of a client that supports it"),
        "{refused}"
    );
}
