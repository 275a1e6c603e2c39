//! Tests of agents, calls, pauses and outcomes in the console API.

use bailiwick::activity::KeepCalls;
use bailiwick::permission::{AskLimits, GrantHolder, Lifetime, NewGrant};
use bailiwick::worker::CallProgress;
use bailiwick::{Answer, Deferred, Policy, Runtime, Worker, WorkerSpec};
use bailiwick_console::{Console, ConsoleSource};
use bailiwick_test_support::console::{ConsoleServer, Page, write};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

fn once() -> Value {
    json!({ "allow": { "lifetime": "once" } })
}

/// The calls that match a query, the newest first.
async fn calls(page: &Page, query: Value) -> Vec<Value> {
    let reply = page.post("/api/activity", &query).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["calls"].as_array().unwrap().clone()
}

/// The members `key` of the calls that match a query.
async fn shown(page: &Page, query: Value, key: &str) -> Vec<Value> {
    let calls = calls(page, query).await;
    calls.iter().map(|call| call[key].clone()).collect()
}

/// A worker that may do everything.
async fn open(stage: &ConsoleServer, name: &str) -> Worker {
    let spec = WorkerSpec::new(name).policy(Policy::new()).session("free");
    stage.runtime.spawn(spec).await.unwrap()
}

/// The name of a worker in the API.
fn name(state: &Value, agent: &str) -> String {
    let agents = state["agents"].as_array().unwrap();
    let found = agents.iter().find(|one| one["agent"] == agent).unwrap();
    found["worker"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn state_lists_live_agents_with_their_parents_calls_and_questions() {
    let stage = ConsoleServer::new().await;
    let spec = WorkerSpec::new("tests").policy(Policy::inherit());
    let child = stage.worker.spawn(spec).await.unwrap();
    let pending = stage.start_write("a.txt", "one\n").await;
    let state = stage.state().await;
    let [main, tests] = state["agents"].as_array().unwrap().as_slice() else {
        panic!("{state}");
    };
    let run = state["sources"][0]["run"].as_str().unwrap();
    assert_eq!(main["worker"], format!("{run}-{}", 0));
    assert_eq!(
        (&main["agent"], &main["parent"]),
        (&json!("main"), &Value::Null)
    );
    assert_eq!((&main["calls"], &main["questions"]), (&json!(1), &json!(1)));
    assert_eq!(
        (&main["access"], &main["paused"]),
        (&json!("interact"), &json!(false))
    );
    assert_eq!(
        (&tests["name"], &tests["agent"]),
        (&json!("tests"), &json!("main/tests"))
    );
    assert_eq!(
        (&tests["parent"], &tests["session"]),
        (&main["worker"], &json!("talk"))
    );
    assert!(main["started_at"].as_u64().unwrap() <= state["now"].as_u64().unwrap());
    assert_eq!(state["sources"][0]["activity"], true);
    stage.answer(&pending, once()).await;
    pending.resume().await.unwrap();
    assert_eq!(stage.state().await["agents"][0]["changed"], 1);
    child.revoke().await;
    let state = stage.state().await;
    assert_eq!(state["agents"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn source_without_a_runtime_has_no_agents_and_says_so() {
    let (_runtime, people) = Runtime::builder().build().await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let console = Console::serve(listener).unwrap();
    console.add_source(ConsoleSource::new(people));
    let page = Page::at(console.url());
    let state = page.state().await;
    assert_eq!(state["sources"][0]["activity"], false);
    assert_eq!(
        (&state["agents"], &state["outcomes"]),
        (&json!([]), &json!([]))
    );
    assert_eq!(calls(&page, json!({})).await, Vec::<Value>::new());
}

#[tokio::test]
async fn console_does_not_keep_the_runtime_alive() {
    let (runtime, people) = Runtime::builder().build().await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let console = Console::serve(listener).unwrap();
    console.add_source(ConsoleSource::new(people).runtime(&runtime));
    let page = Page::at(console.url());
    let mut version = page.state().await["version"].clone();
    drop(runtime);
    while page.state().await["sources"] != json!([]) {
        let path = format!("/api/events/{version}");
        version = page.get(&path).await.json()["version"].clone();
    }
}

#[tokio::test]
async fn outcome_says_what_became_of_an_allowed_call() {
    let stage = ConsoleServer::new().await;
    let first = stage.start_write("a.txt", "one\n").await;
    let stale = stage.start_write("b.txt", "one\n").await;
    let denied = stage.start_write("c.txt", "one\n").await;
    stage.answer(&first, once()).await;
    first.resume().await.unwrap();
    std::fs::write(stage.temp.path().join("tree/b.txt"), "other\n").unwrap();
    stage.answer(&stale, once()).await;
    stale.resume().await.unwrap_err();
    stage.answer(&denied, json!({ "deny": {} })).await;
    denied.resume().await.unwrap_err();
    let state = stage.state().await;
    let [denied, stale, first] = state["outcomes"].as_array().unwrap().as_slice() else {
        panic!("{state}");
    };
    assert_eq!(
        (&first["status"], &first["by"]),
        (&json!("granted"), &json!("you"))
    );
    let applied = json!({ "state": "applied", "code": null, "message": null, "files": 1 });
    assert_eq!(first["result"], applied);
    assert!(
        first["sentence"].as_str().unwrap().contains("a.txt"),
        "{first}"
    );
    assert_eq!(
        (&first["agent"], &first["worker"]),
        (&json!("main"), &state["agents"][0]["worker"])
    );
    let result = &stale["result"];
    assert_eq!(
        (&result["state"], &result["code"]),
        (&json!("stale"), &json!("STALE_PREVIEW"))
    );
    assert_eq!(result["files"], 0);
    assert_eq!(
        (&denied["status"], &denied["result"]),
        (&json!("denied"), &Value::Null)
    );
    let details = stage
        .get(&format!("/api/call/{}", first["call"].as_str().unwrap()))
        .await
        .json();
    assert_eq!(details["changes"][0]["path"], "/repo/a.txt");
    assert_eq!(
        details["changes"][0]["hunks"][0]["lines"][0]["text"],
        "one\n"
    );
    let allowed =
        json!([{ "kind": "person", "text": "allowed once", "grant": null, "expires_at": null }]);
    assert_eq!(details["row"]["allowed_by"], allowed);
}

#[tokio::test]
async fn outcome_names_who_ended_the_question() {
    let stage = ConsoleServer::new().await;
    let elsewhere = stage.start_write("a.txt", "one\n").await;
    stage
        .people
        .answer(elsewhere.question().id, Answer::DENY)
        .await
        .unwrap();
    elsewhere.resume().await.unwrap_err();
    let cancelled = stage.start_write("b.txt", "one\n").await;
    let mut events = stage.runtime.events();
    drop(cancelled);
    while !matches!(
        events.recv().await.unwrap().kind,
        bailiwick::monitor::EventKind::QuestionAnswered { .. }
    ) {}
    let state = stage.state().await;
    let by: Vec<_> = state["outcomes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["by"])
        .collect();
    assert_eq!(
        by,
        ["the agent's client", "another page, terminal or client"]
    );
}

#[tokio::test]
async fn activity_says_who_or_what_ended_each_call() {
    let stage = ConsoleServer::new().await;
    let done = stage.start_write("done.txt", "one\n").await;
    stage.answer(&done, once()).await;
    done.resume().await.unwrap();
    let denied = stage.start_write("denied.txt", "one\n").await;
    stage.answer(&denied, json!({ "deny": {} })).await;
    denied.resume().await.unwrap_err();
    let elsewhere = stage.start_write("elsewhere.txt", "one\n").await;
    let question = elsewhere.question().id;
    stage.people.answer(question, Answer::DENY).await.unwrap();
    elsewhere.resume().await.unwrap_err();
    let stale = stage.start_write("stale.txt", "one\n").await;
    std::fs::write(stage.temp.path().join("tree/stale.txt"), "other\n").unwrap();
    stage.answer(&stale, once()).await;
    stale.resume().await.unwrap_err();
    let mut events = stage.runtime.events();
    drop(stage.start_write("cancelled.txt", "one\n").await);
    while !matches!(
        events.recv().await.unwrap().kind,
        bailiwick::monitor::EventKind::CallEnded { .. }
    ) {}
    let policy = Policy::new().deny("write:file");
    let spec = WorkerSpec::new("reader").policy(policy);
    let reader = stage.runtime.spawn(spec).await.unwrap();
    let write = write("denied.txt", "one\n");
    reader.submit(write).await.unwrap_err();
    stage.worker.call("absent", json!({})).await.unwrap_err();
    assert_eq!(
        shown(&stage, json!({}), "end").await,
        [
            "Denied: this agent has no such tool",
            "Denied by the policy",
            "Cancelled by the agent's client",
            "Not done: the file had changed",
            "Denied by a person elsewhere",
            "Denied by you",
            "Done",
        ]
    );
}

#[tokio::test]
async fn activity_names_the_end_of_the_agent_and_denials_without_a_question() {
    let stage = ConsoleServer::new().await;
    let first = stage.start_write("a.txt", "one\n").await;
    stage
        .answer(&first, json!({ "deny": { "rest_of_session": true } }))
        .await;
    first.resume().await.unwrap_err();
    let same = stage.worker.submit(write("a.txt", "one\n")).await;
    same.unwrap_err();
    let spec = WorkerSpec::new("child").policy(Policy::new().ask("write:file"));
    let child = stage.runtime.spawn(spec).await.unwrap();
    let waiting = child.begin(write("b.txt", "one\n")).await.unwrap();
    child.revoke().await;
    drop(waiting);
    assert_eq!(
        shown(&stage, json!({}), "end").await,
        [
            "Cancelled: the agent ended",
            "Denied by an earlier answer",
            "Denied by you",
        ]
    );
}

#[tokio::test]
async fn expired_question_has_an_outcome() {
    let temp = tempfile::tempdir().unwrap();
    let (runtime, people) = Runtime::builder()
        .root("repo", temp.path())
        .tools(bailiwick_fs::tools())
        .approver(Deferred)
        .asks(AskLimits::default(), Duration::ZERO)
        .keep_calls(KeepCalls::default())
        .build()
        .await
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let console = Console::serve(listener).unwrap();
    console.add_source(ConsoleSource::new(Arc::new(people)).runtime(&runtime));
    let policy = Policy::new().ask("write:file");
    let worker = runtime
        .spawn(WorkerSpec::new("main").policy(policy))
        .await
        .unwrap();
    worker.submit(write("a.txt", "one\n")).await.unwrap_err();
    let state = Page::at(console.url()).state().await;
    let outcome = &state["outcomes"][0];
    assert_eq!(
        (&outcome["status"], &outcome["by"]),
        (&json!("expired"), &json!("nobody: time was up"))
    );
    assert_eq!(outcome["result"], Value::Null);
    let page = Page::at(console.url());
    let ends = shown(&page, json!({}), "end").await;
    assert_eq!(ends, ["Denied: nobody answered in time"]);
}

#[tokio::test]
async fn activity_shows_calls_under_standing_grants_with_their_changes() {
    let stage = ConsoleServer::new().await;
    let grant = NewGrant {
        pattern: "write:file:/repo".parse().unwrap(),
        holder: GrantHolder::Session {
            session: "talk".into(),
            worker: stage.worker.id(),
        },
        lifetime: Lifetime::Session,
        descendants: false,
    };
    let grant = stage.people.grant(grant).await.unwrap();
    stage
        .worker
        .submit(write("a.txt", "one\ntwo\n"))
        .await
        .unwrap();
    stage
        .worker
        .call("read_file", json!({ "path": "a.txt" }))
        .await
        .unwrap();
    let rows = calls(&stage, json!({})).await;
    let [read, written] = rows.as_slice() else {
        panic!("{rows:?}");
    };
    assert_eq!(
        (&written["state"], &written["result"]),
        (&json!("ended"), &json!("done"))
    );
    assert_eq!(
        (&written["files"], &written["added"], &written["removed"]),
        (&json!(1), &json!(2), &json!(0))
    );
    assert_eq!(written["kept"], true);
    let allowed = &written["allowed_by"][0];
    assert_eq!(allowed["kind"], "grant");
    assert!(
        allowed["text"]
            .as_str()
            .unwrap()
            .ends_with(", until the agent or its session ends"),
        "{allowed}"
    );
    let of_run = format!("{}-{}", written["run"].as_str().unwrap(), grant.0);
    assert_eq!(allowed["grant"], of_run);
    assert_eq!(read["allowed_by"][0]["kind"], "policy");
    let path = format!("/api/call/{}", read["call"].as_str().unwrap());
    let details = stage.get(&path).await.json();
    assert!(
        details["output"].as_str().unwrap().contains("two"),
        "{details}"
    );
    assert_eq!(details["needs"], json!(["read:file:/repo/a.txt"]));
    assert_eq!(details["arguments"], r#"{"path":"a.txt"}"#);
    assert_eq!(details["changes"], json!([]));
}

#[tokio::test]
async fn activity_is_filtered_and_paged() {
    let stage = ConsoleServer::new().await;
    let (free, other) = (open(&stage, "free").await, open(&stage, "other").await);
    let spec = WorkerSpec::new("child").policy(Policy::inherit());
    let child = free.spawn(spec).await.unwrap();
    free.submit(write("a.txt", "one\n")).await.unwrap();
    child
        .call("read_file", json!({ "path": "a.txt" }))
        .await
        .unwrap();
    other
        .call("read_file", json!({ "path": "none.txt" }))
        .await
        .unwrap_err();
    other.call("absent", json!({})).await.unwrap_err();
    let page = &stage.page;
    let tools = async |query: Value| shown(page, query, "tool").await;
    assert_eq!(
        tools(json!({ "agent": "free" })).await,
        ["read_file", "write_file"]
    );
    assert_eq!(tools(json!({ "agent": "fre" })).await, Vec::<Value>::new());
    assert_eq!(tools(json!({ "tool": "write_file" })).await, ["write_file"]);
    assert_eq!(tools(json!({ "result": "failed" })).await, ["read_file"]);
    assert_eq!(tools(json!({ "result": "denied" })).await, ["absent"]);
    assert_eq!(tools(json!({ "effects_only": true })).await, ["write_file"]);
    assert_eq!(tools(json!({ "text": "NONE.txt" })).await, ["read_file"]);
    assert_eq!(
        tools(json!({ "since": u64::MAX })).await,
        Vec::<Value>::new()
    );
    assert_eq!(tools(json!({ "until": 0 })).await, Vec::<Value>::new());
    let state = stage.state().await;
    let worker = name(&state, "free/child");
    assert_eq!(tools(json!({ "worker": worker })).await, ["read_file"]);
    let run = state["sources"][0]["run"].clone();
    assert_eq!(tools(json!({ "run": run })).await.len(), 4);
    assert_eq!(
        stage
            .post("/api/activity", &json!({ "run": "00000000000000ff" }))
            .await
            .code(),
        "NO_RUN"
    );

    let first = stage
        .post("/api/activity", &json!({ "limit": 3 }))
        .await
        .json();
    assert_eq!(first["more"], true);
    assert_eq!(first["agents"], json!(["free", "free/child", "other"]));
    assert_eq!(first["tools"], json!(["absent", "read_file", "write_file"]));
    let before = &first["calls"][2]["call"];
    let rest = stage
        .post("/api/activity", &json!({ "limit": 3, "before": before }))
        .await
        .json();
    assert_eq!(rest["more"], false);
    assert_eq!(rest["calls"][0]["tool"], "write_file");
    assert_eq!(rest["calls"].as_array().unwrap().len(), 1);

    let long = json!({ "text": "x".repeat(201) });
    assert_eq!(stage.post("/api/activity", &long).await.code(), "TOO_LONG");
    let unknown = json!({ "agnet": "free" });
    assert_eq!(
        stage.post("/api/activity", &unknown).await.code(),
        "MALFORMED"
    );
}

#[tokio::test]
async fn activity_of_two_thousand_calls_is_bounded() {
    let stage = ConsoleServer::new().await;
    let free = open(&stage, "free").await;
    let content = "line of text\n".repeat(2000);
    for n in 0..200 {
        free.submit(write(&format!("{n}.txt"), &content))
            .await
            .unwrap();
    }
    for _ in 0..2000 {
        free.call("absent", json!({ "text": &content }))
            .await
            .unwrap_err();
    }
    let reply = stage.post("/api/activity", &json!({})).await;
    assert!(reply.body.len() < 256 << 10, "{}", reply.body.len());
    let rows = reply.json();
    assert_eq!(rows["calls"].as_array().unwrap().len(), 200);
    assert_eq!(rows["more"], true);
    assert_eq!(stage.runtime.recent_calls().len(), 1000);
}

#[tokio::test]
async fn unknown_calls_and_workers_are_not_found() {
    let stage = ConsoleServer::new().await;
    let state = stage.state().await;
    let run = state["sources"][0]["run"].as_str().unwrap();
    for call in [
        format!("{run}-99"),
        "00000000000000ff-0".to_owned(),
        "x".to_owned(),
    ] {
        let reply = stage.get(&format!("/api/call/{call}")).await;
        assert_eq!((reply.status, reply.code().as_str()), (404, "NO_CALL"));
        let reply = stage.get(&format!("/api/agent/{call}")).await;
        assert_eq!((reply.status, reply.code().as_str()), (404, "NO_WORKER"));
        for (path, body) in [
            ("/api/pause", json!({ "worker": call, "paused": true })),
            ("/api/stop-worker", json!({ "worker": call })),
        ] {
            let reply = stage.post(path, &body).await;
            assert_eq!((reply.status, reply.code().as_str()), (404, "NO_WORKER"));
        }
    }
}

#[tokio::test]
async fn paused_agent_waits_until_it_is_resumed_on_the_page() {
    let stage = ConsoleServer::new().await;
    let free = open(&stage, "free").await;
    let worker = name(&stage.state().await, "free");
    let pause = |paused: bool| json!({ "worker": &worker, "paused": paused });
    assert_eq!(stage.post("/api/pause", &pause(true)).await.status, 200);
    assert_eq!(stage.state().await["agents"][1]["paused"], true);
    let mut events = stage.runtime.events();
    let writing = tokio::spawn({
        let free = free.clone();
        async move { free.submit(write("a.txt", "one\n")).await }
    });
    while !matches!(
        events.recv().await.unwrap().kind,
        bailiwick::monitor::EventKind::CallStarted { .. }
    ) {}
    assert_eq!(stage.on_disk("a.txt"), None);
    assert_eq!(stage.post("/api/pause", &pause(false)).await.status, 200);
    writing.await.unwrap().unwrap();
    assert_eq!(stage.on_disk("a.txt").as_deref(), Some("one\n"));
}

/// A runtime with a journal over the root `tree` of a directory, and its page.
struct WithJournal {
    runtime: Runtime,
    page: Page,
    temp: tempfile::TempDir,
    _console: Console,
}

async fn with_journal() -> WithJournal {
    let temp = tempfile::tempdir().unwrap();
    let tree = temp.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let (runtime, people) = Runtime::builder()
        .root("repo", &tree)
        .tools(bailiwick_fs::tools())
        .tools(bailiwick_fs::undo_tools(bailiwick_fs::Durability::Visible))
        .journal(bailiwick::journal::Journal::open(temp.path().join("journal")).unwrap())
        .approver(Deferred)
        .keep_calls(KeepCalls::default())
        .build()
        .await
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let console = Console::serve(listener).unwrap();
    console.add_source(ConsoleSource::new(people).runtime(&runtime));
    let page = Page::at(console.url());
    WithJournal {
        runtime,
        page,
        temp,
        _console: console,
    }
}

#[tokio::test]
async fn person_previews_and_undoes_the_changes_of_an_agent_and_its_descendants() {
    let stage = with_journal().await;
    let (runtime, page) = (&stage.runtime, &stage.page);
    let tree = stage.temp.path().join("tree");
    let spawn = |name| runtime.spawn(WorkerSpec::new(name).policy(Policy::new()));
    let (main, other) = (spawn("main").await.unwrap(), spawn("other").await.unwrap());
    let spec = WorkerSpec::new("child").policy(Policy::inherit());
    let child = main.spawn(spec).await.unwrap();
    main.submit(write("a.txt", "one\n")).await.unwrap();
    child.submit(write("b.txt", "two\n")).await.unwrap();
    other.submit(write("c.txt", "three\n")).await.unwrap();

    let state = page.state().await;
    let (worker, others) = (name(&state, "main"), name(&state, "other"));
    let details = page.get(&format!("/api/agent/{worker}")).await.json();
    assert_eq!(details["undoable"], 2);
    let of_main = json!({ "of": { "worker": worker } });
    let preview = page.post("/api/preview-undo", &of_main).await.json();
    let undone = preview["changes"].as_array().unwrap().iter();
    let undone: Vec<_> = undone
        .map(|change| (&change["op"], &change["path"]))
        .collect();
    assert_eq!(
        undone,
        [
            (&json!("delete"), &json!("/repo/b.txt")),
            (&json!("delete"), &json!("/repo/a.txt")),
        ]
    );
    assert!(tree.join("a.txt").exists() && tree.join("b.txt").exists());

    // Another agent's changes cannot be named.
    let foreign = json!({ "of": { "worker": others }, "changes": preview["undoes"] });
    let refused = page.post("/api/undo", &foreign).await;
    assert_eq!(
        (refused.status, &refused.json()["code"]),
        (404, &json!("NO_CHANGE"))
    );

    // What somebody else changed since is not overwritten.
    let confirmed = json!({ "of": { "worker": worker }, "changes": preview["undoes"] });
    std::fs::write(tree.join("a.txt"), "mine\n").unwrap();
    let refused = page.post("/api/undo", &confirmed).await;
    assert_eq!(
        (refused.status, &refused.json()["code"]),
        (422, &json!("CONFLICT"))
    );
    assert!(tree.join("b.txt").exists());

    std::fs::write(tree.join("a.txt"), "one\n").unwrap();
    let done = page.post("/api/undo", &confirmed).await;
    assert_eq!((done.status, done.json()), (200, json!({ "files": 2 })));
    assert!(!tree.join("a.txt").exists() && !tree.join("b.txt").exists());
    assert!(tree.join("c.txt").exists());
    let details = page.get(&format!("/api/agent/{worker}")).await.json();
    assert_eq!(details["undoable"], 0);
    assert_eq!(page.post("/api/preview-undo", &of_main).await.status, 404);
}

#[tokio::test]
async fn changes_of_an_agent_that_has_ended_are_undone() {
    let stage = with_journal().await;
    let (runtime, page) = (&stage.runtime, &stage.page);
    let tree = stage.temp.path().join("tree");
    let spawn = |name| runtime.spawn(WorkerSpec::new(name).policy(Policy::new()));
    let (main, other) = (spawn("main").await.unwrap(), spawn("other").await.unwrap());
    main.submit(write("a.txt", "one\n")).await.unwrap();
    other.submit(write("c.txt", "three\n")).await.unwrap();
    let stop = json!({ "worker": name(&page.state().await, "main") });
    assert_eq!(page.post("/api/stop-worker", &stop).await.status, 200);
    let of_main = json!({ "agent": "main" });
    assert_eq!(
        page.post("/api/activity", &of_main).await.json()["undoable"],
        1
    );

    let preview = json!({ "of": of_main });
    let preview = page.post("/api/preview-undo", &preview).await.json();
    assert_eq!(preview["changes"][0]["path"], "/repo/a.txt");
    let confirmed = json!({ "of": of_main, "changes": preview["undoes"] });
    let foreign = json!({ "of": { "agent": "other" }, "changes": preview["undoes"] });
    assert_eq!(page.post("/api/undo", &foreign).await.status, 404);
    let done = page.post("/api/undo", &confirmed).await;
    assert_eq!((done.status, done.json()), (200, json!({ "files": 1 })));
    assert!(!tree.join("a.txt").exists() && tree.join("c.txt").exists());
    assert_eq!(
        page.post("/api/activity", &of_main).await.json()["undoable"],
        0
    );
}

#[tokio::test]
async fn change_of_one_call_is_undone_and_shown_as_undone() {
    let stage = with_journal().await;
    let page = &stage.page;
    let tree = stage.temp.path().join("tree");
    let spec = WorkerSpec::new("main").policy(Policy::new());
    let main = stage.runtime.spawn(spec).await.unwrap();
    for (path, text) in [("a.txt", "one\n"), ("b.txt", "two\n"), ("c.txt", "3\n")] {
        main.submit(write(path, text)).await.unwrap();
    }
    let list = bailiwick::Call::new("list_directory", json!({}));
    main.submit(list).await.unwrap();

    // A call that changed nothing cannot be undone.
    let undo = shown(page, json!({}), "undo").await;
    let possible = json!("possible");
    assert_eq!(undo[0], Value::Null);
    assert_eq!(undo[1..], [possible.clone(), possible.clone(), possible]);
    let all = calls(page, json!({})).await;
    let refused = json!({ "of": { "call": all[0]["call"] } });
    let refused = page.post("/api/preview-undo", &refused).await;
    assert_eq!(
        (refused.status, &refused.json()["code"]),
        (404, &json!("NO_CHANGE"))
    );

    let of = json!({ "call": all[2]["call"] });
    let preview = page.post("/api/preview-undo", &json!({ "of": of })).await;
    let preview = preview.json();
    assert_eq!(preview["changes"].as_array().unwrap().len(), 1, "{preview}");
    assert_eq!(preview["changes"][0]["path"], "/repo/b.txt");
    assert!(tree.join("b.txt").exists());

    // The change of another call cannot be named.
    let foreign = json!({ "of": { "call": all[1]["call"] }, "changes": preview["undoes"] });
    assert_eq!(page.post("/api/undo", &foreign).await.status, 404);

    // What somebody else changed since is named and not overwritten.
    let confirmed = json!({ "of": of, "changes": preview["undoes"] });
    std::fs::write(tree.join("b.txt"), "mine\n").unwrap();
    for (path, body) in [("preview-undo", &json!({ "of": of })), ("undo", &confirmed)] {
        let refused = page.post(&format!("/api/{path}"), body).await.json();
        let message = "Not undone: `/repo/b.txt` changed since; nothing was changed now";
        assert_eq!(
            (&refused["code"], &refused["message"]),
            (&json!("CONFLICT"), &json!(message))
        );
    }
    std::fs::write(tree.join("b.txt"), "two\n").unwrap();

    let done = page.post("/api/undo", &confirmed).await;
    assert_eq!((done.status, done.json()), (200, json!({ "files": 1 })));
    assert!(!tree.join("b.txt").exists());
    assert!(tree.join("a.txt").exists() && tree.join("c.txt").exists());
    let of_main = shown(page, json!({ "agent": "main" }), "undo").await;
    let (possible, undone) = (json!("possible"), json!("undone"));
    assert_eq!(of_main[1..], [possible.clone(), undone.clone(), possible]);

    // The undo is a call of a person, which can be undone, too; the previews of the page are not shown.
    let reply = page.post("/api/activity", &json!({})).await.json();
    assert_eq!(reply["agents"], json!(["main"]));
    let shown = reply["calls"].as_array().unwrap();
    let undos = shown.iter().filter(|call| call["tool"] == "undo");
    let undos: Vec<&Value> = undos.map(|call| &call["result"]).collect();
    assert_eq!(undos, ["done", "failed"]);
    assert_eq!(
        (&shown[0]["origin"], &shown[0]["undo"]),
        (&json!("human"), &json!("possible"))
    );
    let details = format!("/api/call/{}", all[2]["call"].as_str().unwrap());
    assert_eq!(page.get(&details).await.json()["row"]["undo"], undone);
    assert_eq!(page.post("/api/undo", &confirmed).await.status, 404);
}

#[tokio::test]
async fn outcome_of_a_question_says_whether_its_change_can_be_undone() {
    let stage = with_journal().await;
    let page = &stage.page;
    let policy = Policy::new().allow("read:file").ask("write:file");
    let spec = WorkerSpec::new("main").policy(policy);
    let main = stage.runtime.spawn(spec).await.unwrap();
    for (path, answer) in [("a.txt", once()), ("b.txt", json!({ "deny": {} }))] {
        let begun = main.begin(write(path, "one\n")).await.unwrap();
        let CallProgress::Pending(pending) = begun else {
            panic!("the write did not wait for approval");
        };
        let state = page.state().await;
        let [question] = state["questions"].as_array().unwrap().as_slice() else {
            panic!("{state}");
        };
        let body = json!({
            "question": question["tool_call"]["id"],
            "session": question["bailiwick"]["session"],
            "answer": answer,
        });
        assert_eq!(page.post("/api/answer", &body).await.status, 200);
        let _ended = pending.resume().await;
    }
    let state = page.state().await;
    let [denied, allowed] = state["outcomes"].as_array().unwrap().as_slice() else {
        panic!("{state}");
    };
    assert_eq!(denied["undo"], Value::Null);
    assert_eq!(allowed["undo"], "possible");
    let of = json!({ "call": allowed["call"] });
    let preview = page.post("/api/preview-undo", &json!({ "of": of })).await;
    let confirmed = json!({ "of": of, "changes": preview.json()["undoes"] });
    assert_eq!(page.post("/api/undo", &confirmed).await.status, 200);
    let outcomes = page.state().await["outcomes"].clone();
    let of_call = outcomes.as_array().unwrap().iter();
    let of_call: Vec<&Value> = of_call
        .filter(|one| one["call"] == allowed["call"])
        .map(|one| &one["undo"])
        .collect();
    assert_eq!(of_call, [&json!("undone")]);
}

#[tokio::test]
async fn stopped_agent_and_its_descendants_end_and_their_calls_stay_visible() {
    let stage = ConsoleServer::new().await;
    let free = open(&stage, "free").await;
    let spec = WorkerSpec::new("child").policy(Policy::inherit());
    let child = free.spawn(spec).await.unwrap();
    child.submit(write("a.txt", "one\n")).await.unwrap();
    let worker = name(&stage.state().await, "free");
    let details = stage.get(&format!("/api/agent/{worker}")).await.json();
    assert_eq!(details["agent"]["agent"], "free");
    let changed = &details["changed"][0];
    assert_eq!(
        (&changed["path"], &changed["op"]),
        (&json!("/repo/a.txt"), &json!("create"))
    );
    assert_eq!(changed["agent"], "free/child");
    assert_eq!(details["changed_omitted"], 0);
    let stopped = stage
        .post("/api/stop-worker", &json!({ "worker": worker }))
        .await;
    assert_eq!(
        (stopped.status, stopped.json()),
        (200, json!({ "unfinished": 0 }))
    );
    stage.runtime.flush_audit().await.unwrap();
    let audit = std::fs::read_to_string(stage.temp.path().join("audit")).unwrap();
    let records = audit
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let revoked = records.filter(|record| record["event"]["step"] == "revoked");
    let origins: Vec<Value> = revoked
        .map(|record| record["event"]["origin"].clone())
        .collect();
    assert_eq!(origins, ["human", "human"]);
    let agents = &stage.state().await["agents"];
    assert_eq!(agents.as_array().unwrap().len(), 1, "{agents}");
    child.submit(write("b.txt", "one\n")).await.unwrap_err();
    let results = shown(&stage, json!({ "agent": "free" }), "result").await;
    assert_eq!(results, ["cancelled", "done"]);
}

#[tokio::test]
async fn version_moves_with_each_call_that_needs_no_approval() {
    let stage = ConsoleServer::new().await;
    let free = open(&stage, "free").await;
    // The start of the console and of the agent move the version, too, so one call proves nothing.
    for _ in 0..5 {
        let known = stage.state().await["version"].clone();
        free.call("absent", json!({})).await.unwrap_err();
        let moved = stage.get(&format!("/api/events/{known}")).await.json();
        assert_ne!(moved["version"], known);
    }
}
