//! Tests of pausing: new calls of a worker and its descendants wait until it is resumed.

use std::time::Duration;

use bailiwick::monitor::{EventKind, Events};
use bailiwick::permission::DecidedBy;
use bailiwick::worker::{Admission, CallProgress, CallState};
use bailiwick::{
    Answer, Call, CallError, CallMeta, Code, Deferred, Outcome, Policy, Worker, WorkerSpec,
};
use tokio::task::JoinHandle;

use super::{at, stage};

/// Starts a call, and waits until the worker has received it.
async fn received(
    events: &mut Events,
    worker: &Worker,
    call: Call,
) -> JoinHandle<Result<Outcome, CallError>> {
    let worker = worker.clone();
    let task = tokio::spawn(async move { worker.submit(call).await });
    while !matches!(
        events.recv().await.unwrap().kind,
        EventKind::CallStarted { .. }
    ) {}
    task
}

fn with_deadline(deadline: Duration) -> Call {
    Call::new("echo", at("late")).meta(CallMeta {
        deadline: Some(deadline),
        ..CallMeta::default()
    })
}

#[tokio::test]
async fn paused_worker_runs_new_calls_after_it_is_resumed_in_their_order() {
    let stage = stage(|builder| builder).await;
    let mut events = stage.runtime.events();
    let (worker, other) = (stage.open().await, stage.open().await);
    worker.pause(DecidedBy::Person);
    assert!(worker.is_paused() && !other.is_paused());
    let mut calls = Vec::new();
    for name in ["a", "b", "c"] {
        calls.push(received(&mut events, &worker, Call::new("post", at(name))).await);
    }
    // The other worker is not affected.
    other.call("post", at("other")).await.unwrap();
    assert_eq!(stage.board.posted(), ["/r/other"]);
    // The worker has handled the first two when it reports the third.
    let states: Vec<_> = worker.activity().iter().map(|call| call.state).collect();
    assert_eq!(states[..2], [CallState::Paused; 2]);
    worker.resume(DecidedBy::Person).unwrap();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert!(!worker.is_paused());
    let posted = stage.board.posted();
    assert_eq!(posted, ["/r/other", "/r/a", "/r/b", "/r/c"]);
}

#[tokio::test]
async fn paused_parent_pauses_descendants_that_are_not_paused_themselves() {
    let stage = stage(|builder| builder).await;
    let main = stage.open().await;
    let spec = |name: &str| WorkerSpec::new(name).policy(Policy::inherit());
    let child = main.spawn(spec("child")).await.unwrap();
    let grandchild = child.spawn(spec("grandchild")).await.unwrap();
    main.pause(DecidedBy::Host);
    let late = child.spawn(spec("late")).await.unwrap();
    child.pause(DecidedBy::Host);
    assert!([&main, &child, &grandchild, &late].map(Worker::is_paused) == [true; 4]);
    let mut events = stage.runtime.events();
    let waiting = received(&mut events, &grandchild, Call::new("echo", at("x"))).await;
    let of_main = received(&mut events, &main, Call::new("echo", at("y"))).await;
    main.resume(DecidedBy::Host).unwrap();
    of_main.await.unwrap().unwrap();
    assert!(!main.is_paused() && grandchild.is_paused() && late.is_paused());
    assert!(!waiting.is_finished());
    child.resume(DecidedBy::Host).unwrap();
    waiting.await.unwrap().unwrap();
    late.call("echo", at("z")).await.unwrap();
}

#[tokio::test]
async fn paused_calls_end_at_their_deadline_and_do_not_run_later() {
    let stage = stage(|builder| builder).await;
    let worker = stage.open().await;
    worker.pause(DecidedBy::Person);
    let late = worker
        .submit(with_deadline(Duration::from_millis(20)))
        .await;
    let error = late.unwrap_err();
    assert_eq!(error.code(), Code::Deadline);
    assert!(error.message().contains("paused"), "{error}");
    worker.resume(DecidedBy::Person).unwrap();
    worker
        .submit(with_deadline(Duration::from_secs(60)))
        .await
        .unwrap();
    assert_eq!(worker.status().in_flight, 0);
}

#[tokio::test]
async fn revoking_a_paused_worker_ends_its_waiting_calls() {
    let stage = stage(|builder| builder).await;
    let mut events = stage.runtime.events();
    let worker = stage.open().await;
    worker.pause(DecidedBy::Person);
    let waiting = received(&mut events, &worker, Call::new("post", at("x"))).await;
    let revoked = worker.revoke().await;
    assert_eq!((revoked.workers, revoked.unfinished), (1, 0));
    assert_eq!(waiting.await.unwrap().unwrap_err().code(), Code::Cancelled);
    worker.resume(DecidedBy::Person).unwrap();
    let after = worker.call("post", at("y")).await;
    assert_eq!(after.unwrap_err().code(), Code::Cancelled);
    assert_eq!(stage.board.posted(), Vec::<String>::new());
}

#[tokio::test]
async fn cancelled_paused_call_is_not_run_by_a_resume() {
    let stage = stage(|builder| builder).await;
    let mut events = stage.runtime.events();
    let worker = stage.open().await;
    worker.pause(DecidedBy::Person);
    let cancelled = received(&mut events, &worker, Call::new("post", at("x"))).await;
    let kept = received(&mut events, &worker, Call::new("post", at("y"))).await;
    cancelled.abort();
    assert!(cancelled.await.unwrap_err().is_cancelled());
    worker.resume(DecidedBy::Person).unwrap();
    kept.await.unwrap().unwrap();
    assert_eq!(stage.board.posted(), ["/r/y"]);
}

#[tokio::test]
async fn running_calls_and_open_questions_go_on_while_paused() {
    let stage = stage(|builder| builder.approver(Deferred)).await;
    let policy = Policy::new().allow("read:file").ask("write:file");
    let worker = stage.worker(policy).await;
    let running = tokio::spawn({
        let worker = worker.clone();
        async move { worker.call("hangs", at("a")).await }
    });
    stage.latch.wait_for(1).await;
    let asking = worker.begin(Call::new("post", at("b"))).await.unwrap();
    let CallProgress::Pending(pending) = asking else {
        panic!("nobody was asked");
    };
    worker.pause(DecidedBy::Person);
    stage.latch.open();
    running.await.unwrap().unwrap();
    stage.answer(&pending, Answer::ONCE).await;
    assert!(matches!(pending.resume().await, Ok(CallProgress::Ended(_))));
    assert_eq!(stage.board.posted(), ["/r/b"]);
}

#[tokio::test]
async fn paused_calls_count_toward_the_admission_limits() {
    let bounds = Admission {
        calls: 2,
        ..Admission::default()
    };
    let stage = stage(|builder| builder.admission(bounds)).await;
    let mut events = stage.runtime.events();
    let worker = stage.open().await;
    worker.pause(DecidedBy::Person);
    let mut waiting = Vec::new();
    for name in ["a", "b"] {
        waiting.push(received(&mut events, &worker, Call::new("echo", at(name))).await);
    }
    let third = worker.call("echo", at("c")).await;
    assert_eq!(third.unwrap_err().code(), Code::Busy);
    worker.resume(DecidedBy::Person).unwrap();
    for call in waiting {
        call.await.unwrap().unwrap();
    }
    worker.call("echo", at("c")).await.unwrap();
}

#[tokio::test]
async fn pauses_are_audited_once_with_who_and_reported_as_events() {
    let stage = stage(|builder| builder).await;
    let worker = stage.open().await;
    let mut events = stage.runtime.events();
    worker.pause(DecidedBy::Person);
    worker.pause(DecidedBy::Person);
    worker.resume(DecidedBy::Host).unwrap();
    worker.resume(DecidedBy::Host).unwrap();
    for expected in [
        EventKind::WorkerPaused {
            by: DecidedBy::Person,
        },
        EventKind::WorkerResumed {
            by: DecidedBy::Host,
        },
    ] {
        let event = events.recv().await.unwrap();
        assert_eq!((event.worker, event.kind), (Some(worker.id()), expected));
    }
    let by = |step: &'static str| stage.texts(step, "/event/by");
    let origin = |step: &'static str| stage.texts(step, "/event/origin");
    assert_eq!(by("paused").await, [Some("person".to_owned())]);
    assert_eq!(origin("paused").await, [Some("human".to_owned())]);
    assert_eq!(by("resumed").await, [Some("host".to_owned())]);
    assert_eq!(origin("resumed").await, [Some("host".to_owned())]);
}
