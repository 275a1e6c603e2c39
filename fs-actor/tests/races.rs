//! Calls while another thread exchanges names.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and makes its files itself"
)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bailiwick::{Code, Policy, Runtime, Worker};
use bailiwick_test_support::cases;
use bailiwick_test_support::stage::started;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};

/// Time limit for the calls to see both allowed and forbidden files.
const LIMIT: Duration = Duration::from_secs(120);

/// Minimum number of calls per tool: `BAILIWICK_CASES` over 40, else 500.
fn tries() -> usize {
    cases(20_000) / 40
}

/// Exchanges each pair until dropped.
struct Swapper {
    stop: std::sync::Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Swapper {
    fn new(pairs: Vec<(PathBuf, PathBuf)>) -> Self {
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let seen = std::sync::Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                for (one, other) in &pairs {
                    // A tool may have moved one of them.
                    let _ = renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE);
                }
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Swapper {
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
    let builder = Runtime::builder().root("r", base.join("r"));
    let policy = Policy::new().deny_glob("**/secrets/**");
    let (runtime, worker) = started(builder.tools(bailiwick_fs::tools()), policy).await;
    Stage {
        _runtime: runtime,
        worker,
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

/// Calls the tools in turn while `/r/d` and `link` are exchanged.
async fn race(link: &str, calls: &[(&str, Value)]) {
    let stage = stage().await;
    let host = |name: &str| stage.temp.path().join(name);
    let theirs = ["outside", "r/secrets"].map(|dir| held(&host(dir)));
    let swapper = Swapper::new(vec![(host("r/d"), host("r").join(link))]);
    let (mut done, mut refused, mut rounds, mut late) = (0, 0, 0, None);
    while rounds < tries() || done == 0 || refused == 0 {
        rounds += 1;
        if rounds > tries() {
            let late = late.get_or_insert_with(Instant::now);
            let met = format!("{done} calls met the directory itself, {refused} the link");
            assert!(late.elapsed() < LIMIT, "{met} in {rounds} rounds");
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_race_lets_a_reader_read_foreign_files() {
    race("out", &reading()).await;
    race("secret", &reading()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_race_lets_a_writer_change_foreign_files() {
    race("out", &writing()).await;
    race("secret", &writing()).await;
}
