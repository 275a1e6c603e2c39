//! Tests with an HTTP server that floods its stream.

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use bailiwick::Policy;
use bailiwick::permission::{GrantHolder, Lifetime, NewGrant};
use bailiwick_mcp::upstream::{ServerSpec, ServerState};
use bailiwick_test_support::upstream::{act, start, test_runtime, text};
use futures_util::stream;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use tokio::sync::watch;

#[derive(Clone, Default)]
struct Server {
    noisy: bool,
    /// Events that were taken from the noisy server.
    events: Arc<watch::Sender<usize>>,
}

impl Server {
    /// Starts it on a thread of its own, which lasts as long as the test.
    fn start(name: &str, noisy: bool) -> (Self, ServerSpec) {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let server = Self {
            noisy,
            ..Self::default()
        };
        let router = Router::new().route("/mcp", post(answered).get(opened));
        let router = router.with_state(server.clone());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                axum::serve(listener, router).await
            })
        });
        (server, ServerSpec::http(name, url))
    }
}

/// The stream of a session: notifications without end or pause, if the server is noisy.
async fn opened(State(server): State<Server>) -> Response {
    if !server.noisy {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let params = json!({"level": "info", "data": "x".repeat(1000)});
    let message = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params});
    let event = Bytes::from(format!("data: {message}\n\n"));
    let events = stream::repeat_with(move || {
        server.events.send_modify(|events| *events += 1);
        Ok::<_, Infallible>(event.clone())
    });
    let kind = [(header::CONTENT_TYPE, "text/event-stream")];
    (kind, Body::from_stream(events)).into_response()
}

async fn answered(Json(asked): Json<Value>) -> Response {
    if asked.get("id").is_none() {
        return StatusCode::ACCEPTED.into_response();
    }
    let result = match asked["method"].as_str().unwrap() {
        "initialize" => json!({
            "protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "h", "version": "1"},
        }),
        "tools/list" => json!({"tools": [{"name": "look", "inputSchema": {"type": "object"}}]}),
        "tools/call" => json!({"content": [{"type": "text", "text": "seen"}]}),
        _ => {
            let error = json!({"code": -32601, "message": "unknown"});
            return Json(json!({"jsonrpc": "2.0", "id": asked["id"], "error": error}))
                .into_response();
        }
    };
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": result});
    ([("mcp-session-id", "one")], Json(answer)).into_response()
}

#[tokio::test]
async fn stream_flood_of_one_server_does_not_block_another() {
    let (noisy, loud) = Server::start("loud", true);
    let (_, quiet) = Server::start("quiet", false);
    let upstreams = start([loud, quiet]).await;
    let stage = test_runtime(upstreams, |builder| builder).await;
    let worker = stage.worker(Policy::new()).await;
    let grant = NewGrant {
        pattern: "write:mcp:quiet".parse().unwrap(),
        holder: GrantHolder::Agent("main".into()),
        lifetime: Lifetime::Agent,
        descendants: false,
    };
    stage.grants.grant(grant).await.unwrap();
    let mut events = noisy.events.subscribe();
    events.wait_for(|events| *events > 1000).await.unwrap();
    for _ in 0..20 {
        events.changed().await.unwrap();
        assert_eq!(text(act(&worker, "quiet__look", "").await), "seen");
    }
    let state = stage.upstreams.state("quiet");
    assert_eq!(state, Some(ServerState::Ready));
}
