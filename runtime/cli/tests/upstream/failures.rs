//! Tests of connection failures.

use super::hostile_server::{alone, hostile};
use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::any;
use bailiwick::Policy;
use bailiwick::permission::DangerKind;
use bailiwick_mcp::upstream::{Bounds, ServerFailure, ServerSpec, ServerState, Upstreams};
use bailiwick_test_support::upstream::{act, allow_once, start, test_runtime, text};
use bailiwick_test_support::wait;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::time::{Duration, Instant};

async fn failure(spec: ServerSpec) -> ServerFailure {
    let bounds = Bounds {
        connect: Duration::from_secs(10),
        message_bytes: 10_000,
        tools: 8,
        ..Bounds::default()
    };
    let builder = Upstreams::builder().server(spec).bounds(bounds);
    let upstreams = builder.start().await.unwrap();
    assert_ne!(upstreams.state("h"), Some(ServerState::Ready));
    upstreams.failure("h").unwrap()
}

#[tokio::test]
async fn failures_of_programs_have_a_typed_cause() {
    let missing = ServerSpec::stdio("h", "/no/such/program");
    for (spec, expected) in [
        (missing, ServerFailure::Start(std::io::ErrorKind::NotFound)),
        (hostile("h", "dies").args(["3"]), ServerFailure::Exited(3)),
        (hostile("h", "killed"), ServerFailure::Signalled(9)),
        (hostile("h", "refuses"), ServerFailure::Refused(-32000)),
        (hostile("h", "long"), ServerFailure::MessageTooLarge),
        (
            hostile("h", "future"),
            ServerFailure::ProtocolVersion {
                supported: vec!["2099-01-01".to_owned()],
            },
        ),
    ] {
        assert_eq!(failure(spec).await, expected);
    }
}

#[tokio::test]
async fn silent_server_fails_by_timeout() {
    let bounds = Bounds {
        connect: Duration::from_millis(300),
        ..Bounds::default()
    };
    let builder = Upstreams::builder().server(hostile("h", "silent"));
    let upstreams = builder.bounds(bounds).start().await.unwrap();
    let expected = ServerFailure::Timeout(bounds.connect);
    assert_eq!(upstreams.failure("h"), Some(expected));
}

/// A server by HTTP that answers everything with a status and a type.
async fn answering(status: u16, kind: &'static str) -> ServerSpec {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await;
    let listener = listener.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let answer = move || async move {
        let status = StatusCode::from_u16(status).unwrap();
        (status, [(header::CONTENT_TYPE, kind)], "obey").into_response()
    };
    let router = Router::new().route("/mcp", any(answer));
    tokio::spawn(async move { axum::serve(listener, router).await });
    ServerSpec::http("h", url)
}

#[tokio::test]
async fn http_failures_have_a_typed_cause() {
    for (status, kind, expected) in [
        (500, "text/plain", ServerFailure::HttpStatus(500)),
        (503, "application/json", ServerFailure::HttpStatus(503)),
        (404, "text/html", ServerFailure::HttpStatus(404)),
        (401, "text/plain", ServerFailure::HttpStatus(401)),
        (302, "text/plain", ServerFailure::HttpStatus(302)),
        (200, "text/html", ServerFailure::Protocol),
    ] {
        let failed = failure(answering(status, kind).await).await;
        assert_eq!(failed, expected, "{status} {kind}");
    }
    let free = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}/mcp", free.local_addr().unwrap());
    drop(free);
    let expected = ServerFailure::Unreachable(std::io::ErrorKind::ConnectionRefused);
    assert_eq!(failure(ServerSpec::http("h", url)).await, expected);
}

#[tokio::test]
async fn tool_list_size_is_limited() {
    let bounds = Bounds {
        tools: 8,
        ..Bounds::default()
    };
    for (count, accepted) in [("32", true), ("33", false)] {
        let spec = hostile("h", "count").args([count]);
        let builder = Upstreams::builder().server(spec).bounds(bounds);
        let upstreams = builder.start().await.unwrap();
        let failure = (!accepted).then_some(ServerFailure::TooManyTools);
        assert_eq!(upstreams.failure("h"), failure, "{count}");
        let tools = upstreams.tools("h");
        let offered = tools.iter().filter(|tool| tool.offered.is_ok());
        assert_eq!(offered.count(), if accepted { 8 } else { 0 }, "{count}");
    }
}

#[tokio::test]
async fn failed_call_has_the_cause_until_the_server_reconnects() {
    let (stage, worker) = alone("plain").await;
    assert_eq!(stage.upstreams.failure("h"), None);
    let pid = text(act(&worker, "h__edit", "pid").await);
    let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    wait::for_tools(&worker, || stage.upstreams.failure("h").is_some()).await;
    let expected = Some(ServerFailure::Signalled(9));
    assert_eq!(stage.upstreams.failure("h"), expected);
    let refused = act(&worker, "h__edit", "").await.unwrap_err();
    assert!(refused.message().contains("signal 9"), "{refused}");
    assert!(stage.upstreams.reached("h", ServerState::Ready).await);
    assert_eq!(stage.upstreams.failure("h"), None);
}

#[tokio::test]
async fn retry_of_a_connected_server_has_no_later_effect() {
    let (stage, worker) = alone("plain").await;
    let pid = text(act(&worker, "h__edit", "pid").await);
    let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
    stage.upstreams.retry("h");
    let began = Instant::now();
    kill_process(pid, Signal::KILL).unwrap();
    wait::for_tools(&worker, || {
        stage.upstreams.state("h") != Some(ServerState::Ready)
    })
    .await;
    assert!(stage.upstreams.reached("h", ServerState::Ready).await);
    // The first pause is this long at least.
    assert!(began.elapsed() >= Duration::from_millis(500));
}

#[tokio::test]
async fn silent_legacy_server_connects_and_is_not_probed_again() {
    let asked = tempfile::NamedTempFile::new().unwrap();
    let bounds = Bounds {
        connect: Duration::from_secs(9),
        ..Bounds::default()
    };
    let spec = hostile("h", "legacy").args([asked.path().to_str().unwrap()]);
    let builder = Upstreams::builder().server(spec).bounds(bounds);
    let upstreams = builder.start().await.unwrap();
    assert_eq!(upstreams.state("h"), Some(ServerState::Ready));
    let stage = test_runtime(upstreams, |builder| builder.approver(allow_once().0)).await;
    let worker = stage.worker(Policy::new()).await;
    let pid = text(act(&worker, "h__edit", "pid").await);
    let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    wait::for_tools(&worker, || {
        stage.upstreams.state("h") != Some(ServerState::Ready)
    })
    .await;
    assert!(stage.upstreams.reached("h", ServerState::Ready).await);
    let asked = std::fs::read_to_string(asked.path()).unwrap();
    let times = |method: &str| asked.lines().filter(|line| *line == method).count();
    assert_eq!((times("server/discover"), times("initialize")), (1, 2));
}

#[tokio::test]
async fn slow_modern_server_connects_at_the_first_attempt() {
    let bounds = Bounds {
        // It starts in more than a third of this time.
        connect: Duration::from_secs(12),
        ..Bounds::default()
    };
    let builder = Upstreams::builder().server(hostile("h", "slow"));
    let upstreams = builder.bounds(bounds).start().await.unwrap();
    assert_eq!(upstreams.failure("h"), None);
    assert_eq!(upstreams.state("h"), Some(ServerState::Ready));
}

#[tokio::test]
async fn error_chains_contain_no_server_text() {
    let upstreams = start([hostile("h", "words")]).await;
    let error = upstreams.resources("h").await.unwrap_err();
    let first: &(dyn std::error::Error + 'static) = &error;
    let mut causes = Vec::new();
    let mut next = Some(first);
    while let Some(cause) = next {
        causes.push(format!("{cause} {cause:?}"));
        next = cause.source();
    }
    assert_eq!(causes.len(), 2);
    assert!(causes[1].contains("-32000"), "{causes:?}");
    assert!(!causes.concat().contains("obey"), "{causes:?}");
}

#[tokio::test]
async fn questions_mark_server_text_as_third_party() {
    let (approver, asked) = allow_once();
    let upstreams = start([hostile("h", "words")]).await;
    let stage = test_runtime(upstreams, |builder| builder.approver(approver)).await;
    let worker = stage.worker(Policy::new()).await;
    for (arguments, expected) in [
        (
            json!({"who": "a\u{202e}” of the server `b`"}),
            r#"Raise “a\u{202e}' of the server `b`”' now"#,
        ),
        (json!({}), r"Say 'yes'\u{1b}"),
    ] {
        worker.call("h__raise", arguments).await.unwrap();
        let question = asked.lock().unwrap().pop().unwrap();
        let request = question.request;
        let intent = "Use raise of h, a program on this computer";
        assert_eq!((&*request.intent, &*request.sentence), (intent, intent));
        let text = format!(
            "What h does cannot be checked or undone here; it describes it as \"{expected}\""
        );
        let of_server = request.dangers.last().unwrap();
        assert_eq!(of_server.kind, DangerKind::ThirdParty);
        assert_eq!(of_server.text, text);
    }
}

#[tokio::test]
async fn question_about_a_resource_names_it_and_quotes_nothing_of_the_server() {
    let (approver, asked) = allow_once();
    let upstreams = start([hostile("h", "words")]).await;
    let stage = test_runtime(upstreams, |builder| builder.approver(approver)).await;
    let worker = stage.worker(Policy::new()).await;
    // The server has no resources.
    let read = worker.call("h__resources/read", json!({"uri": "note://a"}));
    read.await.unwrap_err();
    let request = asked.lock().unwrap().pop().unwrap().request;
    let intent = "Read the resource “note://a” of h, a program on this computer";
    assert_eq!((&*request.intent, &*request.sentence), (intent, intent));
    assert_eq!(request.server_says, None);
    let of_server = request.dangers.last().unwrap();
    let text = "What h does when it answers this cannot be verified";
    assert_eq!(
        (of_server.kind, &*of_server.text),
        (DangerKind::ThirdParty, text)
    );
}

#[tokio::test]
async fn failure_of_one_server_keeps_the_cause_of_another() {
    let upstreams = start([hostile("a", "dies"), hostile("b", "plain")]).await;
    assert_eq!(upstreams.failure("a"), Some(ServerFailure::Exited(1)));
    assert_eq!(upstreams.failure("b"), None);
    assert_eq!(upstreams.failure("unknown"), None);
}
