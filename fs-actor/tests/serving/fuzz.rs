//! Requests that nobody meant in, an answer to each and nothing changed out.

use bailiwick::{Rate, Trust};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::support::{Client, World};

/// How many requests are sent: `BAILIWICK_CASES`, or 5,000.
fn cases() -> usize {
    let asked = std::env::var("BAILIWICK_CASES").ok();
    asked.map_or(5_000, |cases| cases.parse().unwrap())
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
    let call = (tool, arguments, object()).prop_map(|(name, arguments, mut meta)| {
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

#[tokio::test]
async fn whatever_is_asked_is_answered_and_nothing_is_changed() {
    let world = World::new();
    let rate = Rate {
        calls: u32::MAX,
        per: std::time::Duration::from_secs(1),
    };
    let gateway = world.gateway(Trust::Host).rate(rate).build();
    let mut client = Client::of(&gateway);
    client.greet("2025-11-25", json!({})).await;
    let mut runner = TestRunner::deterministic();
    for _ in 0..cases() {
        let (method, params) = request().new_tree(&mut runner).unwrap().current();
        let asked = format!("{method} {params}");
        let answer = client.ask(&method, params).await;
        assert!(
            answer.get("result").is_some() != answer.get("error").is_some(),
            "{asked}: {answer}"
        );
        let told = answer.to_string();
        assert!(
            !told.contains("hidden") && !told.contains("theirs"),
            "{asked}: {told}"
        );
        assert_ne!(answer["error"]["code"], -32603, "{asked}: {told}");
        assert_ne!(
            answer["result"]["structuredContent"]["code"], "INTERNAL",
            "{asked}: {told}"
        );
    }
    assert_eq!(world.text("r/a.txt"), "one\ntwo\nthree\n");
    assert_eq!(world.text("r/secret/key"), "hidden");
    assert_eq!(world.text("outside/f"), "theirs");
    assert_eq!(std::fs::read_dir(world.host("r")).unwrap().count(), 3);
}
