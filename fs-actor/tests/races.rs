//! Calls while another thread exchanges names.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and makes its files itself"
)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bailiwick::journal::{Journal, JournalLimits};
use bailiwick::{Code, Policy, Runtime, Worker};
use bailiwick_fs::Durability;
use bailiwick_test_support::cases;
use bailiwick_test_support::forbidden_calls::{OPENAT2, forbid};
use bailiwick_test_support::stage::started;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use serde_json::{Value, json};

/// Time limit for the calls to see both allowed and forbidden files and, if they change files, to fill the journal.
const LIMIT: Duration = Duration::from_secs(120);

/// Minimum number of calls per tool and race: `BAILIWICK_CASES` over 40, else 500.
fn tries() -> usize {
    cases(20_000) / 40
}

/// A thread that repeats something until it is dropped.
struct Repeating {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Repeating {
    fn new(mut act: impl FnMut() + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                act();
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }

    /// Exchanges two names.
    fn exchanging(one: PathBuf, other: PathBuf) -> Self {
        Self::new(move || {
            // A tool may have moved one of them.
            let _ = renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE);
        })
    }
}

impl Drop for Repeating {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

struct Stage {
    _runtime: Runtime,
    worker: Worker,
    journal: Journal,
    temp: tempfile::TempDir,
}

/// `/r/d` is a directory, `/r/out` a link out of the root, and `/r/secret` a link to a denied directory; all contain
/// `f`.
async fn stage() -> Stage {
    let temp = tempfile::tempdir().unwrap();
    let base = temp.path();
    for (dir, text) in [
        ("r/d", "mine"),
        ("outside", "THEIRS"),
        ("r/secrets", "THEIRS"),
    ] {
        fs::create_dir_all(base.join(dir)).unwrap();
        fs::write(base.join(dir).join("f"), text).unwrap();
    }
    symlink(base.join("outside"), base.join("r/out")).unwrap();
    symlink("secrets", base.join("r/secret")).unwrap();
    // The journal drops the oldest changes during a race.
    let limits = JournalLimits {
        bytes: 32 << 10,
        ..JournalLimits::default()
    };
    let journal = Journal::open_with(base.join("journal"), limits).unwrap();
    let builder = Runtime::builder()
        .root("r", base.join("r"))
        .journal(journal.clone())
        .tools(bailiwick_fs::tools())
        .tools(bailiwick_fs::undo_tools(Durability::Visible));
    let policy = Policy::new()
        .deny_glob("**/secrets/**")
        .deny_glob("**/*.key");
    let (runtime, worker) = started(builder, policy).await;
    Stage {
        _runtime: runtime,
        worker,
        journal,
        temp,
    }
}

fn held(dir: &Path) -> Vec<(std::ffi::OsString, Vec<u8>)> {
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    let mut held: Vec<_> = entries
        .map(|entry| {
            (
                entry.file_name(),
                fs::read(entry.path()).unwrap_or_default(),
            )
        })
        .collect();
    held.sort();
    held
}

/// What the calls of a race do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    Reads,
    /// Such a race lasts until the journal has dropped changes.
    Changes,
}

/// Calls the tools in turn while `/r/d` and `link` are exchanged.
async fn race(link: &str, calls: &[(&str, Value)], effect: Effect) {
    let stage = stage().await;
    let host = |name: &str| stage.temp.path().join(name);
    let theirs = ["outside", "r/secrets"].map(|dir| held(&host(dir)));
    let swapper = Repeating::exchanging(host("r/d"), host("r").join(link));
    let (mut done, mut refused, mut rounds, mut late) = (0, 0, 0, None);
    let has_dropped = || effect == Effect::Reads || stage.journal.dropped() > 0;
    while rounds < tries() || done == 0 || refused == 0 || !has_dropped() {
        rounds += 1;
        if rounds > tries() {
            let late = late.get_or_insert_with(Instant::now);
            let met = format!("{done} calls met the directory itself, {refused} the link");
            let dropped = stage.journal.dropped();
            assert!(
                late.elapsed() < LIMIT,
                "{met} in {rounds} rounds, {dropped} changes dropped"
            );
        }
        for (tool, arguments) in calls {
            match stage.worker.call(tool, arguments.clone()).await {
                Ok(outcome) => {
                    done += 1;
                    let told = format!("{} {:?}", outcome.text(), outcome.structured());
                    assert!(!told.contains("THEIRS"), "{tool} {arguments}: {told}");
                }
                Err(error) => {
                    refused += 1;
                    assert_ne!(error.code(), Code::Internal, "{tool}: {error:?}");
                    assert!(!format!("{error:?}").contains("THEIRS"), "{tool}");
                }
            }
        }
    }
    drop(swapper);
    assert_eq!(theirs, ["outside", "r/secrets"].map(|dir| held(&host(dir))));
}

fn reading() -> Vec<(&'static str, Value)> {
    vec![
        ("read_file", json!({"path": "/r/d/f"})),
        ("list_directory", json!({"path": "/r/d", "depth": 3})),
        ("stat", json!({"path": "/r/d/f"})),
        ("find", json!({"pattern": "*", "path": "/r/d"})),
        ("grep", json!({"pattern": ".", "path": "/r/d"})),
        ("grep", json!({"pattern": "."})),
    ]
}

fn writing() -> Vec<(&'static str, Value)> {
    vec![
        (
            "write_file",
            json!({"path": "/r/d/f", "content": "mine", "mode": "overwrite"}),
        ),
        (
            "edit_file",
            json!({"path": "/r/d/f", "edits": [{"old_text": "mine", "new_text": "MINE"}]}),
        ),
        ("write_file", json!({"path": "/r/d/n", "content": "mine"})),
        (
            "copy",
            json!({"from": "/r/d/f", "to": "/r/c", "overwrite": true}),
        ),
        ("read_file", json!({"path": "/r/c"})),
        ("move", json!({"from": "/r/d/n", "to": "/r/d/m"})),
        (
            "make_directory",
            json!({"path": "/r/d/e/g", "create_parents": true}),
        ),
        ("copy", json!({"from": "/r/d", "to": "/r/tree"})),
        ("grep", json!({"pattern": ".", "path": "/r/tree"})),
        ("delete", json!({"path": "/r/tree", "recursive": true})),
        ("delete", json!({"path": "/r/d/e", "recursive": true})),
        ("delete", json!({"path": "/r/d/m"})),
        ("delete", json!({"path": "/r/d/n"})),
    ]
}

fn batches() -> Vec<(&'static str, Value)> {
    let operations = json!([
        {"tool": "write_file", "path": "/r/d/f", "content": "MINE", "mode": "overwrite"},
        {"tool": "make_directory", "path": "/r/d/e/g", "create_parents": true},
        {"tool": "copy", "from": "/r/d/f", "to": "/r/d/e/c"},
        {"tool": "move", "from": "/r/d/e", "to": "/r/d/x"},
        {"tool": "write_file", "path": "/r/d/x/n", "content": "mine"},
    ]);
    let deletions = json!([{"tool": "delete", "path": "/r/d/x", "recursive": true}]);
    vec![
        ("apply_batch", json!({ "operations": operations })),
        ("undo", json!({})),
        ("redo", json!({})),
        ("undo", json!({})),
        ("apply_batch", json!({ "operations": deletions })),
        ("undo", json!({})),
    ]
}

/// Runs the calls in races with both links, with `openat2` and without it.
fn races(calls: &[(&str, Value)], effect: Effect) {
    for has_openat2 in [true, false] {
        let run = move || {
            if !has_openat2 {
                forbid(&[OPENAT2], Errno::NOSYS);
            }
            // Its threads inherit the filter.
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                race("out", calls, effect).await;
                race("secret", calls, effect).await;
            });
        };
        std::thread::scope(|scope| scope.spawn(run).join().unwrap());
    }
}

#[test]
fn no_race_lets_a_reader_read_foreign_files() {
    races(&reading(), Effect::Reads);
}

#[test]
fn no_race_lets_a_writer_change_foreign_files() {
    races(&writing(), Effect::Changes);
}

#[test]
fn no_race_lets_a_batch_or_an_undo_change_foreign_files() {
    races(&batches(), Effect::Changes);
}

/// Calls that take a directory as a whole.
fn whole_directories() -> Vec<(&'static str, Value)> {
    let delete = |path: &str| ("delete", json!({"path": path, "recursive": true}));
    vec![
        ("copy", json!({"from": "/r/d", "to": "/r/tree"})),
        ("list_directory", json!({"path": "/r", "depth": 3})),
        ("grep", json!({"pattern": "."})),
        delete("/r/tree"),
        delete("/r/d"),
        ("undo", json!({})),
        ("move", json!({"from": "/r/d", "to": "/r/x"})),
        ("move", json!({"from": "/r/x", "to": "/r/d"})),
    ]
}

/// The files beneath `dir` with the content `text`.
fn holders(dir: &Path, text: &str) -> Vec<PathBuf> {
    let files = bailiwick_test_support::temp_files::tree(dir);
    let names = files.keys().map(|name| dir.join(name));
    let mut names: Vec<_> = names.filter(|file| file.is_file()).collect();
    names.retain(|file| fs::read(file).unwrap() == text.as_bytes());
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_with_a_denied_name_that_appears_in_a_directory_is_kept_and_not_copied() {
    let stage = stage().await;
    let base = stage.temp.path().to_path_buf();
    for n in 0..40 {
        fs::write(base.join(format!("r/d/{n}")), "mine").unwrap();
    }
    fs::write(base.join("a.key"), "KEY OF OTHERS").unwrap();
    let places = ["r/d/a.key", "r/x/a.key"].map(|name| base.join(name));
    let home = base.join("a.key");
    let hider = Repeating::new(move || {
        let _ = fs::rename(&home, &places[0]);
        for place in &places {
            let _ = fs::rename(place, &home);
        }
    });
    let (mut done, mut refused) = (0, 0);
    for _ in 0..tries() / 4 {
        for (tool, arguments) in whole_directories() {
            let called = stage.worker.call(tool, arguments.clone()).await;
            let told = match called {
                Ok(outcome) => {
                    done += 1;
                    format!("{} {:?}", outcome.text(), outcome.structured())
                }
                Err(error) => {
                    refused += 1;
                    format!("{error:?}")
                }
            };
            assert!(!told.contains("a.key"), "{tool} {arguments}: {told}");
            assert!(!base.join("r/tree/a.key").exists(), "{tool}");
        }
    }
    drop(hider);
    assert!(done > 0 && refused > 0, "{done} done, {refused} refused");
    assert_eq!(holders(&base, "KEY OF OTHERS").len(), 1);
}
