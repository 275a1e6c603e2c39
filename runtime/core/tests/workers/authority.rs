//! Tests that children, budgets, call policies and previews never exceed the parent's authority.

use bailiwick::worker::Budget;
use bailiwick::{Call, CallMeta, Code, Policy, SpawnError, Verdict, WorkerSpec};
use serde_json::{Value, json};

use super::{at, stage};

#[tokio::test]
async fn child_policy_may_narrow_but_not_widen() {
    let stage = stage(|builder| builder).await;
    let parent = stage
        .worker(Policy::new().allow("read:file").allow("write:file:/r/src"))
        .await;
    let more = parent
        .spawn(WorkerSpec::new("more").policy(Policy::new().allow("write:file:/r")))
        .await;
    assert!(matches!(more, Err(SpawnError::Policy(_))), "{more:?}");
    let less = parent
        .spawn(WorkerSpec::new("less").policy(Policy::new().allow("write:file:/r/src/a")))
        .await
        .unwrap();
    assert!(less.call("post", at("/r/src/a/x")).await.is_ok());
    assert_eq!(
        less.call("post", at("/r/src/b")).await.unwrap_err().code(),
        Code::PermissionDenied
    );
    assert_eq!(less.agent(), "main/less");
}

#[tokio::test]
async fn coordinator_delegates_scopes_that_it_may_not_use() {
    let stage = stage(|builder| builder).await;
    let coordinator = stage
        .worker(
            Policy::new()
                .allow("read:file")
                .delegate_only("write:file:/r/src"),
        )
        .await;
    assert_eq!(
        coordinator
            .call("post", at("src/x"))
            .await
            .unwrap_err()
            .code(),
        Code::PermissionDenied
    );
    let child = coordinator
        .spawn(WorkerSpec::new("child").policy(Policy::new().allow("write:file:/r/src")))
        .await;
    assert!(child.unwrap().call("post", at("/r/src/x")).await.is_ok());
    assert_eq!(stage.board.posted(), ["/r/src/x"]);
}

#[tokio::test]
async fn worker_without_a_policy_must_ask_for_everything() {
    let stage = stage(|builder| builder).await;
    let worker = stage.runtime.spawn(WorkerSpec::new("new")).await.unwrap();
    let error = worker.call("echo", at("x")).await.unwrap_err();
    assert_eq!(error.code(), Code::ScopeRequired);
    assert_eq!(
        error.requested_scopes(),
        ["read:file:/r/x".parse().unwrap()]
    );
}

#[tokio::test]
async fn call_policy_narrows_one_call_and_cannot_widen_it() {
    let stage = stage(|builder| builder).await;
    let worker = stage.worker(Policy::new().allow("read:file:/r/src")).await;
    let with = |policy| {
        Call::new("echo", at("src/x")).meta(CallMeta {
            policy: Some(policy),
            ..CallMeta::default()
        })
    };
    let narrowed = worker
        .submit(with(json!({ "roots": [{ "path": "/r/src/sub" }] })))
        .await
        .unwrap_err();
    assert_eq!(narrowed.code(), Code::PermissionDenied);
    let widened = worker
        .submit(with(json!({ "allow_scopes": ["read:file:/r"] })))
        .await
        .unwrap_err();
    assert_eq!(widened.code(), Code::PolicyExpansion);
    let unknown = worker
        .submit(with(json!({ "allow_all": true })))
        .await
        .unwrap_err();
    assert_eq!(unknown.code(), Code::PolicyInvalid);
    assert!(worker.call("echo", at("src/x")).await.is_ok());
}

#[tokio::test]
async fn call_policy_limits_apply_to_one_call() {
    let stage = stage(|builder| builder).await;
    let worker = stage.open().await;
    let with = |policy| {
        Call::new("post", at("src/x")).meta(CallMeta {
            policy: Some(policy),
            ..CallMeta::default()
        })
    };
    let hour = 3_600_000;
    for (tight, code, roomy) in [
        (
            json!({ "budget": { "bytes_written": 9 } }),
            Code::Budget,
            json!({ "budget": { "bytes_written": 10 } }),
        ),
        (
            json!({ "budget": { "files_touched": 0 } }),
            Code::Budget,
            json!({ "budget": { "files_touched": 1 } }),
        ),
        (
            json!({ "budget": { "calls": 0 } }),
            Code::Budget,
            json!({ "budget": { "calls": 1 }, "max_calls": 1 }),
        ),
        (
            json!({ "min_interval_ms": hour }),
            Code::RateLimited,
            json!({ "min_interval_ms": 0, "ttl_ms": hour }),
        ),
    ] {
        worker.submit_preview(with(roomy.clone())).await.unwrap();
        worker.submit(with(roomy)).await.unwrap();
        let refused = worker
            .submit_preview(with(tight.clone()))
            .await
            .unwrap_err();
        assert_eq!(refused.code(), code);
        let refused = worker.submit(with(tight)).await.unwrap_err();
        assert_eq!(refused.code(), code);
    }
    assert_eq!(stage.board.posted().len(), 4);
}

#[tokio::test]
async fn child_charges_its_parents_budget() {
    let stage = stage(|builder| builder).await;
    let budget = Budget {
        bytes_written: Some(30),
        children: Some(1),
        ..Budget::default()
    };
    let parent = stage
        .runtime
        .spawn(
            WorkerSpec::new("parent")
                .policy(Policy::new())
                .budget(budget),
        )
        .await
        .unwrap();
    let child = parent
        .spawn(WorkerSpec::new("child").policy(Policy::new()))
        .await
        .unwrap();
    assert!(matches!(
        parent.spawn(WorkerSpec::new("second")).await,
        Err(SpawnError::Budget(_))
    ));
    for path in ["a", "b", "c"] {
        child.preview("post", at(path)).await.unwrap();
        child.call("post", at(path)).await.unwrap();
    }
    // A change that exceeds the budget is not previewed either.
    let refused = child.preview("post", at("d")).await.unwrap_err();
    assert_eq!(refused.code(), Code::Budget);
    assert_eq!(
        child.call("post", at("d")).await.unwrap_err().code(),
        Code::Budget
    );
    assert_eq!(
        parent.call("post", at("d")).await.unwrap_err().code(),
        Code::Budget
    );
    assert_eq!(stage.board.posted().len(), 3);
}

#[tokio::test]
async fn preview_changes_nothing_and_its_token_fits_only_its_call() {
    let stage = stage(|builder| builder).await;
    let worker = stage.open().await;
    let preview = worker.preview("post", at("x")).await.unwrap();
    assert_eq!(stage.board.posted(), [""; 0]);
    let approved = |path: &str| {
        let meta = CallMeta {
            preview_token: Some(preview.token),
            ..CallMeta::default()
        };
        Call::new("post", at(path)).meta(meta)
    };
    assert_eq!(
        worker.submit(approved("y")).await.unwrap_err().code(),
        Code::InvalidArguments
    );
    let other = stage.open().await;
    assert_eq!(
        other.submit(approved("x")).await.unwrap_err().code(),
        Code::InvalidArguments
    );
    let outcome = worker.submit(approved("x")).await.unwrap();
    assert_eq!(
        outcome.structured().unwrap(),
        preview.reply.output.to_json().unwrap()
    );
    assert_eq!(
        worker.submit(approved("x")).await.unwrap_err().code(),
        Code::StalePreview
    );
    assert_eq!(stage.board.posted(), ["/r/x"]);
    assert_eq!(
        worker.preview("echo", at("x")).await.unwrap_err().code(),
        Code::InvalidArguments
    );
}

#[tokio::test]
async fn hidden_and_unknown_tools_get_the_same_error() {
    let stage = stage(|builder| builder).await;
    let worker = stage.worker(Policy::new().tools(["echo"])).await;
    let hidden = worker.call("post", at("x")).await.unwrap_err();
    let absent = worker.call("past", at("x")).await.unwrap_err();
    assert_eq!(hidden.code(), Code::UnknownTool);
    assert_eq!(hidden.message().replace("post", "past"), absent.message());
    assert_eq!(
        worker
            .tools()
            .iter()
            .map(|tool| &*tool.spec.name)
            .collect::<Vec<_>>(),
        ["echo"]
    );
    assert!(worker.call("echo", at("x")).await.is_ok());
}

#[tokio::test]
async fn invalid_arguments_are_rejected() {
    let stage = stage(|builder| builder).await;
    let worker = stage.open().await;
    for arguments in [
        json!({}),
        json!({ "path": 1 }),
        json!({ "path": "x", "granted_scopes": ["*"] }),
        json!([1]),
    ] {
        let error = worker.call("echo", arguments).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArguments);
    }
    assert_eq!(
        worker.call("echo", at("../../x")).await.unwrap_err().code(),
        Code::InvalidArguments
    );
}

#[tokio::test]
async fn explain_returns_the_verdict_without_planning() {
    let stage = stage(|builder| builder).await;
    let worker = stage
        .worker(Policy::new().allow("read:file").ask("write:file:/r/src"))
        .await;
    let verdict = |path: &str| worker.explain(&Call::new("post", at(path))).unwrap()[0].verdict;
    assert_eq!(verdict("src/x"), Verdict::Ask);
    assert_eq!(verdict("x"), Verdict::Deny);
    assert_eq!(
        stage
            .board
            .planned
            .load(std::sync::atomic::Ordering::SeqCst),
        0
    );
}

#[tokio::test]
async fn policy_limits_apply_to_the_worker_and_its_children() {
    let stage = stage(|builder| builder).await;
    let few = stage.worker(Policy::new().max_calls(2)).await;
    let child = few
        .spawn(WorkerSpec::new("child").policy(Policy::new()))
        .await
        .unwrap();
    assert!(few.call("echo", at("x")).await.is_ok());
    assert!(child.call("echo", at("x")).await.is_ok());
    assert_eq!(
        child.call("echo", at("x")).await.unwrap_err().code(),
        Code::Budget
    );

    let slow = stage.worker(Policy::new().min_interval_ms(60_000)).await;
    assert!(slow.call("echo", at("x")).await.is_ok());
    let early = slow.call("echo", at("x")).await.unwrap_err();
    assert_eq!(early.code(), Code::RateLimited);
    assert!(early.details()["retry_after_ms"].as_u64().unwrap() > 50_000);
}

#[tokio::test]
async fn error_of_a_call_after_the_end_of_its_worker_says_why_it_ended() {
    let stage = stage(|builder| builder).await;
    let revoked = stage.open().await;
    revoked.revoke().await;
    let expired = stage.worker(Policy::new().ttl_ms(1)).await;
    expired.revoked().await;
    let running = stage.open().await;
    stage.runtime.shutdown().await;
    for (worker, cause) in [
        (revoked, "worker_revoked"),
        (expired, "worker_expired"),
        (running, "runtime_ended"),
    ] {
        let error = worker.call("echo", at("x")).await.unwrap_err();
        assert_eq!(error.code(), Code::Cancelled);
        assert_eq!(error.details()["cause"], cause, "{error}");
    }
}

#[tokio::test]
async fn worker_ends_after_its_ttl() {
    let stage = stage(|builder| builder).await;
    let (brief, long) = (
        stage.worker(Policy::new().ttl_ms(30)).await,
        stage.open().await,
    );
    brief.revoked().await;
    assert_eq!(
        brief.call("echo", at("x")).await.unwrap_err().code(),
        Code::Cancelled
    );
    assert!(long.call("echo", at("x")).await.is_ok());
}

#[tokio::test]
async fn link_target_is_judged_without_a_declared_need() {
    let stage = stage(|builder| builder).await;
    let kept_out = stage
        .worker(Policy::new().deny("write:file:/r/secret"))
        .await;
    assert_eq!(
        kept_out.call("strays", at("x")).await.unwrap_err().code(),
        Code::NotFound
    );
    assert_eq!(stage.board.posted(), [""; 0]);
    stage.open().await.call("strays", at("x")).await.unwrap();
    assert_eq!(stage.board.posted(), ["/r/secret"]);
}

#[tokio::test]
async fn positional_arguments_are_rejected() {
    let stage = stage(|builder| builder).await;
    let worker = stage.open().await;
    for arguments in [json!(["x"]), json!([]), json!("x"), json!(1)] {
        let error = worker.call("post", arguments.clone()).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArguments, "{arguments}");
    }
    assert_eq!(stage.board.posted(), [""; 0]);
    worker.call("post", at("x")).await.unwrap();
}

#[tokio::test]
async fn too_deeply_nested_arguments_are_rejected() {
    let stage = stage(|builder| builder).await;
    let worker = stage.open().await;
    // `json!` would serialise the value and recurse through all of its levels.
    let nested = |key: &str, levels| {
        let inner = (0..levels).fold(json!("x"), |inner, _| Value::Array(vec![inner]));
        Value::Object([(key.to_owned(), inner)].into_iter().collect())
    };
    for (levels, message) in [(126, "expected a string"), (2_000, "128 levels")] {
        let deep = worker.call("post", nested("path", levels)).await;
        let error = deep.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArguments);
        assert!(error.message().contains(message), "{error}");
        let meta = CallMeta {
            policy: Some(nested("deny", levels)),
            ..CallMeta::default()
        };
        let limited = worker.submit(Call::new("post", at("x")).meta(meta)).await;
        assert!(limited.is_err());
    }
    worker.call("post", at("x")).await.unwrap();
}
