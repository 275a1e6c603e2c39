//! Tests of the console API.

use bailiwick::permission::Chosen;
use bailiwick::worker::CallProgress;
use bailiwick::{Call, Code};
use bailiwick_test_support::console::{ConsoleServer, until, write};
use serde_json::{Value, json};
use std::fs;

fn once() -> Value {
    json!({ "allow": { "lifetime": "once" } })
}

#[tokio::test]
async fn question_is_complete_and_can_be_answered_once() {
    let stage = ConsoleServer::new().await;
    let pending = stage.start_write("a.txt", "one\n").await;
    let state = stage.state().await;
    let shown = &state["questions"][0];
    assert_eq!(shown["type"], "tool_call_permission");
    assert_eq!(shown["tool_call"]["id"], pending.question().handle());
    assert!(
        shown["tool_call"]["params"]
            .as_str()
            .unwrap()
            .contains("one\\n")
    );
    let own = &shown["bailiwick"];
    assert_eq!(own["agent"], json!(["main"]));
    assert_eq!(own["needs"], json!(["write:file:/repo/a.txt"]));
    let because = "ask: agent/0: a person must be asked (ask_scopes: `write:file`)";
    assert_eq!(own["asked_because"], json!([because]));
    assert_eq!(own["choices"][0]["covers"], "create or change /repo/a.txt");
    let grants = &own["choices"][0]["grants"];
    let exact = json!({ "pattern": "write:file:/repo/a.txt", "reach": "exact", "operations": ["create", "change"] });
    assert_eq!(*grants, json!([exact]));
    assert_eq!(own["waiting"], 1);
    assert_eq!(
        own["preview"],
        json!({ "files": 1, "added": 1, "removed": 0 })
    );
    assert_eq!(own["stores_grants"], false);
    assert!(own["expires_at"].as_u64() > shown["timestamp"].as_u64());
    let review = stage
        .get(&format!("/api/review/{}", pending.question().handle()))
        .await
        .json();
    assert_eq!(review["changes"][0]["path"], "/repo/a.txt");
    assert_eq!(
        review["changes"][0]["hunks"][0]["lines"][0]["text"],
        "one\n"
    );

    let reply = stage.answer(&pending, once()).await;
    assert_eq!(
        (reply.status, &reply.json()["status"]),
        (200, &json!("granted"))
    );
    let again = stage.answer(&pending, json!({ "deny": {} })).await;
    assert_eq!(again.json()["status"], "granted");
    assert!(matches!(pending.resume().await, Ok(CallProgress::Ended(_))));
    assert_eq!(stage.on_disk("a.txt").as_deref(), Some("one\n"));
    let state = stage.state().await;
    assert_eq!(state["questions"], json!([]));
}

#[tokio::test]
async fn state_is_small_and_long_arguments_are_loaded_separately() {
    let stage = ConsoleServer::new().await;
    let content = "x\u{e9}".repeat(1 << 20);
    let mut pending = vec![stage.start_write("small.txt", "one\n").await];
    for name in ["a.txt", "b.txt"] {
        pending.push(stage.start_write(name, &content).await);
    }
    let reply = stage.get("/api/state").await;
    assert!(reply.body.len() < 32 << 10, "{}", reply.body.len());
    let state = reply.json();
    let [small, long, _] = state["questions"].as_array().unwrap().as_slice() else {
        panic!("{state}");
    };
    assert_eq!(small["bailiwick"]["arguments_bytes"], Value::Null);
    assert!(
        small["tool_call"]["params"]
            .as_str()
            .unwrap()
            .ends_with('}')
    );
    let shown = long["tool_call"]["params"].as_str().unwrap();
    assert!(shown.len() <= 4096, "{}", shown.len());
    let path = format!("/api/arguments/{}", pending[1].question().handle());
    let all = stage.get(&path).await.json();
    let all = all["arguments"].as_str().unwrap();
    assert_eq!(long["bailiwick"]["arguments_bytes"], all.len());
    assert!(all.starts_with(shown) && all.contains(&content));
    let none = stage.get("/api/arguments/0-1").await;
    assert_eq!((none.status, none.code().as_str()), (404, "NO_QUESTION"));
}

#[tokio::test]
async fn answer_requires_the_same_session_and_scope() {
    let stage = ConsoleServer::new().await;
    let pending = stage.start_write("a.txt", "one\n").await;
    let question = pending.question().handle();
    let other = json!({ "question": question, "session": "other", "answer": once() });
    assert_eq!(
        stage.post("/api/answer", &other).await.code(),
        "NO_QUESTION"
    );
    let wider = json!({ "allow": { "lifetime": "once", "patterns": ["write:file:/elsewhere"] } });
    assert_eq!(stage.answer(&pending, wider).await.code(), "DOES_NOT_FIT");
    let gone = json!({ "question": "00000000000000ff-1", "session": "talk", "answer": once() });
    assert_eq!(
        stage.post("/api/answer", &gone).await.json()["status"],
        "expired"
    );
    let note = json!({ "deny": { "note": "not there" } });
    assert_eq!(
        stage.answer(&pending, note).await.json()["status"],
        "denied"
    );
    let refused = pending.resume().await.unwrap_err();
    assert!(refused.message().contains("not there"), "{refused:?}");
    assert_eq!(stage.on_disk("a.txt"), None);
}

#[tokio::test]
async fn session_denial_applies_until_it_is_removed() {
    let stage = ConsoleServer::new().await;
    let pending = stage.start_write("a.txt", "one\n").await;
    let never = json!({ "deny": { "rest_of_session": true } });
    stage.answer(&pending, never).await;
    assert_eq!(
        pending.resume().await.unwrap_err().code(),
        Code::PermissionDenied
    );
    let again = stage
        .worker
        .submit(write("a.txt", "two\n"))
        .await
        .unwrap_err();
    assert!(again.message().contains("rest of the session"), "{again:?}");
    let other = stage.start_write("b.txt", "two\n").await;
    assert_eq!(stage.answer(&other, once()).await.status, 200);
    let state = stage.state().await;
    let refusal = &state["refusals"][0];
    assert_eq!(refusal["refused"], "create or change /repo/a.txt");
    let lift = json!({ "run": refusal["run"], "refusal": refusal["refusal"] });
    assert_eq!(stage.post("/api/ask-again", &lift).await.status, 200);
    assert_eq!(
        stage.post("/api/ask-again", &lift).await.code(),
        "NO_REFUSAL"
    );
    let asked = stage.start_write("a.txt", "three\n").await;
    assert_eq!(
        stage.state().await["questions"].as_array().unwrap().len(),
        1
    );
    drop(asked);
}

#[tokio::test]
async fn session_denials_are_listed_and_can_be_removed() {
    let stage = ConsoleServer::new().await;
    let pending = stage.start_write("a.txt", "one\n").await;
    // The option of a client, such as an editor.
    let Some(Chosen::Answer(answer)) = pending.question().chosen("reject-session") else {
        panic!("no answer");
    };
    let id = pending.question().id;
    stage.people.answer(id, answer).await.unwrap();
    assert_eq!(
        pending.resume().await.unwrap_err().code(),
        Code::PermissionDenied
    );
    let refused = stage.worker.submit(write("b.txt", "two\n")).await;
    assert!(refused.unwrap_err().message().contains("write:file"));
    let state = stage.state().await;
    let refusal = &state["refusals"][0];
    assert_eq!(
        [&refusal["agent"], &refusal["session"], &refusal["refused"]],
        ["main", "talk", "create, change, delete or move any file"]
    );
    let lift = json!({ "run": refusal["run"], "refusal": refusal["refusal"] });
    assert_eq!(stage.post("/api/ask-again", &lift).await.status, 200);
    assert_eq!(stage.people.silenced().await.unwrap(), []);
    drop(stage.start_write("b.txt", "two\n").await);
}

#[tokio::test]
async fn batch_answers_each_question_separately() {
    let stage = ConsoleServer::new().await;
    let (a, b) = (
        stage.start_write("a.txt", "a\n").await,
        stage.start_write("b.txt", "b\n").await,
    );
    let state = stage.state().await;
    assert_eq!(state.get("batches"), None);
    let names = [a.question().handle(), b.question().handle()];
    let protected = stage.start_write(".mcp.json", "{}").await;
    let guarded = protected.question().handle();
    let answer_to = |question: &String, answer: Value| json!({ "question": question, "session": "talk", "answer": answer });
    let wide = json!({ "allow": { "lifetime": "once", "patterns": ["write:file:/repo/b.txt"] } });
    let long = json!({ "allow": { "lifetime": "session" } });
    let answers = [
        answer_to(&names[0], once()),
        answer_to(&names[1], wide),
        answer_to(&names[1], long),
        answer_to(&guarded, once()),
    ];
    let body = json!({ "answers": answers });
    let reply = stage.post("/api/answer-batch", &body).await.json();
    assert_eq!(reply["answers"][0]["status"], "granted");
    assert_eq!(reply["answers"][1]["code"], "DOES_NOT_FIT");
    assert_eq!(reply["answers"][2]["code"], "DOES_NOT_FIT");
    assert_eq!(reply["answers"][3]["code"], "NOT_TOGETHER");
    assert!(matches!(a.resume().await, Ok(CallProgress::Ended(_))));
    let state = stage.state().await;
    let open = state["questions"].as_array().unwrap().iter();
    let batchable = open.map(|question| question["bailiwick"]["batchable"].clone());
    assert_eq!(batchable.collect::<Vec<_>>(), [true, false]);
    // Every question can be denied together with others.
    let denials = [&names[1], &guarded].map(|name| answer_to(name, json!({ "deny": {} })));
    let reply = stage
        .post("/api/answer-batch", &json!({ "answers": denials }))
        .await
        .json();
    assert_eq!(reply["answers"][0]["status"], "denied");
    assert_eq!(reply["answers"][1]["status"], "denied");
    b.resume().await.unwrap_err();
    protected.resume().await.unwrap_err();
}

#[tokio::test]
async fn grants_are_added_narrowed_and_revoked() {
    let stage = ConsoleServer::new().await;
    let run = stage.state().await["sources"][0]["run"].clone();
    let give = |pattern: &str| json!({ "run": run, "pattern": pattern, "holder": { "agent": "main" }, "lifetime": "agent" });
    let given = stage
        .post("/api/grant", &give("write:file:/repo"))
        .await
        .json();
    let name = given["grants"][0].as_str().unwrap().to_owned();
    assert!(matches!(
        stage.worker.begin(write("a.txt", "a\n")).await,
        Ok(CallProgress::Ended(_))
    ));
    until(&stage.people, async || {
        stage.state().await["grants"][0]["used_at"].is_u64()
    })
    .await;
    let wider = json!({ "grant": name, "pattern": "write" });
    assert_eq!(stage.post("/api/narrow", &wider).await.code(), "WIDER");
    let less = json!({ "grant": name, "pattern": "write:file:/repo/docs", "for_ms": 60_000 });
    assert_eq!(stage.post("/api/narrow", &less).await.status, 200);
    let state = stage.state().await;
    assert_eq!(state["grants"][0]["pattern"], "write:file:/repo/docs");
    assert!(state["grants"][0]["expires_at"].is_u64());
    drop(stage.start_write("a.txt", "b\n").await);
    let several = json!({ "grants": [name, name] });
    let reply = stage.post("/api/revoke", &several).await.json();
    assert_eq!(reply["grants"][0]["revoked"], 1);
    assert_eq!(reply["grants"][1]["code"], "NO_GRANT");
    stage.post("/api/grant", &give("write:file:/repo/x")).await;
    stage.post("/api/grant", &give("read:file:/repo/x")).await;
    let swept = stage
        .post("/api/revoke-where", &json!({ "verb": "write" }))
        .await
        .json();
    assert_eq!(swept["revoked"], 1);
    assert_eq!(stage.state().await["grants"].as_array().unwrap().len(), 1);
}

/// The sentence before a rule is given is the one that the rule has afterwards.
#[tokio::test]
async fn rule_is_described_before_it_is_given_as_it_is_afterwards() {
    let stage = ConsoleServer::new().await;
    let run = stage.state().await["sources"][0]["run"].clone();
    for (pattern, reach, operations, covers) in [
        (
            "write:file:/repo/docs",
            "beneath",
            json!(["create", "change"]),
            "create or change /repo/docs and everything in it; sensitive files still ask",
        ),
        (
            "read:file:/repo/a.txt",
            "exact",
            json!(["read"]),
            "read /repo/a.txt",
        ),
    ] {
        let rule = json!({
            "run": run, "pattern": pattern, "reach": reach, "operations": operations,
            "holder": { "agent": "main" }, "lifetime": "agent",
        });
        let told = stage.post("/api/would-allow", &rule).await.json();
        assert_eq!(told["covers"], covers);
        assert_eq!(stage.post("/api/grant", &rule).await.status, 200);
        let grants = stage.state().await["grants"].clone();
        let given = grants.as_array().unwrap().iter();
        let given: Vec<&Value> = given.filter(|one| one["pattern"] == pattern).collect();
        assert_eq!(given.len(), 1);
        assert_eq!(given[0]["covers"], covers);
    }
}

#[tokio::test]
async fn question_is_described_again_without_what_a_person_excludes() {
    let stage = ConsoleServer::new().await;
    fs::create_dir(stage.temp.path().join("tree/old")).unwrap();
    for name in ["a.txt", "old/b.txt"] {
        fs::write(stage.temp.path().join("tree").join(name), "one\n").unwrap();
    }
    let operations = json!([
        { "tool": "edit_file", "path": "/repo/a.txt", "edits": [{ "old_text": "one", "new_text": "two" }] },
        { "tool": "make_directory", "path": "/repo/new" },
        { "tool": "write_file", "path": "/repo/new/c.txt", "content": "c\n" },
        { "tool": "delete", "path": "/repo/old", "recursive": true },
    ]);
    let call = Call::new("apply_batch", json!({ "operations": operations }));
    let CallProgress::Pending(pending) = stage.worker.begin(call).await.unwrap() else {
        panic!("nobody was asked");
    };
    let own = stage.state().await["questions"][0]["bailiwick"].clone();
    let remaining = async |paths: &[&str]| {
        let paths = paths.iter().map(|path| json!({ "path": path }));
        let left_out: Value = paths.collect();
        let body = json!({ "question": pending.question().handle(), "left_out": left_out });
        stage.post("/api/remaining", &body).await
    };
    let all = remaining(&[]).await.json();
    for member in ["sentence", "dangers", "undo"] {
        assert_eq!(all[member], own[member]);
    }
    assert_eq!(all["dangers"][0]["level"], "severe");
    let kept = remaining(&["/repo/old"]).await.json();
    let sentence = "Create new/c.txt; change a.txt in a new folder";
    assert_eq!(kept["sentence"], sentence);
    let levels = kept["dangers"].as_array().unwrap().iter();
    assert!(levels.map(|danger| &danger["level"]).eq(["caution"]));
    let deleted = remaining(&["/repo/a.txt"]).await.json();
    assert_eq!(deleted["dangers"][0], all["dangers"][0]);
    let dependent = remaining(&["/repo/new"]).await;
    assert_eq!(
        (dependent.status, dependent.code()),
        (422, "DOES_NOT_FIT".to_owned())
    );
    // What was done is described by the same words.
    let left_out = json!([{ "path": "/repo/old" }]);
    let answer = json!({ "allow": { "lifetime": "once", "left_out": left_out } });
    assert_eq!(stage.answer(&pending, answer).await.status, 200);
    assert!(matches!(pending.resume().await, Ok(CallProgress::Ended(_))));
    assert_eq!(stage.on_disk("old/b.txt").as_deref(), Some("one\n"));
    assert_eq!(stage.on_disk("a.txt").as_deref(), Some("two\n"));
    assert_eq!(stage.state().await["outcomes"][0]["sentence"], sentence);
    let calls = stage.post("/api/activity", &json!({})).await.json();
    assert_eq!(calls["calls"][0]["sentence"], sentence);
}

#[tokio::test]
async fn template_is_previewed_before_it_is_applied() {
    let stage = ConsoleServer::new().await;
    let state = stage.state().await;
    let source = &state["sources"][0];
    assert_eq!(source["roots"], json!(["/repo"]));
    let mut body = json!({ "run": source["run"], "template": "reviewer", "roots": ["/repo"] });
    let rules = stage.post("/api/template-rules", &body).await.json()["rules"].clone();
    let writes = "create, change, delete or move /repo/reviews and everything in it; sensitive files still ask";
    assert_eq!(
        rules,
        json!([
            { "pattern": "read:file:/repo", "covers": "read /repo and everything in it" },
            { "pattern": "write:file:/repo/reviews", "covers": writes },
        ])
    );
    assert_eq!(stage.state().await["grants"], json!([]));
    body["holder"] = json!({ "agent": "main" });
    body["lifetime"] = json!({ "uses": 2 });
    let applied = stage.post("/api/grant-template", &body).await.json();
    assert_eq!(applied["grants"].as_array().unwrap().len(), 2);
    body["template"] = "nobody".into();
    assert_eq!(
        stage.post("/api/grant-template", &body).await.code(),
        "NO_TEMPLATE"
    );
    body["template"] = "reviewer".into();
    body["roots"] = json!([]);
    assert_eq!(
        stage.post("/api/grant-template", &body).await.code(),
        "TEMPLATE"
    );
}

#[tokio::test]
async fn history_has_decisions_and_the_verification_state() {
    let stage = ConsoleServer::new().await;
    let yes = stage.start_write("a.txt", "a\n").await;
    stage.answer(&yes, once()).await;
    yes.resume().await.unwrap();
    let no = stage.start_write("b.txt", "b\n").await;
    stage.answer(&no, json!({ "deny": {} })).await;
    no.resume().await.unwrap_err();
    stage.runtime.flush_audit().await.unwrap();
    let all = stage.post("/api/history", &json!({})).await.json();
    assert_eq!(all["chain"]["state"], "verified");
    assert_eq!(
        (&all["total"], &all["tally"]["granted"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(all["entries"][0]["decision"], "denied");
    assert_eq!(all["agents"], json!(["main"]));
    let denied = stage
        .post("/api/history", &json!({ "decision": "denied" }))
        .await
        .json();
    assert_eq!(denied["total"], 1);
    assert_eq!(all["sessions"], json!(["talk"]));
    for (session, total) in [("talk", 2), ("another", 0)] {
        let wanted = json!({ "session": session });
        let found = stage.post("/api/history", &wanted).await.json();
        assert_eq!(found["total"], total, "{session}");
    }
    let export = stage.post("/api/history/export", &json!({})).await;
    let disposition = export.header("content-disposition").unwrap();
    assert!(disposition.starts_with("attachment"), "{disposition}");
    assert_eq!(export.body.lines().count(), 2);
    for line in export.body.lines() {
        serde_json::from_str::<Value>(line).unwrap();
    }
    let file = stage.temp.path().join("audit");
    let mut lines: Vec<String> = fs::read_to_string(&file)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    lines[2] = lines[2].replace("main", "niam");
    fs::write(&file, lines.join("\n") + "\n").unwrap();
    let broken = stage.post("/api/history", &json!({})).await.json();
    assert_eq!(
        (&broken["chain"]["state"], &broken["chain"]["record"]),
        (&json!("broken"), &json!(3))
    );
}

#[tokio::test]
async fn rule_is_suggested_once_after_three_similar_questions() {
    let stage = ConsoleServer::new().await;
    fs::create_dir(stage.temp.path().join("tree/notes")).unwrap();
    let pending = stage.start_write("first.md", "x\n").await;
    let worker = stage.state().await["questions"][0]["bailiwick"]["worker"].clone();
    drop(pending);
    let ask = json!({
        "run": stage.state().await["sources"][0]["run"], "agent": "main", "session": "talk",
        "worker": worker,
    });
    for n in 0..3 {
        stage.runtime.flush_audit().await.unwrap();
        assert_eq!(
            stage.post("/api/suggestions", &ask).await.json()["suggestion"],
            Value::Null
        );
        let pending = stage.start_write(&format!("notes/{n}.md"), "x\n").await;
        stage.answer(&pending, once()).await;
        pending.resume().await.unwrap();
    }
    stage.runtime.flush_audit().await.unwrap();
    let first = stage.post("/api/suggestions", &ask).await.json()["suggestion"].clone();
    assert_eq!(first["pattern"], "write:file:/repo/notes");
    let covers = "create or change /repo/notes and everything in it; sensitive files still ask";
    assert_eq!(first["covers"], covers);
    assert_eq!(
        (&first["lifetime"], &first["spares"]),
        (&json!("session"), &json!(3))
    );
    assert_eq!(
        stage.post("/api/suggestions", &ask).await.json()["suggestion"],
        Value::Null
    );
    let give = json!({
        "run": first["run"], "pattern": first["pattern"], "reach": first["reach"],
        "operations": first["operations"], "holder": first["holder"], "lifetime": first["lifetime"],
    });
    assert_eq!(stage.post("/api/grant", &give).await.status, 200);
    let spared = stage.worker.begin(write("notes/4.md", "x\n")).await;
    assert!(matches!(spared, Ok(CallProgress::Ended(_))));
}

#[tokio::test]
async fn page_request_waits_for_changes() {
    let stage = ConsoleServer::new().await;
    let version = stage.state().await["version"].as_u64().unwrap();
    let path = format!("/api/events/{version}");
    let (reply, pending) = tokio::join!(stage.get(&path), stage.start_write("a.txt", "a\n"));
    assert_ne!(reply.json()["version"], version);
    drop(pending);
}

#[tokio::test]
async fn stopped_runtime_is_removed_from_the_console() {
    let stage = ConsoleServer::new().await;
    let state = stage.state().await;
    assert_eq!(state["sources"].as_array().unwrap().len(), 1);
    let (stage, console) = stage.without_runtime().await;
    let mut seen = state["version"].clone();
    while stage.state().await["sources"] != json!([]) {
        let path = format!("/api/events/{seen}");
        seen = stage.get(&path).await.json()["version"].clone();
    }
    assert_eq!(
        stage
            .post("/api/revoke-where", &json!({ "all": true }))
            .await
            .status,
        200
    );
    console.shutdown().await;
}
