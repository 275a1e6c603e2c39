//! The cost of starting a worker, alone and with its first call, which starts its actor, compared with a linked ractor actor.
#![expect(clippy::unwrap_used, reason = "benchmarks panic on failure")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bailiwick_benches::{
    Benchmark, LinkedActors, Msg, Target, build_runtime, current_thread, run_task, spawn_and_call,
};

const BATCH: u32 = 1_000;

fn main() {
    let tokio = current_thread().unwrap();
    bench(&tokio, "start one", false);
    bench(&tokio, "start one and call it", true);
}

fn bench(tokio: &tokio::runtime::Runtime, title: &'static str, calls: bool) {
    let root = tempfile::tempdir().unwrap();
    let (linked, runtime, spec) = tokio.block_on(async {
        let (runtime, spec) = build_runtime(root.path(), 8192).await.unwrap();
        (LinkedActors::start().await.unwrap(), runtime, spec)
    });
    let linked = Arc::new(linked);
    let (actors, workers) = (
        Arc::new(Mutex::new(Vec::new())),
        Arc::new(Mutex::new(Vec::new())),
    );
    Benchmark::new(title, Duration::from_secs(8))
        .case_then(
            "ractor spawn_linked",
            Target::None,
            BATCH,
            |n| {
                let (linked, actors) = (Arc::clone(&linked), Arc::clone(&actors));
                run_task(tokio, async move {
                    for number in 0..u64::from(n) {
                        let actor = linked.spawn().await.unwrap();
                        if calls {
                            let reply = actor.0.call(|port| Msg(number, port), None).await;
                            assert_eq!(reply.unwrap().unwrap(), number);
                        }
                        actors.lock().unwrap().push(actor);
                    }
                });
            },
            || {
                let actors = std::mem::take(&mut *actors.lock().unwrap());
                run_task(tokio, async move {
                    for actor in actors {
                        actor.0.stop(None);
                        actor.1.await.unwrap();
                    }
                });
            },
        )
        .case_then(
            "runtime.spawn",
            Target::Times(2.0),
            BATCH,
            |n| {
                let (runtime, workers) = (runtime.clone(), Arc::clone(&workers));
                let spec = spec.clone();
                run_task(tokio, async move {
                    for _ in 0..n {
                        let spec = spec.clone();
                        let worker = if calls {
                            spawn_and_call(&runtime, spec).await.unwrap()
                        } else {
                            runtime.spawn(spec).await.unwrap()
                        };
                        workers.lock().unwrap().push(worker);
                    }
                });
            },
            || {
                let (runtime, workers) = (runtime.clone(), Arc::clone(&workers));
                let workers = std::mem::take(&mut *workers.lock().unwrap());
                run_task(tokio, async move {
                    for worker in workers {
                        worker.revoke().await;
                    }
                    runtime.flush_audit().await.unwrap();
                });
            },
        )
        .run();
}
