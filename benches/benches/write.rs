//! The cost of writing a file of 4 KiB, compared with writing and renaming one.
#![expect(clippy::unwrap_used, reason = "benchmarks panic on failure")]

use std::time::Duration;

use bailiwick::{Policy, Runtime, WorkerSpec};
use bailiwick_benches::{Benchmark, MinimalActor, Target, multi_thread, run_task};
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use rustix::fs::{Mode, OFlags, openat, renameat};
use rustix::io::pwrite;
use serde_json::json;

const BATCH: u32 = 64;
const BYTES: usize = 4 << 10;

/// A file is never written with the content that it has.
fn alternate(texts: &[String; 2], turn: u32) -> &String {
    let [first, second] = texts;
    if turn.is_multiple_of(2) {
        first
    } else {
        second
    }
}

fn main() {
    let tokio = multi_thread().unwrap();
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let texts = ["a", "b"].map(|letter| letter.repeat(BYTES));
    let (baseline, runtime, worker) = tokio.block_on(async {
        let builder = Runtime::builder().root("r", root.path());
        let (runtime, _) = builder.tools(bailiwick_fs::tools()).build().await.unwrap();
        let spec = WorkerSpec::new("bench").policy(Policy::inherit());
        let worker = runtime.spawn(spec).await.unwrap();
        let dir = Dir::open_ambient_dir(root.path(), ambient_authority()).unwrap();
        let (texts, mut turn) = (texts.clone(), 0);
        let baseline = MinimalActor::start(move |()| {
            turn += 1;
            replace(&dir, "floor.txt", alternate(&texts, turn));
        });
        (baseline, runtime, worker)
    });
    let rest = || tokio.block_on(runtime.flush_audit()).unwrap();
    let writes = |in_flight: u32| {
        let (worker, texts) = (worker.clone(), texts.clone());
        let tokio = &tokio;
        move |n: u32| {
            let calls = (0..in_flight).map(|file| {
                let (worker, texts) = (worker.clone(), texts.clone());
                tokio.spawn(async move {
                    for turn in 0..n / in_flight {
                        let text = alternate(&texts, turn);
                        let arguments = json!({ "path": format!("/r/w{file}.txt"), "content": text, "mode": "overwrite" });
                        worker.call("write_file", arguments).await.unwrap();
                    }
                })
            });
            for call in calls.collect::<Vec<_>>() {
                tokio.block_on(call).unwrap();
            }
        }
    };
    Benchmark::new("write 4 KiB over a file", Duration::from_secs(6))
        .case("actor: write a file, rename it", Target::None, BATCH, |n| {
            let baseline = baseline.clone();
            run_task(&tokio, async move {
                for _ in 0..n {
                    baseline.call(()).await.unwrap();
                }
            });
        })
        .case_then(
            "worker.call, 1 in flight",
            Target::None,
            BATCH,
            writes(1),
            rest,
        )
        .case_then(
            "worker.call, 16 in flight",
            Target::None,
            BATCH,
            writes(16),
            rest,
        )
        .case_then(
            "worker.call, 64 in flight",
            Target::None,
            BATCH * 2,
            writes(64),
            rest,
        )
        .run();
}

fn replace(dir: &Dir, name: &str, text: &str) {
    let own = format!("{name}.new");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = openat(dir, &own, flags, Mode::from_raw_mode(0o644)).unwrap();
    assert_eq!(pwrite(&file, text.as_bytes(), 0).unwrap(), text.len());
    renameat(dir, &own, dir, name).unwrap();
}
