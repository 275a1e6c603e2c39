//! Tests of calls that require approval.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bailiwick::permission::{AskLimits, GrantHolder, Lifetime, NewGrant};
use bailiwick::tool::ToolName;
use bailiwick::worker::CallProgress;
use bailiwick::{Answer, Call, Code, Deferred, Policy, Question, Scripted, Verdict, WorkerSpec};

use serde_json::json;

use super::{Stage, at, stage};
use bailiwick_test_support::tools::Target;

/// An approver that records its questions and always returns `answer`.
fn always(answer: Answer) -> (Scripted, Arc<Mutex<Vec<Question>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    let approver = Scripted::new().rule(move |question| {
        seen.lock().unwrap().push(question.clone());
        Some(answer.clone())
    });
    (approver, asked)
}

fn asking() -> Policy {
    Policy::new().allow("read:file").ask("write:file:/r/src")
}

#[tokio::test]
async fn approved_write_is_previewed_once_and_applied() {
    let (approver, asked) = always(Answer::ONCE);
    let stage = stage(|builder| builder.approver(approver)).await;
    let worker = stage.worker(asking()).await;
    worker.call("post", at("src/x")).await.unwrap();
    assert_eq!(stage.board.posted(), ["/r/src/x"]);
    let question = asked.lock().unwrap()[0].clone();
    assert_eq!(
        question.request.needs,
        ["write:file:/r/src/x".parse().unwrap()]
    );
    assert_eq!(question.request.agent_path, ["main"]);
    assert_eq!(question.request.intent, "Post “src/x”");
    let preview = question.request.preview.as_ref().unwrap();
    assert_eq!(preview.intent, "Post “src/x”");
    assert_eq!(preview.changes.len(), 1);
    assert_eq!(stage.board.planned.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn call_with_too_many_needs_is_rejected_before_asking() {
    let (approver, asked) = always(Answer::ONCE);
    let stage = stage(|builder| builder.approver(approver)).await;
    let worker = stage.worker(Policy::new().ask("read:file")).await;
    let paths = |count: usize| {
        let paths: Vec<String> = (0..count).map(|n| format!("p{n}")).collect();
        json!({ "paths": paths })
    };
    let error = worker.call("gather", paths(21)).await.unwrap_err();
    assert_eq!(error.code(), Code::TooLarge);
    assert!(asked.lock().unwrap().is_empty());
    worker.call("gather", paths(20)).await.unwrap();
    assert_eq!(asked.lock().unwrap()[0].request.needs.len(), 20);
}

#[tokio::test]
async fn deferred_question_is_denied_after_the_grant_authority_is_dropped() {
    let stage = stage(|builder| builder.approver(Deferred)).await;
    let worker = stage.worker(asking()).await;
    let CallProgress::Pending(waiting) =
        worker.begin(Call::new("post", at("src/x"))).await.unwrap()
    else {
        panic!("nobody was asked");
    };
    let Stage {
        runtime, grants, ..
    } = stage;
    drop(grants);
    let later = Call::new("post", at("src/y"));
    for error in [
        waiting.resume().await.unwrap_err(),
        worker.submit(later).await.unwrap_err(),
    ] {
        assert_eq!(error.code(), Code::PermissionDenied, "{error}");
        assert!(error.message().contains("nobody could be asked"), "{error}");
    }
    runtime.shutdown().await;
}

#[tokio::test]
async fn typed_arguments_are_shown_and_have_different_hashes() {
    let (approver, asked) = always(Answer::ONCE);
    let stage = stage(|builder| builder.approver(approver)).await;
    let worker = stage.worker(asking()).await;
    let target = |path: &str| Target { path: path.into() };
    let post = ToolName::new("post");
    worker.call_typed(&post, target("src/x")).await.unwrap();
    worker.call_typed(&post, target("src/y")).await.unwrap();
    worker.call("post", at("src/z")).await.unwrap();
    let asked = asked.lock().unwrap();
    let [x, y, z] = &asked[..] else {
        panic!("{asked:?}")
    };
    let shown = x.request.arguments.as_str().unwrap();
    assert!(shown.contains("/r/src/x"), "{shown}");
    assert_ne!(x.request.arguments_hash, y.request.arguments_hash);
    assert_eq!(z.request.arguments, at("src/z"));
}

#[tokio::test]
async fn denial_changes_nothing_and_includes_the_note() {
    let (approver, _) = always(Answer::deny(Some("not there".into())));
    let stage = stage(|builder| builder.approver(approver)).await;
    let worker = stage.worker(asking()).await;
    let error = worker.call("post", at("src/x")).await.unwrap_err();
    assert_eq!(error.code(), Code::PermissionDenied);
    assert!(error.message().contains("not there"), "{error}");
    assert!(error.requested_scopes().is_empty());
    assert_eq!(stage.board.posted(), [""; 0]);
}

#[tokio::test]
async fn calls_denied_by_policy_are_not_asked_about() {
    let (approver, asked) = always(Answer::ONCE);
    let stage = stage(|builder| builder.approver(approver)).await;
    let worker = stage.worker(asking()).await;
    assert_eq!(
        worker.call("post", at("x")).await.unwrap_err().code(),
        Code::PermissionDenied
    );
    assert!(asked.lock().unwrap().is_empty());
    assert!(worker.call("post", at("src/x")).await.is_ok());
}

#[tokio::test]
async fn grant_with_two_uses_asks_again_at_the_third() {
    let uses = Lifetime::Uses(NonZeroU32::new(2).unwrap());
    let patterns = vec!["write:file:/r/src".parse().unwrap()];
    let (approver, asked) = always(Answer::Allow {
        patterns,
        lifetime: uses,
        descendants: false,
        left_out: Vec::new(),
    });
    let stage = stage(|builder| builder.approver(approver)).await;
    let worker = stage.worker(asking()).await;
    for (path, asked_so_far) in [("src/a", 1), ("src/b", 1), ("src/c", 2)] {
        worker.call("post", at(path)).await.unwrap();
        assert_eq!(asked.lock().unwrap().len(), asked_so_far, "{path}");
    }
}

#[tokio::test]
async fn session_grant_does_not_apply_to_siblings_of_equal_name() {
    for (lifetime, asked_in_all) in [(Lifetime::Session, 2), (Lifetime::Agent, 1)] {
        let (approver, asked) = always(Answer::Allow {
            patterns: vec!["write:file:/r/src".parse().unwrap()],
            lifetime,
            descendants: false,
            left_out: Vec::new(),
        });
        let stage = stage(|builder| builder.approver(approver)).await;
        let parent = stage.open().await;
        let spec = || WorkerSpec::new("tests").policy(asking());
        let first = parent.spawn(spec()).await.unwrap();
        let second = parent.spawn(spec()).await.unwrap();
        assert_eq!(first.agent(), second.agent());
        for path in ["src/a", "src/b"] {
            first.call("post", at(path)).await.unwrap();
        }
        assert_eq!(asked.lock().unwrap().len(), 1);
        second.call("post", at("src/c")).await.unwrap();
        assert_eq!(asked.lock().unwrap().len(), asked_in_all, "{lifetime:?}");
    }
}

#[tokio::test]
async fn grant_applies_to_its_holder_only() {
    let stage = stage(|builder| builder).await;
    let (holder, other) = (stage.worker(asking()).await, stage.worker(asking()).await);
    let grant = NewGrant {
        pattern: "write:file:/r/src".parse().unwrap(),
        holder: GrantHolder::Worker(holder.id()),
        lifetime: Lifetime::Session,
        descendants: false,
    };
    let id = stage.grants.grant(grant).await.unwrap();
    assert!(holder.call("post", at("src/x")).await.is_ok());
    assert_eq!(
        other.call("post", at("src/y")).await.unwrap_err().code(),
        Code::ScopeRequired
    );
    let child = holder
        .spawn(WorkerSpec::new("child").policy(asking()))
        .await
        .unwrap();
    assert_eq!(
        child.call("post", at("src/y")).await.unwrap_err().code(),
        Code::ScopeRequired
    );
    stage.grants.revoke(id).await.unwrap();
    assert_eq!(
        holder.call("post", at("src/y")).await.unwrap_err().code(),
        Code::ScopeRequired
    );
    assert_eq!(stage.board.posted(), ["/r/src/x"]);
}

#[tokio::test]
async fn grant_does_not_override_a_deny() {
    let stage = stage(|builder| builder).await;
    let worker = stage
        .worker(asking().deny("write:file:/r/src/secret"))
        .await;
    let grant = NewGrant {
        pattern: "write:file:/r/src".parse().unwrap(),
        holder: GrantHolder::Worker(worker.id()),
        lifetime: Lifetime::Session,
        descendants: false,
    };
    stage.grants.grant(grant).await.unwrap();
    assert_eq!(
        worker
            .call("post", at("src/secret/x"))
            .await
            .unwrap_err()
            .code(),
        Code::PermissionDenied
    );
    assert!(worker.call("post", at("src/open")).await.is_ok());
}

#[tokio::test]
async fn broad_grant_does_not_cover_protected_names() {
    let (approver, asked) = always(Answer::ONCE);
    let stage = stage(|builder| builder.approver(approver)).await;
    let worker = stage.open().await;
    let broad = NewGrant {
        pattern: "write:file:/r".parse().unwrap(),
        holder: GrantHolder::Worker(worker.id()),
        lifetime: Lifetime::Session,
        descendants: false,
    };
    stage.grants.grant(broad).await.unwrap();
    for path in [
        ".git/hooks/pre-commit",
        ".GIT/config",
        ".git/commondir",
        ".git/worktrees/w/commondir",
        ".git/modules/m/commondir",
        ".git/modules/m/info/attributes",
        "sub/.mcp.json",
    ] {
        worker.call("post", at(path)).await.unwrap();
        let question = asked.lock().unwrap().pop().unwrap();
        assert!(
            question.request.sensitive && question.request.choices.len() == 1,
            "{path}"
        );
    }
    worker.call("post", at("plain")).await.unwrap();
    assert!(asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn other_calls_run_while_one_waits_for_approval() {
    let stage = stage(|builder| builder.approver(Deferred)).await;
    let worker = stage.worker(asking().allow("write:file:/r/free")).await;
    let waiting = tokio::spawn({
        let worker = worker.clone();
        async move { worker.call("post", at("src/x")).await }
    });
    let question = stage.question_of(1).await;
    assert!(worker.call("echo", at("x")).await.is_ok());
    worker.call("post", at("free/y")).await.unwrap();
    assert!(!waiting.is_finished());
    stage.grants.answer(question, Answer::ONCE).await.unwrap();
    // The board changed after the approved preview.
    assert_eq!(
        waiting.await.unwrap().unwrap_err().code(),
        Code::StalePreview
    );
    assert_eq!(stage.board.posted(), ["/r/free/y"]);
}

#[tokio::test]
async fn revocation_cancels_a_call_waiting_for_approval() {
    let stage = stage(|builder| builder.approver(Deferred)).await;
    let worker = stage.worker(asking()).await;
    let waiting = tokio::spawn({
        let worker = worker.clone();
        async move { worker.call("post", at("src/x")).await }
    });
    stage.question_of(1).await;
    worker.revoke().await;
    assert_eq!(waiting.await.unwrap().unwrap_err().code(), Code::Cancelled);
    assert!(stage.grants.questions().await.unwrap().is_empty());
}

#[tokio::test]
async fn unanswered_question_expires() {
    let patience = Duration::from_millis(20);
    let stage = stage(|builder| {
        builder
            .approver(Deferred)
            .asks(AskLimits::default(), patience)
    })
    .await;
    let worker = stage.worker(asking()).await;
    let error = worker.call("post", at("src/x")).await.unwrap_err();
    assert_eq!(error.code(), Code::PermissionDenied);
    let by = error.details().get("denied_by").and_then(|by| by.as_str());
    assert_eq!(by, Some("nobody"), "neither a person nor a policy refused");
    assert_eq!(stage.board.posted(), [""; 0]);
}

#[tokio::test]
async fn flood_of_questions_is_limited() {
    let prompts = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&prompts);
    let approver = Scripted::new().rule(move |_| {
        seen.fetch_add(1, Ordering::SeqCst);
        Some(Answer::DENY)
    });
    let stage = stage(|builder| builder.approver(approver)).await;
    let worker = stage.worker(asking()).await;
    for n in 0..100 {
        worker
            .call("post", at(&format!("src/{n}")))
            .await
            .unwrap_err();
    }
    assert_eq!(prompts.load(Ordering::SeqCst), 10, "as many as in a minute");
}

#[tokio::test]
async fn preview_of_readable_targets_does_not_ask() {
    let (approver, asked) = always(Answer::DENY);
    let stage = stage(|builder| builder.approver(approver)).await;
    let worker = stage.worker(asking()).await;
    assert_eq!(
        worker
            .preview("post", at("src/x"))
            .await
            .unwrap()
            .changes
            .len(),
        1
    );
    assert!(asked.lock().unwrap().is_empty());
    assert_eq!(
        worker.preview("post", at("x")).await.unwrap_err().code(),
        Code::PermissionDenied
    );
    let blind = stage
        .worker(Policy::new().ask("write:file").otherwise(Verdict::Deny))
        .await;
    assert_eq!(
        blind.preview("post", at("src/x")).await.unwrap_err().code(),
        Code::PermissionDenied
    );
    assert_eq!(asked.lock().unwrap().len(), 1);
}
