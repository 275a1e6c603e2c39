//! Tests of revocation, restarts and shutdown: no late effects, no lost callers.

use bailiwick::monitor::EventKind;
use bailiwick::permission::{DecidedBy, GrantHolder, Lifetime, NewGrant};
use bailiwick::worker::Admission;
use bailiwick::{Code, Origin, Policy, SpawnError, Worker, WorkerSpec};
use bailiwick_test_support::{cases, wait};

use super::{Board, Latch, Stage, at, stage, stage_with};

#[tokio::test]
async fn revocation_ends_the_subtree_of_a_worker_only() {
    let stage = stage(|builder| builder).await;
    let (parent, other) = (stage.open().await, stage.open().await);
    let child = parent
        .spawn(WorkerSpec::new("child").policy(Policy::new()))
        .await
        .unwrap();
    let grandchild = child
        .spawn(WorkerSpec::new("grandchild").policy(Policy::new()))
        .await
        .unwrap();
    assert!(grandchild.call("echo", at("x")).await.is_ok());
    let revoked = parent.revoke().await;
    assert_eq!((revoked.workers, revoked.unfinished), (3, 0));
    for worker in [&parent, &child, &grandchild] {
        assert_eq!(
            worker.call("echo", at("x")).await.unwrap_err().code(),
            Code::Cancelled
        );
        assert!(worker.status().revoked);
    }
    let late = child
        .spawn(WorkerSpec::new("late").policy(Policy::new()))
        .await;
    assert!(matches!(late, Err(SpawnError::Orphan)));
    assert!(other.call("echo", at("x")).await.is_ok());
    let revoked = parent.revoke().await;
    assert_eq!((revoked.workers, revoked.unfinished), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revocation_waits_for_a_begun_effect_and_prevents_later_ones() {
    let (before, within) = (Latch::default(), Latch::default());
    let board = Board {
        before: Some(before.clone()),
        within: Some(within.clone()),
        ..Board::default()
    };
    let stage = stage_with(board, |builder| builder).await;
    let (begun, waiting) = (stage.open().await, stage.open().await);
    let first = tokio::spawn({
        let begun = begun.clone();
        async move { begun.call("post", at("a/begun")).await }
    });
    before.wait_for(1).await;
    before.open();
    within.wait_for(1).await;
    let revoking = tokio::spawn({
        let begun = begun.clone();
        async move { begun.revoke().await }
    });
    begun.revoked().await;
    assert!(!revoking.is_finished());
    within.open();
    assert_eq!(revoking.await.unwrap().unfinished, 0);
    assert_eq!(stage.board.posted(), ["/r/a/begun"]);
    assert!(first.await.unwrap().is_ok());
    waiting.revoke().await;
    assert_eq!(
        waiting.call("post", at("b/late")).await.unwrap_err().code(),
        Code::Cancelled
    );
    assert_eq!(stage.board.posted(), ["/r/a/begun"]);
}

#[tokio::test]
async fn revocation_waits_for_a_prepared_change_and_prevents_it() {
    let before = Latch::default();
    let board = Board {
        before: Some(before.clone()),
        ..Board::default()
    };
    let stage = stage_with(board, |builder| builder).await;
    let worker = stage.open().await;
    let call = tokio::spawn({
        let worker = worker.clone();
        async move { worker.call("post", at("prepared")).await }
    });
    before.wait_for(1).await;
    let revoking = tokio::spawn({
        let worker = worker.clone();
        async move { worker.revoke().await }
    });
    // The caller does not wait for the tool, which may still hold files that it prepared.
    assert_eq!(call.await.unwrap().unwrap_err().code(), Code::Cancelled);
    wait::until_idle().await;
    assert!(!revoking.is_finished());
    before.open();
    assert_eq!(revoking.await.unwrap().unfinished, 0);
    assert!(stage.board.posted().is_empty());
}

/// A worker and its child, whose effect has begun and waits for a latch.
async fn with_an_effect_under_way() -> (Stage, Latch, Worker, Worker) {
    let within = Latch::default();
    let board = Board {
        within: Some(within.clone()),
        ..Board::default()
    };
    let stage = stage_with(board, |builder| builder).await;
    let parent = stage.open().await;
    let child = WorkerSpec::new("child").policy(Policy::new());
    let child = parent.spawn(child).await.unwrap();
    tokio::spawn({
        let child = child.clone();
        async move { child.call("post", at("begun")).await }
    });
    within.wait_for(1).await;
    (stage, within, parent, child)
}

#[tokio::test]
async fn concurrent_revocations_all_wait_for_a_begun_effect() {
    let (stage, within, parent, child) = with_an_effect_under_way().await;
    let revoke = |worker: &Worker| {
        let worker = worker.clone();
        tokio::spawn(async move { worker.revoke().await })
    };
    let shutdown = {
        let runtime = stage.runtime.clone();
        async move { runtime.shutdown().await }
    };
    let mut revokers = Vec::new();
    for worker in [&child, &child, &parent, &child, &parent] {
        revokers.push(revoke(worker));
        wait::until_idle().await;
    }
    revokers.push(tokio::spawn(shutdown));
    wait::until_idle().await;
    assert!(parent.status().revoked && child.status().revoked);
    assert!(revokers.iter().all(|revoker| !revoker.is_finished()));
    within.open();
    let mut workers = 0;
    for revoker in revokers {
        let revoked = revoker.await.unwrap();
        assert_eq!(revoked.unfinished, 0);
        assert_eq!(stage.board.posted(), ["/r/begun"]);
        workers += revoked.workers;
    }
    assert_eq!(workers, 2, "each worker is revoked once");
    assert_eq!(child.revoke().await.workers, 0);
}

#[tokio::test]
async fn revocation_after_runtime_drop_waits_for_a_begun_effect() {
    let (stage, within, parent, child) = with_an_effect_under_way().await;
    let board = stage.board.clone();
    drop(stage);
    assert!(parent.status().revoked && child.status().revoked);
    let revoking = tokio::spawn(async move { parent.revoke().await });
    wait::until_idle().await;
    assert!(!revoking.is_finished());
    within.open();
    assert_eq!(revoking.await.unwrap().unfinished, 0);
    assert_eq!(board.posted(), ["/r/begun"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_effect_follows_a_concurrent_revocation() {
    for round in 0..cases(200) {
        let stage = stage(|builder| builder).await;
        let parent = stage.open().await;
        let worker = WorkerSpec::new("child").policy(Policy::new());
        let worker = parent.spawn(worker).await.unwrap();
        let posts: Vec<_> = (0..4)
            .map(|n| {
                let worker = worker.clone();
                tokio::spawn(async move { worker.call("post", at(&n.to_string())).await.is_ok() })
            })
            .collect();
        let revokers = (0..4).map(|n| {
            let worker = if (round + n) % 2 == 0 {
                &worker
            } else {
                &parent
            };
            let (worker, board) = (worker.clone(), stage.board.clone());
            tokio::spawn(async move {
                worker.revoke().await;
                board.posted()
            })
        });
        let revokers: Vec<_> = revokers.collect();
        stage.runtime.shutdown().await;
        let settled = stage.board.posted();
        for post in posts {
            post.await.unwrap();
        }
        for revoker in revokers {
            assert_eq!(revoker.await.unwrap(), settled);
        }
        assert_eq!(stage.board.posted(), settled);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_the_last_handle_revokes_all_workers() {
    let stage = stage(|builder| builder).await;
    let worker = stage.open().await;
    let call = tokio::spawn({
        let worker = worker.clone();
        async move { worker.call("hangs", at("x")).await }
    });
    stage.latch.wait_for(1).await;
    let latch = stage.latch.clone();
    drop(stage);
    assert_eq!(call.await.unwrap().unwrap_err().code(), Code::Cancelled);
    assert_eq!(
        worker.call("echo", at("x")).await.unwrap_err().code(),
        Code::Cancelled
    );
    latch.open();
}

#[tokio::test]
async fn shutdown_revokes_every_worker_and_audits_it() {
    let stage = stage(|builder| builder).await;
    let parent = stage.open().await;
    parent
        .spawn(WorkerSpec::new("child").policy(Policy::new()))
        .await
        .unwrap();
    stage.open().await;
    let revoked = stage.runtime.shutdown().await;
    assert_eq!((revoked.workers, revoked.unfinished), (3, 0));
    let steps = stage.steps().await;
    assert_eq!(steps.iter().filter(|step| *step == "revoked").count(), 3);
}

#[tokio::test]
async fn no_worker_is_started_after_shutdown() {
    let stage = stage(|builder| builder).await;
    let parent = stage.open().await;
    stage.runtime.shutdown().await;
    let spec = || WorkerSpec::new("late").policy(Policy::new());
    for late in [
        stage.runtime.spawn(spec()).await,
        parent.spawn(spec()).await,
    ] {
        let error = late.unwrap_err();
        assert!(matches!(error, SpawnError::Closed), "{error:?}");
        assert_eq!(error.code(), Code::Cancelled);
    }
}

#[tokio::test]
async fn each_step_of_a_call_is_audited_in_order() {
    let stage = stage(|builder| builder).await;
    let worker = stage
        .worker(Policy::new().allow("read:file").allow("write:file:/r/src"))
        .await;
    worker.call("post", at("src/x")).await.unwrap();
    worker.call("post", at("x")).await.unwrap_err();
    let expected = [
        "spawned",
        "judged",
        "planned",
        "applying",
        "applied",
        "artifacts",
        "finished",
        "judged",
        "denied PERMISSION_DENIED",
        "finished PERMISSION_DENIED",
    ];
    assert_eq!(stage.steps().await, expected);
}

#[tokio::test]
async fn records_of_a_worker_say_who_caused_them() {
    let stage = stage(|builder| builder).await;
    let spec = WorkerSpec::new("main").policy(Policy::new());
    let spec = spec.written_by(Origin::Model);
    let worker = stage.runtime.spawn(spec).await.unwrap();
    let mut events = stage.runtime.events();
    worker.revoke().await;
    while events.recv().await.unwrap().kind != EventKind::WorkerEnded {}
    let other = stage.worker(Policy::new()).await;
    other.revoke_by(DecidedBy::Person).await;
    for (step, expected) in [
        ("spawned", ["model", "human"]),
        ("revoked", ["host", "human"]),
        ("worker_stopped", ["host", "host"]),
    ] {
        let origins = stage.texts(step, "/event/origin").await;
        assert_eq!(
            origins,
            expected.map(|origin| Some(origin.to_owned())),
            "{step}"
        );
    }
}

#[tokio::test]
async fn audit_has_policy_deciding_rules_and_end_of_a_worker() {
    let stage = stage(|builder| builder).await;
    let worker = stage
        .worker(
            Policy::new()
                .ask("write:file")
                .deny("read:file:/r/x")
                .allow("read:file"),
        )
        .await;
    worker.call("echo", at("y")).await.unwrap();
    worker.call("echo", at("x")).await.unwrap_err();
    worker.call("post", at("y")).await.unwrap_err();
    let grant = NewGrant {
        pattern: "write:file:/r/y".parse().unwrap(),
        holder: GrantHolder::Worker(worker.id()),
        lifetime: Lifetime::Once,
        descendants: false,
    };
    stage.grants.grant(grant).await.unwrap();
    worker.call("post", at("y")).await.unwrap();
    let asks = "agent/0: a person must be asked (ask_scopes: `write:file`)";
    let denies = "deny: agent/0: a denied scope covers it (deny_scopes: `read:file:/r/x`)";
    let (asked, granted) = (format!("ask: {asks}"), format!("allow: {asks}"));
    let rules = [
        Some(denies),
        Some(asked.as_str()),
        Some(asked.as_str()),
        Some(granted.as_str()),
    ];
    assert_eq!(
        stage.texts("judged", "/event/rule").await,
        rules.map(|rule| rule.map(str::to_owned))
    );
    let policy = r#"{"allow_scopes":["read:file"],"ask_scopes":["write:file"],"deny_scopes":["read:file:/r/x"]}"#;
    assert_eq!(
        stage.texts("spawned", "/event/policy").await,
        [Some(policy.to_owned())]
    );
    let mut events = stage.runtime.events();
    worker.revoke().await;
    while events.recv().await.unwrap().kind != EventKind::WorkerEnded {}
    assert_eq!(
        stage.texts("worker_stopped", "/event/agent").await,
        [Some("main".to_owned())]
    );
}

#[tokio::test]
async fn call_that_exceeds_the_bytes_by_itself_is_too_large() {
    let bounds = Admission {
        bytes: 1000,
        ..Admission::default()
    };
    let stage = stage(|builder| builder.admission(bounds)).await;
    let worker = stage.worker(Policy::new()).await;
    for (length, code) in [(100, None), (2000, Some(Code::TooLarge))] {
        let called = worker.call("echo", at(&"x".repeat(length))).await;
        let error = called.err();
        assert_eq!(error.as_ref().map(bailiwick::CallError::code), code);
        assert!(error.is_none_or(|error| !error.details().contains_key("retry_after_ms")));
    }
}

#[tokio::test]
async fn rejected_spawns_and_calls_are_audited() {
    let stage = stage(|builder| {
        builder.admission(Admission {
            calls: 0,
            ..Admission::default()
        })
    })
    .await;
    let worker = stage.worker(Policy::new().allow("read:file")).await;
    let wider = WorkerSpec::new("wider").policy(Policy::new().allow("write:file"));
    worker.spawn(wider).await.unwrap_err();
    worker.call("echo", at("x")).await.unwrap_err();
    worker.revoke().await;
    worker.call("echo", at("x")).await.unwrap_err();
    let expected = [
        "spawned",
        "denied POLICY_EXPANSION",
        "failed BUSY",
        "finished BUSY",
        "revoked",
        "failed CANCELLED",
        "finished CANCELLED",
    ];
    let mut steps = stage.steps().await;
    // The actor ends by itself, before or after the last call.
    steps.retain(|step| step != "worker_stopped");
    assert_eq!(steps, expected);
}
