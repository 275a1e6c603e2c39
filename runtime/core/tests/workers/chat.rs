//! Tests of permission blocks in a chat.

use bailiwick::permission::{
    AuthorityError, BlockStatus, Decision, PermissionBlock, PermissionRequired, QuestionState,
    ServerCard,
};
use bailiwick::worker::CallProgress;
use bailiwick::{Answer, Call, Deferred, PendingCall, Policy, Worker};

use super::{Stage, at, stage};

fn asking() -> Policy {
    Policy::new().allow("read:file").ask("write:file:/r/src")
}

async fn pending(worker: &Worker, tool: &str, path: &str) -> PendingCall {
    match worker.begin(Call::new(tool, at(path))).await.unwrap() {
        CallProgress::Pending(pending) => *pending,
        CallProgress::Ended(outcome) => panic!("nobody was asked: {outcome:?}"),
    }
}

async fn ended(pending: PendingCall) {
    match pending.resume().await.unwrap() {
        CallProgress::Ended(_) => {}
        CallProgress::Pending(again) => panic!("asked again: {:?}", again.question()),
    }
}

fn session(pending: &PendingCall) -> String {
    pending.question().request.session.to_string()
}

async fn waiting() -> (Stage, Worker) {
    let stage = stage(|builder| builder.approver(Deferred)).await;
    let worker = stage.worker(asking()).await;
    (stage, worker)
}

#[tokio::test]
async fn answered_permission_block_continues_the_call_once() {
    let (stage, worker) = waiting().await;
    let pending = pending(&worker, "post", "src/x").await;
    let card = ServerCard::default();
    let waits = PermissionRequired::of(pending.question(), &card);
    let mut block = PermissionBlock::of(pending.question(), &card);
    assert_eq!(waits.tool_call_id, block.tool_call.id);
    assert!(stage.board.posted().is_empty());
    let session = session(&pending);
    let resume = |answer| {
        let grants = &stage.grants;
        grants.continue_with_permission(&session, &waits.tool_call_id, answer)
    };
    let granted = (
        QuestionState::Settled(Decision::Granted),
        vec![bailiwick::scope::Coverage::of(
            &"write:file:/r/src/x".parse().unwrap(),
        )],
    );
    assert_eq!(resume(Answer::ONCE).await.unwrap(), granted);
    ended(pending).await;
    assert_eq!(stage.board.posted(), ["/r/src/x"]);
    assert_eq!(resume(Answer::DENY).await.unwrap(), granted);
    assert_eq!(resume(Answer::ONCE).await.unwrap(), granted);
    assert_eq!(stage.board.posted(), ["/r/src/x"]);
    block.update(granted.0, &granted.1);
    assert_eq!(block.status, BlockStatus::Granted);
}

#[tokio::test]
async fn questions_can_be_answered_out_of_order() {
    let stage = stage(|builder| builder.approver(Deferred)).await;
    let worker = stage.worker(Policy::new().ask("read:file:/r/src")).await;
    let (first, second) = (
        pending(&worker, "echo", "src/x").await,
        pending(&worker, "echo", "src/y").await,
    );
    let session = session(&first);
    for waits in [&second, &first] {
        let handle = waits.question().handle();
        let answered = stage
            .grants
            .continue_with_permission(&session, &handle, Answer::ONCE);
        answered.await.unwrap();
    }
    ended(second).await;
    ended(first).await;
}

#[tokio::test]
async fn other_sessions_cannot_answer_a_question() {
    let (stage, worker) = waiting().await;
    let pending = pending(&worker, "post", "src/x").await;
    let handle = pending.question().handle();
    let unknown = format!("{}0", handle);
    for (session, handle) in [
        ("another", &handle),
        (&*session(&pending), &unknown),
        ("another", &unknown),
    ] {
        let refused = stage
            .grants
            .continue_with_permission(session, handle, Answer::ONCE);
        assert!(matches!(refused.await, Err(AuthorityError::NoQuestion)));
    }
    let open = stage.grants.question(pending.question().id).await;
    assert!(open.unwrap().is_some());
    let own = session(&pending);
    let answered = stage
        .grants
        .continue_with_permission(&own, &handle, Answer::ONCE);
    answered.await.unwrap();
    ended(pending).await;
}

#[tokio::test]
async fn permission_block_of_an_earlier_run_is_expired() {
    let (before, worker) = waiting().await;
    let pending = pending(&worker, "post", "src/x").await;
    let (session, handle) = (session(&pending), pending.question().handle());
    before.runtime.shutdown().await;
    let (now, _) = waiting().await;
    let answered = now
        .grants
        .continue_with_permission(&session, &handle, Answer::ONCE);
    let expired = (QuestionState::Settled(Decision::Expired), Vec::new());
    assert_eq!(answered.await.unwrap(), expired);
    assert!(before.board.posted().is_empty() && now.board.posted().is_empty());
}
