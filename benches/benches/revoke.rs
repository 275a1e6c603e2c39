//! The time from revoking a worker until its next call is denied and until the worker has ended, compared with stopping a
//! ractor actor.
#![expect(clippy::unwrap_used, reason = "benchmarks panic on failure")]

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use bailiwick::tool::ToolName;
use bailiwick::{Code, Policy, Runtime, Worker, WorkerSpec};
use bailiwick_benches::{
    Benchmark, LinkedActors, Msg, NOOP, NoopArgs, Target, brief, build_runtime, current_thread,
    run_task, spawn_and_call,
};
use ractor::ActorRef;
use tokio::task::JoinHandle;

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

async fn start_actors(linked: Arc<LinkedActors>) -> Vec<(ActorRef<Msg>, JoinHandle<()>)> {
    let mut started = Vec::new();
    for _ in 0..if brief() { 1 } else { BATCH } {
        started.push(linked.spawn().await.unwrap());
    }
    started
}

/// The rest of a revocation.
type Revocation = Pin<Box<dyn Future<Output = ()> + Send>>;

async fn call_denied(worker: &Worker) {
    let called = worker.call_typed(&ToolName::new(NOOP), NoopArgs {}).await;
    assert_eq!(called.unwrap_err().code(), Code::Cancelled);
}

/// Begins to revoke workers, and calls each of them.
async fn begin_and_call(workers: Vec<Worker>) -> Vec<Revocation> {
    let mut begun = Vec::new();
    for worker in workers {
        let revoked = worker.clone();
        let mut revocation: Revocation = Box::pin(async move {
            revoked.revoke().await;
        });
        poll_fn(|context| Poll::Ready(revocation.as_mut().poll(context).is_ready())).await;
        call_denied(&worker).await;
        begun.push(revocation);
    }
    begun
}

/// Revokes workers, and calls each of them when it has ended.
async fn end_and_call(workers: Vec<Worker>) {
    for worker in workers {
        worker.revoke().await;
        call_denied(&worker).await;
    }
}

fn main() {
    let tokio = &current_thread().unwrap();
    let root = tempfile::tempdir().unwrap();
    let host = tokio.block_on(build_runtime(root.path(), 65_536)).unwrap();
    let linked = Arc::new(tokio.block_on(LinkedActors::start()).unwrap());
    let actors = Mutex::new(Vec::new());
    let renew_actors =
        || *actors.lock().unwrap() = run_task(tokio, start_actors(Arc::clone(&linked)));
    let [begun, alone, trees] = [(); 3].map(|()| Workers::default());
    let revocations = Mutex::new(Vec::new());
    let start_begun = || {
        let revocations: Vec<Revocation> = std::mem::take(&mut *revocations.lock().unwrap());
        run_task(tokio, async move {
            for revocation in revocations {
                revocation.await;
            }
        });
        begun.start(tokio, &host, BATCH, 0);
    };
    let start_alone = || alone.start(tokio, &host, BATCH, 0);
    let start_trees = || trees.start(tokio, &host, TREES, CHILDREN);
    renew_actors();
    start_begun();
    start_alone();
    start_trees();
    Benchmark::new("revoke a worker", Duration::from_secs(8))
        .case_then(
            "stop a ractor actor and wait until it has ended",
            Target::None,
            BATCH,
            |_| {
                let actors = std::mem::take(&mut *actors.lock().unwrap());
                run_task(tokio, LinkedActors::stop(actors)).unwrap();
            },
            renew_actors,
        )
        .case_then(
            "until its next call is denied",
            Target::Nanos(10_000.0),
            BATCH,
            |_| *revocations.lock().unwrap() = run_task(tokio, begin_and_call(begun.take())),
            start_begun,
        )
        .case_then(
            "until it has ended and a call is denied",
            Target::None,
            BATCH,
            |_| run_task(tokio, end_and_call(alone.take())),
            start_alone,
        )
        .case_then(
            "the same with 100 children",
            Target::None,
            TREES,
            |_| run_task(tokio, end_and_call(trees.take())),
            start_trees,
        )
        .run();
}
