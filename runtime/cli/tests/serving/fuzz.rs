//! Fuzz tests: random requests get a response and change nothing.

use bailiwick::config::KEYS;
use bailiwick_mcp::gateway::Gateway;
use bailiwick_mcp::gateway::Rate;
use bailiwick_mcp::gateway::Trust;
use bailiwick_test_support::client::Client;
use bailiwick_test_support::workspace::Workspace;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::Value;
use serde_json::json;

/// How many requests are sent: `BAILIWICK_CASES`, or 5,000.
pub(crate) fn cases() -> usize {
    bailiwick_test_support::cases(5_000)
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z/.*~\\u{202e}]{0,12}".prop_map(Value::from),
        prop_oneof![
            Just("/r/a.txt"),
            Just("/r/secret/key"),
            Just("/etc/passwd"),
            Just("../../etc"),
            Just("file:///r/a.txt"),
            Just("write:file:/"),
            Just("*"),
        ]
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        let key = prop_oneof![
            Just("path".to_owned()),
            Just("name".to_owned()),
            Just("arguments".to_owned()),
            Just("roots".to_owned()),
            Just("pattern".to_owned()),
            Just("limit".to_owned()),
            Just("depth".to_owned()),
            Just("uri".to_owned()),
            "[a-z_]{1,8}",
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn object() -> impl Strategy<Value = Value> {
    prop::collection::vec(("[a-z_]{1,8}", value()), 0..4)
        .prop_map(|members| Value::Object(members.into_iter().collect()))
}

/// What looks like a policy or a configuration: keys that there are, with values that may fit.
fn policy() -> impl Strategy<Value = Value> {
    let keys = KEYS.iter().filter(|field| field.parent().is_none());
    let keys: Vec<_> = keys.map(|field| (field.key, field.example)).collect();
    let member = (prop::sample::select(keys), value(), any::<bool>());
    let member = member.prop_map(|((key, example), other, fits)| {
        let example = serde_json::from_str(example).unwrap();
        (key.to_owned(), if fits { example } else { other })
    });
    prop::collection::vec(member, 0..4)
        .prop_map(|members| Value::Object(members.into_iter().collect()))
}

/// An id, and whether it is one that an answer can carry.
fn id() -> impl Strategy<Value = (Value, bool)> {
    let good = prop_oneof![
        Just(json!(0)),
        Just(json!(-1)),
        Just(json!("")),
        Just(json!("1")),
        Just(json!(i64::MAX)),
        Just(json!(i64::MIN)),
        any::<i64>().prop_map(Value::from),
        "[a-z0-9\\u{202e}\"]{0,20}".prop_map(Value::from),
    ];
    let bad = prop_oneof![
        Just(Value::Null),
        Just(json!(1.5)),
        Just(json!(1e300)),
        Just(json!(u64::MAX)),
        Just(json!(true)),
        Just(json!([1])),
        Just(json!({"id": 1})),
    ];
    prop_oneof![
        3 => good.prop_map(|id| (id, true)),
        1 => bad.prop_map(|id| (id, false)),
    ]
}

/// A handshake of some revision with some capabilities.
fn handshake() -> impl Strategy<Value = Value> {
    let version = prop_oneof![
        Just(json!("2025-11-25")),
        Just(json!("2024-11-05")),
        Just(json!("2026-07-28")),
        Just(json!("")),
        value(),
    ];
    let configuration = prop_oneof![policy(), value()];
    (version, configuration, object(), "[a-z/ \\u{202e}]{0,90}").prop_map(
        |(version, configuration, mut capabilities, name)| {
            capabilities["experimental"] = json!({"configuration": configuration});
            json!({
                "protocolVersion": version, "capabilities": capabilities,
                "clientInfo": {"name": name, "version": "1"},
            })
        },
    )
}

/// The notifications to which a stateless client may subscribe.
fn filter() -> impl Strategy<Value = Value> {
    let uri = prop_oneof![
        Just("file:///r/a.txt"),
        Just("file:///r/secret/key"),
        Just("file:///r/src"),
        Just("file:///etc/passwd"),
        Just("x:y"),
    ];
    let uris = prop::collection::vec(uri, 0..100).prop_map(|uris| json!(uris));
    let fitting = (any::<bool>(), uris).prop_map(
        |(listed, uris)| json!({"resourcesListChanged": listed, "resourceSubscriptions": uris}),
    );
    prop_oneof![fitting, value()]
}

/// A request that reads at most: what it names may be changed by no answer.
fn request() -> impl Strategy<Value = (String, Value)> {
    let tool = prop_oneof![
        Just("read_file"),
        Just("list_directory"),
        Just("find"),
        Just("grep"),
        Just("stat"),
        Just("edit_file"),
        Just("delete"),
        Just("move"),
        Just("none"),
    ];
    let whole = prop_oneof![
        Just(json!({"path": "/r/a.txt", "edits": [{"old_text": "two", "new_text": "2"}]})),
        Just(json!({"path": "/r/a.txt"})),
        Just(json!({"path": "/r/src", "recursive": true})),
        Just(json!({"from": "/r/a.txt", "to": "/r/b.txt"})),
    ];
    let arguments = prop_oneof![3 => value(), 1 => whole];
    let meta = (object(), prop::option::of(policy()));
    let call = (tool, arguments, meta).prop_map(|(name, arguments, (mut meta, policy))| {
        if let Some(policy) = policy {
            meta["policy"] = policy;
        }
        // Whatever else is there, the call is a preview.
        meta["preview"] = json!(true);
        json!({"name": name, "arguments": arguments, "_meta": meta})
    });
    let method = prop_oneof![
        Just("tools/list".to_owned()),
        Just("resources/list".to_owned()),
        Just("resources/read".to_owned()),
        Just("resources/subscribe".to_owned()),
        Just("prompts/get".to_owned()),
        Just("completion/complete".to_owned()),
        Just("logging/setLevel".to_owned()),
        Just("tasks/get".to_owned()),
        Just("tasks/cancel".to_owned()),
        Just("subscriptions/listen".to_owned()),
        Just("initialize".to_owned()),
        Just("server/discover".to_owned()),
        "[a-z/_]{0,12}",
    ];
    prop_oneof![
        call.prop_map(|params| ("tools/call".to_owned(), params)),
        (method, value()).prop_map(|(method, params)| (method, params)),
    ]
}

/// A gateway that is never too fast for.
fn gateway(workspace: &Workspace) -> Gateway {
    let rate = Rate {
        calls: u32::MAX,
        per: std::time::Duration::from_secs(1),
    };
    workspace.gateway(Trust::Host).rate(rate).build()
}

/// An answer is a result or an error, contains nothing hidden, and is not an internal error.
#[track_caller]
fn check(asked: &str, answer: &Value) {
    assert!(
        answer.get("result").is_some() != answer.get("error").is_some(),
        "{asked}: {answer}"
    );
    let text = answer.to_string();
    assert!(
        !text.contains("hidden") && !text.contains("theirs"),
        "{asked}: {text}"
    );
    assert_ne!(answer["error"]["code"], -32603, "{asked}: {text}");
    assert_ne!(
        answer["result"]["structuredContent"]["code"], "INTERNAL",
        "{asked}: {text}"
    );
}

#[track_caller]
fn unchanged(workspace: &Workspace) {
    assert_eq!(workspace.read("r/a.txt"), "one\ntwo\nthree\n");
    assert_eq!(workspace.read("r/secret/key"), "hidden");
    assert_eq!(workspace.read("outside/f"), "theirs");
    assert_eq!(std::fs::read_dir(workspace.path("r")).unwrap().count(), 3);
}

#[tokio::test]
async fn random_requests_are_answered_and_change_nothing() {
    let workspace = Workspace::new();
    let mut client = Client::new(&gateway(&workspace));
    client.initialize("2025-11-25", json!({})).await;
    let mut runner = TestRunner::deterministic();
    for _ in 0..cases() {
        let (method, params) = request().new_tree(&mut runner).unwrap().current();
        let asked = format!("{method} {params}");
        check(&asked, &client.request(&method, params).await);
    }
    unchanged(&workspace);
}

#[tokio::test]
async fn response_has_its_request_id_and_invalid_ids_are_rejected() {
    let workspace = Workspace::new();
    let mut client = Client::new(&gateway(&workspace));
    client.initialize("2025-11-25", json!({})).await;
    let mut runner = TestRunner::deterministic();
    for _ in 0..cases() / 5 {
        let ((id, good), (method, params)) =
            (id(), request()).new_tree(&mut runner).unwrap().current();
        let asked = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        client.send(&asked).await;
        let answer = client.receive_response().await;
        let expected = if good { id } else { Value::Null };
        assert_eq!(answer["id"], expected, "{asked}: {answer}");
        assert_eq!(answer["id"].is_null(), !good, "{asked}");
        check(&asked.to_string(), &answer);
    }
    unchanged(&workspace);
}

#[tokio::test]
async fn random_handshakes_are_answered_and_the_next_is_served() {
    let workspace = Workspace::new();
    let gateway = gateway(&workspace);
    let mut runner = TestRunner::deterministic();
    for _ in 0..cases() / 50 {
        let params = handshake().new_tree(&mut runner).unwrap().current();
        let asked = params.to_string();
        let mut client = Client::new(&gateway);
        check(&asked, &client.request("initialize", params).await);
    }
    let mut client = Client::new(&gateway);
    let initialized = client.initialize("2025-11-25", json!({})).await;
    assert!(initialized["result"].is_object(), "{initialized}");
    unchanged(&workspace);
}

#[tokio::test]
async fn random_subscriptions_do_not_block_other_requests() {
    let workspace = Workspace::new();
    let mut client = Client::new(&gateway(&workspace));
    let mut runner = TestRunner::deterministic();
    for number in 0..cases() / 50 {
        let filter = filter().new_tree(&mut runner).unwrap().current();
        let listen = format!("listen-{number}");
        client
            .send(&json!({
                "jsonrpc": "2.0", "id": listen, "method": "subscriptions/listen",
                "params": {"notifications": filter, "_meta": {
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientCapabilities": {},
                }},
            }))
            .await;
        let listed = client
            .request_stateless("tools/list", json!({}), json!({}))
            .await;
        assert!(listed["result"]["tools"].is_array(), "{filter}: {listed}");
        client
            .send(&json!({
                "jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": listen},
            }))
            .await;
    }
    unchanged(&workspace);
}
