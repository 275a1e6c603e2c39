//! What does a call cost that does nothing, judged, metered and audited, beside a bare actor's?
#![expect(
    clippy::unwrap_used,
    reason = "a bench that fails has nothing to measure"
)]

use std::time::Duration;

use bailiwick::ToolName;
use bailiwick_benches::{
    Floor, Linked, Msg, NOOP, NoopArgs, Race, Target, current, drive, stage, threaded,
};
use serde_json::json;

/// The audit takes two events a call, and is written out between batches.
const BATCH: u32 = 500;

fn main() {
    race("no-op call, one thread", &current().unwrap());
    race("no-op call, two threads", &threaded().unwrap());
}

fn race(title: &'static str, tokio: &tokio::runtime::Runtime) {
    let root = tempfile::tempdir().unwrap();
    let (floor, actor, runtime, worker) = tokio.block_on(async {
        let (runtime, spec) = stage(root.path(), 8192).await.unwrap();
        let worker = runtime.spawn(spec).await.unwrap();
        let (actor, _) = Linked::start().await.unwrap().spawn().await.unwrap();
        (Floor::start(|n: u64| n), actor, runtime, worker)
    });
    let noop = ToolName::new(NOOP);
    let typed = worker.clone();
    let rest = || tokio.block_on(runtime.flush_audit()).unwrap();
    let race = Race::new(title, Duration::from_secs(6))
        .case("raw mpsc + oneshot", Target::None, BATCH, |n| {
            let floor = floor.clone();
            drive(tokio, async move {
                for i in 0..u64::from(n) {
                    floor.call(i).await.unwrap();
                }
            });
        })
        .case("ractor call", Target::None, BATCH, |n| {
            let actor = actor.clone();
            drive(tokio, async move {
                for i in 0..u64::from(n) {
                    actor.call(|port| Msg(i, port), None).await.unwrap();
                }
            });
        })
        .case_then(
            "worker.call_typed",
            Target::Times(2.5),
            BATCH,
            |n| {
                let (worker, noop) = (typed.clone(), noop.clone());
                drive(tokio, async move {
                    for _ in 0..n {
                        worker.call_typed(&noop, NoopArgs {}).await.unwrap();
                    }
                });
            },
            rest,
        )
        .case_then(
            "worker.call, JSON",
            Target::None,
            BATCH,
            |n| {
                let worker = worker.clone();
                drive(tokio, async move {
                    for _ in 0..n {
                        worker.call(NOOP, json!({})).await.unwrap();
                    }
                });
            },
            rest,
        );
    race.run();
}
