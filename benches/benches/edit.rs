//! The cost of previewing and applying an edit of one line in a file of 2,000 lines.
#![expect(clippy::unwrap_used, reason = "benchmarks panic on failure")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bailiwick::effect::ContentHash;
use bailiwick::{Policy, Runtime, ToolSet, Worker, WorkerSpec};
use bailiwick_benches::{Benchmark, MinimalActor, Target, edited_text, multi_thread, run_task};
use bailiwick_fs::{Durability, tools_with};
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, openat, renameat, renameat_with, unlinkat};
use rustix::io::pwrite;
use serde_json::{Value, json};

const FILES: u64 = 64;

fn main() {
    let tokio = multi_thread().unwrap();
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for file in 0..FILES {
        std::fs::write(root.path().join(name(file)), edited_text("a")).unwrap();
    }
    preview(&tokio, root.path());
    for (durability, title, target) in [
        (Durability::Ordered, "apply an edit, ordered", 1.15),
        (Durability::Visible, "apply an edit, visible", 1.5),
    ] {
        apply(&tokio, root.path(), durability, title, target);
    }
}

fn name(file: u64) -> String {
    format!("f{file}.txt")
}

fn edit(file: u64, from: &str, to: &str) -> Value {
    let changed = |word| format!("that changes: {word}\n");
    json!({
        "path": format!("/r/{}", name(file)),
        "edits": [{ "old_text": changed(from), "new_text": changed(to) }],
    })
}

fn worker(
    tokio: &tokio::runtime::Runtime,
    root: &Path,
    durability: Durability,
) -> (Runtime, Worker) {
    let tools: ToolSet = tools_with(durability);
    tokio.block_on(async {
        let builder = Runtime::builder().root("r", root).tools(tools);
        let (runtime, _) = builder.build().await.unwrap();
        let spec = WorkerSpec::new("bench").policy(Policy::inherit());
        let worker = runtime.spawn(spec).await.unwrap();
        (runtime, worker)
    })
}

fn preview(tokio: &tokio::runtime::Runtime, root: &Path) {
    let (runtime, worker) = worker(tokio, root, Durability::default());
    let (old, new) = (edited_text("a"), edited_text("b"));
    let dir = Dir::open_ambient_dir(root, ambient_authority()).unwrap();
    let rest = || tokio.block_on(runtime.flush_audit()).unwrap();
    Benchmark::new("preview an edit of 2,000 lines", Duration::from_secs(4))
        .case("similar: diff of both texts", Target::None, 20, |n| {
            for _ in 0..n {
                let diff = similar::TextDiff::from_lines(&old, &new);
                assert_eq!(diff.unified_diff().iter_hunks().count(), 1);
            }
        })
        .case("SHA-256 of both texts", Target::None, 20, |n| {
            for _ in 0..n {
                let [old, new] = [&old, &new].map(|text| ContentHash::of(text.as_bytes()));
                assert_ne!(old, new);
            }
        })
        .case("read the file, replace the line", Target::None, 20, |n| {
            for _ in 0..n {
                let (old, new) = replaced(&dir, &name(0), ("a", "b"));
                assert_ne!(old, new);
            }
        })
        .case_then(
            "worker.preview",
            Target::Times(0.3),
            20,
            |n| {
                let worker = worker.clone();
                run_task(tokio, async move {
                    for _ in 0..n {
                        let shown = worker.preview("edit_file", edit(0, "a", "b"));
                        assert_eq!(shown.await.unwrap().changes.len(), 1);
                    }
                });
            },
            rest,
        )
        .run();
}

fn apply(
    tokio: &tokio::runtime::Runtime,
    root: &Path,
    durability: Durability,
    title: &'static str,
    target: f64,
) {
    let (runtime, worker) = worker(tokio, root, durability);
    let dir = Arc::new(Dir::open_ambient_dir(root, ambient_authority()).unwrap());
    let (written, edited) = actors(tokio, &dir, durability);
    let rest = || tokio.block_on(runtime.flush_audit()).unwrap();
    let edits = |in_flight: u64| {
        let worker = worker.clone();
        move |n: u32| {
            let done = Arc::new(AtomicU64::new(0));
            let calls: Vec<_> = (0..in_flight)
                .map(|file| {
                    let (worker, done) = (worker.clone(), Arc::clone(&done));
                    tokio.spawn(async move {
                        let mut pair = ("a", "b");
                        // Each file has "a" again at the end.
                        while pair.0 == "b" || done.fetch_add(2, Ordering::Relaxed) < u64::from(n) {
                            let arguments = edit(file, pair.0, pair.1);
                            worker.call("edit_file", arguments).await.unwrap();
                            pair = (pair.1, pair.0);
                        }
                    })
                })
                .collect();
            for call in calls {
                tokio.block_on(call).unwrap();
            }
        }
    };
    Benchmark::new(title, Duration::from_secs(6))
        .case("actor: write a file, rename it", Target::None, 32, |n| {
            call_each(tokio, root, &written, n);
        })
        .case(
            "actor: also read, edit and hash it",
            Target::None,
            32,
            |n| {
                call_each(tokio, root, &edited, n);
            },
        )
        .case_then(
            "worker.call, 1 in flight",
            Target::Times(target),
            32,
            edits(1),
            rest,
        )
        .case_then(
            "worker.call, 16 in flight",
            Target::None,
            128,
            edits(16),
            rest,
        )
        .case_then(
            "worker.call, 64 in flight",
            Target::None,
            128,
            edits(64),
            rest,
        )
        .run();
}

/// An actor that replaces a file, and one that also reads it, replaces a line, and hashes both texts.
fn actors(
    tokio: &tokio::runtime::Runtime,
    dir: &Arc<Dir>,
    durability: Durability,
) -> (MinimalActor<u64, ()>, MinimalActor<u64, [ContentHash; 2]>) {
    let texts = [edited_text("a"), edited_text("b")];
    let (writer, mut turn) = (Arc::clone(dir), 0);
    let write = move |file: u64| {
        turn += 1;
        let [first, second] = &texts;
        let text = if turn % 2 == 0 { first } else { second };
        replace(&writer, &name(file), text, durability);
    };
    let (editor, mut pair) = (Arc::clone(dir), ("a", "b"));
    let edit = move |file: u64| {
        let (old, new) = replaced(&editor, &name(file), pair);
        let hashes = [&old, &new].map(|text| ContentHash::of(text.as_bytes()));
        pair = (pair.1, pair.0);
        replace(&editor, &name(file), &new, durability);
        hashes
    };
    tokio.block_on(async { (MinimalActor::start(write), MinimalActor::start(edit)) })
}

/// Calls an actor for the first file, which has the first text again at the end.
fn call_each<O: Send + 'static>(
    tokio: &tokio::runtime::Runtime,
    root: &Path,
    actor: &MinimalActor<u64, O>,
    n: u32,
) {
    let actor = actor.clone();
    run_task(tokio, async move {
        for _ in 0..n {
            actor.call(0).await.unwrap();
        }
    });
    std::fs::write(root.join(name(0)), edited_text("a")).unwrap();
}

/// The text of a file, and that with a line replaced.
fn replaced(dir: &Dir, name: &str, (from, to): (&str, &str)) -> (String, String) {
    let old = dir.read_to_string(name).unwrap();
    let line = |word| format!("that changes: {word}\n");
    let new = old.replacen(&line(from), &line(to), 1);
    (old, new)
}

/// Replaces a file as `durability` does.
fn replace(dir: &Dir, name: &str, text: &str, durability: Durability) {
    let own = format!("{name}.new");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = openat(dir, &own, flags, Mode::from_raw_mode(0o644)).unwrap();
    assert_eq!(pwrite(&file, text.as_bytes(), 0).unwrap(), text.len());
    if durability == Durability::Visible {
        renameat_with(dir, &own, dir, name, RenameFlags::EXCHANGE).unwrap();
        unlinkat(dir, &own, AtFlags::empty()).unwrap();
    } else {
        renameat(dir, &own, dir, name).unwrap();
    }
}
