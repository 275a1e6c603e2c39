//! The time from revoking a worker until its next call is denied, compared with stopping a ractor actor.
#![expect(clippy::unwrap_used, reason = "benchmarks panic on failure")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bailiwick::tool::ToolName;
use bailiwick::{Code, Policy, Runtime, Worker, WorkerSpec};
use bailiwick_benches::{
    Benchmark, LinkedActors, NOOP, NoopArgs, Target, brief, build_runtime, current_thread,
    run_task, spawn_and_call,
};

const BATCH: u32 = 500;
/// Workers per batch in the case with children.
const TREES: u32 = 20;
/// Children of each worker in that case.
const CHILDREN: usize = 100;

/// Workers of the next batch.
#[derive(Default)]
struct Workers(Mutex<Vec<Worker>>);

impl Workers {
    fn take(&self) -> Vec<Worker> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    /// Starts `count` workers with `children` children each.
    fn start(
        &self,
        tokio: &tokio::runtime::Runtime,
        (runtime, spec): &(Runtime, WorkerSpec),
        count: u32,
        children: usize,
    ) {
        let (runtime, spec) = (runtime.clone(), spec.clone());
        let started = run_task(tokio, async move {
            let (mut workers, noop) = (Vec::new(), ToolName::new(NOOP));
            for _ in 0..if brief() { 1 } else { count } {
                let worker = spawn_and_call(&runtime, spec.clone()).await.unwrap();
                for _ in 0..children {
                    let child = WorkerSpec::new("child").policy(Policy::inherit());
                    let child = worker.spawn(child).await.unwrap();
                    child.call_typed(&noop, NoopArgs {}).await.unwrap();
                }
                workers.push(worker);
                runtime.flush_audit().await.unwrap();
            }
            workers
        });
        *self.0.lock().unwrap() = started;
    }
}

/// Revokes workers and calls each of them.
async fn revoke_and_call(workers: Vec<Worker>) {
    let noop = ToolName::new(NOOP);
    for worker in workers {
        worker.revoke().await;
        let error = worker.call_typed(&noop, NoopArgs {}).await.unwrap_err();
        assert_eq!(error.code(), Code::Cancelled);
    }
}

fn main() {
    let tokio = &current_thread().unwrap();
    let root = tempfile::tempdir().unwrap();
    let host = tokio.block_on(build_runtime(root.path(), 65_536)).unwrap();
    let linked = Arc::new(tokio.block_on(LinkedActors::start()).unwrap());
    let actors = Mutex::new(Vec::new());
    let start_actors = || {
        let linked = Arc::clone(&linked);
        let started = run_task(tokio, async move {
            let mut started = Vec::new();
            for _ in 0..BATCH {
                started.push(linked.spawn().await.unwrap());
            }
            started
        });
        *actors.lock().unwrap() = started;
    };
    let (alone, trees) = (Workers::default(), Workers::default());
    let start_alone = || alone.start(tokio, &host, BATCH, 0);
    let start_trees = || trees.start(tokio, &host, TREES, CHILDREN);
    start_actors();
    start_alone();
    start_trees();
    Benchmark::new(
        "revoke a worker and have its next call denied",
        Duration::from_secs(6),
    )
    .case_then(
        "stop a ractor actor and wait until it has ended",
        Target::None,
        BATCH,
        |n| {
            let actors = std::mem::take(&mut *actors.lock().unwrap());
            run_task(tokio, async move {
                for (actor, task) in actors.into_iter().take(n as usize) {
                    actor.stop(None);
                    task.await.unwrap();
                }
            });
        },
        start_actors,
    )
    .case_then(
        "worker",
        Target::Nanos(10_000.0),
        BATCH,
        |_| run_task(tokio, revoke_and_call(alone.take())),
        start_alone,
    )
    .case_then(
        "worker with 100 children",
        Target::None,
        TREES,
        |_| run_task(tokio, revoke_and_call(trees.take())),
        start_trees,
    )
    .run();
}
