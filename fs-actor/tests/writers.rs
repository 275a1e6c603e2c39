//! Writers that race for one file in, no update lost without a conflict reported out.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::disallowed_methods, reason = "the result is read past the runtime")]

use bailiwick::{Code, Policy, Runtime, WorkerSpec};
use serde_json::json;
use tokio::task::JoinSet;

const WRITERS: u64 = 8;

/// How often each writer adds one: 1,000 times in a full run.
fn rounds() -> u64 {
    let cases = std::env::var("BAILIWICK_CASES").ok();
    let cases = cases.map_or(0, |cases| cases.parse().unwrap());
    if cases >= 1_000 { 1_000 } else { 40 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_writers_that_state_what_they_read_lose_no_update() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("count"), "0").unwrap();
    let builder = Runtime::builder().root("r", root.path()).tools(bailiwick_fs::tools());
    let (runtime, _) = builder.build().await.unwrap();
    let mut writers = JoinSet::new();
    for n in 0..WRITERS {
        let spec = WorkerSpec::new(format!("writer-{n}")).policy(Policy::new());
        let worker = runtime.spawn(spec).await.unwrap();
        writers.spawn(async move {
            let mut conflicts = 0_u64;
            for _ in 0..rounds() {
                loop {
                    let read = worker.call("read_file", json!({ "path": "count" })).await.unwrap();
                    let structured = read.structured().unwrap();
                    let next = read.text().trim().parse::<u64>().unwrap() + 1;
                    let args = json!({
                        "path": "count",
                        "mode": "overwrite",
                        "content": next.to_string(),
                        "expected_hash": structured["files"][0]["hash"],
                    });
                    match worker.call("write_file", args).await {
                        Ok(_) => break,
                        Err(error) => assert_eq!(error.code(), Code::Conflict, "{error}"),
                    }
                    conflicts += 1;
                }
            }
            conflicts
        });
    }
    let mut conflicts = 0;
    while let Some(writer) = writers.join_next().await {
        conflicts += writer.unwrap();
    }
    let count = std::fs::read_to_string(root.path().join("count")).unwrap();
    assert_eq!(count.trim().parse::<u64>().unwrap(), WRITERS * rounds(), "{conflicts} conflicts");
}
