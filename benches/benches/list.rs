//! The cost of listing a directory with 1,000 entries, compared with reading the directory alone.
#![expect(clippy::unwrap_used, reason = "benchmarks panic on failure")]

use std::time::Duration;

use bailiwick::audit::Audit;
use bailiwick::policy::Authority;
use bailiwick::tool::ToolName;
use bailiwick::{MemoryAudit, Scope, Verb, Verdict, VirtualPath};
use bailiwick_benches::{
    Benchmark, MinimalActor, Target, audit_event, authority_and_need, build_runtime,
    current_thread, multi_thread, run_task,
};
use bailiwick_fs::{ListDirectoryArgs, ListDirectoryOutput};
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use rustix::fs::{FileType, Mode, OFlags, RawDir, ResolveFlags, openat2};
use serde_json::json;

const BATCH: u32 = 20;
const ENTRIES: u32 = 1_000;

fn main() {
    bench("list 1,000 entries, one thread", &current_thread().unwrap());
    bench("list 1,000 entries, two threads", &multi_thread().unwrap());
}

/// A directory with the files to list.
fn planted() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("src/a")).unwrap();
    for n in 0..ENTRIES {
        std::fs::write(root.path().join(format!("src/a/file-{n:04}.txt")), "x").unwrap();
    }
    root
}

async fn list_json(worker: bailiwick::Worker, n: u32) {
    for _ in 0..n {
        let arguments = json!({ "path": "/r/src/a", "limit": ENTRIES });
        let outcome = worker.call("list_directory", arguments).await.unwrap();
        let output = outcome.reply.output.to_json().unwrap();
        assert!(output.is_object());
    }
}

/// The name and kind of an entry.
type Entry = (Vec<u8>, FileType);

async fn read_by_actor(actor: MinimalActor<String, Vec<Entry>>, n: u32, sort: bool) {
    for _ in 0..n {
        let mut entries = actor.call("src/a".to_owned()).await.unwrap();
        if sort {
            entries.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        }
        assert_eq!(entries.len(), ENTRIES as usize);
    }
}

/// The entries of a directory, and the text that names them.
type Listing = (Vec<(String, FileType)>, String);

async fn list_by_actor(actor: MinimalActor<String, Listing>, audit: Audit, n: u32) {
    for _ in 0..n {
        let (entries, text) = actor.call("src/a".to_owned()).await.unwrap();
        assert_eq!((entries.len(), text.lines().count()), (1_000, 1_000));
        audit.record(audit_event()).unwrap();
    }
}

async fn list_typed(worker: bailiwick::Worker, tool: ToolName, sizes: bool, n: u32) {
    for _ in 0..n {
        let args = ListDirectoryArgs {
            path: "/r/src/a".to_owned(),
            limit: ENTRIES,
            sizes,
            ..ListDirectoryArgs::default()
        };
        let outcome = worker.call_typed(&tool, args).await.unwrap();
        let listed = outcome.output::<ListDirectoryOutput>().unwrap();
        assert_eq!(listed.entries.len(), ENTRIES as usize);
    }
}

fn bench(title: &'static str, tokio: &tokio::runtime::Runtime) {
    let root = planted();
    let audit = Audit::start(MemoryAudit::new(8192), 8192).unwrap();
    let (authority, _) = authority_and_need().unwrap();
    let (baseline, listing, runtime, worker) = tokio.block_on(async {
        let (runtime, spec) = build_runtime(root.path(), 8192).await.unwrap();
        let worker = runtime.spawn(spec).await.unwrap();
        let dir = Dir::open_ambient_dir(root.path(), ambient_authority()).unwrap();
        let same_dir = dir.try_clone().unwrap();
        let baseline = MinimalActor::start(move |path: String| read_names(&dir, &path));
        let listing =
            MinimalActor::start(move |path: String| list(&authority, read_names(&same_dir, &path)));
        (baseline, listing, runtime, worker)
    });
    let tool = ToolName::new("list_directory");
    let typed = |sizes: bool| {
        let (worker, tool) = (worker.clone(), tool.clone());
        move |n: u32| run_task(tokio, list_typed(worker.clone(), tool.clone(), sizes, n))
    };
    let rest = || tokio.block_on(runtime.flush_audit()).unwrap();
    Benchmark::new(title, Duration::from_secs(4))
        .case(
            "actor: openat2, getdents, close",
            Target::None,
            BATCH,
            |n| run_task(tokio, read_by_actor(baseline.clone(), n, false)),
        )
        .case(
            "actor: openat2, getdents, close, sort",
            Target::None,
            BATCH,
            |n| run_task(tokio, read_by_actor(baseline.clone(), n, true)),
        )
        .case_then(
            "the same, names judged, entries, text, event",
            Target::None,
            BATCH,
            |n| run_task(tokio, list_by_actor(listing.clone(), audit.clone(), n)),
            || tokio.block_on(audit.flush()).unwrap(),
        )
        .case_then(
            "worker.call_typed",
            Target::Times(1.3),
            BATCH,
            typed(false),
            rest,
        )
        .case_then(
            "the same with sizes",
            Target::None,
            BATCH,
            typed(true),
            rest,
        )
        .case_then(
            "worker.call, JSON to JSON",
            Target::None,
            BATCH,
            |n| run_task(tokio, list_json(worker.clone(), n)),
            rest,
        )
        .run();
}

/// What a worker may list, in order.
fn list(authority: &Authority, mut entries: Vec<Entry>) -> Listing {
    entries.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    let (mut listed, mut text) = (Vec::new(), String::new());
    let directory = VirtualPath::parse("/r/src/a", None).unwrap();
    for (name, kind) in entries {
        let name = String::from_utf8(name).unwrap();
        let need = Scope::file(Verb::Read, directory.join(&name).unwrap());
        if authority.judge(&need, &[]) == Verdict::Allow {
            text.push_str(&name);
            text.push('\n');
            listed.push((name, kind));
        }
    }
    (listed, text)
}

/// The names and kinds of the entries of a directory.
fn read_names(dir: &Dir, path: &str) -> Vec<Entry> {
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = openat2(dir, path, flags, Mode::empty(), beneath).unwrap();
    let mut buffer = Vec::with_capacity(32 << 10);
    let mut entries = RawDir::new(opened, buffer.spare_capacity_mut());
    let mut names = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry.unwrap();
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push((name.to_owned(), entry.file_type()));
        }
    }
    names
}
