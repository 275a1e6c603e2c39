//! Tests of resource subscriptions.

use bailiwick::permission::Answer;
use bailiwick::{Deferred, Policy, Runtime, WorkerSpec};
use bailiwick_mcp::gateway::{FileTools, Gateway, Trust};
use bailiwick_test_support::client::{Client, info};
use bailiwick_test_support::temp_files::TempFiles;
use bailiwick_test_support::wait;
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
async fn watched_file_can_be_subscribed_to_again_at_the_limit() {
    let workspace = Workspace::new();
    let mut client = workspace.client(Trust::Host);
    client.initialize("2025-11-25", json!({})).await;
    for number in 0..=64 {
        std::fs::write(workspace.path(&format!("r/{number}")), "x").unwrap();
    }
    // The server watches 64 files.
    for (numbers, watched) in [(0..64, true), (64..65, false), (0..1, true)] {
        for number in numbers {
            let uri = json!({"uri": format!("file:///r/{number}")});
            let answer = client.request("resources/subscribe", uri).await;
            assert_eq!(answer["result"].is_object(), watched, "{number}: {answer}");
        }
    }
    std::fs::write(workspace.path("r/0"), "changed").unwrap();
    let notification = client.receive().await;
    assert_eq!(notification["params"]["uri"], "file:///r/0");
}

#[tokio::test]
async fn completions_and_subscriptions_ask_nobody() {
    let files = TempFiles::new(&[("r/a.txt", "a"), ("r/asked/b.txt", "b")]);
    let policy = Policy::new()
        .allow("read:file:/r")
        .ask("read:file:/r/asked");
    let builder = Runtime::builder().root("r", files.path("r"));
    let builder = builder.tools(bailiwick_fs::tools()).approver(Deferred);
    let (runtime, grants) = builder.build().await.unwrap();
    let worker = runtime
        .spawn(WorkerSpec::new("agent").policy(policy))
        .await
        .unwrap();
    let tools = FileTools {
        read: "read_file",
        list: "list_directory",
    };
    let gateway = Gateway::worker(&worker, info()).files(tools).build();
    let mut client = Client::connect(&gateway, json!({})).await;
    let complete = |value: &str| {
        json!({
            "ref": {"type": "ref/resource", "uri": "file:///{+path}"},
            "argument": {"name": "path", "value": value},
        })
    };
    for (typed, values) in [("r/a", json!(["r/a.txt"])), ("r/asked/", json!([]))] {
        let completed = client.request("completion/complete", complete(typed)).await;
        assert_eq!(
            completed["result"]["completion"]["values"], values,
            "{typed}"
        );
    }
    for (uri, watched) in [("file:///r/a.txt", true), ("file:///r/asked/b.txt", false)] {
        let answer = client
            .request("resources/subscribe", json!({"uri": uri}))
            .await;
        assert_eq!(answer["result"].is_object(), watched, "{answer}");
    }
    assert!(grants.questions().await.unwrap().is_empty());
    // A read asks.
    let read = json!({"uri": "file:///r/asked/b.txt"});
    let read = client.start_request("resources/read", read).await;
    let question = wait::for_questions(&grants, |open| Some(open.first()?.id)).await;
    grants.answer(question, Answer::DENY).await.unwrap();
    assert!(client.response(read).await["error"].is_object());
    runtime.shutdown().await;
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
