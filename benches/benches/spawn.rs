//! The cost of starting a worker, alone and with its first call, and of that call, which starts its actor, compared with a
//! linked ractor actor, and with opening a folder like its working directory. Workers that start one after another in one
//! folder do not open it again.
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
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use tokio::task::JoinHandle;

const BATCH: u32 = 1_000;

fn main() {
    let tokio = current_thread().unwrap();
    bench(&tokio, "start one", false);
    bench(&tokio, "start one and call it", true);
    bench_first_call(&tokio);
}

/// What the cases start, and what starts it.
struct Bench<'t> {
    tokio: &'t tokio::runtime::Runtime,
    linked: Arc<LinkedActors>,
    actors: Actors,
    runtime: Runtime,
    spec: WorkerSpec,
    workers: Arc<Mutex<Vec<Worker>>>,
    root: tempfile::TempDir,
}

type Actors = Arc<Mutex<Vec<(ActorRef<Msg>, JoinHandle<()>)>>>;

impl<'t> Bench<'t> {
    fn new(tokio: &'t tokio::runtime::Runtime) -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("src/deep")).unwrap();
        tokio.block_on(async {
            let (runtime, spec) = build_runtime(root.path(), 8192).await.unwrap();
            Self {
                tokio,
                linked: Arc::new(LinkedActors::start().await.unwrap()),
                actors: Actors::default(),
                runtime,
                spec,
                workers: Arc::default(),
                root,
            }
        })
    }

    fn start_actors(&self, calls: bool, n: u32) {
        let (linked, actors) = (Arc::clone(&self.linked), Arc::clone(&self.actors));
        run_task(self.tokio, start_actors(linked, actors, calls, n));
    }

    fn stop_actors(&self) {
        let actors = std::mem::take(&mut *self.actors.lock().unwrap());
        run_task(self.tokio, LinkedActors::stop(actors)).unwrap();
    }

    /// Starts workers in the folder `src`.
    fn start_workers(&self, calls: bool, n: u32) {
        let specs = [self.spec.clone(), self.spec.clone()];
        self.start_workers_like(specs, calls, n);
    }

    /// Starts workers in the folders `src` and `src/deep` in turn.
    fn start_workers_in_two_folders(&self, calls: bool, n: u32) {
        let specs = [self.spec.clone(), self.spec.clone().cwd("/r/src/deep")];
        self.start_workers_like(specs, calls, n);
    }

    fn start_workers_like(&self, specs: [WorkerSpec; 2], calls: bool, n: u32) {
        let host = (self.runtime.clone(), specs);
        let workers = Arc::clone(&self.workers);
        run_task(self.tokio, start_workers(host, workers, calls, n));
    }

    fn end_workers(&self) {
        let runtime = self.runtime.clone();
        let workers = std::mem::take(&mut *self.workers.lock().unwrap());
        run_task(self.tokio, async move {
            for worker in workers {
                worker.revoke().await;
            }
            runtime.flush_audit().await.unwrap();
        });
    }
}

fn bench(tokio: &tokio::runtime::Runtime, title: &'static str, calls: bool) {
    let bench = Bench::new(tokio);
    let dir = std::fs::File::open(bench.root.path()).unwrap();
    Benchmark::new(title, Duration::from_secs(8))
        .case_then(
            "ractor spawn_linked",
            Target::None,
            BATCH,
            |n| bench.start_actors(calls, n),
            || bench.stop_actors(),
        )
        .case("openat2 and close of a folder", Target::None, BATCH, |n| {
            for _ in 0..n {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                openat2(&dir, "src", flags, Mode::empty(), ResolveFlags::BENEATH).unwrap();
            }
        })
        .case_then(
            "runtime.spawn",
            Target::Times(2.0),
            BATCH,
            |n| bench.start_workers(calls, n),
            || bench.end_workers(),
        )
        .case_then(
            "runtime.spawn, two folders in turn",
            Target::None,
            BATCH,
            |n| bench.start_workers_in_two_folders(calls, n),
            || bench.end_workers(),
        )
        .run();
}

/// The call of a worker that has no actor.
fn bench_first_call(tokio: &tokio::runtime::Runtime) {
    let bench = Bench::new(tokio);
    let renew = || {
        bench.end_workers();
        bench.start_workers(false, if brief() { 1 } else { BATCH });
    };
    renew();
    Benchmark::new("first call of a worker", Duration::from_secs(4))
        .case_then(
            "ractor spawn_linked and call",
            Target::None,
            BATCH,
            |n| bench.start_actors(true, n),
            || bench.stop_actors(),
        )
        .case_then(
            "worker.call_typed",
            Target::Nanos(20_000.0),
            BATCH,
            |_| {
                let workers: Vec<Worker> = bench.workers.lock().unwrap().clone();
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
    (runtime, specs): (Runtime, [WorkerSpec; 2]),
    workers: Arc<Mutex<Vec<Worker>>>,
    calls: bool,
    n: u32,
) {
    for (_, spec) in (0..n).zip(specs.iter().cycle()) {
        let spec = spec.clone();
        let worker = if calls {
            spawn_and_call(&runtime, spec).await.unwrap()
        } else {
            runtime.spawn(spec).await.unwrap()
        };
        workers.lock().unwrap().push(worker);
    }
}
