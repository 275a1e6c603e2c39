//! Kills a host while it applies the changes of a command.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use bailiwick::journal::{ChangeState, Journal, Recovery};
use bailiwick::{GrantAuthority, Runtime};
use bailiwick_fs::Durability;
use bailiwick_test_support::temp_files::tree;
use serde_json::json;

use crate::changes::{apart, apply};
use crate::commands::{commands, everything, worker};

const FOLDER: &str = "BAILIWICK_KILL_MERGE_IN";
/// Creates, changes and deletes files, changes permissions, and deletes links.
const SCRIPT: &str = "mkdir new; for n in $(seq 100 399); do echo $n > new/$n; done
    for n in $(seq 100 199); do echo more >> old/$n; done; rm old/2*;
    chmod 600 old/m*; rm old/l*";

async fn runtime(folder: &Path) -> (Runtime, GrantAuthority) {
    let builder = Runtime::builder()
        .root("repo", folder.join("repo"))
        .journal(Journal::open(folder.join("journal")).unwrap())
        .tools(commands().tools())
        .tools(bailiwick_fs::undo_tools(Durability::Visible))
        .allow("execute:command");
    builder.build().await.unwrap()
}

#[tokio::test]
#[ignore = "child process of the test below"]
async fn process_to_be_killed() {
    let folder = std::env::var_os(FOLDER).unwrap();
    let (runtime, _grants) = runtime(Path::new(&folder)).await;
    let worker = worker(&runtime, everything()).await;
    let changes = apart(&worker, SCRIPT).await;
    assert_eq!((changes.total, changes.dropped_total), (601, 0));
    apply(&worker, json!({ "id": changes.id })).await.unwrap();
}

fn start(folder: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "killed_merge::process_to_be_killed"])
        .env(FOLDER, folder)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// A folder with a root of 250 files and 50 links.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("repo/old")).unwrap();
    for name in 100..300 {
        fs::write(folder.path().join(format!("repo/old/{name}")), "text\n").unwrap();
    }
    for name in 100..150 {
        let old = folder.path().join("repo/old");
        fs::write(old.join(format!("m{name}")), "text\n").unwrap();
        std::os::unix::fs::symlink("m100", old.join(format!("l{name}"))).unwrap();
    }
    folder
}

#[tokio::test]
async fn host_that_is_killed_while_it_applies_changes_leaves_all_or_none() {
    let whole = folder();
    let first = tree(&whole.path().join("repo"));
    assert!(start(whole.path()).wait().unwrap().success());
    let last = tree(&whole.path().join("repo"));
    assert!(first != last);

    let mut interrupted = 0;
    for seen in ["new", "new/100", "new/200", "new/399"] {
        let folder = folder();
        let repo = folder.path().join("repo");
        let mut host = start(folder.path());
        while !repo.join(seen).exists() && host.try_wait().unwrap().is_none() {
            std::hint::spin_loop();
        }
        host.kill().unwrap();
        host.wait().unwrap();
        assert!(repo.join(seen).exists(), "{seen}");

        let (runtime, grants) = runtime(folder.path()).await;
        for recovered in runtime.recovered() {
            interrupted += 1;
            assert!(
                matches!(
                    recovered.outcome,
                    Recovery::Completed | Recovery::RolledBack { .. }
                ),
                "{seen}: {recovered}"
            );
        }
        let now = tree(&repo);
        assert!(now == first || now == last, "{seen}: {:?}", now.keys());
        if now == last {
            // It may have ended before it was killed.
            let changes = runtime.journal().unwrap().changes_of_agent("tester");
            grants.undo(&changes).await.unwrap();
            assert!(tree(&repo) == first, "{seen}");
        }
        runtime.shutdown().await;
        let entries = Journal::read(folder.path().join("journal")).unwrap();
        let is_open =
            |state: &ChangeState| matches!(state, ChangeState::Interrupted | ChangeState::Running);
        assert!(!entries.is_empty(), "{seen}");
        let open = entries.iter().find(|entry| is_open(&entry.state));
        assert_eq!(open, None, "{seen}");
    }
    assert!(interrupted > 0);
}
