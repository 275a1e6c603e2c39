//! Tests with rmcp's client over pipes, stdio and HTTP.

use crate::PROGRAM;
use crate::http::Served;
use bailiwick_mcp::gateway::{Gateway, Http, Trust};
use bailiwick_test_support::file_tools::{self, calls};
use bailiwick_test_support::workspace::Workspace;
use rmcp::model::{
    CallToolRequestParams, ClientConfig, ProtocolVersion, ReadResourceRequestParams,
};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt, RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use serde_json::{Value, json};
use std::process::{Child, Command, Stdio};
use tokio::net::unix::pipe::{Receiver, Sender};

type Running = RunningService<RoleClient, ClientConfig>;

fn modern() -> ClientLifecycleMode {
    ClientLifecycleMode::Discover {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
    }
}

/// Lists, calls every tool and reads.
async fn exercise(client: &Running, root: &str) {
    let tools = client.list_all_tools().await.unwrap();
    let mut names: Vec<_> = tools.iter().map(|tool| tool.name.to_string()).collect();
    names.sort_unstable();
    assert_eq!(names, file_tools::names());
    for call in calls().as_array().unwrap() {
        let Value::Object(arguments) = call["arguments"].clone() else {
            panic!("{call}");
        };
        let mut params = CallToolRequestParams::new(call["tool"].as_str().unwrap().to_owned());
        params.arguments = Some(arguments);
        if call["preview"] == true {
            let meta = json!({"preview": true});
            params.meta = Some(serde_json::from_value(meta).unwrap());
        }
        let result = client.call_tool(params).await.unwrap();
        assert_eq!(result.is_error.unwrap_or(false), call["fails"], "{call}");
        assert!(result.structured_content.is_some(), "{call}");
    }
    let uri = format!("file://{root}/a.txt");
    let read = ReadResourceRequestParams::new(uri);
    let read = json!(client.read_resource(read).await.unwrap());
    assert_eq!(read["contents"][0]["text"], "one\ntwo\nthree\n", "{read}");
}

async fn over_pipes(gateway: &Gateway, client: ClientConfig, mode: ClientLifecycleMode) -> Running {
    let (near, far) = tokio::io::duplex(1 << 16);
    let (reader, writer) = tokio::io::split(far);
    let gateway = gateway.clone();
    tokio::spawn(async move { gateway.serve(reader, writer).await });
    let (reader, writer) = tokio::io::split(near);
    let transport = AsyncRwTransport::new_client(reader, writer);
    client.serve_with_lifecycle(transport, mode).await.unwrap()
}

/// The program with a client at its ends; it ends when the client goes.
async fn over_stdio(workspace: &Workspace, mode: ClientLifecycleMode) -> (Child, Running) {
    let mut child = Command::new(PROGRAM)
        .env_remove("BAILIWICK_CASES")
        .env_remove("BAILIWICK_BLESS")
        .arg("serve")
        .arg(workspace.path("r"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let reader = Receiver::from_owned_fd(child.stdout.take().unwrap().into()).unwrap();
    let writer = Sender::from_owned_fd(child.stdin.take().unwrap().into()).unwrap();
    let transport = AsyncRwTransport::new_client(reader, writer);
    let client = ClientConfig::default();
    let running = client.serve_with_lifecycle(transport, mode).await.unwrap();
    (child, running)
}

async fn exercised_over_stdio(mode: ClientLifecycleMode) {
    let workspace = Workspace::new();
    let (mut child, client) = over_stdio(&workspace, mode).await;
    exercise(&client, workspace.path("r").to_str().unwrap()).await;
    client.cancel().await.unwrap();
    assert!(child.wait().unwrap().success());
}

async fn exercised_over_http(mode: ClientLifecycleMode) {
    let workspace = Workspace::new();
    let gateway = workspace.gateway(Trust::Agent).build();
    let server = Served::of(&gateway, Http::without_token()).await;
    let url = format!("http://{}/mcp", server.address);
    let transport = StreamableHttpClientTransport::from_uri(url);
    let client = ClientConfig::default();
    let client = client.serve_with_lifecycle(transport, mode).await.unwrap();
    exercise(&client, "/r").await;
    client.cancel().await.unwrap();
}

#[tokio::test]
async fn rmcp_client_calls_every_tool_over_pipes_in_both_lifecycles() {
    for mode in [ClientLifecycleMode::Initialize, modern()] {
        let workspace = Workspace::new();
        let gateway = workspace.gateway(Trust::Agent).build();
        let client = over_pipes(&gateway, ClientConfig::default(), mode).await;
        exercise(&client, "/r").await;
    }
}

#[tokio::test]
async fn rmcp_client_calls_every_tool_over_stdio_with_handshake() {
    exercised_over_stdio(ClientLifecycleMode::Initialize).await;
}

#[tokio::test]
async fn rmcp_client_calls_every_tool_over_stdio_without_handshake() {
    exercised_over_stdio(modern()).await;
}

#[tokio::test]
async fn rmcp_client_calls_every_tool_over_http_with_handshake() {
    exercised_over_http(ClientLifecycleMode::Initialize).await;
}

#[tokio::test]
async fn rmcp_client_calls_every_tool_over_http_without_handshake() {
    exercised_over_http(modern()).await;
}

/// A client that shows views: it finds the page of a tool, and calls and reads what is for views.
async fn shows_views(client: &Running) {
    let tools = client.list_all_tools().await.unwrap();
    let meta = |name: &str| {
        let tool = tools.iter().find(|tool| tool.name == name).unwrap();
        json!(tool.meta)["ui"].clone()
    };
    assert_eq!(meta("review_rows"), json!({"visibility": ["app"]}));
    let page = meta("edit_file")["resourceUri"]
        .as_str()
        .unwrap()
        .to_owned();
    let page = json!(
        client
            .read_resource(ReadResourceRequestParams::new(page))
            .await
            .unwrap()
    );
    assert_eq!(page["contents"][0]["mimeType"], "text/html;profile=mcp-app");
    let mut params = CallToolRequestParams::new("preview_call");
    let edit = json!({"path": "/r/a.txt", "edits": [{"old_text": "two", "new_text": "2"}]});
    params.arguments = json!({"tool": "edit_file", "arguments": edit})
        .as_object()
        .cloned();
    let preview = json!(client.call_tool(params).await.unwrap());
    let review = preview["structuredContent"]["review"].as_str().unwrap();
    let rows = ReadResourceRequestParams::new(format!("{review}.rows?change=0&from=1"));
    let rows = json!(client.read_resource(rows).await.unwrap());
    let text = rows["contents"][0]["text"].as_str().unwrap();
    assert!(text.contains(r#"["-",2,0,"two"]"#), "{text}");
}

#[tokio::test]
async fn rmcp_client_shows_views_over_pipes_and_http() {
    for mode in [ClientLifecycleMode::Initialize, modern()] {
        let workspace = Workspace::new();
        let gateway = workspace.gateway(Trust::Agent).build();
        let mut config = ClientConfig::default();
        config.capabilities = serde_json::from_value(crate::views::showing()).unwrap();
        let client = over_pipes(&gateway, config.clone(), mode.clone()).await;
        shows_views(&client).await;
        let server = Served::of(&gateway, Http::without_token()).await;
        let url = format!("http://{}/mcp", server.address);
        let transport = StreamableHttpClientTransport::from_uri(url);
        let client = config.serve_with_lifecycle(transport, mode).await.unwrap();
        shows_views(&client).await;
        client.cancel().await.unwrap();
    }
}
