//! Throughput of 64 callers on 64 workers with two threads, compared with one.
#![expect(clippy::unwrap_used, reason = "benchmarks panic on failure")]

use std::future::Future;
use std::time::Duration;

use bailiwick::tool::ToolName;
use bailiwick::{Runtime, Worker};
use bailiwick_benches::{
    Benchmark, MinimalActor, NOOP, NoopArgs, Target, build_runtime, current_thread, multi_thread,
};

const CALLERS: u32 = 64;
/// The audit is flushed between batches.
const BATCH: u32 = CALLERS * 32;
/// Maximum time per call with two threads, as a fraction of the time with one thread; 0.55 is 1.8 times the throughput.
const MAX_TIME_RATIO: f64 = 0.55;

fn main() {
    let [one, two] = [current_thread().unwrap(), multi_thread().unwrap()];
    actors(&one, &two);
    workers(&one, &two);
}

/// Runs each of `calls` in its own task.
fn run_all<C: Future<Output = ()> + Send + 'static>(
    tokio: &tokio::runtime::Runtime,
    calls: impl Iterator<Item = C>,
) {
    let tasks: Vec<_> = calls.map(|call| tokio.spawn(call)).collect();
    for task in tasks {
        tokio.block_on(task).unwrap();
    }
}

fn actors(one: &tokio::runtime::Runtime, two: &tokio::runtime::Runtime) {
    let actors = |tokio: &tokio::runtime::Runtime| {
        let start = async {
            (0..CALLERS)
                .map(|_| MinimalActor::start(|n: u32| n))
                .collect()
        };
        tokio.block_on(start)
    };
    let call = async |actor: MinimalActor<u32, u32>, n| {
        for number in 0..n {
            actor.call(number).await.unwrap();
        }
    };
    let run = |tokio, actors: &Vec<MinimalActor<u32, u32>>, n: u32| {
        let each = n.div_ceil(CALLERS);
        run_all(tokio, actors.iter().map(|actor| call(actor.clone(), each)));
    };
    let (on_one, on_two) = (actors(one), actors(two));
    Benchmark::new(
        "raw mpsc + oneshot, 64 callers on 64 tasks",
        Duration::from_secs(3),
    )
    .case("one thread", Target::None, BATCH, |n| run(one, &on_one, n))
    .case("two threads", Target::None, BATCH, |n| run(two, &on_two, n))
    .run();
}

fn workers(one: &tokio::runtime::Runtime, two: &tokio::runtime::Runtime) {
    let root = tempfile::tempdir().unwrap();
    let workers = |tokio: &tokio::runtime::Runtime| {
        tokio.block_on(async {
            let (runtime, spec) = build_runtime(root.path(), 8192).await.unwrap();
            let mut workers = Vec::new();
            for _ in 0..CALLERS {
                workers.push(runtime.spawn(spec.clone()).await.unwrap());
            }
            (runtime, workers)
        })
    };
    let call = async |worker: Worker, n| {
        let noop = ToolName::new(NOOP);
        for _ in 0..n {
            worker.call_typed(&noop, NoopArgs {}).await.unwrap();
        }
    };
    let run = |tokio, workers: &Vec<Worker>, n: u32| {
        let each = n.div_ceil(CALLERS);
        run_all(
            tokio,
            workers.iter().map(|worker| call(worker.clone(), each)),
        );
    };
    let flush = |tokio: &tokio::runtime::Runtime, runtime: &Runtime| {
        tokio.block_on(runtime.flush_audit()).unwrap();
    };
    let ((runtime_one, on_one), (runtime_two, on_two)) = (workers(one), workers(two));
    Benchmark::new(
        "no-op calls, 64 callers on 64 workers",
        Duration::from_secs(6),
    )
    .case_then(
        "one thread",
        Target::None,
        BATCH,
        |n| run(one, &on_one, n),
        || flush(one, &runtime_one),
    )
    .case_then(
        "two threads",
        Target::Times(MAX_TIME_RATIO),
        BATCH,
        |n| run(two, &on_two, n),
        || flush(two, &runtime_two),
    )
    .run();
}
