//! The time that `find` and `grep` take in 20,000 files, compared with `fd`, `rg` and the libraries of `rg`.
//!
//! The cases with the programs are left out if these are not installed (Debian packages `fd-find` and `ripgrep`).
#![expect(clippy::unwrap_used, reason = "benchmarks panic on failure")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bailiwick::{Policy, Runtime, Worker, WorkerSpec};
use bailiwick_benches::{Benchmark, Target, brief, multi_thread, run_task};
use bailiwick_fs::{FindOutput, GrepOutput};
use grep_regex::RegexMatcher;
use grep_searcher::SearcherBuilder;
use grep_searcher::sinks::Bytes;
use ignore::{WalkBuilder, WalkState};
use serde_json::{Value, json};

const DIRECTORIES: usize = 1_200;
/// Every 50th file has the text.
const MATCHING_EACH: usize = 50;

fn files() -> usize {
    if brief() { 1_000 } else { 20_000 }
}

fn matching() -> usize {
    files() / MATCHING_EACH
}

fn main() {
    let tokio = multi_thread().unwrap();
    let root = tempfile::tempdir().unwrap();
    fill(root.path());
    let (_runtime, worker) = tokio.block_on(async {
        let builder = Runtime::builder().root("r", root.path());
        let (runtime, _) = builder.tools(bailiwick_fs::tools()).build().await.unwrap();
        let policy = Policy::inherit()
            .deny_glob("**/.env")
            .deny_glob("**/secrets/**");
        let spec = WorkerSpec::new("bench").policy(policy);
        let worker = runtime.spawn(spec).await.unwrap();
        (runtime, worker)
    });
    let call = |tool: &'static str, arguments: Value, count: fn(&bailiwick::Outcome) -> usize| {
        let (worker, tokio): (Worker, _) = (worker.clone(), &tokio);
        move |n: u32| {
            let (worker, arguments) = (worker.clone(), arguments.clone());
            run_task(tokio, async move {
                for _ in 0..n {
                    let outcome = worker.call(tool, arguments.clone()).await.unwrap();
                    assert_eq!(count(&outcome), matching());
                }
            });
        }
    };
    let found = |outcome: &bailiwick::Outcome| outcome.output::<FindOutput>().unwrap().paths.len();
    let matches =
        |outcome: &bailiwick::Outcome| outcome.output::<GrepOutput>().unwrap().files.len();

    let find = json!({ "pattern": "*-match.txt", "limit": 1_000 });
    let mut names = Benchmark::new("find names in 20,000 files", Duration::from_secs(4));
    let fd = program(&["fdfind", "fd"]);
    if let Some(fd) = fd {
        names = names.case("fd", Target::None, 1, |n| {
            run(
                n,
                fd,
                &["-H", "-E", ".git", "-g", "*-match.txt"],
                root.path(),
            );
        });
    }
    let target = fd.map_or(Target::None, |_| Target::Times(0.5));
    names = names.case("worker.call", target, 1, call("find", find, found));
    names = names.case("ignore", Target::None, 1, |n| {
        for _ in 0..n {
            let count = AtomicUsize::new(0);
            walk(root.path(), |path| {
                let name = path.file_name().and_then(|name| name.to_str());
                let hit = name.is_some_and(|name| name.ends_with("-match.txt"));
                count.fetch_add(usize::from(hit), Ordering::Relaxed);
            });
            assert_eq!(count.into_inner(), matching());
        }
    });
    names.run();

    let grep = json!({ "pattern": "needle in a haystack", "limit": 1_000 });
    let mut lines = Benchmark::new("grep in 20,000 files", Duration::from_secs(8));
    let rg = program(&["rg"]);
    if let Some(rg) = rg {
        lines = lines.case("rg", Target::None, 1, |n| {
            run(
                n,
                rg,
                &["--hidden", "-n", "needle in a haystack", "."],
                root.path(),
            );
        });
    }
    let target = rg.map_or(Target::None, |_| Target::Times(0.8));
    lines = lines.case("worker.call", target, 1, call("grep", grep, matches));
    lines = lines.case("ignore + grep-searcher", Target::None, 1, |n| {
        let matcher = RegexMatcher::new("needle in a haystack").unwrap();
        for _ in 0..n {
            let count = AtomicUsize::new(0);
            walk(root.path(), |path| {
                let mut searcher = SearcherBuilder::new().line_number(true).build();
                let sink = Bytes(|_, _| {
                    count.fetch_add(1, Ordering::Relaxed);
                    Ok(true)
                });
                searcher.search_path(&matcher, path, sink).unwrap();
            });
            assert_eq!(count.into_inner(), matching());
        }
    });
    lines.run();
}

/// Creates the files, with rules that ignore some others.
fn fill(root: &Path) {
    std::fs::create_dir(root.join(".git")).unwrap();
    std::fs::write(root.join(".gitignore"), "*.o\ntarget/\n!keep.o\n").unwrap();
    for n in 0..files() {
        let number = n % DIRECTORIES;
        let dir = root.join(format!("part{:02}/dir{:02}", number / 40, number % 40));
        std::fs::create_dir_all(&dir).unwrap();
        let matches = n % MATCHING_EACH == 0;
        let name = format!("file{n:05}{}.txt", if matches { "-match" } else { "" });
        let mut text =
            "a line of sixty-three bytes, so that the file looks like a text\n".repeat(60);
        if matches {
            text.push_str("the needle in a haystack\n");
        }
        std::fs::write(dir.join(name), text).unwrap();
        if n % 10 == 0 {
            std::fs::write(dir.join(format!("ignored{n}.o")), "needle in a haystack").unwrap();
        }
    }
}

/// Visits all files that are not ignored, on two threads.
fn walk(root: &Path, visit: impl Fn(&Path) + Sync) {
    let mut builder = WalkBuilder::new(root);
    let filter = |entry: &ignore::DirEntry| entry.file_name() != ".git";
    builder.hidden(false).threads(2).filter_entry(filter);
    builder.build_parallel().run(|| {
        Box::new(|entry| {
            let entry = entry.unwrap();
            if entry.file_type().is_some_and(|kind| kind.is_file()) {
                visit(entry.path());
            }
            WalkState::Continue
        })
    });
}

/// The first of `names` that is installed.
fn program(names: &[&'static str]) -> Option<&'static str> {
    let installed = |name: &&&str| {
        let mut version = Command::new(name);
        version
            .arg("--version")
            .stdout(Stdio::null())
            .status()
            .is_ok()
    };
    names.iter().find(installed).copied()
}

/// Runs a program that must find something.
fn run(times: u32, program: &str, arguments: &[&str], root: &Path) {
    for _ in 0..times {
        let mut command = Command::new(program);
        let output = command.args(arguments).current_dir(root).output().unwrap();
        let lines = output.stdout.iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(lines, matching());
    }
}
