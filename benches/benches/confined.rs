//! The cost of confining the threads of file tools with Landlock.
#![expect(clippy::unwrap_used, reason = "benchmarks panic on failure")]

use std::time::Duration;

use bailiwick::worker::ConfineFiles;
use bailiwick::{Policy, Runtime, Worker, WorkerSpec};
use bailiwick_benches::{Benchmark, Target, multi_thread, run_task};
use serde_json::{Value, json};

const BATCH: u32 = 100;

fn main() {
    let tokio = multi_thread().unwrap();
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::write(root.path().join("f"), "text\n".repeat(800)).unwrap();
    let worker = |confine| {
        tokio.block_on(async {
            let builder = Runtime::builder().root("r", root.path());
            let builder = builder.tools(bailiwick_fs::tools()).confine_files(confine);
            let (runtime, _) = builder.build().await.unwrap();
            let spec = WorkerSpec::new("bench").policy(Policy::inherit());
            (runtime.spawn(spec).await.unwrap(), runtime)
        })
    };
    let (never, free) = worker(ConfineFiles::Never);
    let (required, confined) = worker(ConfineFiles::Required);
    let call = |worker: &Worker, tool: &'static str, arguments: fn(u32) -> Value| {
        let (worker, tokio) = (worker.clone(), &tokio);
        move |n: u32| {
            let worker = worker.clone();
            run_task(tokio, async move {
                for turn in 0..n {
                    worker.call(tool, arguments(turn)).await.unwrap();
                }
            });
        }
    };
    let rest = || {
        for runtime in [&free, &confined] {
            tokio.block_on(runtime.flush_audit()).unwrap();
        }
    };
    // A file whose handle is open is read without an I/O thread.
    let read = |_| json!({ "path": "/r/f" });
    let write =
        |turn: u32| json!({ "path": "/r/w", "content": turn.to_string(), "mode": "overwrite" });
    for (title, tool, arguments) in [
        ("read 4 KiB", "read_file", read as fn(u32) -> Value),
        ("write a file", "write_file", write),
    ] {
        let run = |worker| call(worker, tool, arguments);
        Benchmark::new(title, Duration::from_secs(6))
            .case_then("not confined", Target::None, BATCH, run(&never), rest)
            .case_then("confined", Target::None, BATCH, run(&required), rest)
            .run();
    }
}
