//! Tests of what questions and grants say.

use std::fs;

use bailiwick::worker::CallProgress;
use bailiwick::{Call, PendingCall, WorkerSpec};
use bailiwick_test_support::console::{ConsoleServer, write};
use serde_json::{Value, json};

/// Starts a call, which waits for approval.
async fn start(stage: &ConsoleServer, tool: &str, arguments: Value) -> PendingCall {
    let begun = stage.worker.begin(Call::new(tool, arguments)).await;
    let pending = match begun.unwrap() {
        CallProgress::Pending(pending) => Some(*pending),
        CallProgress::Ended(_) => None,
    };
    pending.unwrap()
}

fn dangers(question: &Value) -> Vec<(String, String)> {
    let dangers = question["bailiwick"]["dangers"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    dangers
        .map(|danger| (text(&danger["kind"]), text(&danger["text"])))
        .collect()
}

fn found(kind: &str, text: &str) -> (String, String) {
    (kind.to_owned(), text.to_owned())
}

#[tokio::test]
async fn recursive_delete_says_what_goes() {
    let stage = ConsoleServer::new().await;
    let old = stage.temp.path().join("tree/old");
    fs::create_dir(&old).unwrap();
    for n in 0..12 {
        fs::write(old.join(format!("f{n}")), "x").unwrap();
    }
    let pending = start(
        &stage,
        "delete",
        json!({ "path": "/repo/old", "recursive": true }),
    )
    .await;
    let question = &stage.state().await["questions"][0];
    let own = &question["bailiwick"];
    let sentence = "Delete the folder old/ and the 12 files in it (12 bytes)";
    assert_eq!(own["sentence"], sentence);
    assert_eq!(
        dangers(question),
        [
            found(
                "delete",
                "Deletes the folder old/ and the 12 files in it (12 bytes)"
            ),
            found("recursive", "Deletes everything in old/"),
        ]
    );
    let first = json!({ "path": "/repo/old/f0", "op": "delete", "bytes": 1 });
    assert_eq!(own["files"][0], first);
    assert_eq!(
        (&own["files_total"], &own["bytes_total"]),
        (&json!(12), &json!(12))
    );
    assert!(pending.question().request.summary().starts_with(sentence));
}

#[tokio::test]
async fn dangers_name_protected_secret_and_replaced_files_and_hidden_characters() {
    let stage = ConsoleServer::new().await;
    for name in ["a.txt", "b.txt"] {
        fs::write(stage.temp.path().join("tree").join(name), "one\n").unwrap();
    }
    let harmless = stage.start_write("new.txt", "x\n").await;
    assert_eq!(question_of(&stage, harmless).await.1, []);
    let replace = json!({ "path": "/repo/a.txt", "content": "two\u{202e}\n", "mode": "overwrite" });
    let replacing = start(&stage, "write_file", replace).await;
    let hidden =
        "The new text of a.txt contains invisible characters that can hide what it really says";
    let expected = [
        found("overwrite", "Replaces everything in a.txt"),
        found("hidden_characters", hidden),
    ];
    let (sentence, dangers) = question_of(&stage, replacing).await;
    assert_eq!(
        (sentence.as_str(), dangers),
        ("Replace a.txt", expected.to_vec())
    );
    let over = json!({ "from": "/repo/a.txt", "to": "/repo/b.txt", "overwrite": true });
    let moving = start(&stage, "move", over).await;
    let asked = &stage.state().await["questions"][0]["bailiwick"]["preview"]["files"];
    assert_eq!(asked, 1, "a move and what it replaces are one change");
    let (sentence, dangers) = question_of(&stage, moving).await;
    let lost = "Replaces the old content of b.txt";
    let expected = found("move_over", lost);
    assert_eq!(
        (sentence.as_str(), dangers),
        (
            "Move a.txt to b.txt and replace the file that is there",
            vec![expected]
        )
    );
    let protected = stage.start_write(".mcp.json", "{}").await;
    let (kind, text) = question_of(&stage, protected).await.1.pop().unwrap();
    assert_eq!(kind, "protected");
    assert!(
        text.starts_with(".mcp.json is sensitive: AI agents follow it"),
        "{text}"
    );
    let secret = stage.start_write(".env", "KEY=1\n").await;
    let expected = found("secret", ".env looks like a secret");
    assert_eq!(question_of(&stage, secret).await.1, [expected]);
}

/// The sentence and dangers of a question, which is then denied.
async fn question_of(
    stage: &ConsoleServer,
    pending: PendingCall,
) -> (String, Vec<(String, String)>) {
    let question = stage.state().await["questions"][0].clone();
    assert_eq!(question["tool_call"]["id"], pending.question().handle());
    stage.answer(&pending, json!({ "deny": {} })).await;
    pending.resume().await.unwrap_err();
    let sentence = question["bailiwick"]["sentence"]
        .as_str()
        .unwrap()
        .to_owned();
    (sentence, dangers(&question))
}

#[tokio::test]
async fn grants_name_agent_lifetime_and_time() {
    let stage = ConsoleServer::new().await;
    let child = stage.worker.spawn(WorkerSpec::new("tests")).await.unwrap();
    let pending = match child.begin(write("a.txt", "x\n")).await.unwrap() {
        CallProgress::Pending(pending) => *pending,
        CallProgress::Ended(outcome) => panic!("{outcome:?}"),
    };
    let asked = stage.state().await["questions"][0]["bailiwick"].clone();
    let run = asked["run"].as_str().unwrap();
    assert_eq!(asked["worker"], format!("{run}-{}", child.id().0));
    let before = asked["asked_at"].as_u64().unwrap();
    let session = json!({ "allow": { "lifetime": "session" } });
    assert_eq!(stage.answer(&pending, session).await.status, 200);
    for lifetime in [
        json!("agent"),
        json!({ "uses": 3 }),
        json!({ "for_ms": 60_000 }),
    ] {
        let body = json!({
            "run": run, "pattern": "read:file:/repo", "holder": { "agent": "main" }, "lifetime": lifetime,
        });
        assert_eq!(stage.post("/api/grant", &body).await.status, 200);
    }
    let state = stage.state().await;
    let grants = state["grants"].as_array().unwrap().iter();
    let shown: Vec<(&str, &str)> = grants
        .map(|grant| {
            assert!(grant["given_at"].as_u64().unwrap() >= before, "{grant}");
            (
                grant["agent"].as_str().unwrap(),
                grant["lifetime"].as_str().unwrap(),
            )
        })
        .collect();
    let expected = [
        ("main/tests", "until the agent or its session ends"),
        // The test server has no grant store.
        ("main", "until you revoke it or the server stops"),
        ("main", "3 uses left"),
        ("main", "for a limited time"),
    ];
    assert_eq!(shown, expected);
}

#[tokio::test]
async fn unknown_agent_is_rejected_unless_it_is_a_future_one() {
    let stage = ConsoleServer::new().await;
    let run = stage.state().await["sources"][0]["run"].clone();
    let mut grant = json!({
        "run": run, "pattern": "write:file:/repo", "holder": { "agent": "mian" }, "lifetime": "agent",
    });
    let mut template = json!({
        "run": run, "template": "reviewer", "roots": ["/repo"], "holder": { "agent": "mian" }, "lifetime": "agent",
    });
    for (path, body) in [
        ("/api/grant", &mut grant),
        ("/api/grant-template", &mut template),
    ] {
        let refused = stage.post(path, body).await;
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (422, "UNKNOWN_AGENT"),
            "{path}"
        );
        body["holder"] = json!({ "agent": "main" });
        assert_eq!(stage.post(path, body).await.status, 200, "{path}");
    }
    grant["holder"] = json!({ "agent": "later" });
    grant["future_agent"] = json!(true);
    assert_eq!(stage.post("/api/grant", &grant).await.status, 200);
    // It holds a grant now, so it is known.
    grant["future_agent"] = json!(false);
    assert_eq!(stage.post("/api/grant", &grant).await.status, 200);
}
