//! Tests of list change notifications.
#![expect(
    clippy::indexing_slicing,
    reason = "a message that lacks a member fails the test"
)]

use bailiwick::{Policy, Worker};
use bailiwick_mcp::upstream::ServerState;
use bailiwick_mcp::view::View;
use bailiwick_mcp::view::{DenyView, ViewChannel, ViewSpec};
use bailiwick_test_support::client::{self, gateway};
use bailiwick_test_support::upstream::{act, text};
use bailiwick_test_support::wait;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::hostile_server::alone;

/// A client that is notified of changed lists.
struct Client(client::Client);

impl Client {
    /// One that had its handshake.
    async fn connected(worker: &Worker) -> Self {
        let mut client = client::Client::new(&gateway(worker));
        let initialized = client.initialize("2025-11-25", json!({})).await;
        let tools = &initialized["result"]["capabilities"]["tools"];
        assert_eq!(*tools, json!({"listChanged": true}), "{initialized}");
        // What comes after an answer comes after that was taken up.
        client.request_next("ping", json!({})).await;
        Self(client)
    }

    /// One without a handshake, that listens.
    async fn listening(worker: &Worker) -> Self {
        let mut client = client::Client::stateless(&gateway(worker), &json!({}));
        let params = json!({"notifications": {"toolsListChanged": true}});
        client.start_request("subscriptions/listen", params).await;
        let accepted = client.receive().await;
        assert_eq!(
            accepted["params"]["notifications"],
            json!({"toolsListChanged": true})
        );
        Self(client)
    }

    /// The next message that is not about the resources or prompts of servers, which come and go with their tools.
    async fn next_except_other_lists(&mut self) -> Value {
        loop {
            let message = self.0.receive().await;
            let method = message["method"].as_str().unwrap_or_default();
            let lists =
                ["resources", "prompts"].map(|list| format!("notifications/{list}/list_changed"));
            if !lists.iter().any(|list| list == method) {
                return message;
            }
        }
    }

    async fn assert_notified(&mut self) {
        let message = self.next_except_other_lists().await;
        assert_eq!(
            message["method"], "notifications/tools/list_changed",
            "{message}"
        );
    }

    /// The next message is the response to this ping, not a notification.
    async fn assert_no_notification(&mut self) {
        let ping = json!({"jsonrpc": "2.0", "id": "next", "method": "ping"});
        self.0.send(&ping).await;
        let next = self.next_except_other_lists().await;
        assert_eq!(next["id"], "next", "{next}");
    }
}

fn offered(worker: &Worker) -> bool {
    worker
        .tools()
        .iter()
        .any(|tool| tool.spec.name == "h__note")
}

#[tokio::test]
async fn clients_are_notified_of_withheld_and_approved_tools() {
    let (stage, worker) = alone("changes").await;
    let mut clients = [
        Client::connected(&worker).await,
        Client::listening(&worker).await,
    ];
    assert_eq!(text(act(&worker, "h__edit", "relist").await), "listed anew");
    for client in &mut clients {
        client.assert_notified().await;
    }
    assert!(!offered(&worker));
    let tools = stage.upstreams.tools("h");
    let note = tools.iter().find(|tool| tool.tool == "note").unwrap();
    let approved = stage.upstreams.approve("h", "note", note.fingerprint);
    assert!(approved.await.unwrap());
    for client in &mut clients {
        client.assert_notified().await;
    }
    assert!(offered(&worker));
}

#[tokio::test]
async fn clients_are_notified_of_lost_and_restored_servers() {
    let (stage, worker) = alone("plain").await;
    let mut clients = [
        Client::connected(&worker).await,
        Client::listening(&worker).await,
    ];
    let server: i32 = text(act(&worker, "h__edit", "pid").await).parse().unwrap();
    kill_process(Pid::from_raw(server).unwrap(), Signal::KILL).unwrap();
    wait::for_tools(&worker, || !offered(&worker)).await;
    for client in &mut clients {
        client.assert_notified().await;
    }
    assert!(stage.upstreams.reached("h", ServerState::Ready).await);
    for client in &mut clients {
        client.assert_notified().await;
    }
    assert!(offered(&worker));
    stage.upstreams.shutdown().await;
    for client in &mut clients {
        client.assert_notified().await;
    }
    assert!(!offered(&worker));
}

#[tokio::test]
async fn clients_without_access_to_a_server_get_no_notifications() {
    let (stage, worker) = alone("changes").await;
    let other = stage
        .worker(Policy::new().deny("read:mcp").deny("write:mcp"))
        .await;
    let mut theirs = Client::connected(&worker).await;
    let mut other = Client::connected(&other).await;
    assert_eq!(text(act(&worker, "h__edit", "relist").await), "listed anew");
    theirs.assert_notified().await;
    other.assert_no_notification().await;
}

/// Answers as a page that offers one tool more each time it is asked.
fn acts(mut link: ViewChannel) {
    tokio::spawn(async move {
        let mut tools = Vec::new();
        let sender = link.sender();
        while let Some(message) = link.next().await {
            let message: Value = serde_json::from_str(&message).unwrap();
            if message["method"] == "tools/list" {
                let name = format!("look{}", tools.len());
                tools.push(json!({"name": name, "annotations": {"readOnlyHint": true}}));
                let tools = json!({ "tools": tools });
                let listed = json!({"jsonrpc": "2.0", "id": message["id"], "result": tools});
                assert!(sender.send(listed.to_string()).await);
            }
        }
    });
}

#[tokio::test]
async fn clients_are_notified_of_app_tools() {
    let (_stage, worker) = alone("plain").await;
    let mut clients = [
        Client::connected(&worker).await,
        Client::listening(&worker).await,
    ];
    let spec = ViewSpec::new("page");
    let (view, link) = View::open(&worker, spec, DenyView).await.unwrap();
    let sender = link.sender();
    acts(link);
    let app = json!({
        "appInfo": {"name": "page", "version": "1"},
        "appCapabilities": {"tools": {"listChanged": true}},
        "protocolVersion": "2026-01-26",
    });
    for message in [
        json!({"jsonrpc": "2.0", "id": 1, "method": "ui/initialize", "params": app}),
        json!({"jsonrpc": "2.0", "method": "ui/notifications/initialized"}),
    ] {
        assert!(sender.send(message.to_string()).await);
    }
    let offered = || {
        let tools = worker.tools().into_iter();
        let of_page = tools.filter(|tool| tool.spec.name.starts_with("app_page__"));
        of_page.count()
    };
    for client in &mut clients {
        client.assert_notified().await;
    }
    assert_eq!(offered(), 1);
    let more = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    assert!(sender.send(more.to_string()).await);
    for client in &mut clients {
        client.assert_notified().await;
    }
    assert_eq!(offered(), 2);
    view.close().await;
    for client in &mut clients {
        client.assert_notified().await;
    }
    assert_eq!(offered(), 0);
}
