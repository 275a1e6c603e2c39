//! Tests that every HTTP request gets exactly one response.

use crate::answers::{ERAS, Era, slow_call};
use crate::fuzz::cases;
use crate::http::{ACCEPT, JSON, Served, request};
use crate::slow::{Plans, there};
use bailiwick::ToolSet;
use bailiwick_mcp::gateway::{Http, Rate, Trust};
use bailiwick_test_support::http::Response;
use bailiwick_test_support::workspace::Workspace;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};

/// How many bodies are sent at a time; with three requests in each, fewer than a session may have open.
const AT_ONCE: usize = 64;
/// The longest body that the server reads, in bytes.
const MAX_BODY: usize = 20_000;
/// How long a whole burst may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    List,
    Unknown,
    DuplicateKey,
    OtherVersion,
    Broken,
    Large,
    DuplicateId,
    /// A notification that cancels an earlier request.
    Cancel,
    /// A request whose client hangs up before its answer.
    Abort,
    /// A request whose client hangs up within its body.
    CutOff,
    /// A request whose client reads the answer byte by byte.
    Slow,
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        6 => Just(Kind::Read),
        1 => Just(Kind::List),
        2 => Just(Kind::Unknown),
        1 => Just(Kind::DuplicateKey),
        1 => Just(Kind::OtherVersion),
        1 => Just(Kind::Broken),
        1 => Just(Kind::Large),
        2 => Just(Kind::DuplicateId),
        2 => Just(Kind::Cancel),
        1 => Just(Kind::Abort),
        1 => Just(Kind::CutOff),
        1 => Just(Kind::Slow),
    ]
}

fn random(runner: &mut TestRunner, size: usize) -> Vec<(Kind, usize)> {
    let kinds = prop::collection::vec((kind(), 0..60_usize), size);
    kinds.new_tree(runner).unwrap().current()
}

/// One request of a burst.
struct Sent {
    at: usize,
    kind: Kind,
    id: String,
    method: &'static str,
    body: String,
}

/// The ids of the requests that are in one batch with that of the place `at`.
fn companions(at: usize) -> [String; 2] {
    [format!("b{at}"), format!("c{at}")]
}

fn burst(era: Era, kinds: &[(Kind, usize)]) -> Vec<Sent> {
    let read = json!({"name": "read_file", "arguments": {"path": "/r/a.txt"}});
    let mut sent = Vec::new();
    for (at, (kind, earlier)) in kinds.iter().enumerate() {
        let mut id = format!("r{at}");
        let earlier = format!("r{}", at.saturating_sub(earlier + 1));
        let (method, body) = match kind {
            Kind::List => (
                "tools/list",
                era.request(&id, "tools/list", json!({})).to_string(),
            ),
            Kind::Unknown => (
                "no/method",
                era.request(&id, "no/method", json!({})).to_string(),
            ),
            Kind::DuplicateKey => {
                let twice =
                    format!(r#""id":"{id}","method":"tools/list","params":{{"a":1,"a":2}}"#);
                ("tools/list", format!(r#"{{"jsonrpc":"2.0",{twice}}}"#))
            }
            Kind::OtherVersion => {
                let body = format!(r#"{{"jsonrpc":"3.0","id":"{id}","method":"tools/list"}}"#);
                ("tools/list", body)
            }
            Kind::Broken => ("tools/list", format!(r#"{{"jsonrpc":"2.0",{at}"#)),
            Kind::Large => {
                let long = json!({"path": "x".repeat(MAX_BODY)});
                let long = json!({"name": "read_file", "arguments": long});
                (
                    "tools/call",
                    era.request(&id, "tools/call", long).to_string(),
                )
            }
            Kind::Cancel => {
                let cancel = json!({
                    "jsonrpc": "2.0", "method": "notifications/cancelled",
                    "params": {"requestId": earlier},
                });
                id = earlier;
                ("notifications/cancelled", cancel.to_string())
            }
            Kind::DuplicateId => {
                id = earlier;
                (
                    "tools/call",
                    era.request(&id, "tools/call", read.clone()).to_string(),
                )
            }
            Kind::Read | Kind::Abort | Kind::CutOff | Kind::Slow => (
                "tools/call",
                era.request(&id, "tools/call", read.clone()).to_string(),
            ),
        };
        let whole = !matches!(kind, Kind::Broken | Kind::CutOff);
        let body = if era == Era::Batches && whole {
            let [before, after] = companions(at);
            let before = era.request(&before, "tools/list", json!({}));
            let after = era.request(&after, "no/method", json!({}));
            format!("[{before}, {body}, {after}]")
        } else {
            body
        };
        sent.push(Sent {
            at,
            kind: *kind,
            id,
            method,
            body,
        });
    }
    sent
}

/// Sends part of a request, and leaves.
async fn abandoned(address: SocketAddr, headers: &[(&str, &str)], body: &str, sent: usize) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut text = format!("POST /mcp HTTP/1.1\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    text += "\r\n";
    let body = &body.as_bytes()[..sent];
    let request = [text.as_bytes(), body].concat();
    stream.write_all(&request).await.unwrap();
}

/// Reads the answer a byte at a time.
async fn slowly(address: SocketAddr, headers: &[(&str, &str)], body: &str) -> Response {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut text = format!("POST /mcp HTTP/1.0\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    text += "\r\n";
    text += body;
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let mut byte = [0];
    while stream.read(&mut byte).await.unwrap() == 1 {
        answer.push(byte[0]);
    }
    Response::parse(std::str::from_utf8(&answer).unwrap()).unwrap()
}

async fn send(server: &Served, era: Era, session: &str, sent: &Sent) -> Option<Response> {
    let host = server.host();
    let mut headers = vec![("Host", host.as_str()), JSON, ACCEPT];
    match era {
        Era::Handshake | Era::Batches => headers.push(("Mcp-Session-Id", session)),
        Era::Stateless => {
            headers.extend([
                ("MCP-Protocol-Version", "2026-07-28"),
                ("Mcp-Method", sent.method),
            ]);
            if sent.method == "tools/call" {
                headers.push(("Mcp-Name", "read_file"));
            }
        }
    }
    match sent.kind {
        Kind::Abort => {
            abandoned(server.address, &headers, &sent.body, sent.body.len()).await;
            None
        }
        Kind::CutOff => {
            abandoned(server.address, &headers, &sent.body, sent.body.len() / 2).await;
            None
        }
        Kind::Slow => Some(slowly(server.address, &headers, &sent.body).await),
        _ => Some(request(server.address, "POST", &headers, &sent.body).await),
    }
}

/// Checks what came back for one request; `several` have its id, and some are `cancelled`.
fn check(era: Era, sent: &Sent, reply: &Response, several: bool, cancelled: bool) {
    let mut messages = reply.messages();
    let context = || format!("{:?} `{}`: {reply:?}", sent.kind, sent.id);
    let is_batch = era == Era::Batches && !matches!(sent.kind, Kind::Broken | Kind::Large);
    if is_batch {
        assert_eq!(reply.status, 200, "{}", context());
        for id in companions(sent.at) {
            let own = messages.extract_if(.., |one| one["id"] == id.as_str());
            assert_eq!(own.count(), 1, "{}", context());
        }
    }
    let answers: Vec<_> = messages
        .iter()
        .filter(|one| one["method"].is_null())
        .collect();
    match sent.kind {
        Kind::Cancel => {
            assert!(is_batch || reply.status == 202, "{}", context());
            assert!(messages.is_empty(), "{}", context());
        }
        Kind::Large => {
            assert_eq!(reply.status, 413, "{}", context());
        }
        Kind::Broken => {
            assert_eq!(reply.status, 400, "{}", context());
            assert_eq!(answers.len(), 1, "{}", context());
            assert!(
                answers[0].get("id").is_none_or(Value::is_null),
                "{}",
                context()
            );
            assert_eq!(answers[0]["error"]["code"], -32700, "{}", context());
        }
        _ if answers.is_empty() => {
            // The stream of a cancelled request ends.
            assert!(cancelled && era != Era::Stateless, "{}", context());
            assert_eq!(reply.status, 200, "{}", context());
        }
        _ => {
            assert_eq!(answers.len(), 1, "{}", context());
            let in_use = (is_batch || reply.status == 409) && answers[0].get("id").is_none();
            let refused = in_use && several && era != Era::Stateless;
            assert!(
                refused || answers[0]["id"] == sent.id.as_str(),
                "{}",
                context()
            );
            let fails = match sent.kind {
                Kind::Unknown | Kind::DuplicateKey | Kind::OtherVersion => true,
                _ => refused,
            };
            assert_eq!(answers[0]["error"].is_object(), fails, "{}", context());
            let content = answers[0]["result"]["content"].is_array();
            assert_eq!(content, !fails && sent.kind != Kind::List, "{}", context());
        }
    }
}

/// Collects the messages of a session outside its requests, until it ends.
fn listen(server: &Served, session: &str) -> JoinHandle<Response> {
    let (address, host, session) = (server.address, server.host(), session.to_owned());
    tokio::spawn(async move {
        let headers = [
            ("Host", host.as_str()),
            ("Accept", "text/event-stream"),
            ("Mcp-Session-Id", &session),
        ];
        request(address, "GET", &headers, "").await
    })
}

/// How often each id was sent in a request, and which were cancelled.
fn tally(sent: &[Sent]) -> (HashMap<String, usize>, HashSet<String>) {
    let mut posted: HashMap<String, usize> = HashMap::new();
    let mut cancelled = HashSet::new();
    for one in sent {
        if one.kind == Kind::Cancel {
            cancelled.insert(one.id.clone());
        } else {
            *posted.entry(one.id.clone()).or_default() += 1;
        }
    }
    (posted, cancelled)
}

/// The name of a session of this era's revision.
async fn open_session(server: &Served, era: Era) -> String {
    if era != Era::Batches {
        return server.open_session().await.0;
    }
    let response = server.right(&[], &era.initialize("greeting")).await;
    let session = response.header("mcp-session-id").unwrap().to_owned();
    let ready = json!([{"jsonrpc": "2.0", "method": "notifications/initialized"}]);
    let accepted = server.right(&[("Mcp-Session-Id", &session)], &ready).await;
    assert_eq!(accepted.status, 202, "{accepted:?}");
    session
}

async fn exchange(server: &Arc<Served>, era: Era, kinds: &[(Kind, usize)]) {
    let session = open_session(server, era).await;
    let listening = listen(server, &session);
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let sent = burst(era, kinds);
    let (posted, cancelled) = tally(&sent);
    let mut under_way = JoinSet::new();
    for one in sent {
        let place = Arc::clone(&places).acquire_owned().await.unwrap();
        let (server, session) = (Arc::clone(server), session.clone());
        under_way.spawn(async move {
            let reply = send(&server, era, &session, &one).await;
            drop(place);
            (one, reply)
        });
    }
    let all = async {
        let mut replies = 0;
        while let Some(done) = under_way.join_next().await {
            let (one, reply) = done.unwrap();
            if let Some(reply) = reply {
                replies += 1;
                let several = posted.get(&one.id).is_some_and(|count| *count > 1);
                check(era, &one, &reply, several, cancelled.contains(&one.id));
            }
        }
        replies
    };
    let replies = tokio::time::timeout(PATIENCE, all)
        .await
        .expect("an answer is missing");
    let left = kinds
        .iter()
        .filter(|(kind, _)| matches!(kind, Kind::Abort | Kind::CutOff));
    assert_eq!(replies + left.count(), kinds.len());
    // The session still answers, and its stream of notifications has had no answer.
    let listed = server.ask(&session, "tools/list", json!({})).await;
    assert!(listed["result"].is_object(), "{listed}");
    let host = server.host();
    let headers = [
        ("Host", host.as_str()),
        ("Mcp-Session-Id", session.as_str()),
    ];
    request(server.address, "DELETE", &headers, "").await;
    let received = tokio::time::timeout(PATIENCE, listening)
        .await
        .unwrap()
        .unwrap();
    let answers: Vec<_> = received
        .messages()
        .into_iter()
        .filter(|one| one["method"].is_null())
        .collect();
    assert_eq!(answers, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_of_a_burst_over_http_gets_one_response() {
    let workspace = Workspace::new();
    let http = Http::without_token()
        .max_connections(1000)
        .max_body(MAX_BODY);
    let rate = Rate {
        calls: 1_000_000,
        per: Duration::from_secs(1),
    };
    let server = Served::of(&workspace.gateway(Trust::Host).rate(rate).build(), http).await;
    let server = Arc::new(server);
    let mut runner = TestRunner::deterministic();
    for era in ERAS {
        for size in [1, 2000] {
            exchange(&server, era, &random(&mut runner, size)).await;
        }
        for _ in 0..cases() / 500 {
            let size = (1..300_usize).new_tree(&mut runner).unwrap().current();
            exchange(&server, era, &random(&mut runner, size)).await;
        }
    }
}

#[tokio::test]
async fn batch_over_http_is_rejected_except_in_2025_03_26_sessions() {
    let workspace = Workspace::new();
    let server = Served::of(
        &workspace.gateway(Trust::Host).build(),
        Http::without_token(),
    )
    .await;
    let list = |id: &str| Era::Batches.request(id, "tools/list", json!({}));
    let batch = json!([list("a"), list("b")]);
    let response = server
        .right(&[], &Era::Batches.initialize("greeting"))
        .await;
    let accepts = response.header("mcp-session-id").unwrap().to_owned();
    let (other, _) = server.open_session().await;
    let unknown = "00000000-0000-0000-0000-000000000000";
    for (session, status) in [
        (Some(accepts.as_str()), 200),
        (Some(other.as_str()), 400),
        (Some(unknown), 404),
        (None, 400),
    ] {
        let headers: Vec<_> = session
            .map(|name| ("Mcp-Session-Id", name))
            .into_iter()
            .collect();
        let reply = server.right(&headers, &batch).await;
        assert_eq!(reply.status, status, "{reply:?}");
        let messages = reply.messages();
        match status {
            200 => assert_eq!(messages.len(), 2, "{reply:?}"),
            _ => assert_eq!(messages[0]["error"]["code"], -32600, "{reply:?}"),
        }
    }
    let within = [("Mcp-Session-Id", accepts.as_str())];
    let many = json!(vec![list("a"); 101]);
    let refused = server.right(&within, &many).await;
    assert_eq!(refused.status, 400, "{refused:?}");
}

#[tokio::test]
async fn response_of_the_client_in_an_http_batch_gets_no_answer() {
    let workspace = Workspace::new();
    let gateway = workspace.gateway(Trust::Host).build();
    let server = Served::of(&gateway, Http::without_token()).await;
    let session = open_session(&server, Era::Batches).await;
    let within = [("Mcp-Session-Id", session.as_str())];
    let response = json!({"jsonrpc": "2.0", "id": 1, "result": {"action": "decline"}});
    let answer = server.right(&within, &json!([response])).await;
    assert_eq!((answer.status, answer.body.as_str()), (202, ""));
    let ping = Era::Batches.request("ping", "ping", json!({}));
    let answer = server.right(&within, &json!([response, ping])).await;
    let answers = answer.messages();
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(answers[0]["id"], "ping", "{answers:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answered_requests_of_an_http_batch_count_as_open_until_it_is_sent() {
    let workspace = Workspace::with(|| ToolSet::new().writer(Plans));
    let gateway = workspace.gateway(Trust::Host).build();
    let server = Arc::new(Served::of(&gateway, Http::without_token()).await);
    let session = open_session(&server, Era::Batches).await;
    let ping = |id: &str| Era::Batches.request(id, "ping", json!({}));
    let mut batches = JoinSet::new();
    let mut held = Vec::new();
    // Together as many as may be open, so that none of the slow calls is refused.
    for (at, requests) in [100, 100, 56].into_iter().enumerate() {
        let until = workspace.path(&format!("outside/{at}"));
        std::fs::write(&until, "").unwrap();
        let mut batch = vec![slow_call(&format!("held{at}"), &until)];
        batch.extend((1..requests).map(|number| ping(&format!("p{at}-{number}"))));
        let (server, session) = (Arc::clone(&server), session.clone());
        batches.spawn(async move {
            let within = [("Mcp-Session-Id", session.as_str())];
            let answered = server.right(&within, &json!(batch)).await;
            assert_eq!(answered.messages().len(), requests);
        });
        there(&until.with_extension("began")).await;
        held.push(until);
    }
    let within = [("Mcp-Session-Id", session.as_str())];
    let busy = async {
        let refused = loop {
            let answer = server.right(&within, &ping("one")).await;
            if answer.status != 200 {
                break answer;
            }
        };
        assert_eq!(refused.status, 429, "{refused:?}");
    };
    tokio::time::timeout(PATIENCE, busy).await.unwrap();
    for until in &held {
        std::fs::remove_file(until).unwrap();
    }
    while let Some(answered) = batches.join_next().await {
        answered.unwrap();
    }
    let answer = server.right(&within, &ping("one")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_of_an_http_batch_have_a_byte_limit() {
    let workspace = Workspace::new();
    let text = "0123456789abcde\n".repeat(60_000);
    std::fs::write(workspace.path("r/long.txt"), &text).unwrap();
    let gateway = workspace.gateway(Trust::Host).build();
    let server = Served::of(&gateway, Http::without_token()).await;
    let session = open_session(&server, Era::Batches).await;
    let within = [("Mcp-Session-Id", session.as_str())];
    let mut kept = Vec::new();
    for count in [10, 25, 10] {
        let read = |id| {
            let params = json!({"uri": "file:///r/long.txt"});
            Era::Batches.request(&format!("{id}"), "resources/read", params)
        };
        let batch: Vec<_> = (0..count).map(read).collect();
        let answers = server.right(&within, &json!(batch)).await.messages();
        assert_eq!(answers.len(), count);
        let is_kept = |answer: &Value| {
            let is_kept = answer["result"]["contents"][0]["text"] == text.as_str();
            assert!(is_kept || answer["error"]["data"]["code"] == "TOO_LARGE");
            is_kept
        };
        kept.push(answers.into_iter().filter(is_kept).count());
    }
    assert_eq!(kept, [10, 16, 10]);
}
