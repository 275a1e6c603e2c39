//! Tests of observing a runtime: workers, activity, changed paths, events, metrics and the default audit.

use bailiwick::monitor::{Event, EventKind, Events, EventsError};
use bailiwick::permission::{Decision, Lifetime};
use bailiwick::worker::{CallProgress, CallState};
use bailiwick::{Answer, Call, Code, Deferred, Policy, Runtime, VirtualPath, WorkerSpec};
use serde_json::json;

use super::{at, stage, stage_with};
use bailiwick_test_support::tools::{Board, Latch};

#[tokio::test]
async fn live_workers_are_listed_with_parent_session_and_running_calls() {
    let stage = stage(|builder| builder).await;
    let main = stage.open().await;
    let spec = WorkerSpec::new("tests").policy(Policy::inherit());
    let child = main.spawn(spec.session("nightly")).await.unwrap();
    let call = tokio::spawn({
        let child = child.clone();
        async move { child.call("hangs", at("a")).await }
    });
    stage.latch.wait_for(1).await;
    let listed: Vec<_> = stage
        .runtime
        .workers()
        .iter()
        .map(|it| (it.agent().to_owned(), it.parent(), it.status().in_flight))
        .collect();
    let expected = [
        ("main".to_owned(), None, 0),
        ("main/tests".to_owned(), Some(main.id()), 1),
    ];
    assert_eq!(listed, expected);
    assert_eq!(child.session(), "nightly");
    stage.latch.open();
    call.await.unwrap().unwrap();
    child.revoke().await;
    let left: Vec<_> = stage.runtime.workers().iter().map(|it| it.id()).collect();
    assert_eq!(left, [main.id()]);
}

#[tokio::test]
async fn activity_names_intent_and_state_of_open_and_ended_calls() {
    let stage = stage(|builder| builder.approver(Deferred)).await;
    let policy = Policy::new().allow("read:file").ask("write:file");
    let worker = stage.worker(policy).await;
    assert_eq!(worker.activity(), []);
    let running = tokio::spawn({
        let worker = worker.clone();
        async move { worker.call("hangs", at("a")).await }
    });
    stage.latch.wait_for(1).await;
    let asking = worker.begin(Call::new("post", at("b"))).await.unwrap();
    assert!(matches!(asking, CallProgress::Pending(_)));
    // The worker has handled everything that came before these calls.
    worker.call("echo", at("c")).await.unwrap();
    let absent = worker.call("absent", json!({})).await.unwrap_err();
    let states: Vec<_> = worker
        .activity()
        .into_iter()
        .map(|call| (call.tool.to_string(), call.state))
        .collect();
    let expected = [
        ("hangs", CallState::Running),
        ("post", CallState::Asking),
        ("echo", CallState::Ended(None)),
        ("absent", CallState::Ended(Some(absent.code()))),
    ];
    assert_eq!(
        states,
        expected.map(|(tool, state)| (tool.to_owned(), state))
    );
    let intents: Vec<String> = worker.activity().into_iter().map(|it| it.intent).collect();
    assert!(intents[1].starts_with("Post"), "{intents:?}");
    stage.latch.open();
    running.await.unwrap().unwrap();
    drop(asking);
    for _ in 0..20 {
        worker.call("echo", at("c")).await.unwrap();
    }
    let ended = worker.activity();
    assert_eq!(ended.len(), 8, "{ended:?}");
}

#[tokio::test]
async fn ended_calls_are_described_like_open_ones() {
    let stage = stage(|builder| builder.approver(Deferred)).await;
    let policy = Policy::new().allow("read:file").ask("write:file");
    let worker = stage.worker(policy).await;
    // The arguments of the second are too large to be kept.
    for path in ["short".to_owned(), "long/".repeat(120) + "path"] {
        let asking = worker.begin(Call::new("post", at(&path))).await.unwrap();
        let open = worker.activity().remove(0);
        assert_eq!(open.state, CallState::Asking);
        assert!(open.intent.starts_with("Post “"), "{open:?}");
        drop(asking);
        worker.call("echo", at("a")).await.unwrap();
        let activity = worker.activity();
        let ended = activity.iter().find(|it| it.call == open.call).unwrap();
        assert_eq!(ended.state, CallState::Ended(Some(Code::Cancelled)));
        assert_eq!(ended.intent, open.intent);
    }
}

#[tokio::test]
async fn changed_paths_include_those_of_revoked_descendants() {
    let stage = stage(|builder| builder).await;
    let (main, other) = (stage.open().await, stage.open().await);
    let spec = || WorkerSpec::new("child").policy(Policy::inherit());
    let child = main.spawn(spec()).await.unwrap();
    let grandchild = child.spawn(spec()).await.unwrap();
    main.call("post", at("a")).await.unwrap();
    main.preview("post", at("b")).await.unwrap();
    grandchild.call("post", at("c")).await.unwrap();
    main.call("echo", at("d")).await.unwrap();
    child.revoke().await;
    let changed = main.changed();
    let paths: Vec<_> = changed
        .paths
        .iter()
        .map(|it| (it.path.as_str(), it.worker))
        .collect();
    assert_eq!(paths, [("/r/a", main.id()), ("/r/c", grandchild.id())]);
    assert_eq!(changed.omitted, 0);
    assert_eq!(child.changed().paths.len(), 1);
    assert_eq!(other.changed().paths, []);
}

#[tokio::test]
async fn change_of_an_abandoned_call_is_reported() {
    let within = Latch::default();
    let board = Board {
        within: Some(within.clone()),
        ..Board::default()
    };
    let stage = stage_with(board, |builder| builder).await;
    let worker = stage.open().await;
    let call = tokio::spawn({
        let worker = worker.clone();
        async move { worker.call("post", at("a")).await }
    });
    within.wait_for(1).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    within.open();
    // Writes of the same path are ordered, and the worker has handled the end of the first before it starts the second.
    worker.call("post", at("a")).await.unwrap();
    let paths = worker.changed().paths;
    assert_eq!(paths.len(), 1, "{paths:?}");
    assert_eq!(paths[0].path, VirtualPath::parse("/r/a", None).unwrap());
}

/// The next `count` events.
async fn next(events: &mut Events, count: usize) -> Vec<Event> {
    let mut found = Vec::new();
    for _ in 0..count {
        found.push(events.recv().await.unwrap());
    }
    found
}

#[tokio::test]
async fn events_of_workers_calls_questions_and_grants_are_in_order() {
    let stage = stage(|builder| builder.approver(Deferred)).await;
    let mut events = stage.runtime.events();
    let policy = Policy::new().ask("write:file");
    let worker = stage.worker(policy).await;
    let asking = worker.begin(Call::new("post", at("a"))).await.unwrap();
    let CallProgress::Pending(pending) = asking else {
        panic!("nobody was asked");
    };
    let question = pending.question().id;
    let answer = Answer::allow(Lifetime::Session);
    stage.grants.answer(question, answer).await.unwrap();
    pending.resume().await.unwrap();
    let grant = stage.grants.grants().await.unwrap()[0].id;
    stage.grants.revoke(grant).await.unwrap();
    worker.revoke().await;
    let seen = next(&mut events, 8).await;
    assert!(
        seen.iter().all(|it| it.worker == Some(worker.id())),
        "{seen:?}"
    );
    let of = |found: fn(&EventKind) -> bool| {
        let position = seen.iter().position(|event| found(&event.kind));
        position.unwrap_or_else(|| panic!("{seen:?}"))
    };
    let started = of(|it| matches!(it, EventKind::WorkerStarted { parent: None, .. }));
    let received = of(|it| matches!(it, EventKind::CallStarted { .. }));
    let asked = of(|it| matches!(it, EventKind::QuestionAsked { .. }));
    let given = of(|it| matches!(it, EventKind::GrantGiven { .. }));
    let answered = of(|it| {
        let granted = Decision::Granted;
        matches!(it, EventKind::QuestionAnswered { decision, .. } if *decision == granted)
    });
    let done = of(|it| matches!(it, EventKind::CallEnded { code: None, .. }));
    let revoked = of(|it| matches!(it, EventKind::GrantRevoked { .. }));
    let ended = of(|it| matches!(it, EventKind::WorkerEnded));
    let order = [
        started,
        received,
        asked,
        given.min(answered),
        done,
        revoked,
        ended,
    ];
    assert!(order.is_sorted(), "{seen:?}");
}

#[tokio::test]
async fn events_and_metrics_distinguish_previews_from_effects() {
    let stage = stage(|builder| builder).await;
    let worker = stage.open().await;
    let mut events = stage.runtime.events();
    let preview = worker.preview("post", at("a")).await.unwrap();
    worker.apply(&preview).await.unwrap();
    let kinds = next(&mut events, 4).await.into_iter().map(|it| it.kind);
    let previews: Vec<bool> = kinds
        .map(|kind| match kind {
            EventKind::CallStarted { preview, .. } | EventKind::CallEnded { preview, .. } => {
                preview
            }
            kind => panic!("{kind:?}"),
        })
        .collect();
    assert_eq!(previews, [true, true, false, false]);
    let metrics = stage.runtime.metrics();
    assert_eq!((metrics.previews, metrics.succeeded), (1, 2));
}

#[tokio::test]
async fn slow_event_reader_gets_the_lost_count_and_continues() {
    let stage = stage(|builder| builder).await;
    let worker = stage.open().await;
    let mut events = stage.runtime.events();
    for _ in 0..600 {
        worker.call("echo", at("a")).await.unwrap();
    }
    // Each call has a start and an end.
    assert_eq!(events.recv().await, Err(EventsError::Lost(1200 - 1024)));
    assert_eq!(next(&mut events, 1024).await.len(), 1024);
}

#[tokio::test]
async fn events_end_with_the_runtime() {
    let (runtime, grants) = Runtime::builder().build().await.unwrap();
    let mut events = runtime.events();
    runtime.shutdown().await;
    drop((runtime, grants));
    assert_eq!(events.recv().await, Err(EventsError::Closed));
}

#[tokio::test]
async fn metrics_count_results_bytes_and_open_questions() {
    let stage = stage(|builder| builder.approver(Deferred)).await;
    let policy = Policy::new().allow("read:file").ask("write:file:/r/asked");
    let worker = stage.worker(policy.allow("write:file:/r/a")).await;
    worker.call("echo", at("a")).await.unwrap();
    worker.call("post", at("a")).await.unwrap();
    worker.call("post", at("b")).await.unwrap_err();
    worker.call("panics", at("b")).await.unwrap_err();
    let asking = worker.begin(Call::new("post", at("asked"))).await.unwrap();
    assert!(matches!(asking, CallProgress::Pending(_)));
    assert_eq!(stage.grants.questions().await.unwrap().len(), 1);
    let metrics = stage.runtime.metrics();
    assert_eq!(metrics.succeeded, 2);
    assert_eq!((metrics.denied(), metrics.failed()), (1, 1));
    assert_eq!(metrics.errors[&Code::PermissionDenied], 1);
    assert_eq!(metrics.asked, 1);
    assert_eq!((metrics.written_bytes, metrics.changed_files), (10, 1));
    assert_eq!(metrics.returned_bytes, 2 * "/r/a".len() as u64);
    assert_eq!((metrics.workers, metrics.running), (1, 1));
    assert_eq!(metrics.open_questions, 1);
    assert_eq!((metrics.queued_io, metrics.queued_cpu), (0, 0));
}

#[tokio::test]
async fn audit_records_are_available_for_the_default_sink_only() {
    let (runtime, _grants) = Runtime::builder().build().await.unwrap();
    runtime.spawn(WorkerSpec::new("main")).await.unwrap();
    runtime.flush_audit().await.unwrap();
    let records = runtime.audit_records().unwrap();
    assert!(records[0].line().contains("\"spawned\""), "{records:?}");
    let stage = stage(|builder| builder).await;
    stage.open().await;
    stage.runtime.flush_audit().await.unwrap();
    assert!(stage.runtime.audit_records().is_none());
    assert_eq!(stage.audit.records().len(), 1);
}
