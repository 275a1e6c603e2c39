//! The cost of reading the artifacts of an edit of one line in a file of 2,000 lines, which are rendered when they are
//! read, compared with a diff of both texts.
#![expect(clippy::unwrap_used, reason = "benchmarks panic on failure")]

use std::time::Duration;

use bailiwick::{Policy, Runtime, WorkerSpec};
use bailiwick_benches::{Benchmark, Target, current_thread, edited_text};
use serde_json::json;

const BATCH: u32 = 20;

fn main() {
    let tokio = current_thread().unwrap();
    let root = tempfile::tempdir().unwrap();
    let (old, new) = (edited_text("a"), edited_text("b"));
    std::fs::write(root.path().join("f.txt"), &old).unwrap();
    let (runtime, artifacts) = tokio.block_on(async {
        let builder = Runtime::builder().root("r", root.path());
        let (runtime, _) = builder.tools(bailiwick_fs::tools()).build().await.unwrap();
        let spec = WorkerSpec::new("bench").policy(Policy::inherit());
        let worker = runtime.spawn(spec).await.unwrap();
        let edits = json!([{ "old_text": "changes: a", "new_text": "changes: b" }]);
        let call = worker.preview("edit_file", json!({ "path": "/r/f.txt", "edits": edits }));
        let preview = call.await.unwrap();
        (runtime, preview.artifacts)
    });
    let read = |name: &str| {
        let artifact = artifacts.iter().find(|artifact| artifact.name == name);
        let uri = artifact.unwrap().uri.clone();
        let runtime = &runtime;
        move |n: u32| {
            for _ in 0..n {
                assert!(!runtime.artifact(&uri).unwrap().bytes.is_empty());
            }
        }
    };
    Benchmark::new(
        "artifacts of an edit of 2,000 lines",
        Duration::from_secs(4),
    )
    .case(
        "similar: unified diff of both texts",
        Target::None,
        BATCH,
        |n| {
            for _ in 0..n {
                let diff = similar::TextDiff::from_lines(&old, &new);
                assert!(!diff.unified_diff().to_string().is_empty());
            }
        },
    )
    .case("read the diff", Target::None, BATCH, read("diff"))
    .case(
        "read the changes as JSON",
        Target::None,
        BATCH,
        read("json"),
    )
    .case("read the review", Target::None, BATCH, read("review"))
    .run();
}
