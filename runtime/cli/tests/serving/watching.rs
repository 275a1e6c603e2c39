//! Tests of resource subscriptions.

use bailiwick_mcp::gateway::Trust;
use bailiwick_test_support::workspace::Workspace;
use serde_json::json;

#[tokio::test]
async fn only_changes_of_subscribed_files_are_notified_once() {
    let workspace = Workspace::new();
    let mut client = workspace.client(Trust::Host);
    client.initialize("2025-11-25", json!({})).await;
    let watched = json!({"uri": "file:///r/a.txt"});
    let done = client.request("resources/subscribe", watched.clone()).await;
    assert_eq!(done["result"], json!({}), "{done}");
    for uri in [
        "file:///r/secret/key",
        "file:///r/none",
        "file:///etc/passwd",
        "x:y",
    ] {
        let refused = client
            .request("resources/subscribe", json!({"uri": uri}))
            .await;
        assert_eq!(refused["error"]["code"], -32002, "{uri}: {refused}");
    }
    std::fs::write(workspace.path("r/src/lib.rs"), "not watched").unwrap();
    std::fs::write(workspace.path("r/a.txt"), "changed").unwrap();
    let notification = client.receive().await;
    assert_eq!(
        notification["method"], "notifications/resources/updated",
        "{notification}"
    );
    assert_eq!(notification["params"]["uri"], "file:///r/a.txt");

    let done = client.request_next("resources/unsubscribe", watched).await;
    assert_eq!(done["result"], json!({}), "{done}");
    std::fs::write(workspace.path("r/a.txt"), "again").unwrap();
    let edit = json!({"path": "/r/src/lib.rs", "content": "x", "mode": "overwrite"});
    let write = json!({"name": "write_file", "arguments": edit});
    client
        .send(&json!({"jsonrpc": "2.0", "id": "w", "method": "tools/call", "params": write}))
        .await;
    let answer = client.receive().await;
    assert_eq!(answer["id"], "w", "{answer}");
    let watched = json!({"uri": "file:///r/a.txt"});
    client.request_next("resources/subscribe", watched).await;
    std::fs::write(workspace.path("r/a.txt"), "once more").unwrap();
    // Word of the artifacts of the write would come first.
    let notification = client.receive().await;
    assert_eq!(
        notification["method"], "notifications/resources/updated",
        "{notification}"
    );
}

#[tokio::test]
async fn stateless_client_subscribes_by_request() {
    let workspace = Workspace::new();
    let mut client = workspace.client(Trust::Host);
    client
        .send(&json!({
            "jsonrpc": "2.0", "id": "l", "method": "subscriptions/listen",
            "params": {
                "notifications": {
                    "resourcesListChanged": true,
                    "toolsListChanged": true, "promptsListChanged": true,
                    "resourceSubscriptions": ["file:///r/a.txt", "file:///r/secret/key"],
                },
                "_meta": {
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientCapabilities": {},
                },
            },
        }))
        .await;
    let accepted = client.receive().await;
    assert_eq!(
        accepted["method"], "notifications/subscriptions/acknowledged",
        "{accepted}"
    );
    assert_eq!(
        accepted["params"]["notifications"]["toolsListChanged"], true,
        "{accepted}"
    );
    for list in ["promptsListChanged", "resourcesListChanged"] {
        let notifications = &accepted["params"]["notifications"];
        assert_eq!(notifications[list], true, "{accepted}");
    }
    // What is acknowledged is watched.
    std::fs::write(workspace.path("r/secret/key"), "changed").unwrap();
    std::fs::write(workspace.path("r/a.txt"), "changed").unwrap();
    let notification = client.receive().await;
    assert_eq!(
        notification["method"], "notifications/resources/updated",
        "{notification}"
    );
    assert_eq!(notification["params"]["uri"], "file:///r/a.txt");
    assert_eq!(
        notification["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
        "l"
    );
    // The artifacts of a write are not notified.
    let params = json!({
        "name": "write_file", "arguments": {"path": "/r/new", "content": "x"},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    });
    client
        .send(&json!({"jsonrpc": "2.0", "id": "w", "method": "tools/call", "params": params}))
        .await;
    assert_eq!(client.receive().await["id"], "w");
}
