//! The cost of starting a worker, alone and with its first call, and of that call, which starts its actor, compared with a
//! linked ractor actor, and with finding out whether its working directory is a file.
#![expect(clippy::unwrap_used, reason = "benchmarks panic on failure")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bailiwick::tool::ToolName;
use bailiwick::{Runtime, Worker, WorkerSpec};
use bailiwick_benches::{
    Benchmark, LinkedActors, Msg, NOOP, NoopArgs, Target, brief, build_runtime, current_thread,
    run_task, spawn_and_call,
};
use ractor::ActorRef;
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxFlags, openat2, statx};
use tokio::task::JoinHandle;

const BATCH: u32 = 1_000;

fn main() {
    let tokio = current_thread().unwrap();
    bench(&tokio, "start one", false);
    bench(&tokio, "start one and call it", true);
    bench_first_call(&tokio);
}

fn bench(tokio: &tokio::runtime::Runtime, title: &'static str, calls: bool) {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("src")).unwrap();
    let dir = std::fs::File::open(root.path()).unwrap();
    let (linked, runtime, spec) = tokio.block_on(async {
        let (runtime, spec) = build_runtime(root.path(), 8192).await.unwrap();
        (LinkedActors::start().await.unwrap(), runtime, spec)
    });
    let linked = Arc::new(linked);
    let actors = Arc::new(Mutex::new(Vec::new()));
    let workers = Arc::new(Mutex::new(Vec::new()));
    Benchmark::new(title, Duration::from_secs(8))
        .case_then(
            "ractor spawn_linked",
            Target::None,
            BATCH,
            |n| {
                let (linked, actors) = (Arc::clone(&linked), Arc::clone(&actors));
                run_task(tokio, start_actors(linked, actors, calls, n));
            },
            || run_task(tokio, stop_actors(Arc::clone(&actors))),
        )
        .case(
            "openat2, statx and close of a folder",
            Target::None,
            BATCH,
            |n| {
                for _ in 0..n {
                    let (flags, how) = (OFlags::PATH | OFlags::CLOEXEC, ResolveFlags::BENEATH);
                    let folder = openat2(&dir, "src", flags, Mode::empty(), how).unwrap();
                    statx(&folder, "", AtFlags::EMPTY_PATH, StatxFlags::TYPE).unwrap();
                }
            },
        )
        .case_then(
            "runtime.spawn",
            Target::Times(2.0),
            BATCH,
            |n| {
                let (host, workers) = ((runtime.clone(), spec.clone()), Arc::clone(&workers));
                run_task(tokio, start_workers(host, workers, calls, n));
            },
            || run_task(tokio, end_workers(runtime.clone(), Arc::clone(&workers))),
        )
        .run();
}

/// The call of a worker that has no actor.
fn bench_first_call(tokio: &tokio::runtime::Runtime) {
    let root = tempfile::tempdir().unwrap();
    let (linked, runtime, spec) = tokio.block_on(async {
        let (runtime, spec) = build_runtime(root.path(), 8192).await.unwrap();
        (LinkedActors::start().await.unwrap(), runtime, spec)
    });
    let linked = Arc::new(linked);
    let actors = Arc::new(Mutex::new(Vec::new()));
    let workers = Arc::new(Mutex::new(Vec::new()));
    let renew = || {
        run_task(tokio, end_workers(runtime.clone(), Arc::clone(&workers)));
        let (host, workers) = ((runtime.clone(), spec.clone()), Arc::clone(&workers));
        let n = if brief() { 1 } else { BATCH };
        run_task(tokio, start_workers(host, workers, false, n));
    };
    renew();
    Benchmark::new("first call of a worker", Duration::from_secs(4))
        .case_then(
            "ractor spawn_linked and call",
            Target::None,
            BATCH,
            |n| {
                let (linked, actors) = (Arc::clone(&linked), Arc::clone(&actors));
                run_task(tokio, start_actors(linked, actors, true, n));
            },
            || run_task(tokio, stop_actors(Arc::clone(&actors))),
        )
        .case_then(
            "worker.call_typed",
            Target::Nanos(20_000.0),
            BATCH,
            |_| {
                let workers: Vec<Worker> = workers.lock().unwrap().clone();
                run_task(tokio, async move {
                    let noop = ToolName::new(NOOP);
                    for worker in workers {
                        worker.call_typed(&noop, NoopArgs {}).await.unwrap();
                    }
                });
            },
            renew,
        )
        .run();
}

type Actors = Arc<Mutex<Vec<(ActorRef<Msg>, JoinHandle<()>)>>>;

async fn stop_actors(actors: Actors) {
    let actors = std::mem::take(&mut *actors.lock().unwrap());
    for (actor, task) in actors {
        actor.stop(None);
        task.await.unwrap();
    }
}

async fn end_workers(runtime: Runtime, workers: Arc<Mutex<Vec<Worker>>>) {
    let workers = std::mem::take(&mut *workers.lock().unwrap());
    for worker in workers {
        worker.revoke().await;
    }
    runtime.flush_audit().await.unwrap();
}

async fn start_actors(linked: Arc<LinkedActors>, actors: Actors, calls: bool, n: u32) {
    for number in 0..u64::from(n) {
        let actor = linked.spawn().await.unwrap();
        if calls {
            let reply = actor.0.call(|port| Msg(number, port), None).await;
            assert_eq!(reply.unwrap().unwrap(), number);
        }
        actors.lock().unwrap().push(actor);
    }
}

async fn start_workers(
    (runtime, spec): (Runtime, WorkerSpec),
    workers: Arc<Mutex<Vec<Worker>>>,
    calls: bool,
    n: u32,
) {
    for _ in 0..n {
        let spec = spec.clone();
        let worker = if calls {
            spawn_and_call(&runtime, spec).await.unwrap()
        } else {
            runtime.spawn(spec).await.unwrap()
        };
        workers.lock().unwrap().push(worker);
    }
}
