//! Compares requests that are handled directly with the same requests through rmcp's service loop.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use bailiwick::config::Namespace;
use bailiwick::tool::{Interrupt, Prepared, ReadPermit};
use bailiwick::worker::Worker;
use bailiwick::{
    CallError, Policy, ReadTool, Reply, Runtime, Scope, ToolSet, ToolSpec, Verb, WorkerSpec,
};
use bailiwick_mcp::gateway::{Gateway, GatewayInfo};
use proptest::prelude::*;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, duplex, split};

/// Returns its text; without a text it waits until it is cancelled.
struct Echo;

#[derive(Deserialize, schemars::JsonSchema)]
struct EchoArgs {
    path: String,
    text: Option<String>,
    n: Option<Value>,
}

impl ReadTool for Echo {
    type Args = EchoArgs;
    type Output = Value;
    type Job = (Option<String>, Option<Value>);

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("echo", "Echo", "Returns its text.")
    }

    fn prepare(&self, args: EchoArgs, names: &Namespace) -> Result<Prepared<Self::Job>, CallError> {
        let needs = vec![Scope::file(Verb::Read, names.path(&args.path)?)];
        let job = (args.text, args.n);
        Ok(Prepared { needs, job })
    }

    fn read(&self, (text, n): &Self::Job, permit: &ReadPermit) -> Result<Reply, Interrupt> {
        match text {
            Some(text) => Ok(Reply::text(text.clone(), json!({ "text": text, "n": n }))),
            None => loop {
                permit.checkpoint()?;
                std::thread::yield_now();
            },
        }
    }
}

/// Returns a result that panics while it is encoded.
struct Broken;

#[derive(Debug, schemars::JsonSchema)]
struct BrokenOutput {}

impl Serialize for BrokenOutput {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        panic!("as a broken tool would")
    }
}

impl ReadTool for Broken {
    type Args = EchoArgs;
    type Output = BrokenOutput;
    type Job = ();

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("broken", "Break", "Returns a broken result.")
    }

    fn prepare(&self, args: EchoArgs, names: &Namespace) -> Result<Prepared<()>, CallError> {
        let needs = vec![Scope::file(Verb::Read, names.path(&args.path)?)];
        Ok(Prepared { needs, job: () })
    }

    fn read(&self, (): &(), _: &ReadPermit) -> Result<Reply, Interrupt> {
        Ok(Reply::text("text", BrokenOutput {}))
    }
}

async fn worker() -> (Runtime, Worker, tempfile::TempDir) {
    let root = tempfile::tempdir().unwrap();
    let tools = ToolSet::new().reader(Echo).reader(Broken);
    let builder = Runtime::builder().root("r", root.path()).tools(tools);
    let (runtime, _) = builder.build().await.unwrap();
    let policy = Policy::new().allow("read:file:/r");
    let spec = WorkerSpec::new("one").policy(policy);
    let worker = runtime.spawn(spec).await.unwrap();
    (runtime, worker, root)
}

fn info() -> GatewayInfo {
    GatewayInfo {
        name: "test".into(),
        title: "Test".into(),
        version: "0".into(),
        instructions: String::new(),
    }
}

fn handshake(revision: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": "handshake", "method": "initialize", "params": {
        "protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "t", "version": "0"},
    }})
}

/// All answers to `lines`, by their ids, and whether requests were handled directly or by rmcp.
async fn answers(
    worker: &Worker,
    Conversation { revision, lines }: &Conversation,
    directly: bool,
) -> BTreeMap<String, Vec<String>> {
    let gateway = Gateway::worker(worker, info());
    let gateway = match directly {
        true => gateway.build(),
        false => gateway.through_rmcp().build(),
    };
    let (near, far) = duplex(64 << 10);
    let (reader, writer) = split(near);
    let serving = tokio::spawn(async move { gateway.serve(reader, writer).await });
    let (reader, mut writer) = split(far);
    let mut input = format!("{}\n", handshake(revision));
    for line in lines {
        input.push_str(line);
        input.push('\n');
    }
    let writing = async move {
        writer.write_all(input.as_bytes()).await.unwrap();
        writer.shutdown().await.unwrap();
    };
    let reading = async move {
        let mut reader = BufReader::new(reader).lines();
        let mut answers = BTreeMap::<String, Vec<String>>::new();
        while let Some(line) = reader.next_line().await.unwrap() {
            let answer: Value = serde_json::from_str(&line).unwrap();
            let id = answer.get("id").cloned().unwrap_or_default();
            let lines = answers.entry(id.to_string()).or_default();
            match answer {
                // The order within a batch is that in which the calls end.
                Value::Array(mut batch) => {
                    batch.sort_by_key(Value::to_string);
                    lines.push(Value::Array(batch).to_string());
                }
                _ => lines.push(line),
            }
        }
        for lines in answers.values_mut() {
            lines.sort();
        }
        answers
    };
    let both = async { tokio::join!(writing, reading).1 };
    let answers = tokio::time::timeout(Duration::from_secs(60), both).await;
    serving.await.unwrap().unwrap();
    answers.expect("the connection ends")
}

fn request(id: &Value, method: &str, params: Option<Value>) -> Value {
    match params {
        Some(params) => json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}),
        None => json!({"jsonrpc": "2.0", "id": id, "method": method}),
    }
}

fn cancellation(id: &Value) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
}

/// The `_meta` of a request.
fn metas() -> impl Strategy<Value = Option<Value>> {
    prop_oneof![
        4 => Just(None),
        1 => Just(Some(json!({}))),
        1 => Just(Some(Value::Null)),
        1 => Just(Some(json!("text"))),
        1 => Just(Some(json!({"progressToken": "p"}))),
        1 => Just(Some(json!({"policy": {"read_only": true}}))),
        1 => Just(Some(json!({"policy": 7}))),
        1 => Just(Some(json!({"preview": true}))),
        1 => Just(Some(json!({"dev.bailiwick/unknown": 1}))),
        1 => Just(Some(json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"}))),
        1 => Just(Some(json!({"io.modelcontextprotocol/protocolVersion": "1999-01-01"}))),
    ]
}

/// Lines with one request that has this id, valid or not.
fn lines(id: u32) -> impl Strategy<Value = Vec<String>> {
    let ids = prop_oneof![
        6 => Just(json!(id)),
        2 => Just(json!(format!("s{id}"))),
        1 => Just(json!(-i64::from(id) - 1)),
        1 => Just(json!(f64::from(id) + 0.5)),
        1 => Just(Value::Null),
        1 => Just(json!(u64::MAX - u64::from(id))),
    ];
    let names = prop_oneof![
        6 => Just(json!("echo")),
        1 => Just(json!("none")),
        1 => Just(json!("")),
        1 => Just(json!(7)),
    ];
    let arguments = prop_oneof![
        4 => "\\PC{0,40}".prop_map(|text| Some(json!({"path": "/r/a", "text": text}))),
        1 => Just(Some(json!({"path": "/r/a", "text": "x", "n": [1, -2, 2.5, 1e300, u64::MAX]}))),
        1 => Just(Some(json!({"path": "/etc/passwd", "text": "x"}))),
        1 => Just(Some(json!({"path": 7}))),
        1 => Just(Some(json!({}))),
        1 => Just(Some(json!([]))),
        1 => Just(Some(Value::Null)),
        1 => Just(None),
    ];
    (ids, metas(), names, arguments, 0..16_u8).prop_map(move |(id, meta, name, arguments, kind)| {
        let mut params = Map::from_iter([("name".to_owned(), name)]);
        params.extend(arguments.map(|arguments| ("arguments".to_owned(), arguments)));
        params.extend(meta.clone().map(|meta| ("_meta".to_owned(), meta)));
        let params = Value::Object(params);
        let ping = meta.map(|meta| json!({ "_meta": meta }));
        let call = request(&id, "tools/call", Some(params));
        let text = match kind {
            0 => request(&id, "ping", None).to_string(),
            1 => request(&id, "ping", ping).to_string(),
            2 => request(&id, "ping", Some(json!({"x": 1}))).to_string(),
            3 => request(&id, "tools/list", None).to_string(),
            4 => request(&id, "tools/call", None).to_string(),
            5 => request(&id, "tools/call", Some(json!([1]))).to_string(),
            6 => call.to_string().replace("2.0", "1.0"),
            7 => call
                .to_string()
                .replacen("\"name\"", "\"extra\":1,\"name\"", 1),
            8 => call
                .to_string()
                .replacen("\"id\"", "\"extra\":{},\"id\"", 1),
            9 => call
                .to_string()
                .replacen("\"method\"", "\"id\":1,\"method\"", 1),
            10 => call.to_string().chars().rev().collect(),
            11 => format!(" {call}\t"),
            12 => {
                // A duplicate of a request that is open until it is cancelled.
                let held = json!({"name": "echo", "arguments": {"path": "/r/a"}});
                return vec![
                    request(&id, "tools/call", Some(held)).to_string(),
                    request(&id, "ping", None).to_string(),
                    call.to_string(),
                    cancellation(&id).to_string(),
                ];
            }
            _ => call.to_string(),
        };
        vec![text]
    })
}

/// The lines that follow a handshake.
#[derive(Clone, Debug)]
struct Conversation {
    revision: &'static str,
    lines: Vec<String>,
}

fn conversation() -> impl Strategy<Value = Conversation> {
    let each: Vec<_> = (0..24).map(|id| lines(id).boxed()).collect();
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let level = request(
        &json!("level"),
        "logging/setLevel",
        Some(json!({"level": "debug"})),
    );
    let first = prop_oneof![
        Just(Vec::new()),
        Just(vec![initialized.to_string()]),
        Just(vec![initialized.to_string(), level.to_string()]),
    ];
    // Only the first of these has batches.
    let revision = prop_oneof![Just("2025-03-26"), Just("2025-06-18")];
    (revision, first, each, 0..24_usize).prop_map(|(revision, first, each, batched)| {
        let mut each = each;
        let batch = each.split_off(batched).concat();
        let mut lines = [first, each.concat()].concat();
        lines.extend((!batch.is_empty()).then(|| format!("[{}]", batch.join(","))));
        Conversation { revision, lines }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn direct_answers_equal_those_of_rmcp(conversation in conversation()) {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio.block_on(async {
            let (runtime, worker, _root) = worker().await;
            let direct = answers(&worker, &conversation, true).await;
            let by_rmcp = answers(&worker, &conversation, false).await;
            prop_assert_eq!(direct, by_rmcp);
            runtime.shutdown().await;
            Ok(())
        })?;
    }
}

/// The answers to `requests`, each of which is sent after the answer to the one before.
async fn one_by_one(gateway: Gateway, requests: &[Value]) -> Vec<Value> {
    let (near, far) = duplex(64 << 10);
    let (reader, writer) = split(near);
    let serving = tokio::spawn(async move { gateway.serve(reader, writer).await });
    let (reader, mut writer) = split(far);
    let mut lines = BufReader::new(reader).lines();
    let mut answers = Vec::new();
    for request in requests {
        let line = format!("{request}\n");
        writer.write_all(line.as_bytes()).await.unwrap();
        let answer = lines.next_line().await.unwrap().unwrap();
        answers.push(serde_json::from_str(&answer).unwrap());
    }
    writer.shutdown().await.unwrap();
    serving.await.unwrap().unwrap();
    answers
}

#[tokio::test]
async fn requests_after_a_stateless_one_need_their_metadata() {
    let (runtime, worker, _root) = worker().await;
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let stateless = request(&json!(0), "tools/list", Some(json!({"_meta": meta})));
    let call = json!({"name": "echo", "arguments": {"path": "/r/a", "text": "x"}});
    let mut with_meta = call.clone();
    with_meta["_meta"] = meta;
    let requests = [
        stateless,
        handshake("2025-06-18"),
        request(&json!(1), "ping", None),
        request(&json!(2), "tools/call", Some(call)),
        request(&json!(3), "tools/call", Some(with_meta)),
    ];
    for (first, refused) in [(0, true), (1, false)] {
        let gateway = || Gateway::worker(&worker, info());
        let direct = one_by_one(gateway().build(), &requests[first..]).await;
        let by_rmcp = one_by_one(gateway().through_rmcp().build(), &requests[first..]).await;
        assert_eq!(direct, by_rmcp);
        let [.., ping, call, with_meta] = &direct[..] else {
            panic!("{direct:?}");
        };
        for answer in [ping, call] {
            assert_eq!(answer["error"]["code"] == -32602, refused, "{answer}");
        }
        assert!(with_meta["result"].is_object(), "{with_meta}");
    }
    runtime.shutdown().await;
}

#[tokio::test]
async fn result_that_panics_while_it_is_encoded_is_answered_with_an_error() {
    let (runtime, worker, _root) = worker().await;
    let call = |id: u32, tool: &str| {
        let params = json!({"name": tool, "arguments": {"path": "/r/a", "text": "x"}});
        request(&json!(id), "tools/call", Some(params)).to_string()
    };
    let batch = format!("[{},{}]", call(3, "broken"), call(4, "echo"));
    let conversation = Conversation {
        revision: "2025-03-26",
        lines: vec![call(1, "broken"), call(2, "echo"), batch],
    };
    let direct = answers(&worker, &conversation, true).await;
    assert!(direct["1"][0].contains("the request failed by a fault of the server"));
    assert!(direct["2"][0].contains("result"));
    assert_eq!(direct, answers(&worker, &conversation, false).await);
    runtime.shutdown().await;
}
