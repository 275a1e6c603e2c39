//! Tests that the end of sessions is audited.

use crate::http;
use crate::http::{about, initialize, request};
use crate::slow::{Plans, there};
use crate::views::showing;
use bailiwick::audit::verify;
use bailiwick::{JsonLines, Policy, Runtime, ToolSet, WorkerSpec};
use bailiwick_mcp::gateway::{
    Backend, BackendError, BackendFactory, FileTools, Gateway, Http, Trust,
};
use bailiwick_test_support::client::Client;
use bailiwick_test_support::wait;
use bailiwick_test_support::workspace::Workspace;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Opens the root `/r` with an audit in this file.
struct Recorded {
    root: PathBuf,
    audit: PathBuf,
}

impl BackendFactory for Recorded {
    fn create(
        &self,
        _configuration: Option<Value>,
    ) -> Pin<Box<dyn Future<Output = Result<Backend, BackendError>> + Send + '_>> {
        Box::pin(async move {
            let audit = JsonLines::append(&self.audit).map_err(BackendError::Audit)?;
            let builder = Runtime::builder().root("r", &self.root).audit(audit);
            let (runtime, grants) = builder.tools(bailiwick_fs::tools()).build().await?;
            let spec = WorkerSpec::new("client").policy(Policy::new());
            let worker = runtime.spawn(spec).await?;
            Ok(Backend::new(runtime, &worker, Some(grants)))
        })
    }
}

/// A gateway over one root, recorded in the file.
fn recorded(workspace: &Workspace) -> (Gateway, PathBuf) {
    let audit = workspace.path("audit.jsonl");
    let opener = Recorded {
        root: workspace.path("r"),
        audit: audit.clone(),
    };
    let gateway = Gateway::with_factory(opener, Trust::Host, about()).build();
    (gateway, audit)
}

/// A server, and a session that configured a runtime and read a file.
struct Session {
    server: http::Served,
    name: String,
    audit: PathBuf,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

impl Session {
    async fn begun(workspace: &Workspace, http: Http) -> Self {
        let (gateway, audit) = recorded(workspace);
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let serving = tokio::spawn(async move {
            let stopped = stopped.cancelled();
            gateway.serve_http(listener, http, stopped).await.unwrap();
        });
        let server = http::Served::reached(address);
        let mut initialize_request = initialize();
        initialize_request["params"]["capabilities"] =
            json!({"experimental": {"configuration": {}}});
        let response = server.right(&[], &initialize_request).await;
        let name = response.header("mcp-session-id").unwrap().to_owned();
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        server.right(&[("Mcp-Session-Id", &name)], &ready).await;
        let call = json!({"name": "read_file", "arguments": {"path": "/r/a.txt"}});
        let read = server.ask(&name, "tools/call", call).await;
        assert_eq!(read["result"]["content"][0]["text"], "one\ntwo\nthree\n");
        Self {
            server,
            name,
            audit,
            stop,
            serving,
        }
    }
}

/// That an audit is intact, has the call, and ends with the end of the worker.
#[track_caller]
fn ended(audit: &Path) {
    let text = std::fs::read_to_string(audit).unwrap();
    verify(text.as_bytes()).unwrap();
    assert!(text.contains("read_file"), "{text}");
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(last["event"]["step"], "worker_stopped", "{text}");
}

/// Waits for the end of a session that nobody else waits for.
async fn ends(audit: &Path) {
    // While it is written its last line may not be whole.
    let is_recorded = || {
        let text = std::fs::read_to_string(audit).unwrap();
        text.contains(r#""worker_stopped""#) && text.ends_with('\n')
    };
    wait::for_files(audit, is_recorded).await;
    ended(audit);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_server_has_audited_the_end_of_its_sessions() {
    let workspace = Workspace::new();
    let session = Session::begun(&workspace, Http::without_token()).await;
    let living = std::fs::read_to_string(&session.audit).unwrap();
    assert!(!living.contains("worker_stopped"), "{living}");
    session.stop.cancel();
    session.serving.await.unwrap();
    ended(&session.audit);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stateless_call_that_a_shutdown_ends_gets_a_json_error() {
    let workspace = Workspace::with(|| ToolSet::new().writer(Plans));
    let until = workspace.path("outside/f");
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let server = http::Served::reached(listener.local_addr().unwrap());
    let (gateway, stop) = (
        workspace.gateway(Trust::Host).build(),
        CancellationToken::new(),
    );
    let stopped = stop.clone().cancelled_owned();
    let serving = gateway.serve_http(listener, Http::without_token(), stopped);
    let call = json!({"name": "plans", "arguments": {"until": until}});
    let calling = http::stateless(&server, None, "tools/call", call);
    let stopping = async {
        there(&until.with_extension("began")).await;
        stop.cancel();
    };
    let (served, answer, ()) = tokio::join!(serving, calling, stopping);
    served.unwrap();
    assert_eq!(answer.status, 503, "{answer:?}");
    let error = answer.message();
    assert_eq!(error["id"], 1, "{error}");
    assert_eq!(error["error"]["code"], -32603, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_session_stops_its_runtime() {
    let workspace = Workspace::new();
    let session = Session::begun(&workspace, Http::without_token()).await;
    let host = session.server.host();
    let headers = [("Host", host.as_str()), ("Mcp-Session-Id", &session.name)];
    let deleted = request(session.server.address, "DELETE", &headers, "").await;
    assert_eq!(deleted.status, 204, "{deleted:?}");
    ends(&session.audit).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_session_stops_its_runtime() {
    let workspace = Workspace::new();
    let http = Http::without_token().idle(Duration::from_secs(1));
    let session = Session::begun(&workspace, http).await;
    ends(&session.audit).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_worker_stops_with_the_gateway() {
    let workspace = Workspace::new();
    let (gateway, audit) = recorded(&workspace);
    // Nothing was opened yet.
    gateway.shutdown().await;
    assert!(!audit.exists());
    let mut client = Client::new(&gateway);
    let call = json!({"name": "read_file", "arguments": {"path": "/r/a.txt"}});
    let read = client
        .request_stateless("tools/call", call.clone(), json!({}))
        .await;
    assert_eq!(read["result"]["isError"], false, "{read}");
    let living = std::fs::read_to_string(&audit).unwrap();
    assert!(!living.contains("worker_stopped"), "{living}");
    gateway.shutdown().await;
    ended(&audit);
    let late = client
        .request_stateless("tools/call", call, json!({}))
        .await;
    assert_eq!(
        late["result"]["structuredContent"]["code"], "CANCELLED",
        "{late}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_of_a_review_view_are_audited_as_the_views() {
    let workspace = Workspace::new();
    let audit = workspace.path("audit.jsonl");
    let opener = Recorded {
        root: workspace.path("r"),
        audit: audit.clone(),
    };
    let files = FileTools {
        read: "read_file",
        list: "list_directory",
    };
    let gateway = Gateway::with_factory(opener, Trust::Host, about());
    let gateway = gateway.files(files).build();
    let (mut client, serving) = Client::with_task(&gateway);
    client.initialize("2025-11-25", showing()).await;
    let edit = json!({"path": "/r/a.txt", "edits": [{"old_text": "one", "new_text": "ONE"}]});
    let shown = json!({"preview": true});
    let made = client.call("edit_file", edit, shown).await;
    let links = made["result"]["content"].as_array().unwrap().iter();
    let review = links
        .filter_map(|link| link["uri"].as_str())
        .next()
        .unwrap();
    let state = json!({"uri": format!("{review}.state")});
    let answer = client.call("review_rows", state, json!({})).await;
    assert_eq!(
        answer["result"]["structuredContent"]["changes"],
        json!(["same"]),
        "{answer}"
    );
    let plain = json!({"path": "/r/a.txt"});
    client.call("read_file", plain, json!({})).await;
    drop(client);
    serving.await.unwrap();
    ends(&audit).await;
    let text = std::fs::read_to_string(&audit).unwrap();
    let steps = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let events = steps.map(|line| line["event"].clone());
    let reads = events.filter(|event| event["tool"] == "read_file" && event["step"] == "finished");
    let origins: Vec<Value> = reads.map(|event| event["origin"].clone()).collect();
    assert_eq!(origins, ["view", "model"], "{text}");
}
