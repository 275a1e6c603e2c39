//! Tests of applying a preview.

use bailiwick::effect::ExcludedChange;
use bailiwick::worker::CallProgress;
use bailiwick::{Call, CallMeta, Code, Deferred, Policy, VirtualPath};
use serde_json::json;

use super::{at, stage};

#[tokio::test]
async fn applied_preview_runs_the_previewed_call_with_its_metadata() {
    let stage = stage(|builder| builder).await;
    let worker = stage.worker(Policy::new().require_preview(true)).await;
    let preview = worker.preview("post", at("a")).await.unwrap();
    assert!(stage.board.posted().is_empty());
    let outcome = worker.apply(&preview).await.unwrap();
    assert_eq!(outcome.changes, preview.changes);
    assert_eq!(stage.board.posted(), ["/r/a"]);

    let narrow = CallMeta {
        policy: Some(json!({ "deny": ["*.key"] })),
        ..CallMeta::default()
    };
    let call = Call::new("post", at("b")).meta(narrow);
    let preview = worker.submit_preview(call).await.unwrap();
    assert!(preview.call().unwrap().meta.policy.is_some());
    assert!(worker.apply(&preview).await.is_ok());
}

#[tokio::test]
async fn preview_is_not_applied_once_the_state_has_changed() {
    let stage = stage(|builder| builder).await;
    let worker = stage.open().await;
    let preview = worker.preview("post", at("a")).await.unwrap();
    worker.call("post", at("b")).await.unwrap();
    let refused = worker.apply(&preview).await.unwrap_err();
    assert_eq!(refused.code(), Code::StalePreview);
    assert_eq!(stage.board.posted(), ["/r/b"]);
}

#[tokio::test]
async fn preview_of_another_worker_is_not_applied() {
    let stage = stage(|builder| builder).await;
    let (worker, other) = (stage.open().await, stage.open().await);
    let preview = worker.preview("post", at("a")).await.unwrap();
    let refused = other.apply(&preview).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArguments);
    assert!(refused.message().contains("another worker"), "{refused}");
    assert!(worker.apply(&preview).await.is_ok());
}

#[tokio::test]
async fn preview_with_grants_is_applied_with_grants() {
    let stage = stage(|builder| builder).await;
    let worker = stage.worker(Policy::ask_for_everything()).await;
    let granted = || vec!["write:file:/r/a".parse().unwrap()];
    let call = Call::new("post", at("a"));
    let preview = stage
        .grants
        .preview(&worker, call, granted())
        .await
        .unwrap();
    let refused = worker.apply(&preview).await.unwrap_err();
    assert_eq!(refused.code(), Code::ScopeRequired);
    let call = preview.call().unwrap();
    assert!(stage.grants.submit(&worker, call, granted()).await.is_ok());
}

#[tokio::test]
async fn preview_in_a_question_is_not_applied() {
    let stage = stage(|builder| builder.approver(Deferred)).await;
    let policy = Policy::new().allow("read:file").ask("write:file");
    let worker = stage.worker(policy).await;
    let asking = worker.begin(Call::new("post", at("a"))).await.unwrap();
    let CallProgress::Pending(pending) = asking else {
        panic!("nobody was asked");
    };
    let shown = pending.question().request.preview.as_ref().unwrap();
    assert!(shown.call().is_none());
    let refused = worker.apply(shown).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArguments);
}

#[tokio::test]
async fn excluding_hunks_of_an_indivisible_change_is_rejected() {
    let stage = stage(|builder| builder).await;
    let worker = stage.open().await;
    let preview = worker.preview("post", at("a")).await.unwrap();
    let excluded = [ExcludedChange {
        path: VirtualPath::parse("/r/a", None).unwrap(),
        hunks: Some(vec![0]),
    }];
    let refused = worker.apply_without(&preview, &excluded).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArguments);
    assert!(stage.board.posted().is_empty());
    assert!(worker.apply_without(&preview, &[]).await.is_ok());
}
