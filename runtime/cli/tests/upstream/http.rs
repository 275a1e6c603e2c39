//! Tests of HTTP servers and chains of gateways.

use super::hostile_server::hostile;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use bailiwick::{Code, Policy, Runtime, WorkerSpec};
use bailiwick_mcp::gateway::{Endpoint, GatewayInfo};
use bailiwick_mcp::upstream::{ServerSpec, ServerState};
use bailiwick_test_support::upstream::{act, allow_once, code, start, test_runtime, text};
use bailiwick_test_support::wait;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

fn about() -> GatewayInfo {
    GatewayInfo {
        name: "inner".into(),
        title: "Inner".into(),
        version: "1".into(),
        instructions: String::new(),
    }
}

fn at(endpoint: &Endpoint) -> ServerSpec {
    let bearer = format!("Bearer {}", endpoint.token().reveal());
    ServerSpec::http("inner", endpoint.url()).header("Authorization", bearer)
}

#[tokio::test]
async fn http_server_gets_the_configured_headers() {
    let temp = tempfile::tempdir().unwrap();
    std::fs::write(temp.path().join("a.txt"), "one\n").unwrap();
    let builder = Runtime::builder()
        .root("r", temp.path())
        .tools(bailiwick_fs::tools());
    let (runtime, _grants) = builder.build().await.unwrap();
    let inner = runtime
        .spawn(WorkerSpec::new("inner").policy(Policy::new()))
        .await
        .unwrap();
    let endpoint = Endpoint::open(&inner, about(), None).await.unwrap();
    let stage = test_runtime(start([at(&endpoint)]).await, |builder| {
        builder.approver(allow_once().0)
    })
    .await;
    let worker = stage.worker(Policy::new()).await;
    let read = worker
        .call("inner__read_file", json!({"path": "a.txt"}))
        .await;
    assert_eq!(text(read), "one\n");
    let none = start([ServerSpec::http("inner", endpoint.url())]).await;
    assert_ne!(none.state("inner"), Some(ServerState::Ready));
    drop(endpoint);
    assert_eq!(
        code(
            worker
                .call("inner__read_file", json!({"path": "a.txt"}))
                .await
        ),
        Code::ServerGone
    );
}

#[tokio::test]
async fn chained_gateways_ask_at_each_hop() {
    let first = test_runtime(start([hostile("h", "plain")]).await, |builder| {
        builder.approver(allow_once().0)
    })
    .await;
    let inner = first
        .worker(Policy::new().allow("read:mcp").allow("write:mcp:h:counted"))
        .await;
    let endpoint = Endpoint::open(&inner, about(), None).await.unwrap();
    let second = test_runtime(start([at(&endpoint)]).await, |builder| {
        builder.approver(allow_once().0)
    })
    .await;
    let worker = second.worker(Policy::new()).await;
    let names: Vec<_> = worker
        .tools()
        .iter()
        .map(|tool| tool.spec.name.to_string())
        .collect();
    assert_eq!(names, ["inner__h__counted", "inner__h__note"]);
    let counted = worker
        .call("inner__h__counted", json!({"n": 3}))
        .await
        .unwrap();
    assert_eq!(counted.structured().unwrap(), json!({"n": 3}));
    let bad = worker
        .call("inner__h__counted", json!({"n": "3"}))
        .await
        .unwrap_err();
    assert!(bad.message().contains("SERVER_FAULT"), "{bad}");
    assert_eq!(
        code(worker.call("inner__h__edit", json!({})).await),
        Code::UnknownTool
    );
}

/// A server by HTTP that fails as its calls say.
#[derive(Clone)]
struct Failing {
    released: Arc<Semaphore>,
    lost: Arc<AtomicBool>,
}

impl Failing {
    async fn start() -> ServerSpec {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let router = Router::new().route("/mcp", post(Self::answer));
        let router = router.with_state(Self {
            released: Arc::new(Semaphore::new(0)),
            lost: Arc::default(),
        });
        tokio::spawn(async move { axum::serve(listener, router).await });
        ServerSpec::http("h", url)
    }

    async fn answer(State(server): State<Self>, Json(request): Json<Value>) -> Response {
        if request.get("id").is_none() {
            return StatusCode::ACCEPTED.into_response();
        }
        let method = request["method"].as_str().unwrap();
        if server.lost.load(Ordering::Relaxed) && method != "initialize" {
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
        let kind = request["params"]["arguments"]["do"].as_str();
        let kind = kind.unwrap_or_default();
        match (method, kind) {
            ("tools/call", "wait") => server.released.acquire().await.unwrap().forget(),
            ("tools/call", "release") => server.released.add_permits(1),
            ("tools/call", "lose") => server.lost.store(true, Ordering::Relaxed),
            _ => {}
        }
        if method == "tools/call" && ["fail", "lose"].contains(&kind) {
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
        let mut answer = json!({"jsonrpc": "2.0", "id": request["id"]});
        match method {
            "initialize" => {
                answer["result"] = json!({
                    "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                    "serverInfo": {"name": "hostile", "version": "1"},
                });
            }
            "tools/list" => {
                let edit = json!({"name": "edit", "inputSchema": {"type": "object"}});
                answer["result"] = json!({ "tools": [edit] });
            }
            "tools/call" => {
                let text = format!("did {kind}");
                answer["result"] = json!({"content": [{"type": "text", "text": text}]});
            }
            _ => answer["error"] = json!({"code": -32601, "message": "no such method"}),
        }
        Json(answer).into_response()
    }
}

#[tokio::test]
async fn failed_http_request_fails_only_its_call() {
    let upstreams = start([Failing::start().await]).await;
    let stage = test_runtime(upstreams, |builder| builder.approver(allow_once().0)).await;
    let worker = stage.worker(Policy::new()).await;
    let waiting = worker.clone();
    let waiting = tokio::spawn(async move { act(&waiting, "h__edit", "wait").await });
    wait::for_calls(&stage.runtime, &worker, 1).await;
    let failed = act(&worker, "h__edit", "fail").await.unwrap_err();
    assert_eq!(failed.code(), Code::ServerGone);
    assert_eq!(failed.details()["begun"], true);
    assert_eq!(
        text(act(&worker, "h__edit", "release").await),
        "did release"
    );
    assert_eq!(text(waiting.await.unwrap()), "did wait");
    assert_eq!(stage.upstreams.state("h"), Some(ServerState::Ready));
}

#[tokio::test]
async fn unresponsive_http_server_is_disconnected() {
    let upstreams = start([Failing::start().await]).await;
    let stage = test_runtime(upstreams, |builder| builder.approver(allow_once().0)).await;
    let worker = stage.worker(Policy::new()).await;
    assert_eq!(text(act(&worker, "h__edit", "").await), "did ");
    assert_eq!(
        code(act(&worker, "h__edit", "lose").await),
        Code::ServerGone
    );
    wait::for_tools(&worker, || {
        stage.upstreams.state("h") != Some(ServerState::Ready)
    })
    .await;
}
