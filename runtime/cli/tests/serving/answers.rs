//! Tests that every request gets exactly one response.

use crate::fuzz::cases;
use crate::http::{Served, about, initialize};
use crate::slow::{Plans, there};
use bailiwick::ToolSet;
use bailiwick_mcp::gateway::{Endpoint, Http, Trust};
use bailiwick_test_support::workspace::Workspace;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::Config;
use proptest::test_runner::TestRunner;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::json;
use std::cell::RefCell;
use std::collections::HashMap;
use std::io::BufRead as _;
use std::io::{BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    Handshake,
    Stateless,
    /// A handshake of the one revision with batches, 2025-03-26.
    Batches,
}

pub(crate) const ERAS: [Era; 3] = [Era::Handshake, Era::Stateless, Era::Batches];

impl Era {
    pub(crate) fn request(self, id: &str, method: &str, mut params: Value) -> Value {
        if self == Self::Stateless {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    }

    pub(crate) fn initialize(self, id: &str) -> Value {
        let mut request = initialize();
        request["id"] = json!(id);
        if self == Self::Batches {
            request["params"]["protocolVersion"] = json!("2025-03-26");
        }
        request
    }

    /// What a client sends before anything else.
    fn opening(self) -> Vec<Sent> {
        match self {
            Self::Stateless => Vec::new(),
            Self::Handshake | Self::Batches => vec![
                Sent::request("initialize", &self.initialize("initialize")),
                Sent {
                    line: json!({"jsonrpc": "2.0", "method": "notifications/initialized"})
                        .to_string(),
                    answer: Answer::Nothing,
                },
            ],
        }
    }
}

/// What comes back for a line.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Nothing,
    /// One error that names no request.
    Unnamed,
    /// One answer with this id; if the id is in use, one error that names no request.
    To(String),
    /// The request with this id is answered or not.
    Cancels(String),
}

/// One line, and what comes back for it.
#[derive(Clone, Debug)]
struct Sent {
    line: String,
    answer: Answer,
}

impl Sent {
    fn request(id: &str, request: &Value) -> Self {
        Self {
            line: request.to_string(),
            answer: Answer::To(id.to_owned()),
        }
    }
}

/// What a client may send after its opening.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Read,
    List,
    Unknown,
    DuplicateKey,
    /// A whole message that is not JSON.
    Surrogate,
    OtherVersion,
    /// A line over the bound that begins with its id.
    Long,
    /// A line over the bound that ends with its id.
    LongIdLast,
    /// A line over the bound without an id.
    LongWithoutId,
    Broken,
    Batch,
    Blank,
    DuplicateId,
    Cancel,
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        8 => Just(Kind::Read),
        1 => Just(Kind::List),
        4 => Just(Kind::Unknown),
        2 => Just(Kind::DuplicateKey),
        1 => Just(Kind::Surrogate),
        1 => Just(Kind::OtherVersion),
        1 => Just(Kind::Long),
        1 => Just(Kind::LongIdLast),
        1 => Just(Kind::LongWithoutId),
        1 => Just(Kind::Broken),
        1 => Just(Kind::Batch),
        1 => Just(Kind::Blank),
        1 => Just(Kind::DuplicateId),
        1 => Just(Kind::Cancel),
    ]
}

/// The longest line that is read, in bytes.
const MAX_LINE: usize = 16 << 20;
/// How many lines of a burst are longer; those beyond that are of another kind.
const MAX_LONG: usize = 3;

/// A line over the bound.
fn long(before: &str, after: &str) -> String {
    let text = "x".repeat(MAX_LINE - before.len() - after.len());
    format!("{before}{text}{after}")
}

/// The lines of one client; an id of an earlier request is `earlier` lines before.
#[expect(clippy::too_many_lines, reason = "one arm for each kind")]
fn burst(era: Era, path: &str, kinds: &[(Kind, usize)]) -> Vec<Sent> {
    let mut sent = era.opening();
    let read = json!({"name": "read_file", "arguments": {"path": path}});
    let mut longs = 0;
    for (at, (kind, earlier)) in kinds.iter().enumerate() {
        let mut kind = *kind;
        if matches!(kind, Kind::Long | Kind::LongIdLast | Kind::LongWithoutId) {
            longs += 1;
            if longs > MAX_LONG {
                kind = Kind::Surrogate;
            }
        }
        let id = format!("r{at}");
        let other = format!("r{}", at.saturating_sub(earlier + 1));
        sent.push(match kind {
            Kind::Read => Sent::request(&id, &era.request(&id, "tools/call", read.clone())),
            Kind::List => Sent::request(&id, &era.request(&id, "tools/list", json!({}))),
            Kind::Unknown => Sent::request(&id, &era.request(&id, "no/method", json!({}))),
            Kind::DuplicateKey => Sent {
                line: format!(
                    r#"{{"jsonrpc":"2.0","id":"{id}","method":"tools/list","params":{{"a":1,"a":2}}}}"#
                ),
                answer: Answer::To(id),
            },
            Kind::Surrogate => Sent {
                line: format!(
                    r#"{{"jsonrpc":"2.0","id":"{id}","method":"tools/list","params":{{"a":"\ud800"}}}}"#
                ),
                answer: Answer::To(id),
            },
            Kind::OtherVersion => Sent {
                line: format!(r#"{{"jsonrpc":"3.0","id":"{id}","method":"tools/list"}}"#),
                answer: Answer::To(id),
            },
            Kind::Long => Sent {
                line: long(
                    &format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":""#),
                    r#""}"#,
                ),
                answer: Answer::To(id),
            },
            Kind::LongIdLast => Sent {
                line: long(
                    r#"{"jsonrpc":"2.0","method":""#,
                    &format!(r#"","id":"{id}"}}"#),
                ),
                answer: Answer::To(id),
            },
            Kind::LongWithoutId => Sent {
                line: long(r#"{"jsonrpc":"2.0","method":""#, r#""}"#),
                answer: Answer::Unnamed,
            },
            Kind::Broken => Sent {
                line: format!(r#"{{"jsonrpc":"2.0",{at}"#),
                answer: Answer::Unnamed,
            },
            Kind::Batch => Sent {
                line: format!("[{at}]"),
                answer: Answer::Unnamed,
            },
            Kind::Blank => Sent {
                line: " ".into(),
                answer: Answer::Nothing,
            },
            Kind::DuplicateId => {
                Sent::request(&other, &era.request(&other, "tools/call", read.clone()))
            }
            Kind::Cancel => Sent {
                line: json!({
                    "jsonrpc": "2.0", "method": "notifications/cancelled",
                    "params": {"requestId": other},
                })
                .to_string(),
                answer: Answer::Cancels(other),
            },
        });
    }
    sent
}

/// The lines that are sent: some in a row are one batch where those are accepted.
fn lines(era: Era, sent: &[Sent]) -> Vec<String> {
    let text = |sent: &Sent| sent.line.clone();
    if era != Era::Batches {
        return sent.iter().map(text).collect();
    }
    let opening = era.opening().len();
    let mut lines: Vec<_> = sent.iter().take(opening).map(text).collect();
    // The batches are of several lengths, and a line that is not JSON stands alone.
    let (mut batch, mut next) = (Vec::new(), 1);
    for sent in sent.iter().skip(opening) {
        let is_json = serde_json::from_str::<IgnoredAny>(&sent.line).is_ok();
        if is_json && sent.line.len() < MAX_LINE {
            batch.push(sent.line.as_str());
        } else {
            lines.push(sent.line.clone());
        }
        if batch.len() == next {
            lines.push(format!("[{}]", batch.join(", ")));
            batch.clear();
            next = next % 17 + 3;
        }
    }
    if !batch.is_empty() {
        lines.push(format!("[{}]", batch.join(",")));
    }
    lines
}

/// Compares all that came back with all that was sent.
#[track_caller]
fn check(sent: &[Sent], came: &[String]) {
    let mut came: Vec<Value> = came
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let batches = came.extract_if(.., |message| message.is_array());
    let batched: Vec<_> = batches
        .flat_map(|batch| batch.as_array().unwrap().clone())
        .collect();
    came.extend(batched);
    let mut requests: HashMap<&str, usize> = HashMap::new();
    let mut cancels = Vec::new();
    let mut unnamed = 0;
    for sent in sent {
        match &sent.answer {
            Answer::Nothing => {}
            Answer::Unnamed => unnamed += 1,
            Answer::To(id) => *requests.entry(id).or_default() += 1,
            Answer::Cancels(id) => cancels.push(id.as_str()),
        }
    }
    let mut answers: HashMap<String, usize> = HashMap::new();
    let mut unnamed_answers = 0;
    for message in came {
        match (message.get("method"), message.get("id")) {
            (Some(_), _) => {}
            (None, Some(id)) => *answers.entry(id.as_str().unwrap().to_owned()).or_default() += 1,
            (None, None) => {
                assert!(message["error"].is_object(), "{message}");
                unnamed_answers += 1;
            }
        }
    }
    let mut missing = 0;
    let mut forgiven = 0;
    for (id, asked) in &requests {
        let answered = answers.remove(*id).unwrap_or_default();
        let cancelled = cancels.iter().filter(|other| *other == id).count();
        assert!(answered <= *asked, "`{id}` was answered {answered} times");
        assert!(
            answered + cancelled >= 1,
            "`{id}` was not answered; it was asked {asked} times"
        );
        missing += asked - answered;
        forgiven += cancelled.min(asked - answered);
    }
    assert!(answers.is_empty(), "answers to nothing: {answers:?}");
    // A duplicate of a request under way is refused without its id, so that the id has one answer.
    assert!(
        unnamed_answers <= unnamed + missing && unnamed_answers + forgiven >= unnamed + missing,
        "{unnamed_answers} answers without an id to {unnamed} lines and {missing} duplicates"
    );
}

/// Writes all lines from a thread, ends the input, and reads until the server ends its output.
fn exchange(
    mut input: impl Write + Send + 'static,
    output: impl Read,
    lines: &[String],
    slow: bool,
    end: impl FnOnce() + Send + 'static,
) -> Vec<String> {
    let text: String = lines.iter().map(|line| line.clone() + "\n").collect();
    let writing = std::thread::spawn(move || {
        // A server that ended early is noticed by the answers that are missing.
        let _ = input.write_all(text.as_bytes());
        drop(input);
        end();
    });
    // A slow reader takes a byte at a time, so that the server always finds the pipe full.
    let buffer = if slow { 1 } else { 1 << 16 };
    let came = BufReader::with_capacity(buffer, output).lines();
    let came: Vec<String> = came.map(Result::unwrap).collect();
    writing.join().unwrap();
    came
}

fn program(workspace: &Workspace) -> Child {
    Command::new(crate::PROGRAM)
        .env_clear()
        .arg("serve")
        .arg(workspace.path("r"))
        .args(["--rate", "1000000/second", "--log", "error"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn over_stdio(workspace: &Workspace, lines: &[String], slow: bool) -> Vec<String> {
    let mut server = program(workspace);
    let (input, output) = (server.stdin.take().unwrap(), server.stdout.take().unwrap());
    let came = exchange(input, output, lines, slow, || {});
    assert!(server.wait().unwrap().success());
    came
}

fn over_socket(socket: &std::path::Path, lines: &[String], slow: bool) -> Vec<String> {
    let stream = UnixStream::connect(socket).unwrap();
    let input = stream.try_clone().unwrap();
    let ending = stream.try_clone().unwrap();
    let end = move || ending.shutdown(std::net::Shutdown::Write).unwrap();
    exchange(input, stream, lines, slow, end)
}

fn random(runner: &mut TestRunner, size: usize) -> Vec<(Kind, usize)> {
    let kinds = prop::collection::vec((kind(), 0..40_usize), size);
    kinds.new_tree(runner).unwrap().current()
}

/// Checks bursts of any length and content, and a shorter one that fails likewise if one fails.
fn check_bursts(name: &str, mut exchange: impl FnMut(Era, &[(Kind, usize)], bool)) {
    let bursts = (
        prop::sample::select(ERAS.as_slice()),
        prop::collection::vec((kind(), 0..40_usize), 1..300),
        any::<bool>(),
    );
    let config = Config {
        cases: u32::try_from(cases().div_ceil(500)).unwrap(),
        max_shrink_iters: 50,
        failure_persistence: None,
        ..Config::default()
    };
    let exchange = RefCell::new(&mut exchange);
    let tried = TestRunner::new(config).run(&bursts, |(era, kinds, slow)| {
        exchange.borrow_mut()(era, &kinds, slow);
        Ok(())
    });
    tried.unwrap_or_else(|failed| panic!("{name}: {failed}"));
}

#[test]
fn every_request_of_a_burst_over_stdio_gets_one_response() {
    let workspace = Workspace::new();
    let path = workspace.path("r/a.txt");
    let exchange = |era, kinds: &[(Kind, usize)], slow| {
        let sent = burst(era, path.to_str().unwrap(), kinds);
        check(&sent, &over_stdio(&workspace, &lines(era, &sent), slow));
    };
    let mut runner = TestRunner::deterministic();
    for era in ERAS {
        for (size, slow) in [(1, false), (400, true), (2000, false)] {
            exchange(era, &random(&mut runner, size), slow);
        }
    }
    check_bursts("over stdio", exchange);
}

#[test]
fn invalid_lines_of_a_slow_reader_are_all_answered() {
    let workspace = Workspace::new();
    for era in ERAS {
        let mut kinds = vec![(Kind::DuplicateKey, 0); 1000];
        kinds.extend([(Kind::Broken, 0); 1000]);
        let sent = burst(era, "/none", &kinds);
        check(&sent, &over_stdio(&workspace, &lines(era, &sent), true));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_of_a_burst_over_socket_gets_one_response() {
    let workspace = Workspace::new();
    let (_runtime, worker) = workspace.worker().await;
    let endpoint = Endpoint::open(&worker, about(), None).await.unwrap();
    let socket = endpoint.socket().to_owned();
    let checking = tokio::task::spawn_blocking(move || {
        let exchange = |era, kinds: &[(Kind, usize)], slow| {
            let sent = burst(era, "/r/a.txt", kinds);
            check(&sent, &over_socket(&socket, &lines(era, &sent), slow));
        };
        let mut runner = TestRunner::deterministic();
        for era in ERAS {
            for (size, slow) in [(1, false), (400, true), (2000, false)] {
                exchange(era, &random(&mut runner, size), slow);
            }
        }
        check_bursts("over a socket", exchange);
    });
    checking.await.unwrap();
}

/// The answer to one line after a handshake of `version`.
fn answer_to(workspace: &Workspace, version: &str, line: &str) -> Value {
    let mut initialize_request = Era::Handshake.initialize("initialize");
    initialize_request["params"]["protocolVersion"] = json!(version);
    let sent = [initialize_request.to_string(), line.to_owned()];
    let came = over_stdio(workspace, &sent, false);
    assert_eq!(came.len(), 2, "{came:?}");
    let came = came
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    came.into_iter()
        .find(|one| one["id"] != "initialize")
        .unwrap()
}

#[test]
fn batch_gets_one_array_only_in_2025_03_26() {
    let workspace = Workspace::new();
    let request = |id: &str, method: &str| Era::Batches.request(id, method, json!({}));
    let notice = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let list = [
        request("a", "tools/list"),
        notice.clone(),
        request("b", "no/method"),
        json!(7),
    ];
    let batch = json!(list).to_string();
    let answers = answer_to(&workspace, "2025-03-26", &batch);
    let answers = answers.as_array().unwrap();
    assert_eq!(answers.len(), 3, "{answers:?}");
    let of = |id: Option<&str>| answers.iter().find(|one| one["id"].as_str() == id).unwrap();
    assert!(of(Some("a"))["result"]["tools"].is_array());
    assert_eq!(of(Some("b"))["error"]["code"], -32601);
    assert_eq!(of(None)["error"]["code"], -32600);
    for version in ["2024-11-05", "2025-06-18", "2025-11-25"] {
        let refused = answer_to(&workspace, version, &batch);
        assert_eq!(refused["error"]["code"], -32600, "{version}: {refused}");
        let reason = refused["error"]["message"].as_str().unwrap();
        assert!(reason.contains("2025-03-26"), "{reason}");
    }
    let many = |count: usize| json!(vec![request("a", "ping"); count]).to_string();
    let answers = answer_to(&workspace, "2025-03-26", &many(100));
    assert_eq!(answers.as_array().unwrap().len(), 100);
    for line in [many(101).as_str(), "[]"] {
        let refused = answer_to(&workspace, "2025-03-26", line);
        assert_eq!(refused["error"]["code"], -32600, "{refused}");
    }
    // A batch of notifications has no answer.
    let opening = Era::Batches.initialize("initialize").to_string();
    let notices = [opening, json!([notice, notice]).to_string()];
    assert_eq!(over_stdio(&workspace, &notices, false).len(), 1);
}

#[test]
fn client_errors_are_not_logged_by_default() {
    let workspace = Workspace::new();
    for (level, quiet) in [("warn", true), ("debug", false)] {
        let mut server = Command::new(crate::PROGRAM)
            .env_clear()
            .arg("serve")
            .arg(workspace.path("r"))
            .args(["--log", level])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = server.stdin.take().unwrap();
        let read = json!({"name": "read_file", "arguments": {"path": 7}});
        let granted = json!({"name": "none", "_meta": {"granted_scopes": ["x:y:z"]}});
        for line in [
            Era::Handshake.initialize("initialize").to_string(),
            Era::Handshake
                .request("a", "no/method", json!({}))
                .to_string(),
            Era::Handshake.request("b", "tools/call", read).to_string(),
            Era::Handshake
                .request("c", "tools/call", granted)
                .to_string(),
            Era::Handshake
                .request("d", "resources/read", json!({"uri": "x:y"}))
                .to_string(),
            Era::Handshake.initialize("again").to_string(),
            "{".to_owned(),
        ] {
            writeln!(input, "{line}").unwrap();
        }
        drop(input);
        let output = server.wait_with_output().unwrap();
        assert!(output.status.success());
        let answers = String::from_utf8(output.stdout).unwrap().lines().count();
        assert_eq!(answers, 7);
        let logged = String::from_utf8(output.stderr).unwrap();
        assert_eq!(logged.is_empty(), quiet, "{logged}");
    }
}

pub(crate) fn slow_call(id: &str, until: &std::path::Path) -> Value {
    let params =
        json!({"name": "plans", "arguments": {"until": until}, "_meta": {"preview": true}});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicate_open_request_id_in_an_http_session_is_rejected() {
    let workspace = Workspace::with(|| ToolSet::new().writer(Plans));
    let until = workspace.path("outside/f");
    let server = Served::of(
        &workspace.gateway(Trust::Host).build(),
        Http::without_token(),
    )
    .await;
    let (session, _) = server.open_session().await;
    let (other, _) = server.open_session().await;
    let server = Arc::new(server);
    let mut first = JoinSet::new();
    let call = slow_call("same", &until);
    let (at, name, body) = (Arc::clone(&server), session.clone(), call.clone());
    first.spawn(async move { at.right(&[("Mcp-Session-Id", &name)], &body).await });
    there(&until.with_extension("began")).await;
    let list = json!({"jsonrpc": "2.0", "id": "same", "method": "tools/list"});
    let within = [("Mcp-Session-Id", session.as_str())];
    let refused = server.right(&within, &list).await;
    assert_eq!(refused.status, 409, "{refused:?}");
    let error: Value = serde_json::from_str(&refused.body).unwrap();
    assert!(error.get("id").is_none(), "{error}");
    assert_eq!(error["error"]["code"], -32600, "{error}");
    // An id belongs to its session.
    let elsewhere = server.right(&[("Mcp-Session-Id", &other)], &list).await;
    assert_eq!(elsewhere.message()["id"], "same");
    std::fs::remove_file(&until).unwrap();
    let answered = first.join_next().await.unwrap().unwrap();
    assert_eq!(answered.message()["id"], "same", "{answered:?}");
    assert!(answered.message()["result"].is_object(), "{answered:?}");
    let again = server.right(&within, &list).await;
    assert_eq!(again.message()["id"], "same", "{again:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_response_is_not_sent_for_a_reused_id() {
    let workspace = Workspace::with(|| ToolSet::new().writer(Plans));
    let until = workspace.path("outside/f");
    let mut client = workspace.client(Trust::Host);
    client.initialize("2025-11-25", json!({})).await;
    client.send(&slow_call("same", &until)).await;
    there(&until.with_extension("began")).await;
    let cancel = json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "same"},
    });
    client.send(&cancel).await;
    there(&until.with_extension("ended")).await;
    let ping = json!({"jsonrpc": "2.0", "id": "same", "method": "ping"});
    // Its id is in use until the call has ended.
    let answer = loop {
        client.send(&ping).await;
        let answer = client.receive_response().await;
        if answer.get("id").is_some() {
            break answer;
        }
        assert_eq!(answer["error"]["code"], -32600, "{answer}");
    };
    assert_eq!(answer["result"], json!({}), "{answer}");
    let next = client.request("ping", json!({})).await;
    assert_eq!(next["result"], json!({}), "{next}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscriptions_count_as_open_requests() {
    let workspace = Workspace::new();
    let mut client = workspace.client(Trust::Host);
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    let listen = |id: &str| Era::Stateless.request(id, "subscriptions/listen", wanted.clone());
    client.send(&listen("same")).await;
    assert_eq!(
        client.receive().await["method"],
        "notifications/subscriptions/acknowledged"
    );
    client.send(&listen("same")).await;
    let refused = client.receive().await;
    assert!(refused.get("id").is_none(), "{refused}");
    assert_eq!(refused["error"]["code"], -32600, "{refused}");
    for number in 1..256 {
        client.send(&listen(&number.to_string())).await;
        assert!(client.receive().await["method"].is_string());
    }
    client.send(&listen("beyond")).await;
    let beyond = client.receive().await;
    assert_eq!(beyond["id"], "beyond", "{beyond}");
    assert_eq!(beyond["error"]["data"]["code"], "BUSY", "{beyond}");
    let cancel = json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "same"},
    });
    client.send(&cancel).await;
    let listed = loop {
        let listed = client
            .request_stateless("tools/list", json!({}), json!({}))
            .await;
        if listed["result"].is_object() {
            break listed;
        }
        assert_eq!(listed["error"]["data"]["code"], "BUSY", "{listed}");
    };
    assert!(listed["result"]["tools"].is_array());
}

/// The most memory that a process has had, in KiB.
fn peak(server: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// One answer to one line, how long it took, and how much the memory of the server grew meanwhile, in MiB.
fn measured(server: &mut Child, line: &str) -> (Value, Duration, u64) {
    let mut output = BufReader::new(server.stdout.take().unwrap());
    let (before, began) = (peak(server), Instant::now());
    let input = server.stdin.as_mut().unwrap();
    writeln!(input, "{line}").unwrap();
    let mut answer = String::new();
    output.read_line(&mut answer).unwrap();
    let took = began.elapsed();
    let grown = peak(server) - before;
    server.stdout = Some(output.into_inner());
    (serde_json::from_str(&answer).unwrap(), took, grown / 1024)
}

#[test]
fn json_with_many_values_takes_little_time_and_memory() {
    let workspace = Workspace::new();
    let mut server = program(&workspace);
    let request = |values: usize| {
        let array = vec!["1"; values].join(",");
        let params = json!({"name": "read_file", "arguments": {"path": "HERE"}});
        let request = Era::Stateless.request("r", "tools/call", params);
        request
            .to_string()
            .replace(r#""HERE""#, &format!("[{array}]"))
    };
    let largest = 50_000 - 11;
    let first = measured(&mut server, &request(1)).0;
    assert!(first["result"].is_object(), "{first}");
    let (answer, took, grown) = measured(&mut server, &request(largest));
    assert!(answer["result"].is_object(), "{answer}");
    // Most of the time goes to tests without optimisation on a busy machine.
    assert!(
        took < Duration::from_secs(20) && grown < 64,
        "{took:?}, {grown} MiB"
    );
    for (values, most) in [(largest + 1, 64), (7_000_000, 64)] {
        let (answer, took, grown) = measured(&mut server, &request(values));
        assert_eq!(answer["id"], "r", "{answer}");
        assert!(
            answer["error"]["message"]
                .as_str()
                .unwrap()
                .contains("values")
        );
        assert!(
            took < Duration::from_secs(20) && grown < most,
            "{took:?}, {grown} MiB"
        );
    }
    drop(server.stdin.take());
    assert!(server.wait().unwrap().success());
}
