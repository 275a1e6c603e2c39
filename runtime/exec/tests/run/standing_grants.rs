//! Grants of people that are wider than what a command declares.

use std::fs;

use bailiwick::permission::{GrantAuthority, GrantHolder, Lifetime, NewGrant};
use bailiwick::{Answer, Policy, Runtime, Scripted, ToolSet, Worker};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::commands::{commands, run, worker};

pub(crate) fn grant(pattern: &str) -> NewGrant {
    NewGrant {
        pattern: pattern.parse().unwrap(),
        holder: GrantHolder::Agent("tester".into()),
        lifetime: Lifetime::Agent,
        descendants: false,
    }
}

/// Programs try to change and read both subdirectories of two folders, of which a person granted all or some.
const SCRIPT: &str = "echo new > out/a/new; echo new > out/b/new; cat in/a/text in/b/text; true";

struct Stage {
    root: TempDir,
    _runtime: Runtime,
    /// It needs an answer for both folders.
    worker: Worker,
    grants: GrantAuthority,
}

async fn stage(approver: Scripted) -> Stage {
    let root = tempfile::tempdir().unwrap();
    for path in ["out/a", "out/b", "in/a", "in/b"] {
        fs::create_dir_all(root.path().join(path)).unwrap();
        fs::write(root.path().join(path).join("text"), path).unwrap();
    }
    let builder = Runtime::builder().root("repo", root.path());
    let tools = ToolSet::new().actor(commands());
    let builder = builder.tools(tools).allow("execute:command");
    let (runtime, grants) = builder.approver(approver).build().await.unwrap();
    let policy = Policy::nothing()
        .allow("read:file:/repo/out")
        .ask("read:file:/repo/in")
        .ask("write:file:/repo/out")
        .allow("execute:command");
    let worker = worker(&runtime, policy).await;
    Stage {
        root,
        _runtime: runtime,
        worker,
        grants,
    }
}

fn declaring(reads: &[&str], writes: &[&str]) -> Value {
    let argv = ["sh", "-c", SCRIPT];
    json!({ "argv": argv, "cwd": "/repo", "mode": "live", "reads": reads, "writes": writes })
}

/// Which of the subdirectories a command has changed, and what it read.
async fn effect(stage: &Stage, arguments: Value) -> ([bool; 2], String) {
    let output = run(&stage.worker, arguments).await.unwrap();
    let changed = ["a", "b"].map(|name| {
        let path = stage.root.path().join("out").join(name).join("new");
        fs::remove_file(path).is_ok()
    });
    (changed, output.stdout)
}

#[tokio::test]
async fn command_gets_of_a_granted_folder_what_it_declares_and_its_preview_shows() {
    let stage = stage(Scripted::new()).await;
    for pattern in ["write:file:/repo/out", "read:file:/repo/in"] {
        stage.grants.grant(grant(pattern)).await.unwrap();
    }
    for (reads, writes, changed, read) in [
        ("/repo/in/a", "/repo/out/a", [true, false], "in/a"),
        // It may declare all that was granted.
        ("/repo/in", "/repo/out", [true, true], "in/ain/b"),
    ] {
        let arguments = declaring(&[reads], &[writes]);
        let preview = stage.worker.preview("run_command", arguments.clone()).await;
        let preview = preview.unwrap();
        let shown = preview.resources.iter().skip(1);
        let shown: Vec<&str> = shown.map(|line| &*line.summary).collect();
        assert!(shown[0].starts_with(&format!("{reads} and /repo/out; ")));
        assert_eq!(shown[1], format!("{writes}; this cannot be undone"));
        let effect = effect(&stage, arguments).await;
        assert_eq!(effect, (changed, read.to_owned()), "{shown:?}");
    }
}

/// A person may allow more than the call needs, for later calls.
#[tokio::test]
async fn answer_that_grants_a_folder_gives_a_command_what_it_declares() {
    let folder = || Answer::Allow {
        patterns: vec!["write:file:/repo/out".parse().unwrap()],
        lifetime: Lifetime::Session,
        descendants: false,
        left_out: Vec::new(),
    };
    let approver = Scripted::new().rule(move |_| Some(folder()));
    let stage = stage(approver).await;
    for (writes, changed) in [("/repo/out/a", [true, false]), ("/repo/out", [true, true])] {
        let effect = effect(&stage, declaring(&[], &[writes])).await;
        assert_eq!(effect, (changed, String::new()));
    }
}
