//! Kills processes while they change and undo files, and checks what the next runtime makes of it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use bailiwick::journal::{Journal, JournalLimits, Recovery};
use bailiwick::permission::Scripted;
use bailiwick::{Answer, GrantAuthority, Policy, Runtime, Worker, WorkerSpec};
use bailiwick_test_support::numbers::Numbers;
use serde_json::{Value, json};

use super::{Tree, plant, run, tree};

const FOLDER: &str = "BAILIWICK_KILL_UNDO_IN";
const SEED: &str = "BAILIWICK_KILL_UNDO_SEED";

/// A batch that changes, moves, copies and deletes files; most of them succeed.
fn batch(numbers: &mut Numbers, content: &str) -> Value {
    let write = |path: String| json!({"tool": "write_file", "path": path, "content": content, "mode": "overwrite"});
    let mut operations = vec![
        json!({"tool": "make_directory", "path": "/r/n", "create_parents": true}),
        write("/r/a".to_owned()),
        // Its name is protected.
        write("/r/AGENTS.md".to_owned()),
        json!({"tool": "copy", "from": "/r/a", "to": "/r/n/copy", "overwrite": true}),
    ];
    operations.extend((0..numbers.below(12)).map(|n| write(format!("/r/n/{n}"))));
    let more = [
        json!({"tool": "move", "from": "/r/n/copy", "to": "/r/n/moved", "overwrite": true}),
        json!({"tool": "write_file", "path": "/r/n/moved", "content": "x", "mode": "append"}),
        json!({"tool": "copy", "from": "/r/n", "to": "/r/m"}),
        json!({"tool": "delete", "path": "/r/n", "recursive": true}),
    ];
    operations.extend(more.into_iter().take(numbers.below(5)));
    json!({ "operations": operations })
}

pub(super) fn random_call(numbers: &mut Numbers) -> (&'static str, Value) {
    let paths = [
        "/r/a", "/r/b", "/r/d", "/r/d/a", "/r/d/e/b", "/r/x/y/z", "/r/x",
    ];
    let (from, to) = (
        paths[numbers.below(paths.len())],
        paths[numbers.below(paths.len())],
    );
    let content = "line\n".repeat(numbers.below(3_000));
    match numbers.below(13) {
        10.. => ("apply_batch", batch(numbers, &content)),
        0..4 => (
            "write_file",
            json!({"path": from, "content": content, "mode": "overwrite", "create_parents": true}),
        ),
        4 => (
            "move",
            json!({"from": from, "to": to, "overwrite": true, "create_parents": true}),
        ),
        5 => (
            "copy",
            json!({"from": from, "to": to, "create_parents": true}),
        ),
        6 => ("delete", json!({"path": from, "recursive": true})),
        7 | 8 => ("undo", json!({"last": 1 + numbers.below(6)})),
        _ => ("redo", json!({})),
    }
}

/// A runtime that allows each call that a person would be asked about.
pub(super) async fn runtime(temp: &Path) -> (Runtime, GrantAuthority) {
    let builder = super::builder(temp, JournalLimits::default());
    let approver = Scripted::new().rule(|_| Some(Answer::ONCE));
    builder.approver(approver).build().await.unwrap()
}

pub(super) async fn worker(runtime: &Runtime) -> Worker {
    let spec = WorkerSpec::new("main").policy(Policy::new());
    runtime.spawn(spec).await.unwrap()
}

#[test]
#[ignore = "child process of the test below"]
fn process_to_be_killed() {
    let folder = std::env::var_os(FOLDER).unwrap();
    let seed = std::env::var(SEED).unwrap().parse().unwrap();
    run(async {
        let (runtime, _grants) = runtime(Path::new(&folder)).await;
        let worker = worker(&runtime).await;
        let mut numbers = Numbers(seed);
        loop {
            let (tool, arguments) = random_call(&mut numbers);
            // Many of them fail.
            let _ = worker.call(tool, arguments).await;
            std::io::stderr().write_all(b"acknowledged\n").unwrap();
        }
    });
}

/// Starts a process in `folder` and kills it after this many acknowledged calls, at some instant of the next ones.
/// Returns how many were acknowledged.
fn kill(folder: &Path, seed: u64, after: usize, spins: usize) -> usize {
    let test = std::env::current_exe().unwrap();
    let mut child = Command::new(test)
        .args([
            "--ignored",
            "--exact",
            "--nocapture",
            "killed::process_to_be_killed",
        ])
        .env(FOLDER, folder)
        .env(SEED, seed.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut lines = lines
        .map_while(Result::ok)
        .filter(|line| line == "acknowledged");
    let mut acknowledged = lines.by_ref().take(after).count();
    for _ in 0..spins {
        std::hint::spin_loop();
    }
    child.kill().unwrap();
    acknowledged += lines.count();
    child.wait().unwrap();
    acknowledged
}

/// The trees after `calls` calls and after one more.
fn expected(seed: u64, calls: usize) -> [Tree; 2] {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("r");
    std::fs::create_dir(&root).unwrap();
    plant(&root);
    run(async {
        let (runtime, _grants) = runtime(temp.path()).await;
        let worker = worker(&runtime).await;
        let mut numbers = Numbers(seed);
        for _ in 0..calls {
            let (tool, arguments) = random_call(&mut numbers);
            let _ = worker.call(tool, arguments).await;
        }
        let before = tree(&root);
        let (tool, arguments) = random_call(&mut numbers);
        let _ = worker.call(tool, arguments).await;
        [before, tree(&root)]
    })
}

/// Checks that each interrupted change was kept as a whole or rolled back.
pub(super) fn check_recovered(runtime: &Runtime, case: u64) {
    for recovered in runtime.recovered() {
        let clear = matches!(
            recovered.outcome,
            Recovery::Completed | Recovery::NotApplied | Recovery::RolledBack { .. }
        );
        assert!(clear, "case {case}: {recovered}");
    }
}

/// Undoes everything that agents called `main` changed.
pub(super) async fn undo_all(runtime: &Runtime, grants: &GrantAuthority, case: u64) {
    let changes = runtime.journal().unwrap().changes_of_agent("main");
    if !changes.is_empty() {
        let undone = grants.undo(&changes).await;
        undone.unwrap_or_else(|error| panic!("case {case}: {error}"));
    }
}

#[test]
fn killed_process_leaves_whole_calls_that_can_be_undone() {
    let cases = super::cases(8).cases.min(1_000);
    for case in 0..u64::from(cases) {
        let mut numbers = Numbers(case);
        let (after, spins) = (1 + numbers.below(25), numbers.below(400_000));
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("r");
        std::fs::create_dir(&root).unwrap();
        plant(&root);
        let first = tree(&root);
        let acknowledged = kill(temp.path(), case, after, spins);
        let [before, then] = expected(case, acknowledged);
        run(async {
            let (runtime, grants) = runtime(temp.path()).await;
            check_recovered(&runtime, case);
            let now = tree(&root);
            assert!(
                now == before || now == then,
                "case {case} after {acknowledged} calls: {:#?}\n{now:#?}",
                runtime.recovered()
            );
            undo_all(&runtime, &grants, case).await;
            assert_eq!(tree(&root), first, "case {case}");
            runtime.shutdown().await;
        });
        let entries = Journal::read(temp.path().join("journal")).unwrap();
        let open = entries.iter().find(|entry| {
            matches!(
                entry.state,
                bailiwick::journal::ChangeState::Interrupted
                    | bailiwick::journal::ChangeState::Running
            )
        });
        assert_eq!(open, None, "case {case}");
    }
}
