//! Tests of list change notifications.
#![expect(
    clippy::indexing_slicing,
    reason = "a message that lacks a member fails the test"
)]

use bailiwick_mcp::view::View;
use std::time::Duration;

use bailiwick::{Policy, Worker};
use bailiwick_mcp::gateway::{Gateway, GatewayInfo};
use bailiwick_mcp::upstream::ServerState;
use bailiwick_mcp::view::{DenyView, ViewChannel, ViewSpec};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf, split,
};

use super::hostile_server::alone;
use super::support::{does, text, until};

/// A client that sends raw lines to a gateway.
struct Client {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
}

impl Client {
    fn of(worker: &Worker) -> Self {
        let about = GatewayInfo {
            name: "gateway".into(),
            title: "Gateway".into(),
            version: "1".into(),
            instructions: String::new(),
        };
        let gateway = Gateway::worker(worker, about).build();
        let (near, far) = tokio::io::duplex(1 << 20);
        let (reader, writer) = split(far);
        tokio::spawn(async move { gateway.serve(reader, writer).await.unwrap() });
        let (reader, writer) = split(near);
        Self {
            lines: BufReader::new(reader).lines(),
            writer,
        }
    }

    /// A client after its handshake.
    async fn with_handshake(worker: &Worker) -> Self {
        let mut client = Self::of(worker);
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"},
        });
        client
            .send(json!({"id": 1, "method": "initialize", "params": params}))
            .await;
        let greeting = client.receive().await;
        let tools = &greeting["result"]["capabilities"]["tools"];
        assert_eq!(*tools, json!({"listChanged": true}), "{greeting}");
        client
            .send(json!({"method": "notifications/initialized"}))
            .await;
        // The notification was handled before the ping is answered.
        client.send(json!({"id": 2, "method": "ping"})).await;
        client.receive().await;
        client
    }

    /// A stateless client that subscribes.
    async fn listening(worker: &Worker) -> Self {
        let mut client = Self::of(worker);
        let params = json!({
            "notifications": {"toolsListChanged": true},
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        });
        client
            .send(json!({"id": "l", "method": "subscriptions/listen", "params": params}))
            .await;
        let accepted = client.receive().await;
        assert_eq!(
            accepted["params"]["notifications"],
            json!({"toolsListChanged": true})
        );
        client
    }

    async fn send(&mut self, mut message: Value) {
        message["jsonrpc"] = "2.0".into();
        let line = format!("{message}\n");
        self.writer.write_all(line.as_bytes()).await.unwrap();
    }

    async fn receive(&mut self) -> Value {
        let line = tokio::time::timeout(Duration::from_secs(60), self.lines.next_line()).await;
        serde_json::from_str(&line.unwrap().unwrap().unwrap()).unwrap()
    }

    /// The next message, without list changes of resources and prompts, which accompany those of tools.
    async fn receive_except_document_lists(&mut self) -> Value {
        loop {
            let message = self.receive().await;
            let method = message["method"].as_str().unwrap_or_default();
            let lists =
                ["resources", "prompts"].map(|list| format!("notifications/{list}/list_changed"));
            if !lists.iter().any(|list| list == method) {
                return message;
            }
        }
    }

    async fn receives_list_change(&mut self) {
        let message = self.receive_except_document_lists().await;
        assert_eq!(
            message["method"], "notifications/tools/list_changed",
            "{message}"
        );
    }

    /// The next message is the answer to a new request, so there is no pending notification.
    async fn has_no_notification(&mut self) {
        self.send(json!({"id": "next", "method": "ping"})).await;
        let next = self.receive_except_document_lists().await;
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
        Client::with_handshake(&worker).await,
        Client::listening(&worker).await,
    ];
    assert_eq!(
        text(does(&worker, "h__edit", "relist").await),
        "listed anew"
    );
    for client in &mut clients {
        client.receives_list_change().await;
    }
    assert!(!offered(&worker));
    let tools = stage.upstreams.tools("h");
    let note = tools.iter().find(|tool| tool.tool == "note").unwrap();
    let approved = stage.upstreams.approve("h", "note", note.fingerprint);
    assert!(approved.await.unwrap());
    for client in &mut clients {
        client.receives_list_change().await;
    }
    assert!(offered(&worker));
}

#[tokio::test]
async fn clients_are_notified_of_lost_and_restored_servers() {
    let (stage, worker) = alone("plain").await;
    let mut clients = [
        Client::with_handshake(&worker).await,
        Client::listening(&worker).await,
    ];
    let server: i32 = text(does(&worker, "h__edit", "pid").await).parse().unwrap();
    kill_process(Pid::from_raw(server).unwrap(), Signal::KILL).unwrap();
    until(|| !offered(&worker)).await;
    for client in &mut clients {
        client.receives_list_change().await;
    }
    assert!(stage.upstreams.reached("h", ServerState::Ready).await);
    for client in &mut clients {
        client.receives_list_change().await;
    }
    assert!(offered(&worker));
    stage.upstreams.shutdown().await;
    for client in &mut clients {
        client.receives_list_change().await;
    }
    assert!(!offered(&worker));
}

#[tokio::test]
async fn clients_without_access_to_a_server_get_no_notifications() {
    let (stage, worker) = alone("changes").await;
    let other = stage
        .worker(Policy::new().deny("read:mcp").deny("write:mcp"))
        .await;
    let mut theirs = Client::with_handshake(&worker).await;
    let mut other = Client::with_handshake(&other).await;
    assert_eq!(
        text(does(&worker, "h__edit", "relist").await),
        "listed anew"
    );
    theirs.receives_list_change().await;
    other.has_no_notification().await;
}

/// A page that lists one more tool for each request.
fn serve_page(mut link: ViewChannel) {
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
        Client::with_handshake(&worker).await,
        Client::listening(&worker).await,
    ];
    let spec = ViewSpec::new("page");
    let (view, link) = View::open(&worker, spec, DenyView).await.unwrap();
    let sender = link.sender();
    serve_page(link);
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
        client.receives_list_change().await;
    }
    assert_eq!(offered(), 1);
    let more = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    assert!(sender.send(more.to_string()).await);
    for client in &mut clients {
        client.receives_list_change().await;
    }
    assert_eq!(offered(), 2);
    view.close().await;
    for client in &mut clients {
        client.receives_list_change().await;
    }
    assert_eq!(offered(), 0);
}
