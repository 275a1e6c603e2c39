//! Directories that the client names, where the command line names none.

use crate::program;
use bailiwick_mcp::gateway::Trust;
use bailiwick_test_support::client::Client;
use bailiwick_test_support::server::text;
use bailiwick_test_support::workspace::Workspace;
use serde_json::Value;
use serde_json::json;
use std::fs;
use std::path::Path;

fn folders() -> (tempfile::TempDir, [std::path::PathBuf; 2]) {
    let temp = tempfile::tempdir().unwrap();
    let base = temp.path().canonicalize().unwrap();
    let folders = ["one", "two"].map(|name| base.join(name));
    for folder in &folders {
        fs::create_dir(folder).unwrap();
        let name = folder.file_name().unwrap();
        fs::write(folder.join("a.txt"), name.as_encoded_bytes()).unwrap();
        fs::write(folder.join("key.pem"), "secret").unwrap();
    }
    (temp, folders)
}

#[test]
fn client_roots_are_served_and_refreshed() {
    let (_temp, [one, two]) = folders();
    let mut program = program::start(&["--deny", "*.pem"], &[&one]);
    program.initialize(&json!({"roots": {"listChanged": true}}));
    assert_eq!(program.text("read_file", json!({"path": "a.txt"})), "one");
    for path in ["key.pem", two.join("a.txt").to_str().unwrap()] {
        program.failure("read_file", json!({"path": path}));
    }
    program.set_roots(&[&two]);
    program.send(&json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}));
    while program.receive()["method"] != "notifications/resources/list_changed" {}
    assert_eq!(program.text("read_file", json!({"path": "a.txt"})), "two");
    program.failure("read_file", json!({"path": one.join("a.txt")}));
}

#[test]
fn stateless_client_sends_its_roots_with_a_call() {
    let (_temp, [one, _]) = folders();
    let mut program = program::start(&[], &[&one]);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"roots": {}},
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
    });
    let mut call = json!({"name": "read_file", "arguments": {"path": "a.txt"}, "_meta": meta});
    let required = program.request("tools/call", &call);
    let result = &required["result"];
    assert_eq!(result["resultType"], "input_required", "{required}");
    assert_eq!(result["inputRequests"]["roots"]["method"], "roots/list");
    call["inputResponses"] = json!({"roots": {"roots": program.roots()}});
    let read = program.request("tools/call", &call);
    assert_eq!(read["result"]["content"][0]["text"], "one", "{read}");
}

#[test]
fn client_without_roots_gets_a_hint() {
    let (_temp, [one, _]) = folders();
    let mut program = program::start(&[], &[]);
    let initialized = program.initialize(&json!({}));
    let instructions = initialized["result"]["instructions"].as_str().unwrap();
    assert!(
        instructions.contains("has no root directory"),
        "{instructions}"
    );
    let path = one.join("a.txt");
    for arguments in [json!({"path": "a.txt"}), json!({"path": path})] {
        let (_, text) = program.failure("read_file", &arguments);
        assert!(text.contains("start it with a directory"), "{text}");
    }
    let text = text(&program.call("list_roots", json!({})));
    assert!(text.contains("for a directory, or for a policy"), "{text}");
}

#[test]
fn client_roots_that_cannot_be_opened_are_skipped_and_named() {
    let (_temp, [one, two]) = folders();
    let (missing, file) = (one.join("missing"), one.join("a.txt"));
    let mut program = program::start(&[], &[&missing, &one, &file, Path::new("/"), &two]);
    program.initialize(&json!({"roots": {}}));
    assert_eq!(program.text("read_file", json!({"path": "a.txt"})), "one");
    let listed = program.call("list_roots", json!({}));
    let listed = &listed["structuredContent"];
    assert_eq!(listed["roots"], json!([one, two]));
    let unavailable = listed["unavailable"].as_array().unwrap().iter();
    let unavailable: Vec<&Value> = unavailable.map(|root| &root["path"]).collect();
    assert_eq!(unavailable, [&json!(missing), &json!(file), &json!("/")]);
}

#[test]
fn clients_without_roots_support_get_no_hint() {
    for (arguments, hinted) in [(&[][..], true), (&["--trust", "agent"], false)] {
        let mut program = program::start(arguments, &[]);
        let initialized = program.initialize(&json!({}));
        let instructions = initialized["result"]["instructions"].as_str().unwrap();
        assert!(
            instructions.contains("start it with a directory"),
            "{instructions}"
        );
        assert_eq!(instructions.contains("MCP roots"), hinted, "{instructions}");
        let (_, text) = program.failure("read_file", json!({"path": "a.txt"}));
        assert!(text.contains("start it with a directory"), "{text}");
        assert_eq!(text.contains("MCP roots"), hinted, "{text}");
    }
}

#[test]
fn root_that_cannot_be_served_is_named_with_the_reason() {
    let mut program = program::start(&[], &[Path::new("/")]);
    program.initialize(&json!({"roots": {}}));
    let refused = program.request("tools/call", json!({"name": "list_roots"}));
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("top of the file system"), "{refused}");
}

#[test]
fn root_argument_and_agent_trust_disable_client_roots() {
    let (_temp, [one, two]) = folders();
    let named = two.to_str().unwrap();
    for (arguments, read) in [(vec![named], "two"), (vec!["--trust", "agent"], "")] {
        let mut program = program::start(&arguments, &[&one]);
        program.initialize(&json!({"roots": {}}));
        let answer = program.call("read_file", json!({"path": "a.txt"}));
        let error = answer["isError"] == true;
        assert_eq!(error, read.is_empty(), "{answer}");
        if !error {
            assert_eq!(answer["content"][0]["text"], read);
        }
    }
}

#[tokio::test]
async fn one_request_for_roots_follows_any_number_of_notifications() {
    let workspace = Workspace::new();
    let gateway = workspace.gateway(Trust::Client).client_roots().build();
    let mut client = Client::new(&gateway);
    let roots = json!({"roots": {"listChanged": true}});
    client.initialize("2025-11-25", roots).await;
    let first = client.receive_request("roots/list").await;
    let level = json!({"level": "error"});
    for method in [
        "notifications/initialized",
        "notifications/roots/list_changed",
    ] {
        for _ in 0..3 {
            client
                .send(&json!({"jsonrpc": "2.0", "method": method}))
                .await;
        }
        // Its answer follows the beginning of all notifications.
        client.request_next("logging/setLevel", level.clone()).await;
    }
    client.respond(&first, json!({"roots": []})).await;
    let second = client.receive_request("roots/list").await;
    client.respond(&second, json!({"roots": []})).await;
    let listed = client.request_next("tools/list", json!({})).await;
    assert!(listed["result"]["tools"].is_array(), "{listed}");
    // A later change is not lost.
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"});
    client.send(&changed).await;
    let third = client.receive_request("roots/list").await;
    client.respond(&third, json!({"roots": []})).await;
    let method = "notifications/resources/list_changed";
    assert_eq!(client.receive().await["method"], method);
}

#[test]
fn client_configuration_sets_roots_and_widens_nothing_else() {
    let (_temp, [one, two]) = folders();
    let configured =
        |configuration: Value| json!({"experimental": {"configuration": configuration}});
    let roots = json!([{"path": one}]);
    let mut program = program::start(&["--read-only"], &[]);
    program.initialize(&configured(json!({"roots": roots, "read_only": false})));
    let read = json!({"path": one.join("a.txt")});
    assert_eq!(program.text("read_file", &read), "one");
    let write = json!({"path": one.join("new"), "content": "x"});
    program.failure("write_file", &write);
    for wider in [
        json!({"roots": roots, "grantable": ["read:file"]}),
        json!({"roots": roots, "allow": ["read:network"]}),
    ] {
        let mut program = program::start(&[], &[]);
        let initialized = program.initialize(&configured(wider));
        assert_eq!(initialized["error"]["code"], -32602, "{initialized}");
    }
    fs::write(one.join("long.txt"), "line\n".repeat(400_000)).unwrap();
    let read = json!({"path": one.join("long.txt"), "limit": i64::MAX, "max_bytes": i64::MAX});
    let unlimited = json!({"roots": roots, "read_max_bytes": 0});
    let raised = "--read-max-bytes=4000000";
    for (arguments, sent, bytes) in [
        (&[][..], &unlimited, 0..=1 << 20),
        (&[], &json!({"roots": roots, "read_max_bytes": 99}), 0..=99),
        (&[raised], &unlimited, 2_000_000..=4_000_000),
        (&["--trust=host"], &unlimited, 2_000_000..=4_000_000),
    ] {
        let mut program = program::start(arguments, &[]);
        program.initialize(&configured(sent.clone()));
        let text = program.text("read_file", &read);
        let size = text.matches("line\n").count() * 5;
        assert!(bytes.contains(&size), "{arguments:?} {sent}: {size}");
    }
    let mut program = program::start(&[two.to_str().unwrap()], &[]);
    let initialized = program.initialize(&configured(json!({"roots": roots})));
    assert_eq!(
        initialized["error"]["data"]["kind"], "policy_expansion",
        "{initialized}"
    );
}
