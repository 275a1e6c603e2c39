//! The memory of a live worker among 100,000.
//!
//! Each side runs in its own process, so that freed memory of one does not affect the other.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "benchmarks panic on failure and print their results"
)]

use std::process::Command;

use bailiwick::tool::ToolName;
use bailiwick::{Code, Runtime, Worker, WorkerSpec};
use bailiwick_benches::{
    LinkedActors, Msg, NOOP, NoopArgs, brief, build_runtime, multi_thread, run_task,
};

/// The maximum memory of a live worker, in bytes.
const MAX_BYTES: u64 = 10 * 1024;
/// The most that a worker without an actor should occupy.
const MAX_IDLE_BYTES: u64 = 512;
const ROOTS: u64 = 1;
const MAX_DESCRIPTORS: u64 = ROOTS + 1024;

/// The result of one side.
struct Weight {
    /// Resident bytes per actor before the first call.
    idle: u64,
    /// Resident bytes per actor after one call each.
    called: u64,
    descriptors: u64,
}

/// The number of actors that live at once.
fn live() -> usize {
    if brief() { 100 } else { 100_000 }
}

fn main() {
    match std::env::args().find_map(|arg| arg.strip_prefix("--side=").map(str::to_owned)) {
        Some(side) if side == "ractor" => print_result(&actors()),
        Some(_) => print_result(&workers()),
        None => {
            let (actor, worker) = (weigh("ractor"), weigh("bailiwick"));
            println!("\n{} live at once, each called once", live());
            println!(
                "{:<24} {:>10} {:>14} {:>12}",
                "case", "idle B", "called B", "descriptors"
            );
            for (name, weight) in [("ractor spawn_linked", &actor), ("worker", &worker)] {
                let Weight {
                    idle,
                    called,
                    descriptors,
                } = weight;
                println!("{name:<24} {idle:>10} {called:>14} {descriptors:>12}");
            }
            let verdict = |met| if met { "reached" } else { "MISSED" };
            println!(
                "worker / actor {:.2}",
                worker.called as f64 / actor.called as f64
            );
            println!(
                "<= {MAX_BYTES} B a worker: {}",
                verdict(worker.called <= MAX_BYTES)
            );
            println!(
                "<= {MAX_IDLE_BYTES} B a worker without an actor: {}",
                verdict(worker.idle <= MAX_IDLE_BYTES)
            );
            println!(
                "<= {MAX_DESCRIPTORS} descriptors: {}",
                verdict(worker.descriptors <= MAX_DESCRIPTORS)
            );
        }
    }
}

fn weigh(side: &str) -> Weight {
    let me = std::env::current_exe().unwrap();
    let output = Command::new(me)
        .arg(format!("--side={side}"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    let mut values = text.split_whitespace().map(|value| value.parse().unwrap());
    let mut next = || values.next().unwrap();
    Weight {
        idle: next(),
        called: next(),
        descriptors: next(),
    }
}

fn print_result(
    Weight {
        idle,
        called,
        descriptors,
    }: &Weight,
) {
    println!("{idle} {called} {descriptors}");
}

fn actors() -> Weight {
    let tokio = multi_thread().unwrap();
    let linked = tokio.block_on(LinkedActors::start()).unwrap();
    let before = resident();
    run_task(&tokio, async move {
        let mut actors = Vec::with_capacity(live());
        for _ in 0..live() {
            actors.push(linked.spawn().await.unwrap().0);
        }
        let idle = each(before);
        for (actor, number) in actors.iter().zip(0..) {
            let reply = actor.call(|port| Msg(number, port), None).await.unwrap();
            assert_eq!(reply.unwrap(), number);
        }
        Weight {
            idle,
            called: each(before),
            descriptors: descriptors(),
        }
    })
}

fn workers() -> Weight {
    let tokio = multi_thread().unwrap();
    let root = tempfile::tempdir().unwrap();
    let (runtime, spec) = tokio.block_on(build_runtime(root.path(), 8192)).unwrap();
    let before = resident();
    run_task(&tokio, async move {
        let mut workers = Vec::with_capacity(live());
        for _ in 0..live() {
            workers.push(spawn(&runtime, &spec).await);
        }
        let idle = each(before);
        let noop = ToolName::new(NOOP);
        for worker in &workers {
            call(&runtime, worker, &noop).await;
        }
        Weight {
            idle,
            called: each(before),
            descriptors: descriptors(),
        }
    })
}

/// Spawns a worker. Flushes the audit when its queue is full.
async fn spawn(runtime: &Runtime, spec: &WorkerSpec) -> Worker {
    loop {
        match runtime.spawn(spec.clone()).await {
            Ok(worker) => return worker,
            Err(bailiwick::SpawnError::Audit(_)) => runtime.flush_audit().await.unwrap(),
            Err(error) => panic!("{error}"),
        }
    }
}

async fn call(runtime: &Runtime, worker: &Worker, noop: &ToolName) {
    loop {
        match worker.call_typed(noop, NoopArgs {}).await {
            Ok(_) => return,
            Err(error) if error.code() == Code::Busy => runtime.flush_audit().await.unwrap(),
            Err(error) => panic!("{error}"),
        }
    }
}

fn each(before: u64) -> u64 {
    resident().saturating_sub(before) / live() as u64
}

/// The resident memory of this process, in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

fn descriptors() -> u64 {
    std::fs::read_dir("/proc/self/fd").unwrap().count() as u64
}
