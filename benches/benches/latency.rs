//! The latency of calls of 1, 64 and 10,000 workers: alone, beside a worker that floods the runtime, and beside one whose
//! calls hang.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "benchmarks panic on failure and print their results"
)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use bailiwick::config::Namespace;
use bailiwick::tool::{Interrupt, Prepared, ReadPermit, ToolName};
use bailiwick::{
    Call, CallError, CallMeta, Code, Policy, ReadTool, Reply, Runtime, Scope, ToolSpec, Verb,
    Worker, WorkerSpec,
};
use bailiwick_benches::{
    MinimalActor, NOOP, NoopArgs, brief, build_runtime, multi_thread, run_task, spawn_and_call,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

/// Calls in flight, unless there are fewer workers.
const IN_FLIGHT: usize = 64;
/// The 99th percentile beside a flood, as a multiple of the one without.
const MAX_SLOWER: f64 = 1.5;
/// The same beside calls that hang.
const MAX_SLOWER_BESIDE_HANGING: f64 = 1.2;
/// Open calls of the worker that floods the runtime.
const FLOOD: usize = 256;
/// Calls that hang at once, more than the I/O threads that two roots may hold.
const HANGING: usize = 32;
/// How often so many are made: a thread that hangs is replaced when the deadline of its call has passed, so that later calls
/// hold more threads than there were.
const HANGING_ROUNDS: usize = 4;
/// The time limit of such a call.
const HANGING_DEADLINE: Duration = Duration::from_millis(50);
/// I/O threads of the runtime, as by default.
const IO_THREADS: usize = 8;

/// Latencies in nanoseconds, sorted.
struct Latencies(Vec<u128>);

impl Latencies {
    fn new(mut nanos: Vec<u128>) -> Self {
        nanos.sort_unstable();
        Self(nanos)
    }

    fn at(&self, part: usize) -> f64 {
        let index = (self.0.len() - 1) * part / 100;
        self.0.get(index).map_or(f64::NAN, |nanos| *nanos as f64)
    }

    fn print(&self, case: &str) {
        let (p50, p99) = (self.at(50) / 1e3, self.at(99) / 1e3);
        println!("{case:<44} {p50:>10.1} {p99:>10.1}");
    }
}

fn main() {
    let calls = if brief() { 200 } else { 200_000 };
    println!(
        "\n{:<44} {:>10} {:>10}",
        "latency of a no-op call", "p50 us", "p99 us"
    );
    for workers in [1, 64, if brief() { 100 } else { 10_000 }] {
        baseline(workers, calls).print(&format!("raw mpsc + oneshot, {workers} tasks"));
        let bench = Bench::new(workers);
        bench
            .run(calls)
            .print(&format!("worker.call_typed, {workers} workers"));
    }
    let (alone, beside) = flooded_baseline(calls);
    alone.print("raw mpsc + oneshot, 64 tasks, alone");
    beside.print("64 tasks, beside one with 256 open calls");
    verdict(&alone, &beside, None);
    let bench = Bench::new(64);
    let alone = bench.run(calls);
    let flood = bench.flood();
    let beside = bench.run(calls);
    flood.abort();
    alone.print("64 workers, alone");
    beside.print("64 workers, beside one with 256 open calls");
    verdict(&alone, &beside, Some(MAX_SLOWER));
    for (tool, arguments) in [
        ("read_file", json!({"path": "/r/src/f"})),
        ("list_directory", json!({"path": "/r/src"})),
    ] {
        beside_hanging(tool, &arguments, (calls / 10).max(IN_FLIGHT));
    }
}

fn verdict(alone: &Latencies, beside: &Latencies, most: Option<f64>) {
    let ratio = beside.at(99) / alone.at(99);
    match most {
        None => println!("p99 beside / alone: {ratio:.2}"),
        Some(most) => {
            let verdict = if ratio <= most { "reached" } else { "MISSED" };
            println!("p99 beside / alone: {ratio:.2}, <= {most}: {verdict}");
        }
    }
}

/// Compares calls of 64 workers in one root with and without calls in two other roots that hold all I/O threads which these
/// roots may hold, and more than the runtime had at first.
fn beside_hanging(tool: &'static str, arguments: &Value, calls: usize) {
    let tokio = multi_thread().unwrap();
    let temp = tempfile::tempdir().unwrap();
    let host = |name: &str| temp.path().join(name);
    std::fs::create_dir_all(host("r/src")).unwrap();
    HUNG.iter()
        .for_each(|root| std::fs::create_dir(host(root)).unwrap());
    std::fs::write(host("r/src/f"), "a line\n".repeat(500)).unwrap();
    let hang = Hang::default();
    let (runtime, workers, hanging) = tokio.block_on(async {
        let tools = bailiwick_fs::tools().reader(hang.clone()).for_files();
        let [one, other] = HUNG;
        let builder = Runtime::builder()
            .root("r", host("r"))
            .root(one, host(one))
            .root(other, host(other))
            .tools(tools)
            .io_threads(IO_THREADS)
            .audit_capacity(65_536);
        let (runtime, _grants) = builder.build().await.unwrap();
        let spawn = || runtime.spawn(WorkerSpec::new("bench").policy(Policy::new()));
        let mut workers = Vec::new();
        for _ in 0..IN_FLIGHT {
            workers.push(spawn().await.unwrap());
        }
        // The calls of one worker hold fewer threads than those of a root may.
        let mut hanging = Vec::new();
        for root in HUNG.into_iter().cycle().take(2 * HUNG.len()) {
            hanging.push((root, spawn().await.unwrap()));
        }
        (runtime, workers, hanging)
    });
    let run = || {
        let (runtime, arguments) = (runtime.clone(), arguments.clone());
        latencies(&tokio, &workers, calls, move |worker| {
            let (runtime, arguments) = (runtime.clone(), arguments.clone());
            async move {
                while let Err(error) = worker.call(tool, arguments.clone()).await {
                    wait_for_audit(&runtime, &error).await;
                }
            }
        })
    };
    // The first run opens what later ones find open.
    run();
    let alone = run();
    let guard = hang.gate.write().unwrap();
    run_task(&tokio, async move {
        for _ in 0..HANGING_ROUNDS {
            let mut calls = tokio::task::JoinSet::new();
            for (root, worker) in hanging.iter().cycle().take(HANGING) {
                let call = Call::new(HANG, json!({ "root": root })).meta(CallMeta {
                    deadline: Some(HANGING_DEADLINE),
                    ..CallMeta::default()
                });
                let worker = worker.clone();
                calls.spawn(async move { worker.submit(call).await });
            }
            assert!(calls.join_all().await.iter().all(Result::is_err));
        }
    });
    let beside = run();
    let held = hang.waiting.load(Ordering::Relaxed);
    assert!(held > IO_THREADS, "{held} threads hang");
    drop(guard);
    alone.print(&format!("64 workers, {tool}, alone"));
    beside.print(&format!(
        "64 workers, {tool}, beside {held} threads that hang"
    ));
    verdict(&alone, &beside, Some(MAX_SLOWER_BESIDE_HANGING));
}

const HANG: &str = "hang";
const HUNG: [&str; 2] = ["hung", "hung-too"];

#[derive(Debug, Deserialize, JsonSchema)]
struct HangArgs {
    root: String,
}

/// A tool that blocks its thread while `gate` is locked, like a read from a disk that does not answer.
#[derive(Clone, Debug, Default)]
struct Hang {
    gate: Arc<RwLock<()>>,
    waiting: Arc<AtomicUsize>,
}

impl ReadTool for Hang {
    type Args = HangArgs;
    type Output = ();
    type Job = ();

    fn spec(&self) -> ToolSpec {
        ToolSpec::new(HANG, "Hang", "Hangs.")
    }

    fn prepare(&self, args: HangArgs, names: &Namespace) -> Result<Prepared<()>, CallError> {
        let path = names.path(&format!("/{}/f", args.root))?;
        Ok(Prepared {
            needs: vec![Scope::file(Verb::Read, path)],
            job: (),
        })
    }

    fn read(&self, (): &(), _: &ReadPermit) -> Result<Reply, Interrupt> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        drop(self.gate.read().unwrap());
        Ok(Reply::text("", ()))
    }
}

/// Runs `calls` calls, `IN_FLIGHT` at a time, each slot on its own actors.
fn latencies<A, F>(
    tokio: &tokio::runtime::Runtime,
    actors: &[A],
    calls: usize,
    call: impl Fn(A) -> F + Clone + Send + Sync + 'static,
) -> Latencies
where
    A: Clone + Send + Sync + 'static,
    F: Future<Output = ()> + Send,
{
    let slots = IN_FLIGHT.min(actors.len());
    let tasks = (0..slots).map(|slot| {
        let own = actors.iter().skip(slot).step_by(slots);
        let (own, call): (Vec<A>, _) = (own.cloned().collect(), call.clone());
        async move {
            let mut nanos = Vec::new();
            for actor in own.iter().cycle().take(calls / slots) {
                let began = Instant::now();
                call(actor.clone()).await;
                nanos.push(began.elapsed().as_nanos());
            }
            nanos
        }
    });
    let tasks: Vec<_> = tasks.map(|task| tokio.spawn(task)).collect();
    let nanos = run_task(tokio, async move {
        let mut all = Vec::new();
        for task in tasks {
            all.extend(task.await.unwrap());
        }
        all
    });
    Latencies::new(nanos)
}

fn baseline(actors: usize, calls: usize) -> Latencies {
    let tokio = multi_thread().unwrap();
    let actors = tokio.block_on(async move {
        let start = |_| MinimalActor::start(|n: u64| n);
        (0..actors).map(start).collect::<Vec<_>>()
    });
    latencies(&tokio, &actors, calls, |actor| async move {
        actor.call(1).await.unwrap();
    })
}

/// The same calls as those of the workers, alone and beside a task with 256 open calls.
fn flooded_baseline(calls: usize) -> (Latencies, Latencies) {
    let tokio = multi_thread().unwrap();
    let start = |_| MinimalActor::start(|n: u64| n);
    let (actors, flooded) = tokio.block_on(async { ((0..64).map(start).collect(), start(64)) });
    let actors: Vec<_> = actors;
    let run = || {
        latencies(&tokio, &actors, calls, |actor| async move {
            actor.call(1).await.unwrap();
        })
    };
    let alone = run();
    let flood = tokio.spawn(async move {
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..FLOOD {
            let actor = flooded.clone();
            tasks.spawn(async move { while actor.call(1).await.is_some() {} });
        }
        tasks.join_all().await;
    });
    let beside = run();
    flood.abort();
    (alone, beside)
}

struct Bench {
    tokio: tokio::runtime::Runtime,
    runtime: Runtime,
    spec: WorkerSpec,
    workers: Vec<Worker>,
    _root: tempfile::TempDir,
}

impl Bench {
    fn new(workers: usize) -> Self {
        let tokio = multi_thread().unwrap();
        let root = tempfile::tempdir().unwrap();
        let (runtime, spec) = tokio.block_on(build_runtime(root.path(), 65_536)).unwrap();
        let workers = tokio.block_on(async {
            let mut spawned = Vec::with_capacity(workers);
            for _ in 0..workers {
                spawned.push(spawn_and_call(&runtime, spec.clone()).await.unwrap());
                runtime.flush_audit().await.unwrap();
            }
            spawned
        });
        Self {
            tokio,
            runtime,
            spec,
            workers,
            _root: root,
        }
    }

    fn run(&self, calls: usize) -> Latencies {
        let (runtime, noop) = (self.runtime.clone(), ToolName::new(NOOP));
        latencies(&self.tokio, &self.workers, calls, move |worker| {
            let (runtime, noop) = (runtime.clone(), noop.clone());
            async move { call(&runtime, &worker, &noop).await }
        })
    }

    /// Keeps as many calls of one more worker in flight as it may have.
    fn flood(&self) -> tokio::task::JoinHandle<()> {
        let (runtime, spec) = (self.runtime.clone(), self.spec.clone());
        self.tokio.spawn(async move {
            let worker = runtime.spawn(spec).await.unwrap();
            let noop = ToolName::new(NOOP);
            let mut tasks = tokio::task::JoinSet::new();
            for _ in 0..FLOOD {
                let (runtime, worker, noop) = (runtime.clone(), worker.clone(), noop.clone());
                tasks.spawn(async move {
                    loop {
                        call(&runtime, &worker, &noop).await;
                    }
                });
            }
            tasks.join_all().await;
        })
    }
}

/// Calls the tool, and waits for the audit if its queue is full.
async fn call(runtime: &Runtime, worker: &Worker, noop: &ToolName) {
    while let Err(error) = worker.call_typed(noop, NoopArgs {}).await {
        wait_for_audit(runtime, &error).await;
    }
}

async fn wait_for_audit(runtime: &Runtime, error: &CallError) {
    assert_eq!(error.code(), Code::Busy, "{error}");
    runtime.flush_audit().await.unwrap();
    tokio::time::sleep(Duration::ZERO).await;
}
