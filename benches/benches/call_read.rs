//! The cost of reading a file through a worker, compared with an actor that opens, reads and closes it.
#![expect(clippy::unwrap_used, reason = "benchmarks panic on failure")]

use std::os::fd::OwnedFd;
use std::time::Duration;

use bailiwick::audit::Audit;
use bailiwick::effect::ContentHash;
use bailiwick::policy::Authority;
use bailiwick::tool::ToolName;
use bailiwick::{MemoryAudit, Scope, Verdict, Worker};
use bailiwick_benches::{
    Benchmark, MinimalActor, Target, audit_event, authority_and_need, build_runtime,
    current_thread, multi_thread, run_task,
};
use bailiwick_fs::ReadFileArgs;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::pread;
use serde_json::{Value, json};

/// The audit is flushed between batches.
const BATCH: u32 = 100;
/// The virtual path of the file.
const PATH: &str = "/r/src/a/b/f.rs";

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
    let length = text.len();
    let audit = Audit::start(MemoryAudit::new(8192), 8192).unwrap();
    let judged = authority_and_need().unwrap();
    let (baseline, checked, encoding, runtime, worker) = tokio.block_on(async {
        let (runtime, spec) = build_runtime(root.path(), 8192).await.unwrap();
        let worker = runtime.spawn(spec).await.unwrap();
        let dir = Dir::open_ambient_dir(root.path(), ambient_authority()).unwrap();
        let [same_dir, dir_of_checked] = [(); 2].map(|()| dir.try_clone().unwrap());
        let baseline = MinimalActor::start(move |path: String| read(&dir, &path, length));
        let encoding =
            MinimalActor::start(move |path: String| encode(read(&same_dir, &path, length)));
        let checked =
            MinimalActor::start(move |path: String| read_text(&dir_of_checked, &path, length));
        (baseline, checked, encoding, runtime, worker)
    });
    let tool = ToolName::new("read_file");
    let typed = worker.clone();
    let rest = || tokio.block_on(runtime.flush_audit()).unwrap();
    let benchmark = Benchmark::new(title, Duration::from_secs(6))
        .case("actor: openat2, pread, close", Target::None, BATCH, |n| {
            call_actor(tokio, &baseline, n, move |bytes| bytes.len() == length);
        })
        .case_then(
            "the same, fstat, UTF-8, event, verdict",
            Target::None,
            BATCH,
            |n| {
                let judged = (judged.clone(), audit.clone());
                run_task(tokio, read_checked(checked.clone(), judged, length, n));
            },
            || tokio.block_on(audit.flush()).unwrap(),
        )
        .case("the same actor, hash, JSON", Target::None, BATCH, |n| {
            call_actor(tokio, &encoding, n, |output| output.is_object());
        })
        .case_then(
            "worker.call_typed",
            size.typed,
            BATCH,
            |n| {
                run_task(tokio, read_typed(typed.clone(), tool.clone(), n));
            },
            rest,
        )
        .case_then(
            "worker.call, JSON to JSON",
            size.json,
            BATCH,
            |n| {
                run_task(tokio, read_json(worker.clone(), n));
            },
            rest,
        );
    benchmark.run();
}

async fn read_typed(worker: Worker, tool: ToolName, n: u32) {
    for _ in 0..n {
        let args = ReadFileArgs {
            path: Some(PATH.to_owned()),
            limit: Some(100_000),
            max_bytes: Some(1 << 20),
            ..ReadFileArgs::default()
        };
        let outcome = worker.call_typed(&tool, args).await.unwrap();
        assert_eq!(outcome.reply.content.len(), 1);
    }
}

async fn read_json(worker: Worker, n: u32) {
    for _ in 0..n {
        let arguments = json!({ "path": PATH, "limit": 100_000, "max_bytes": 1 << 20 });
        let outcome = worker.call("read_file", arguments).await.unwrap();
        let output = outcome.reply.output.to_json().unwrap();
        assert!(output.is_object());
    }
}

/// Reads through an actor that checks what it reads, and judges and records each read.
async fn read_checked(
    actor: MinimalActor<String, String>,
    ((authority, need), audit): ((Authority, Scope), Audit),
    length: usize,
    n: u32,
) {
    let event = audit_event();
    for _ in 0..n {
        assert_eq!(authority.judge(&need, &[]), Verdict::Allow);
        let text = actor.call("src/a/b/f.rs".to_owned()).await.unwrap();
        assert_eq!(text.len(), length);
        audit.record(event.clone()).unwrap();
    }
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

fn open(dir: &Dir, path: &str) -> OwnedFd {
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    openat2(dir, path, flags, Mode::empty(), beneath).unwrap()
}

fn read(dir: &Dir, path: &str, length: usize) -> Vec<u8> {
    content(&open(dir, path), length)
}

/// Like [`read`], of a regular text file only.
fn read_text(dir: &Dir, path: &str, length: usize) -> String {
    let file = open(dir, path);
    let mode = fstat(&file).unwrap().st_mode;
    assert_eq!(FileType::from_raw_mode(mode), FileType::RegularFile);
    String::from_utf8(content(&file, length)).unwrap()
}

fn content(file: &OwnedFd, length: usize) -> Vec<u8> {
    let mut buffer = vec![0; length + 1];
    let got = pread(file, &mut buffer, 0).unwrap();
    buffer.truncate(got);
    buffer
}
