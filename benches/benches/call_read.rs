//! The cost of reading a file through a worker, compared with an actor that opens, reads and closes it.
#![expect(clippy::unwrap_used, reason = "benchmarks panic on failure")]

use std::time::Duration;

use bailiwick::effect::ContentHash;
use bailiwick::tool::ToolName;
use bailiwick_benches::{
    Benchmark, MinimalActor, Target, build_runtime, current_thread, multi_thread, run_task,
};
use bailiwick_fs::ReadFileArgs;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::pread;
use serde_json::{Value, json};

/// The audit is flushed between batches.
const BATCH: u32 = 100;

/// The size of the file, and whether the targets for 4 KiB apply.
#[derive(Clone, Copy)]
struct Size {
    bytes: usize,
    typed: Target,
    json: Target,
}

const SMALL: Size = Size {
    bytes: 4 << 10,
    typed: Target::Times(1.3),
    json: Target::Times(1.8),
};
const LARGE: Size = Size {
    bytes: 64 << 10,
    typed: Target::None,
    json: Target::None,
};

const LARGEST: Size = Size {
    bytes: 1 << 20,
    typed: Target::None,
    json: Target::None,
};

fn main() {
    bench("read 4 KiB, one thread", &current_thread().unwrap(), SMALL);
    bench("read 4 KiB, two threads", &multi_thread().unwrap(), SMALL);
    bench("read 64 KiB, one thread", &current_thread().unwrap(), LARGE);
    bench("read 1 MiB, two threads", &multi_thread().unwrap(), LARGEST);
}

fn bench(title: &'static str, tokio: &tokio::runtime::Runtime, size: Size) {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("src/a/b")).unwrap();
    let line = "a line of sixty-three bytes, so that the file looks like a text\n";
    let text: String = line.repeat(size.bytes / line.len());
    std::fs::write(root.path().join("src/a/b/f.rs"), &text).unwrap();
    let (length, path) = (text.len(), "/r/src/a/b/f.rs");
    let (baseline, encoding, runtime, worker) = tokio.block_on(async {
        let (runtime, spec) = build_runtime(root.path(), 8192).await.unwrap();
        let worker = runtime.spawn(spec).await.unwrap();
        let dir = Dir::open_ambient_dir(root.path(), ambient_authority()).unwrap();
        let same_dir = dir.try_clone().unwrap();
        let baseline = MinimalActor::start(move |path: String| read(&dir, &path, length));
        let encoding =
            MinimalActor::start(move |path: String| encode(read(&same_dir, &path, length)));
        (baseline, encoding, runtime, worker)
    });
    let tool = ToolName::new("read_file");
    let typed = worker.clone();
    let rest = || tokio.block_on(runtime.flush_audit()).unwrap();
    let benchmark = Benchmark::new(title, Duration::from_secs(6))
        .case("actor: openat2, pread, close", Target::None, BATCH, |n| {
            call_actor(tokio, &baseline, n, move |bytes| bytes.len() == length);
        })
        .case("the same actor, hash, JSON", Target::None, BATCH, |n| {
            call_actor(tokio, &encoding, n, |output| output.is_object());
        })
        .case_then(
            "worker.call_typed",
            size.typed,
            BATCH,
            |n| {
                let (worker, tool) = (typed.clone(), tool.clone());
                run_task(tokio, async move {
                    for _ in 0..n {
                        let args = ReadFileArgs {
                            path: Some(path.to_owned()),
                            limit: Some(100_000),
                            max_bytes: Some(1 << 20),
                            ..ReadFileArgs::default()
                        };
                        let outcome = worker.call_typed(&tool, args).await.unwrap();
                        assert_eq!(outcome.reply.content.len(), 1);
                    }
                });
            },
            rest,
        )
        .case_then(
            "worker.call, JSON to JSON",
            size.json,
            BATCH,
            |n| {
                let worker = worker.clone();
                run_task(tokio, async move {
                    for _ in 0..n {
                        let outcome = worker
                            .call(
                                "read_file",
                                json!({ "path": path, "limit": 100_000, "max_bytes": 1 << 20 }),
                            )
                            .await
                            .unwrap();
                        let output = outcome.reply.output.to_json().unwrap();
                        assert!(output.is_object());
                    }
                });
            },
            rest,
        );
    benchmark.run();
}

fn call_actor<O: Send + 'static>(
    tokio: &tokio::runtime::Runtime,
    actor: &MinimalActor<String, O>,
    count: u32,
    is_expected: impl Fn(&O) -> bool + Send + 'static,
) {
    let actor = actor.clone();
    run_task(tokio, async move {
        for _ in 0..count {
            let output = actor.call("src/a/b/f.rs".to_owned()).await.unwrap();
            assert!(is_expected(&output));
        }
    });
}

fn encode(bytes: Vec<u8>) -> Value {
    let hash = ContentHash::of(&bytes).to_string();
    json!({ "hash": hash, "text": String::from_utf8(bytes).unwrap() })
}

fn read(dir: &Dir, path: &str, length: usize) -> Vec<u8> {
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = openat2(dir, path, flags, Mode::empty(), beneath).unwrap();
    let mut buffer = vec![0; length + 1];
    let got = pread(&file, &mut buffer, 0).unwrap();
    buffer.truncate(got);
    buffer
}
