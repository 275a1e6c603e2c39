//! Budgets of commands.

use std::time::Duration;

use bailiwick::worker::Budget;
use bailiwick::{CallError, Code, Runtime, Worker, WorkerSpec};
use bailiwick_exec::CommandOutput;
use serde_json::json;

use crate::commands::{everything, run, runtime};

async fn script(worker: &Worker, script: &str) -> Result<CommandOutput, CallError> {
    run(
        worker,
        json!({ "argv": ["sh", "-c", script], "cwd": "/repo" }),
    )
    .await
}

async fn limited(runtime: &Runtime, budget: Budget) -> Worker {
    let spec = WorkerSpec::new("parent")
        .policy(everything())
        .budget(budget);
    runtime.spawn(spec).await.unwrap()
}

async fn child(parent: &Worker) -> Worker {
    let spec = WorkerSpec::new("child").policy(everything());
    parent.spawn(spec).await.unwrap()
}

#[tokio::test]
async fn command_that_exceeds_a_budget_is_killed_and_the_next_one_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let runtime = runtime(root.path()).await;
    let none = Budget::default();
    for (budget, what, long) in [
        (
            Budget {
                cpu_ms: Some(2000),
                ..none
            },
            "cpu_ms",
            "(while :; do :; done) & (while :; do :; done)",
        ),
        (
            Budget {
                wall_ms: Some(5000),
                ..none
            },
            "wall_ms",
            "sleep 600",
        ),
        (
            Budget {
                output_bytes: Some(100_000),
                ..none
            },
            "output_bytes",
            "yes",
        ),
    ] {
        let parent = limited(&runtime, budget).await;
        let worker = child(&parent).await;
        assert_eq!(script(&worker, "echo a").await.unwrap().exit_code, Some(0));
        let killed = tokio::time::timeout(Duration::from_secs(60), script(&worker, long));
        let killed = killed.await.unwrap().unwrap_err();
        assert_eq!(killed.code(), Code::Budget, "{killed}");
        assert_eq!(killed.details()["budget"], what, "{killed}");
        // The budget is shared by the subtree.
        let refused = script(&child(&parent).await, "echo a").await.unwrap_err();
        assert_eq!(refused.code(), Code::Budget, "{what}: {refused}");
    }
}

#[tokio::test]
async fn processes_of_a_budget_are_given_back_when_a_command_ends() {
    let root = tempfile::tempdir().unwrap();
    let runtime = runtime(root.path()).await;
    let budget = |processes| Budget {
        processes: Some(processes),
        ..Budget::default()
    };
    let worker = limited(&runtime, budget(400)).await;
    for _ in 0..3 {
        assert_eq!(script(&worker, "true").await.unwrap().exit_code, Some(0));
    }
    let refused = script(&limited(&runtime, budget(0)).await, "true").await;
    assert_eq!(refused.unwrap_err().code(), Code::Budget);
}

#[tokio::test]
async fn command_that_exceeds_the_memory_of_a_budget_is_killed() {
    let root = tempfile::tempdir().unwrap();
    let runtime = runtime(root.path()).await;
    let budget = Budget {
        memory_bytes: Some(150 << 20),
        ..Budget::default()
    };
    let worker = limited(&runtime, budget).await;
    let child = child(&worker).await;
    // `tail` keeps all that it reads.
    let hold = "head -c 300M /dev/zero | tail -c 300M | sleep 600";
    let killed = tokio::time::timeout(Duration::from_secs(60), script(&child, hold));
    let killed = killed.await.unwrap().unwrap_err();
    assert_eq!(killed.code(), Code::Budget, "{killed}");
    assert_eq!(killed.details()["budget"], "memory_bytes", "{killed}");
    assert_eq!(script(&worker, "true").await.unwrap().exit_code, Some(0));
}
