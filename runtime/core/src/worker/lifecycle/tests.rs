//! Tests of actors that start with a call and end when their worker is idle.

use std::task::{Context, Waker};
use std::time::Duration;

use bailiwick_test_support::wait;
use ractor::ActorId;
use serde_json::json;

use crate::error::{CallError, Code};
use crate::permission::DecidedBy;
use crate::supervisor::tests::{restarted, runtime};
use crate::worker::actor::WorkerMsg;
use crate::worker::{Worker, WorkerSpec};
use crate::{MemoryAudit, Policy, Runtime};

async fn worker(runtime: &Runtime, policy: Policy) -> Worker {
    let spec = WorkerSpec::new("main").policy(policy);
    runtime.spawn(spec).await.unwrap()
}

async fn call(worker: &Worker, path: &str) -> Result<String, CallError> {
    let done = worker.call("hold", json!({ "path": path })).await;
    done.map(|outcome| outcome.text())
}

/// The actors that run.
fn actors(worker: &Worker) -> Vec<ActorId> {
    let actors = worker.shared.core.actors.running.iter();
    actors.map(|entry| *entry.key()).collect()
}

fn end_idle_actors(worker: &Worker) {
    worker.shared.core.end_idle_actors(Duration::ZERO);
}

/// Ends the actor of an idle worker.
async fn end_actor(worker: &Worker) {
    while !actors(worker).is_empty() {
        end_idle_actors(worker);
        tokio::task::yield_now().await;
    }
}

/// How many records have that step.
async fn recorded(runtime: &Runtime, audit: &MemoryAudit, step: &str) -> usize {
    runtime.flush_audit().await.unwrap();
    let step = format!("\"step\":\"{step}\"");
    let records = audit.records();
    let lines = records.iter().map(|record| record.line());
    lines.filter(|line| line.contains(&step)).count()
}

#[tokio::test]
async fn idle_actor_ends_and_the_next_call_starts_another() {
    let audit = MemoryAudit::new(1000);
    let (runtime, _, _root) = runtime(&audit).await;
    let worker = worker(&runtime, Policy::new().allow("read:file:/r/a")).await;
    assert_eq!(actors(&worker), []);
    let mut former = Vec::new();
    for _ in 0..3 {
        assert_eq!(call(&worker, "/r/a/x").await.unwrap(), "/r/a/x");
        let denied = call(&worker, "/r/b").await.unwrap_err();
        assert_eq!(denied.code(), Code::PermissionDenied);
        let [actor] = actors(&worker)[..] else {
            panic!("not one actor");
        };
        assert!(!former.contains(&actor));
        former.push(actor);
        end_actor(&worker).await;
    }
    assert_eq!(recorded(&runtime, &audit, "finished").await, 6);
    assert_eq!(recorded(&runtime, &audit, "restarted").await, 0);
    assert_eq!(recorded(&runtime, &audit, "worker_stopped").await, 0);
}

#[tokio::test]
async fn actor_of_a_worker_that_was_idle_for_a_short_time_only_stays() {
    let (runtime, _, _root) = runtime(&MemoryAudit::new(100)).await;
    let worker = worker(&runtime, Policy::new()).await;
    call(&worker, "/r/a").await.unwrap();
    let before = actors(&worker);
    worker.shared.core.end_idle_actors(super::KEEP_IDLE);
    wait::until_idle().await;
    assert_eq!(actors(&worker), before);
    end_idle_actors(&worker);
    wait::until_idle().await;
    assert_eq!(actors(&worker), []);
}

#[tokio::test]
async fn end_of_a_revoked_worker_is_recorded_once_with_and_without_actor() {
    let audit = MemoryAudit::new(1000);
    let (runtime, _, _root) = runtime(&audit).await;
    let [new, idle, running] = [(); 3].map(|()| worker(&runtime, Policy::new()));
    let (new, idle, running) = (new.await, idle.await, running.await);
    call(&idle, "/r/a").await.unwrap();
    end_actor(&idle).await;
    call(&running, "/r/a").await.unwrap();
    for (ended, worker) in [new, idle, running].iter().enumerate() {
        tokio::join!(worker.revoke(), worker.revoke());
        worker.revoke().await;
        assert_eq!(recorded(&runtime, &audit, "revoked").await, ended + 1);
        assert_eq!(
            recorded(&runtime, &audit, "worker_stopped").await,
            ended + 1
        );
        let denied = call(worker, "/r/a").await.unwrap_err();
        assert_eq!(denied.code(), Code::Cancelled);
        assert_eq!(actors(worker).len(), usize::from(ended < 2));
    }
}

#[tokio::test]
async fn end_of_a_worker_that_is_revoked_while_its_actor_ends_is_recorded_once() {
    let audit = MemoryAudit::new(1000);
    let (runtime, _, _root) = runtime(&audit).await;
    let worker = worker(&runtime, Policy::new()).await;
    call(&worker, "/r/a").await.unwrap();
    // On one thread, the actor reads both messages after they were posted.
    end_idle_actors(&worker);
    worker.revoke().await;
    assert_eq!(recorded(&runtime, &audit, "worker_stopped").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn end_of_a_worker_whose_actor_has_died_is_recorded_once() {
    let audit = MemoryAudit::new(1000);
    let (runtime, _, _root) = runtime(&audit).await;
    for ended in 1..=20 {
        let worker = worker(&runtime, Policy::new()).await;
        call(&worker, "/r/a").await.unwrap();
        worker.kill_actor();
        worker.revoke().await;
        assert_eq!(recorded(&runtime, &audit, "worker_stopped").await, ended);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_a_worker_whose_actors_end_meanwhile_are_all_answered() {
    let (runtime, _, _root) = runtime(&MemoryAudit::new(100)).await;
    let worker = worker(&runtime, Policy::new()).await;
    let callers = (0..3).map(|caller| {
        let worker = worker.clone();
        tokio::spawn(async move {
            for number in 0..300 {
                let path = format!("/r/{caller}/{number}");
                assert_eq!(call(&worker, &path).await.unwrap(), path);
                end_idle_actors(&worker);
                if number % 3 == caller {
                    end_actor(&worker).await;
                }
            }
        })
    });
    let callers: Vec<_> = callers.collect();
    for caller in callers {
        caller.await.unwrap();
    }
}

#[tokio::test]
async fn actor_stays_while_a_call_runs_and_while_its_thread_is_not_back() {
    let (runtime, hold, _root) = runtime(&MemoryAudit::new(100)).await;
    let worker = worker(&runtime, Policy::new()).await;
    let mut waits = Box::pin(call(&worker, "/r/wait"));
    let mut context = Context::from_waker(Waker::noop());
    assert!(waits.as_mut().poll(&mut context).is_pending());
    hold.holds(1).await;
    let before = actors(&worker);
    worker.shared.post(WorkerMsg::EndIfIdle);
    wait::until_idle().await;
    assert_eq!(actors(&worker), before);
    drop(waits);
    wait::until_idle().await;
    assert_eq!(worker.in_flight(), 0);
    end_idle_actors(&worker);
    wait::until_idle().await;
    assert_eq!(actors(&worker), before);
    hold.release();
    end_actor(&worker).await;
}

#[tokio::test]
async fn interval_between_calls_holds_across_actors() {
    let (runtime, _, _root) = runtime(&MemoryAudit::new(100)).await;
    let paced = worker(&runtime, Policy::new().min_interval_ms(3_600_000)).await;
    call(&paced, "/r/a").await.unwrap();
    end_actor(&paced).await;
    let early = call(&paced, "/r/a").await.unwrap_err();
    assert_eq!(early.code(), Code::RateLimited);
    let mut events = runtime.events();
    paced.kill_actor();
    restarted(&mut events).await;
    let early = call(&paced, "/r/a").await.unwrap_err();
    assert_eq!(early.code(), Code::RateLimited);
}

#[tokio::test]
async fn paused_worker_without_actor_answers_once_it_is_resumed() {
    let (runtime, _, _root) = runtime(&MemoryAudit::new(100)).await;
    let worker = worker(&runtime, Policy::new()).await;
    call(&worker, "/r/a").await.unwrap();
    end_actor(&worker).await;
    worker.pause(DecidedBy::Host);
    let mut waits = Box::pin(call(&worker, "/r/b"));
    let mut context = Context::from_waker(Waker::noop());
    assert!(waits.as_mut().poll(&mut context).is_pending());
    worker.resume(DecidedBy::Host).unwrap();
    assert_eq!(waits.await.unwrap(), "/r/b");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_call_may_be_polled_outside_tokio() {
    let (runtime, _, _root) = runtime(&MemoryAudit::new(100)).await;
    let worker = worker(&runtime, Policy::new()).await;
    let mut waits = Box::pin(async move { call(&worker, "/r/a").await });
    let polled = std::thread::spawn(move || {
        let mut context = Context::from_waker(Waker::noop());
        (waits.as_mut().poll(&mut context).is_ready(), waits)
    });
    let (ready, waits) = polled.join().unwrap();
    assert!(!ready);
    assert_eq!(waits.await.unwrap(), "/r/a");
}
