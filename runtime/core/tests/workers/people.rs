//! Tests of many agents and people: each answer reaches the calls that it is for.

use std::num::NonZeroU32;

use bailiwick::permission::{GrantHolder, Lifetime, NewGrant};
use bailiwick::worker::CallProgress;
use bailiwick::{
    Answer, Call, CallError, Code, Deferred, Outcome, PendingCall, Policy, Scripted, Worker,
    WorkerSpec,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{Stage, at, stage};

fn asking() -> Policy {
    Policy::new().allow("read:file").ask("write:file:/r/src")
}

async fn child(parent: &Worker, name: &str) -> Worker {
    let spec = WorkerSpec::new(name).policy(asking());
    parent.spawn(spec).await.unwrap()
}

/// A call of `post` that waits for a person.
async fn pending_post(worker: &Worker, path: &str) -> PendingCall {
    match worker.begin(Call::new("post", at(path))).await.unwrap() {
        CallProgress::Pending(pending) => *pending,
        CallProgress::Ended(outcome) => panic!("nobody was asked: {outcome:?}"),
    }
}

async fn ended(pending: PendingCall) -> Result<Outcome, CallError> {
    match pending.resume().await? {
        CallProgress::Ended(outcome) => Ok(*outcome),
        CallProgress::Pending(again) => panic!("asked again: {:?}", again.question()),
    }
}

#[tokio::test]
async fn questions_of_nested_workers_are_answered_in_any_order() {
    let stage = stage(|builder| builder.approver(Deferred)).await;
    let main = stage.worker(asking()).await;
    let tests = child(&main, "tests").await;
    let helper = child(&tests, "helper").await;
    let of_main = pending_post(&main, "src/a").await;
    let of_tests = pending_post(&tests, "src/b").await;
    let of_helper = pending_post(&helper, "src/c").await;
    let expected = ["main", "main/tests", "main/tests/helper"];
    assert_eq!(stage.open_questions().await, expected);
    let sessions = [&of_main, &of_tests, &of_helper].map(|one| &one.question().request.session);
    assert!(sessions.iter().all(|session| *session == sessions[0]));

    // All plans are for an empty board, so only one can be applied: that of the grandchild, which is approved.
    stage.answer(&of_helper, Answer::ONCE).await;
    ended(of_helper).await.unwrap();
    assert_eq!(stage.open_questions().await, expected[..2]);
    stage.answer(&of_main, Answer::DENY).await;
    let refused = ended(of_main).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert_eq!(stage.open_questions().await, expected[1..2]);
    stage.answer(&of_tests, Answer::DENY).await;
    ended(of_tests).await.unwrap_err();
    assert_eq!(stage.board.posted(), ["/r/src/c"]);
}

#[tokio::test]
async fn answering_the_second_question_leaves_the_first_open() {
    let stage = stage(|builder| builder.approver(Deferred)).await;
    let worker = stage.worker(asking()).await;
    let (first, second) = (
        pending_post(&worker, "src/a").await,
        pending_post(&worker, "src/b").await,
    );
    let (one, two) = (&first.question().request, &second.question().request);
    assert_eq!(one.session, two.session);
    stage.answer(&second, Answer::DENY).await;
    let refused = ended(second).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let left = stage.grants.questions().await.unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].id, first.question().id);
    stage.answer(&first, Answer::ONCE).await;
    ended(first).await.unwrap();
    assert_eq!(stage.board.posted(), ["/r/src/a"]);
}

/// What a model reads of a few calls, as sent by a gateway.
async fn transcript(stage: &Stage, policy: Policy) -> Vec<Value> {
    let worker = stage.worker(policy).await;
    let mut lines = Vec::new();
    for (tool, arguments) in [
        ("post", at("src/x")),
        ("echo", at("src/x")),
        ("post", at("src/y")),
        ("post", at("src/y")),
        ("post", at("elsewhere")),
        ("post", json!({ "path": 1 })),
        ("panics", at("src/x")),
    ] {
        lines.push(match worker.call(tool, arguments).await {
            Ok(outcome) => json!({
                "text": outcome.text(),
                "structured": outcome.structured().unwrap(),
            }),
            Err(error) => json!({
                "code": error.code().as_str(),
                "message": error.message(),
                "details": error.details(),
            }),
        });
    }
    lines
}

#[tokio::test]
async fn model_output_does_not_reveal_approvals() {
    let allowing = Policy::new().allow("read:file").allow("write:file:/r/src");
    let silent = stage(|builder| builder).await;
    let unasked = transcript(&silent, allowing).await;
    assert_eq!(silent.board.posted(), ["/r/src/x", "/r/src/y", "/r/src/y"]);
    for lifetime in [
        Lifetime::Once,
        Lifetime::Uses(NonZeroU32::new(2).unwrap()),
        Lifetime::Session,
        Lifetime::Agent,
    ] {
        let approver = Scripted::new().allow("write:file:/r/src".parse().unwrap(), lifetime);
        let stage = stage(|builder| builder.approver(approver)).await;
        assert_eq!(transcript(&stage, asking()).await, unasked, "{lifetime:?}");
        assert!(!stage.texts("asked", "/event/question").await.is_empty());
        assert_eq!(stage.board.posted(), silent.board.posted());
    }
    let stage = stage(|builder| builder.approver(Scripted::new())).await;
    let refused = transcript(&stage, asking()).await;
    assert_ne!(refused, unasked, "a denial is visible");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grant_with_ten_uses_allows_ten_of_64_concurrent_calls() {
    let stage = stage(|builder| builder).await;
    let mut workers = Vec::new();
    for _ in 0..8 {
        workers.push(stage.worker(asking()).await);
    }
    let grant = NewGrant {
        pattern: "write:file:/r/src".parse().unwrap(),
        holder: GrantHolder::Agent("main".into()),
        lifetime: Lifetime::Uses(NonZeroU32::new(10).unwrap()),
        descendants: false,
    };
    stage.grants.grant(grant).await.unwrap();
    let mut calls = JoinSet::new();
    for n in 0..64 {
        let worker = workers[n % workers.len()].clone();
        // One path: calls on it are serialised, so that no plan is stale.
        calls.spawn(async move { worker.call("post", at("src/x")).await });
    }
    let mut refused = 0;
    while let Some(ended) = calls.join_next().await {
        if let Err(error) = ended.unwrap() {
            assert_eq!(error.code(), Code::ScopeRequired);
            refused += 1;
        }
    }
    assert_eq!((stage.board.posted().len(), refused), (10, 54));
    assert_eq!(stage.grants.grants().await.unwrap(), []);
    assert_eq!(stage.texts("grant_used", "/event/call").await.len(), 10);
}

/// Lets `count` equal calls wait for one question, and answers it for one of them, then for two.
async fn approve_one_then_two(
    count: usize,
    stage: &Stage,
    worker: &Worker,
) -> JoinSet<Result<Outcome, CallError>> {
    let mut calls = JoinSet::new();
    for _ in 0..count {
        let worker = worker.clone();
        calls.spawn(async move { worker.call("post", at("/r/src/x")).await });
    }
    let question = stage.question_of(count).await;
    stage.grants.answer(question, Answer::ONCE).await.unwrap();
    assert!(calls.join_next().await.unwrap().unwrap().is_ok());
    let question = stage.question_of(count - 1).await;
    assert_eq!(
        stage.board.posted(),
        ["/r/src/x"],
        "one approval, one effect"
    );
    let two = Answer::allow(Lifetime::Waiting(NonZeroU32::new(2).unwrap()));
    stage.grants.answer(question, two).await.unwrap();
    calls
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_approval_allows_one_of_64_equal_previewed_calls() {
    let stage = stage(|builder| builder.approver(Deferred)).await;
    let worker = stage.worker(asking()).await;
    let mut calls = approve_one_then_two(64, &stage, &worker).await;
    for _ in 0..2 {
        // The first one changed the state that these two were previewed with.
        let stale = calls.join_next().await.unwrap().unwrap().unwrap_err();
        assert_eq!(stale.code(), Code::StalePreview);
    }
    stage.question_of(61).await;
    assert_eq!(stage.board.posted().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_approval_allows_one_of_64_equal_calls_without_preview() {
    let stage = stage(|builder| builder.approver(Deferred)).await;
    let blind = Policy::new().ask("write:file:/r/src");
    let worker = stage.worker(blind).await;
    let mut calls = approve_one_then_two(64, &stage, &worker).await;
    for _ in 0..2 {
        assert!(calls.join_next().await.unwrap().unwrap().is_ok());
    }
    let question = stage.question_of(61).await;
    assert_eq!(stage.board.posted().len(), 3);
    stage.grants.answer(question, Answer::DENY).await.unwrap();
    while let Some(refused) = calls.join_next().await {
        let refused = refused.unwrap().unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
    }
    assert_eq!(stage.board.posted().len(), 3);
}

#[tokio::test]
async fn approval_applies_to_the_exact_arguments() {
    let stage = stage(|builder| builder.approver(Deferred)).await;
    let worker = stage.worker(asking()).await;
    let shown = pending_post(&worker, "src/x").await;
    let again = pending_post(&worker, "src/x").await;
    assert_eq!(
        again.question().id,
        shown.question().id,
        "equal calls share a question"
    );
    let changed = pending_post(&worker, "src/X").await;
    assert_ne!(changed.question().id, shown.question().id);
    let hash = |pending: &PendingCall| pending.question().request.arguments_hash;
    assert_ne!(hash(&changed), hash(&shown));
    drop(again);

    stage.answer(&shown, Answer::ONCE).await;
    ended(shown).await.unwrap();
    assert_eq!(stage.grants.questions().await.unwrap().len(), 1);
    assert_eq!(stage.board.posted(), ["/r/src/x"]);
    // Nor does it serve the same call a second time.
    let later = pending_post(&worker, "src/x").await;
    assert_eq!(stage.grants.questions().await.unwrap().len(), 2);
    drop((changed, later));
}

#[tokio::test]
async fn approval_applies_to_the_shown_state_only() {
    let stage = stage(|builder| builder.approver(Deferred)).await;
    let worker = stage.worker(asking().allow("write:file:/r/free")).await;
    let shown = pending_post(&worker, "src/x").await;
    worker.call("post", at("free/y")).await.unwrap();
    let later = pending_post(&worker, "src/x").await;
    assert_ne!(later.question().id, shown.question().id);
    let before = |pending: &PendingCall| pending.question().request.before.unwrap();
    assert_ne!(before(&later), before(&shown));

    stage.answer(&shown, Answer::ONCE).await;
    let stale = ended(shown).await.unwrap_err();
    assert_eq!(stale.code(), Code::StalePreview);
    assert_eq!(stage.board.posted(), ["/r/free/y"]);
    stage.answer(&later, Answer::ONCE).await;
    ended(later).await.unwrap();
    assert_eq!(stage.board.posted(), ["/r/free/y", "/r/src/x"]);
}
