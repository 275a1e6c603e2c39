//! Repeats an operation, for counting instructions (`.ci/instructions`): `repeated_calls spawn|noop|read|preview COUNT`.
#![expect(clippy::unwrap_used, reason = "benchmarks panic on failure")]

use std::fmt::Write as _;

use bailiwick::tool::ToolName;
use bailiwick::{Policy, Runtime, Worker, WorkerSpec};
use bailiwick_benches::{NOOP, NoopArgs, build_runtime, current_thread, run_task, spawn_and_call};
use serde_json::json;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let case = arguments.next().unwrap();
    let count: u32 = arguments.next().unwrap().parse().unwrap();
    let tokio = current_thread().unwrap();
    let root = tempfile::tempdir().unwrap();
    let mut lines = String::new();
    for n in 0..2000 {
        writeln!(lines, "line {n} of the file").unwrap();
    }
    std::fs::create_dir(root.path().join("src")).unwrap();
    let start = lines.get(..4096).unwrap();
    std::fs::write(root.path().join("src/4k.txt"), start).unwrap();
    std::fs::write(root.path().join("src/lines.txt"), &lines).unwrap();
    let (runtime, spec) = tokio.block_on(build_runtime(root.path(), 8192)).unwrap();
    let worker = WorkerSpec::new("caller").policy(Policy::inherit());
    let worker = tokio.block_on(runtime.spawn(worker)).unwrap();
    run_task(&tokio, async move {
        for call in 0..count {
            repeat(&case, &runtime, &spec, &worker).await;
            if call % 1000 == 0 {
                runtime.flush_audit().await.unwrap();
            }
        }
        runtime.flush_audit().await.unwrap();
    });
}

async fn repeat(case: &str, runtime: &Runtime, spec: &WorkerSpec, worker: &Worker) {
    match case {
        "spawn" => {
            let worker = spawn_and_call(runtime, spec.clone()).await.unwrap();
            worker.revoke().await;
        }
        "noop" => {
            let noop = ToolName::new(NOOP);
            worker.call_typed(&noop, NoopArgs {}).await.unwrap();
        }
        "read" => {
            let arguments = json!({"path": "/r/src/4k.txt"});
            worker.call("read_file", arguments).await.unwrap();
        }
        _ => {
            let edits = json!([{"old_text": "line 1000 of", "new_text": "line 1000, changed, of"}]);
            let arguments = json!({"path": "/r/src/lines.txt", "edits": edits});
            worker.preview("edit_file", arguments).await.unwrap();
        }
    }
}
