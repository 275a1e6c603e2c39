//! The cost of a no-op call (authorized, metered and audited), compared with bare channels, with a ractor actor, and with
//! that actor and an audit event.
#![expect(clippy::unwrap_used, reason = "benchmarks panic on failure")]

use std::time::Duration;

use bailiwick::audit::Audit;
use bailiwick::policy::Authority;
use bailiwick::tool::ToolName;
use bailiwick::{MemoryAudit, Scope, Verdict};
use bailiwick_benches::{
    Benchmark, LinkedActors, MinimalActor, Msg, NOOP, NoopArgs, Target, audit_event,
    authority_and_need, build_runtime, current_thread, multi_thread, run_task,
};
use ractor::ActorRef;
use serde_json::json;

/// The audit is flushed between batches.
const BATCH: u32 = 500;

fn main() {
    bench("no-op call, one thread", &current_thread().unwrap());
    bench("no-op call, two threads", &multi_thread().unwrap());
}

async fn call_with_event(actor: ActorRef<Msg>, audit: Audit, n: u32) {
    let event = audit_event();
    for i in 0..u64::from(n) {
        actor.call(|port| Msg(i, port), None).await.unwrap();
        audit.record(event.clone()).unwrap();
    }
}

fn bench(title: &'static str, tokio: &tokio::runtime::Runtime) {
    let root = tempfile::tempdir().unwrap();
    let (baseline, actor, runtime, worker) = tokio.block_on(async {
        let (runtime, spec) = build_runtime(root.path(), 8192).await.unwrap();
        let worker = runtime.spawn(spec).await.unwrap();
        let (actor, _) = LinkedActors::start().await.unwrap().spawn().await.unwrap();
        (MinimalActor::start(|n: u64| n), actor, runtime, worker)
    });
    let noop = ToolName::new(NOOP);
    let typed = worker.clone();
    let rest = || tokio.block_on(runtime.flush_audit()).unwrap();
    let audit = Audit::start(MemoryAudit::new(8192), 8192).unwrap();
    let judged = authority_and_need().unwrap();
    let benchmark = Benchmark::new(title, Duration::from_secs(8)).case(
        "raw mpsc + oneshot",
        Target::None,
        BATCH,
        |n| {
            let baseline = baseline.clone();
            run_task(tokio, async move {
                for i in 0..u64::from(n) {
                    baseline.call(i).await.unwrap();
                }
            });
        },
    );
    let benchmark = actor_cases(benchmark, tokio, &actor, &audit, &judged)
        .case_then(
            "worker.call_typed",
            Target::Times(2.5),
            BATCH,
            |n| {
                let (worker, noop) = (typed.clone(), noop.clone());
                run_task(tokio, async move {
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
                run_task(tokio, async move {
                    for _ in 0..n {
                        worker.call(NOOP, json!({})).await.unwrap();
                    }
                });
            },
            rest,
        );
    benchmark.run();
}

/// A ractor actor, and parts of what a call needs besides.
fn actor_cases<'b>(
    benchmark: Benchmark<'b>,
    tokio: &'b tokio::runtime::Runtime,
    actor: &'b ActorRef<Msg>,
    audit: &'b Audit,
    judged: &'b (Authority, Scope),
) -> Benchmark<'b> {
    let flush_audit = || tokio.block_on(audit.flush()).unwrap();
    benchmark
        .case("ractor call", Target::None, BATCH, |n| {
            let actor = actor.clone();
            run_task(tokio, async move {
                for i in 0..u64::from(n) {
                    actor.call(|port| Msg(i, port), None).await.unwrap();
                }
            });
        })
        .case_then(
            "ractor call, one audit event",
            Target::None,
            BATCH,
            |n| {
                let calls = call_with_event(actor.clone(), audit.clone(), n);
                run_task(tokio, calls);
            },
            flush_audit,
        )
        .case_then(
            "the same, its need judged",
            Target::None,
            BATCH,
            |n| {
                let (authority, need) = judged.clone();
                let calls = call_with_event(actor.clone(), audit.clone(), n);
                run_task(tokio, async move {
                    for _ in 0..n {
                        assert_eq!(authority.judge(&need, &[]), Verdict::Allow);
                    }
                    calls.await;
                });
            },
            flush_audit,
        )
}
