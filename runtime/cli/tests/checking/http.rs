//! Tests with HTTP servers.

use std::convert::Infallible;
use std::process::Stdio;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::post;
use bailiwick_test_support::checks::{expected, outcomes};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::support::{LIMIT, Place, Run, check, command, run};

pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// The own program over HTTP, which ends with this.
pub(crate) struct Program {
    _child: Child,
    pub(crate) url: String,
}

impl Program {
    pub(crate) async fn start(place: &Place, arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_bailiwick"))
            .args(["serve", "--http", "127.0.0.1:0", place.root()])
            .args(arguments)
            .env_clear()
            .env("BAILIWICK_TOKEN", TOKEN)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let url = async {
            loop {
                let line = lines
                    .next_line()
                    .await
                    .unwrap()
                    .expect("the program serves");
                if let Some((_, url)) = line.split_once("serving ") {
                    return url.split_whitespace().next().unwrap().to_owned();
                }
            }
        };
        let url = timeout(LIMIT, url).await.unwrap();
        // What it logs is not waited for.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { _child: child, url }
    }
}

#[tokio::test]
async fn own_program_passes_over_http_in_both_revisions() {
    let place = Place::new();
    let program = Program::start(&place, &[]).await;
    for revision in ["2025-11-25", "2026-07-28"] {
        let arguments = ["--revision", revision, "--url", &program.url];
        let with = [&arguments[..], &["--bearer-env", "TOKEN"]].concat();
        let run = run(command(&with).env("TOKEN", TOKEN)).await;
        assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
        assert_eq!(outcomes(&run.report()), expected("pass", &[]));

        let without = check(&arguments).await;
        assert_eq!((without.code, without.stdout.as_str()), (2, ""));
        assert!(
            without.stderr.contains("HTTP 401 Unauthorized"),
            "{}",
            without.stderr
        );
        assert!(
            without.stderr.contains("--bearer-env"),
            "{}",
            without.stderr
        );
    }
    place.assert_unchanged();
}

/// Checks a server that answers every POST by `answer`, within 2 seconds.
async fn checked<A, R>(answer: A) -> Run
where
    A: Fn(Value) -> R + Clone + Send + Sync + 'static,
    R: IntoResponse,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let handler = move |body: Bytes| {
        let answer = answer(serde_json::from_slice(&body).unwrap()).into_response();
        std::future::ready(answer)
    };
    let router = Router::new().route("/mcp", post(handler));
    tokio::spawn(async move { axum::serve(listener, router).await });
    check(&["--timeout", "2", "--url", &url]).await
}

const EVENTS: [(header::HeaderName, &str); 1] = [(header::CONTENT_TYPE, "text/event-stream")];

#[tokio::test]
async fn answers_that_are_not_mcp_are_reported_with_the_cause() {
    let html = || {
        (
            [(header::CONTENT_TYPE, "text/html; charset=utf-8")],
            "<p>hello",
        )
    };
    let refused = checked(move |_| html()).await;
    let cause = "the server answered HTTP 200 OK and text/html without a response to the request";
    assert!(refused.stderr.contains(cause), "{}", refused.stderr);

    let refused = checked(|_| (StatusCode::NOT_FOUND, "no \u{1b}[31msuch page")).await;
    let cause = "HTTP 404 Not Found and text/plain (`no \\u{1b}[31msuch page`)";
    assert!(refused.stderr.contains(cause), "{}", refused.stderr);

    let elsewhere = [(header::LOCATION, "http://127.0.0.1:1/")];
    let refused = checked(move |_| (StatusCode::TEMPORARY_REDIRECT, elsewhere.clone())).await;
    assert!(refused.stderr.contains("HTTP 307"), "{}", refused.stderr);

    let refused = checked(|_| (EVENTS, "data: {}\n\n")).await;
    let cause = "HTTP 200 OK and a stream without a response to the request";
    assert!(refused.stderr.contains(cause), "{}", refused.stderr);

    let refused = checked(|_| Body::from(vec![b'x'; 5 << 20])).await;
    let cause = "the answer has more than 4194304 bytes";
    assert!(refused.stderr.contains(cause), "{}", refused.stderr);
    assert_eq!(refused.code, 2);
}

/// A body of `text` without end.
fn endless(text: &'static str) -> Body {
    let texts = futures_util::stream::repeat_with(move || Ok::<_, Infallible>(text));
    Body::from_stream(texts)
}

#[tokio::test]
async fn endless_streams_end_at_the_deadline_or_size_limit() {
    let silent = || Body::from_stream(futures_util::stream::pending::<Result<Bytes, Infallible>>());
    let run = checked(move |_| (EVENTS, silent())).await;
    let late = "no response to `initialize` within ";
    assert!(run.stderr.contains(late), "{}", run.stderr);

    let notification = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n";
    let run = checked(move |_| (EVENTS, endless(notification))).await;
    assert!(run.stderr.contains(late), "{}", run.stderr);

    let line: &str = format!("data: {}\n", "x".repeat(1 << 16)).leak();
    let run = checked(move |_| (EVENTS, endless(line))).await;
    let large = "an event has more than 4194304 bytes";
    assert!(run.stderr.contains(large), "{}", run.stderr);
    assert_eq!(run.code, 2);
}

#[tokio::test]
async fn rejected_notification_is_a_wire_fault() {
    let serve = |accepted: StatusCode| {
        move |message: Value| {
            let Some(id) = message.get("id") else {
                return accepted.into_response();
            };
            let members = match message["method"].as_str() {
                Some("initialize") => json!({"result": {
                    "protocolVersion": "2025-11-25", "capabilities": {},
                    "serverInfo": {"name": "test", "version": "1"},
                }}),
                _ => json!({"error": {"code": -32601, "message": "unknown method"}}),
            };
            let mut response = json!({"jsonrpc": "2.0", "id": id});
            let members = members.as_object().unwrap().clone();
            response.as_object_mut().unwrap().extend(members);
            axum::Json(response).into_response()
        }
    };
    let run = checked(serve(StatusCode::ACCEPTED)).await;
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    let run = checked(serve(StatusCode::BAD_REQUEST)).await;
    assert_eq!(run.code, 1, "{}{}", run.stdout, run.stderr);
    let fault = "`notifications/initialized` was not accepted";
    assert!(
        run.report().detail("wire.form").contains(fault),
        "{}",
        run.stdout
    );
}

#[tokio::test]
async fn silent_server_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let run = check(&["--timeout", "1", "--url", &url]).await;
    assert_eq!(run.code, 2);
    let late = "no response to `initialize` within ";
    assert!(run.stderr.contains(late), "{}", run.stderr);
    drop(listener);
    // Nobody listens there any more.
    let run = timeout(Duration::from_secs(60), check(&["--url", &url]))
        .await
        .unwrap();
    assert!(run.stderr.contains("Connection refused"), "{}", run.stderr);
}
