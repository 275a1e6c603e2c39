//! Tests with an HTTP server that has sessions.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use bailiwick::{Code, Policy};
use bailiwick_mcp::upstream::{Bounds, ServerSpec, ServerState, Upstreams};
use bailiwick_test_support::upstream::{act, allow_once, code, start, test_runtime, text};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// What the server does where a session's stream is opened.
#[derive(Clone, Copy, PartialEq)]
enum Stream {
    /// Says that there is none, after it gave requests the time to come first.
    Late,
    /// Never says anything.
    Never,
}

#[derive(Clone)]
struct Server {
    stream: Stream,
    requested: Arc<Notify>,
    /// A request came before the stream was spoken of.
    early: Arc<AtomicBool>,
}

impl Server {
    async fn start(stream: Stream) -> (Self, ServerSpec) {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await;
        let listener = listener.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let server = Self {
            stream,
            requested: Arc::default(),
            early: Arc::default(),
        };
        let router = Router::new().route("/mcp", post(answered).get(opened));
        let router = router.with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (server, ServerSpec::http("h", url))
    }
}

async fn opened(State(server): State<Server>) -> StatusCode {
    let first = server.requested.notified();
    if server.stream == Stream::Never {
        first.await;
        server.early.store(true, Ordering::Relaxed);
        return std::future::pending().await;
    }
    if tokio::time::timeout(Duration::from_millis(200), first)
        .await
        .is_ok()
    {
        server.early.store(true, Ordering::Relaxed);
    }
    StatusCode::METHOD_NOT_ALLOWED
}

async fn answered(State(server): State<Server>, Json(asked): Json<Value>) -> Response {
    let method = asked["method"].as_str().unwrap();
    if asked.get("id").is_none() {
        return StatusCode::ACCEPTED.into_response();
    }
    let answer = |result: Value| json!({"jsonrpc": "2.0", "id": asked["id"], "result": result});
    let argument = asked
        .pointer("/params/arguments/do")
        .and_then(Value::as_str);
    match method {
        "initialize" => {
            let info = json!({"name": "h", "version": "1"});
            let capabilities = json!({"tools": {}});
            let result = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info});
            ([("mcp-session-id", "one")], Json(answer(result))).into_response()
        }
        "tools/list" => {
            server.requested.notify_one();
            let tool = json!({"name": "look", "inputSchema": {"type": "object"}});
            Json(answer(json!({"tools": [tool]}))).into_response()
        }
        "tools/call" => {
            let long = argument.is_some_and(|argument| argument.starts_with("long"));
            let text = "x".repeat(if long { 20_000 } else { 1_000 });
            let answer = answer(json!({"content": [{"type": "text", "text": text}]}));
            if argument.is_some_and(|argument| argument.ends_with("event")) {
                let event = format!("data: {answer}\n\n");
                return ([(header::CONTENT_TYPE, "text/event-stream")], event).into_response();
            }
            Json(answer).into_response()
        }
        _ => {
            let error = json!({"code": -32601, "message": "unknown"});
            Json(json!({"jsonrpc": "2.0", "id": asked["id"], "error": error})).into_response()
        }
    }
}

#[tokio::test]
async fn requests_wait_for_the_server_stream_if_it_has_one() {
    for (stream, early) in [(Stream::Late, false), (Stream::Never, true)] {
        let (server, spec) = Server::start(stream).await;
        let upstreams = start([spec]).await;
        assert_eq!(upstreams.state("h"), Some(ServerState::Ready));
        assert_eq!(server.early.load(Ordering::Relaxed), early);
    }
}

#[tokio::test]
async fn oversized_response_fails_only_its_call() {
    let (_server, spec) = Server::start(Stream::Late).await;
    let bounds = Bounds {
        message_bytes: 10_000,
        ..Bounds::default()
    };
    let upstreams = Upstreams::builder().server(spec).bounds(bounds);
    let upstreams = upstreams.start().await.unwrap();
    let stage = test_runtime(upstreams, |builder| builder.approver(allow_once().0)).await;
    let worker = stage.worker(Policy::new()).await;
    for kind in ["plain", "event"] {
        let short = text(act(&worker, "h__look", &format!("short {kind}")).await);
        assert_eq!(short.len(), 1_000, "{kind}");
        let long = act(&worker, "h__look", &format!("long {kind}")).await;
        assert_eq!(code(long), Code::ServerGone, "{kind}");
        assert_eq!(
            stage.upstreams.state("h"),
            Some(ServerState::Ready),
            "{kind}"
        );
    }
}
