//! The tools `undo` and `redo`, and what the journal reports.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and makes its files itself"
)]

mod damage;
mod full_disk;
mod interrupted;
mod killed;
mod recovery;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use bailiwick::audit::JsonLines;
use bailiwick::effect::{Entry, Op};
use bailiwick::journal::{ChangeState, Journal, JournalLimits};
use bailiwick::permission::{DecidedBy, Decision, History};
use bailiwick::{
    Call, CallError, Code, DenyAll, GrantAuthority, Outcome, Policy, Runtime, RuntimeBuilder,
    Worker, WorkerSpec,
};
use bailiwick_fs::Durability;
use bailiwick_test_support::temp_files::{Tree, tree};
use proptest::prelude::*;
use proptest::test_runner::Config;
use serde_json::{Value, json};

/// Runs `BAILIWICK_CASES` cases, or `default` if it is not set.
fn cases(default: u32) -> Config {
    let asked = std::env::var("BAILIWICK_CASES").ok();
    Config::with_cases(asked.map_or(default, |cases| cases.parse().unwrap()))
}

struct World {
    temp: tempfile::TempDir,
    runtime: Runtime,
    grants: GrantAuthority,
}

impl World {
    async fn new() -> Self {
        Self::with(JournalLimits::default()).await
    }

    async fn with(limits: JournalLimits) -> Self {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir(temp.path().join("r")).unwrap();
        let (runtime, grants) = runtime(temp.path(), limits).await;
        Self {
            temp,
            runtime,
            grants,
        }
    }

    fn root(&self) -> PathBuf {
        self.temp.path().join("r")
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.root().join(name)).ok()
    }

    async fn worker(&self) -> Worker {
        self.spawn("main", Policy::new()).await
    }

    async fn spawn(&self, name: &str, policy: Policy) -> Worker {
        let spec = WorkerSpec::new(name).policy(policy);
        self.runtime.spawn(spec).await.unwrap()
    }
}

async fn runtime(temp: &Path, limits: JournalLimits) -> (Runtime, GrantAuthority) {
    builder(temp, limits).build().await.unwrap()
}

fn builder(temp: &Path, limits: JournalLimits) -> RuntimeBuilder {
    let journal = Journal::open_with(temp.join("journal"), limits).unwrap();
    Runtime::builder()
        .root("r", temp.join("r"))
        .journal(journal)
        .tools(bailiwick_fs::tools())
        .tools(bailiwick_fs::undo_tools(Durability::Visible))
}

async fn write(worker: &Worker, path: &str, content: &str) -> Outcome {
    let arguments =
        json!({"path": path, "content": content, "mode": "overwrite", "create_parents": true});
    worker.call("write_file", arguments).await.unwrap()
}

async fn undo(worker: &Worker, arguments: Value) -> Result<Value, CallError> {
    let outcome = worker.call("undo", arguments).await?;
    Ok(outcome.structured().unwrap())
}

#[tokio::test]
async fn undo_takes_back_the_latest_call_and_redo_makes_it_again() {
    let world = World::new().await;
    let worker = world.worker().await;
    write(&worker, "/r/a", "one").await;
    write(&worker, "/r/a", "two").await;

    let undone = undo(&worker, json!({})).await.unwrap();
    assert_eq!(undone, json!({"undone": [3], "files": 1, "remaining": 1}));
    assert_eq!(world.read("a").unwrap(), "one");
    undo(&worker, json!({})).await.unwrap();
    assert_eq!(world.read("a"), None);
    let error = undo(&worker, json!({})).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);

    worker.call("redo", json!({})).await.unwrap();
    assert_eq!(world.read("a").unwrap(), "one");
    worker.call("redo", json!({})).await.unwrap();
    assert_eq!(world.read("a").unwrap(), "two");
    let error = worker.call("redo", json!({})).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);

    undo(&worker, json!({"last": 2})).await.unwrap();
    assert_eq!(world.read("a"), None);
    worker.call("redo", json!({})).await.unwrap();
    assert_eq!(world.read("a").unwrap(), "two");
    let error = undo(&worker, json!({"changes": [1]})).await.unwrap_err();
    assert_eq!(error.code(), Code::Conflict);
    undo(&worker, json!({})).await.unwrap();
    assert_eq!(world.read("a").unwrap(), "one");
}

#[tokio::test]
async fn redo_reply_says_what_was_made_again_and_what_can_still_be() {
    let world = World::new().await;
    let worker = world.worker().await;
    for content in ["one", "two", "three"] {
        write(&worker, "/r/a", content).await;
    }
    undo(&worker, json!({})).await.unwrap();
    undo(&worker, json!({"last": 2})).await.unwrap();

    let redone = worker.call("redo", json!({})).await.unwrap();
    assert_eq!(
        redone.structured().unwrap(),
        json!({"redone": [3, 1], "files": 1, "remaining": 1})
    );
    assert_eq!(
        redone.text(),
        "2 made again (change 3, 1), 1 files changed; undo calls that can still be reverted: 1"
    );
    let redone = worker.call("redo", json!({})).await.unwrap();
    assert_eq!(
        redone.structured().unwrap(),
        json!({"redone": [5], "files": 1, "remaining": 0})
    );
    assert_eq!(world.read("a").unwrap(), "three");
}

#[tokio::test]
async fn change_that_was_made_again_is_undone_before_those_made_meanwhile() {
    let world = World::new().await;
    let worker = world.worker().await;
    write(&worker, "/r/d/a", "a").await;
    undo(&worker, json!({})).await.unwrap();
    write(&worker, "/r/b", "b").await;
    worker.call("redo", json!({})).await.unwrap();
    assert_eq!(tree(&world.root()).len(), 3);
    undo(&worker, json!({})).await.unwrap();
    assert_eq!(world.read("d/a"), None);
    assert_eq!(world.read("b").unwrap(), "b");
    worker.call("redo", json!({})).await.unwrap();
    // Both at once, although the move depends on the file that was made again.
    let moved = json!({"from": "/r/d", "to": "/r/e"});
    worker.call("move", moved).await.unwrap();
    undo(&worker, json!({"agent": "main"})).await.unwrap();
    assert_eq!(tree(&world.root()), Tree::new());
}

#[tokio::test]
async fn redo_of_a_path_that_a_newer_change_moved_is_a_conflict() {
    let world = World::new().await;
    let (root, worker) = (world.root(), world.worker().await);
    plant(&root);
    let first = tree(&root);
    let delete = json!({"path": "/r/d", "recursive": true});
    worker.call("delete", delete).await.unwrap();
    undo(&worker, json!({})).await.unwrap();
    let moved = json!({"from": "/r/d", "to": "/r/x"});
    worker.call("move", moved).await.unwrap();
    undo(&worker, json!({})).await.unwrap();

    worker.call("redo", json!({})).await.unwrap();
    let then = tree(&root);
    let error = worker.call("redo", json!({})).await.unwrap_err();
    assert_eq!(error.code(), Code::Conflict);
    assert_eq!(error.details()["conflicts"][0], "/r/d");
    assert_eq!(tree(&root), then);
    undo(&worker, json!({"agent": "main"})).await.unwrap();
    assert_eq!(tree(&root), first);
    // What is the latest can still be made again.
    worker.call("redo", json!({})).await.unwrap();
    undo(&worker, json!({})).await.unwrap();
    assert_eq!(tree(&root), first);
}

#[tokio::test]
async fn redo_of_changes_that_cancel_each_other_is_a_conflict_if_a_newer_change_took_their_path() {
    let world = World::new().await;
    let (root, worker) = (world.root(), world.worker().await);
    plant(&root);
    let first = tree(&root);
    let write = json!({"path": "/r/b", "content": "", "mode": "create"});
    worker.call("write_file", write).await.unwrap();
    worker
        .call("delete", json!({"path": "/r/b"}))
        .await
        .unwrap();
    // Together, they change nothing.
    undo(&worker, json!({"last": 2})).await.unwrap();
    let moved = json!({"from": "/r/a", "to": "/r/b"});
    worker.call("move", moved).await.unwrap();

    let error = worker.call("redo", json!({})).await.unwrap_err();
    assert_eq!(error.code(), Code::Conflict);
    assert_eq!(error.details()["conflicts"][0], "/r/b");
    undo(&worker, json!({})).await.unwrap();
    assert_eq!(tree(&root), first);
    worker.call("redo", json!({})).await.unwrap();
    undo(&worker, json!({"agent": "main"})).await.unwrap();
    assert_eq!(tree(&root), first);
}

#[tokio::test]
async fn undo_of_a_file_that_a_newer_change_of_any_agent_deleted_is_a_conflict() {
    let world = World::new().await;
    let (one, other) = (
        world.worker().await,
        world.spawn("other", Policy::new()).await,
    );
    write(&one, "/r/d/a", "a").await;
    write(&one, "/r/b", "b").await;
    let delete = json!({"path": "/r/d/a"});
    other.call("delete", delete).await.unwrap();

    let error = undo(&one, json!({"changes": [1]})).await.unwrap_err();
    assert_eq!(error.code(), Code::Conflict);
    assert_eq!(error.details()["conflicts"], json!(["/r/d", "/r/d/a"]));
    // Nothing that others changed stands above it.
    undo(&one, json!({"changes": [3]})).await.unwrap();
    assert_eq!(world.read("b"), None);
    undo(&other, json!({})).await.unwrap();
    undo(&one, json!({"changes": [1]})).await.unwrap();
    assert_eq!(tree(&world.root()), Tree::new());
}

#[tokio::test]
async fn directory_that_others_changed_between_two_calls_is_a_conflict() {
    for edited in [false, true] {
        let world = World::new().await;
        let (root, worker) = (world.root(), world.worker().await);
        plant(&root);
        let first = tree(&root);
        let copy = json!({"from": "/r/d", "to": "/r/x/copy", "create_parents": true});
        worker.call("copy", copy).await.unwrap();
        if edited {
            fs::write(root.join("x/copy/a"), "by others").unwrap();
        }
        let delete = json!({"path": "/r/x", "recursive": true});
        worker.call("delete", delete).await.unwrap();
        let undone = undo(&worker, json!({"last": 2})).await;
        if edited {
            // Undoing the deletion alone brings their text back.
            assert_eq!(undone.unwrap_err().code(), Code::Conflict);
            undo(&worker, json!({})).await.unwrap();
            assert_eq!(world.read("x/copy/a").unwrap(), "by others");
        } else {
            undone.unwrap();
            assert_eq!(tree(&root), first);
        }
    }
}

#[tokio::test]
async fn undo_is_previewed_with_a_diff_and_changes_nothing() {
    let world = World::new().await;
    let worker = world.worker().await;
    write(&worker, "/r/a", "one\n").await;
    write(&worker, "/r/a", "two\n").await;
    let preview = worker.preview("undo", json!({})).await.unwrap();
    let [change] = preview.changes.as_slice() else {
        panic!("{preview:?}");
    };
    assert_eq!(change.op, Op::Modify);
    let lines = &change.diff.hunks[0].lines;
    let lines: Vec<String> = lines
        .iter()
        .map(|line| format!("{}{}", line.op, line.text))
        .collect();
    assert_eq!(lines, ["-two\n", "+one\n"]);
    assert_eq!(world.read("a").unwrap(), "two\n");
    worker.apply(&preview).await.unwrap();
    assert_eq!(world.read("a").unwrap(), "one\n");
}

#[tokio::test]
async fn changed_file_is_named_and_nothing_is_undone() {
    let world = World::new().await;
    let worker = world.worker().await;
    write(&worker, "/r/a", "a").await;
    write(&worker, "/r/b", "b").await;
    fs::write(world.root().join("a"), "edited by a person").unwrap();
    let error = undo(&worker, json!({"last": 2})).await.unwrap_err();
    assert_eq!(error.code(), Code::Conflict);
    assert_eq!(error.details()["conflicts"], json!(["/r/a"]));
    assert_eq!(world.read("a").unwrap(), "edited by a person");
    assert_eq!(world.read("b").unwrap(), "b");
    // The other file can be undone by itself.
    undo(&worker, json!({})).await.unwrap();
    assert_eq!(world.read("b"), None);
}

#[tokio::test]
async fn worker_undoes_its_own_changes_and_those_of_its_descendants_only() {
    let world = World::new().await;
    let (parent, sibling) = (
        world.worker().await,
        world.spawn("other", Policy::new()).await,
    );
    let child = WorkerSpec::new("child").policy(Policy::new());
    let child = parent.spawn(child).await.unwrap();
    write(&child, "/r/child", "x").await;
    write(&parent, "/r/parent", "x").await;
    write(&sibling, "/r/sibling", "x").await;

    // The child cannot undo the change of its parent, nor that of another worker.
    for change in [3, 5] {
        let error = undo(&child, json!({"changes": [change]}))
            .await
            .unwrap_err();
        assert_eq!(error.code(), Code::NotFound, "{change}");
    }
    let error = undo(&child, json!({"agent": "other"})).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    assert_eq!(tree(&world.root()).len(), 3);

    // The parent can undo that of its child.
    undo(&parent, json!({"agent": "main/child"})).await.unwrap();
    assert_eq!(world.read("child"), None);
    assert_eq!(world.read("parent").unwrap(), "x");
    assert_eq!(world.read("sibling").unwrap(), "x");
}

#[tokio::test]
async fn undo_needs_the_rights_of_its_changes() {
    let world = World::new().await;
    let parent = world.worker().await;
    write(&parent, "/r/a", "a").await;
    // A policy that came later denies the file.
    let policy = json!({"deny_scopes": ["write:file:/r/a"]});
    let call = bailiwick::Call::new("undo", json!({})).meta(bailiwick::CallMeta {
        policy: Some(policy),
        ..bailiwick::CallMeta::default()
    });
    let error = parent.submit(call).await.unwrap_err();
    assert_eq!(error.code(), Code::PermissionDenied);
    assert_eq!(world.read("a").unwrap(), "a");
    undo(&parent, json!({})).await.unwrap();
    assert_eq!(world.read("a"), None);
}

/// Makes the bare repository `old.git`.
fn plant_repository(root: &Path) {
    for (name, content) in [
        ("HEAD", "ref: refs/heads/main\n"),
        ("config", "[core]\n"),
        ("hooks/h", "#!/bin/sh\n"),
        ("objects/x", "x"),
        ("refs/x", "x"),
    ] {
        let path = root.join("old.git").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

/// Deletes the bare repository with the grants that this needs.
async fn delete_repository(world: &World, worker: &Worker) {
    let delete = json!({"path": "/r/old.git", "recursive": true});
    let names = ["config", "hooks", "hooks/h"];
    let granted = names.map(|name| format!("write:file:/r/old.git/{name}").parse().unwrap());
    let call = Call::new("delete", delete);
    let submitted = world.grants.submit(worker, call, granted.to_vec());
    submitted.await.unwrap();
}

#[tokio::test]
async fn deleted_bare_repository_is_restored_with_a_grant_for_what_completes_it() {
    let world = World::new().await;
    let (root, worker) = (world.root(), world.worker().await);
    plant_repository(&root);
    let before = tree(&root);
    delete_repository(&world, &worker).await;
    let error = undo(&worker, json!({})).await.unwrap_err();
    assert_eq!(error.code(), Code::ScopeRequired, "{error}");
    let needed: Vec<String> = error
        .requested_scopes()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(needed.concat().contains("/r/old.git/refs"), "{needed:?}");
    assert_eq!(tree(&root), Tree::new());
    let changes = world.runtime.journal().unwrap().changes_of(worker.id());
    world.grants.undo(&changes).await.unwrap();
    assert_eq!(tree(&root), before);

    // Without its file `HEAD`, the directory is not a repository, and undoing its deletion needs no grant.
    fs::remove_file(root.join("old.git/HEAD")).unwrap();
    let before = tree(&root);
    let delete = json!({"path": "/r/old.git", "recursive": true});
    worker.call("delete", delete).await.unwrap();
    undo(&worker, json!({})).await.unwrap();
    assert_eq!(tree(&root), before);
}

#[tokio::test]
async fn undo_does_not_show_content_that_the_worker_may_not_read() {
    let world = World::new().await;
    fs::write(world.root().join("secret"), "password").unwrap();
    let worker = world
        .spawn("main", Policy::nothing().allow("write:file"))
        .await;
    write(&worker, "/r/secret", "x").await;
    let preview = worker.preview("undo", json!({})).await.unwrap();
    assert!(preview.changes[0].diff.hidden);
    assert!(!format!("{preview:?}").contains("password"));
    let hash = bailiwick::effect::ContentHash::of(b"password");
    assert_ne!(preview.changes[0].after.hash(), Some(hash));
    worker.apply(&preview).await.unwrap();
    assert_eq!(world.read("secret").unwrap(), "password");
    worker
        .call("delete", json!({"path": "/r/secret"}))
        .await
        .unwrap();
    let preview = worker.preview("undo", json!({})).await.unwrap();
    assert!(preview.changes[0].diff.hidden);
    worker.apply(&preview).await.unwrap();
    assert_eq!(world.read("secret").unwrap(), "password");
}

#[tokio::test]
async fn content_that_is_too_large_is_not_kept_and_people_are_told() {
    let world = World::with(JournalLimits {
        change_bytes: 1_000,
        ..JournalLimits::default()
    })
    .await;
    let worker = world.worker().await;
    fs::write(world.root().join("small"), "s".repeat(50)).unwrap();
    fs::write(world.root().join("large"), "l".repeat(5_000)).unwrap();
    let told = |name: &str| {
        let arguments = json!({"path": format!("/r/{name}"), "content": "x", "mode": "overwrite"});
        worker.preview("write_file", arguments)
    };
    assert!(told("small").await.unwrap().undoable);
    assert!(!told("large").await.unwrap().undoable);
    write(&worker, "/r/small", "x").await;
    undo(&worker, json!({})).await.unwrap();
    assert_eq!(world.read("small").unwrap(), "s".repeat(50));
    write(&worker, "/r/large", "x").await;
    let error = undo(&worker, json!({})).await.unwrap_err();
    assert_eq!(error.code(), Code::Conflict);
    assert_eq!(world.read("large").unwrap(), "x");
}

#[tokio::test]
async fn only_changes_that_can_be_undone_are_counted_as_remaining() {
    for large in [false, true] {
        let world = World::with(JournalLimits {
            change_bytes: 1_000,
            ..JournalLimits::default()
        })
        .await;
        let worker = world.worker().await;
        let old = if large { 5_000 } else { 50 };
        fs::write(world.root().join("file"), "l".repeat(old)).unwrap();
        write(&worker, "/r/a", "a").await;
        write(&worker, "/r/file", "x").await;
        write(&worker, "/r/b", "b").await;
        let undone = undo(&worker, json!({})).await.unwrap();
        let remaining = if large { 1 } else { 2 };
        assert_eq!(undone["remaining"], remaining, "{undone}");
    }
}

#[tokio::test]
async fn undo_of_more_than_can_be_kept_meanwhile_is_refused_and_of_fewer_changes_made() {
    let world = World::new().await;
    let worker = world.worker().await;
    let large = fs::File::create(world.root().join("large")).unwrap();
    large.set_len(15 << 20).unwrap();
    for name in 0..5 {
        let copy = json!({"from": "/r/large", "to": format!("/r/{name}")});
        worker.call("copy", copy).await.unwrap();
    }
    let before = fs::read_dir(world.root()).unwrap().count();
    let error = undo(&worker, json!({"last": 5})).await.unwrap_err();
    assert_eq!(error.code(), Code::TooLarge, "{error}");
    assert!(error.message().contains("undo fewer changes"), "{error}");
    assert_eq!(fs::read_dir(world.root()).unwrap().count(), before);
    undo(&worker, json!({"last": 4})).await.unwrap();
    undo(&worker, json!({})).await.unwrap();
    assert_eq!(fs::read_dir(world.root()).unwrap().count(), 1);
}

#[tokio::test]
async fn oldest_changes_are_dropped_at_the_limit_and_that_is_said() {
    let world = World::with(JournalLimits {
        bytes: 8_000,
        ..JournalLimits::default()
    })
    .await;
    let worker = world.worker().await;
    for number in 0..40 {
        write(&worker, "/r/a", &format!("{number}")).await;
    }
    let journal = world.runtime.journal().unwrap();
    let kept = journal.entries().len();
    assert!((1..40).contains(&kept), "{kept}");
    assert_eq!(journal.dropped(), 40 - kept as u64);
    let files = fs::read_dir(journal.directory()).unwrap();
    let bytes: u64 = files
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum();
    assert!(bytes < 10_000, "{bytes}");
    // What is kept can be undone.
    undo(&worker, json!({"agent": "main"})).await.unwrap();
    assert_eq!(world.read("a").unwrap(), (39 - kept).to_string());
    let error = undo(&worker, json!({})).await.unwrap_err();
    assert!(error.message().contains("no longer kept"), "{error}");
}

#[tokio::test]
async fn journal_can_be_opened_again_when_its_runtime_is_dropped() {
    let world = World::new().await;
    let worker = world.worker().await;
    write(&worker, "/r/a", "a").await;
    let World {
        temp,
        runtime,
        grants,
    } = world;
    let place = temp.path().join("journal");
    assert!(Journal::open(&place).is_err());
    // The handle of a worker keeps parts of the runtime.
    drop((runtime, grants));
    let journal = Journal::open(&place).unwrap();
    assert_eq!(journal.changes_of_agent("main").len(), 1);
    assert!(worker.status().in_flight == 0);
}

#[tokio::test]
async fn change_that_cannot_be_recorded_is_not_made() {
    let world = World::with(JournalLimits {
        bytes: 8,
        ..JournalLimits::default()
    })
    .await;
    let worker = world.worker().await;
    write(&worker, "/r/a", "a").await;
    // The next record needs another segment, which cannot be created in a directory that is gone.
    fs::remove_dir_all(world.temp.path().join("journal")).unwrap();
    let overwrite = json!({"path": "/r/a", "content": "b", "mode": "overwrite"});
    let error = worker.call("write_file", overwrite).await.unwrap_err();
    assert_eq!(error.code(), Code::Io);
    assert_eq!(world.read("a").unwrap(), "a");
}

#[tokio::test]
async fn changed_files_of_a_subtree_are_reported_after_its_end() {
    let world = World::new().await;
    let worker = world.worker().await;
    let child = WorkerSpec::new("child").policy(Policy::new());
    let child = worker.spawn(child).await.unwrap();
    fs::write(world.root().join("old"), "old").unwrap();
    write(&worker, "/r/old", "new").await;
    write(&child, "/r/made", "made").await;
    write(&child, "/r/gone", "gone").await;
    child
        .call("delete", json!({"path": "/r/gone"}))
        .await
        .unwrap();
    let moved = json!({"from": "/r/made", "to": "/r/moved"});
    child.call("move", moved).await.unwrap();
    worker.revoke().await;

    let files = |worker: &Worker| {
        let files = world.runtime.changes(worker.id()).into_iter();
        files
            .map(|file| {
                (
                    file.path.to_string(),
                    file.before.bytes(),
                    file.after.bytes(),
                )
            })
            .collect::<Vec<_>>()
    };
    let moved = ("/r/moved".to_owned(), None, Some(4));
    assert_eq!(files(&child), std::slice::from_ref(&moved));
    assert_eq!(
        files(&worker),
        [moved, ("/r/old".to_owned(), Some(3), Some(3))]
    );
}

#[tokio::test]
async fn changes_of_a_file_are_named_once_and_can_be_named_twice() {
    let world = World::new().await;
    let worker = world.worker().await;
    write(&worker, "/r/a", "a").await;
    write(&worker, "/r/b", "b").await;
    let moved = json!({"from": "/r/a", "to": "/r/b", "overwrite": true});
    worker.call("move", moved).await.unwrap();
    let files = world.runtime.changes(worker.id());
    let changes = |path: &str| {
        let mut files = files.iter();
        let file = files.find(|file| file.path.to_string() == path).unwrap();
        file.changes.iter().map(|id| id.0).collect::<Vec<_>>()
    };
    assert_eq!(changes("/r/b"), [3, 5]);
    undo(&worker, json!({"changes": [5, 5, 3]})).await.unwrap();
    assert_eq!(world.read("a").unwrap(), "a");
    assert_eq!(world.read("b"), None);
    // One that is unknown is not undone with others.
    let error = undo(&worker, json!({"changes": [1, 1, 99]})).await;
    assert_eq!(error.unwrap_err().code(), Code::NotFound);
    assert_eq!(world.read("a").unwrap(), "a");
}

#[tokio::test]
async fn changes_are_known_after_a_restart_but_not_to_the_workers_then() {
    let world = World::new().await;
    write(&world.worker().await, "/r/a", "a").await;
    let World {
        temp, runtime: old, ..
    } = world;
    old.shutdown().await;
    drop(old);
    let entries = Journal::read(temp.path().join("journal")).unwrap();
    assert_eq!(entries[0].state, ChangeState::Applied);
    assert_eq!(entries[0].changes[0].before, Entry::Absent);

    let (runtime, grants) = runtime(temp.path(), JournalLimits::default()).await;
    let world = World {
        temp,
        runtime,
        grants,
    };
    // It has the same id as the worker before.
    let worker = world.worker().await;
    let error = undo(&worker, json!({})).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    assert_eq!(world.read("a").unwrap(), "a");

    // A person can undo it.
    let journal = world.runtime.journal().unwrap();
    let changes = journal.changes_of_agent("main");
    let preview = world.grants.preview_undo(&changes).await.unwrap();
    assert_eq!(preview.changes[0].op, Op::Delete);
    assert_eq!(world.read("a").unwrap(), "a");
    world.grants.undo(&changes).await.unwrap();
    assert_eq!(world.read("a"), None);
    let error = world.grants.undo(&changes).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_undos_never_find_nothing_while_changes_are_left() {
    let world = World::new().await;
    let worker = world.worker().await;
    for name in 0..30 {
        write(&worker, &format!("/r/f{name}"), "x").await;
    }
    for _ in 0..10 {
        let (one, two, three) = tokio::join!(
            undo(&worker, json!({})),
            undo(&worker, json!({})),
            undo(&worker, json!({})),
        );
        for undone in [one, two, three] {
            if let Err(error) = undone {
                assert_eq!(error.code(), Code::Busy, "{error}");
            }
        }
    }
}

#[tokio::test]
async fn undo_by_a_person_is_one_entry_of_the_history() {
    let temp = tempfile::tempdir().unwrap();
    fs::create_dir(temp.path().join("r")).unwrap();
    let audit = temp.path().join("audit");
    let builder = builder(temp.path(), JournalLimits::default())
        .policy(Policy::new().allow("read:file").ask("write:file"))
        .audit(JsonLines::create(&audit).unwrap());
    let (runtime, grants) = builder.build().await.unwrap();
    let spec = WorkerSpec::new("main").policy(Policy::new());
    let worker = runtime.spawn(spec).await.unwrap();
    let call = Call::new("write_file", json!({"path": "/r/a", "content": "x"}));
    let granted = vec!["write:file:/r/a".parse().unwrap()];
    grants.submit(&worker, call, granted).await.unwrap();
    let changes = runtime.journal().unwrap().changes_of_agent("main");
    grants.undo(&changes).await.unwrap();
    runtime.flush_audit().await.unwrap();

    let mut history = History::new();
    history.read_file(&audit).unwrap();
    let undone = history.entries().filter(|entry| &*entry.agent == "~undo");
    let undone: Vec<_> = undone.map(|entry| (entry.decision, entry.by)).collect();
    assert_eq!(undone, [(Some(Decision::Granted), DecidedBy::Person)]);
}

#[tokio::test]
async fn subtree_of_a_revoked_worker_is_undone_by_the_host() {
    let world = World::new().await;
    let (worker, other) = (
        world.worker().await,
        world.spawn("other", Policy::new()).await,
    );
    let child = WorkerSpec::new("child").policy(Policy::new());
    let child = worker.spawn(child).await.unwrap();
    write(&worker, "/r/d/a", "a").await;
    write(&child, "/r/d/b", "b").await;
    write(&other, "/r/c", "c").await;
    write(&worker, "/r/d/b", "B").await;
    worker.revoke().await;
    let journal = world.runtime.journal().unwrap();
    world
        .grants
        .undo(&journal.changes_of(worker.id()))
        .await
        .unwrap();
    let left: Vec<String> = tree(&world.root()).into_keys().collect();
    assert_eq!(left, ["c"]);
    assert_eq!(journal.changes_of(worker.id()), []);
    assert_eq!(journal.changes_of(other.id()).len(), 1);
}

#[tokio::test]
async fn person_who_undoes_changes_is_not_asked_about_it() {
    let temp = tempfile::tempdir().unwrap();
    fs::create_dir(temp.path().join("r")).unwrap();
    let asks = Policy::new().ask("read:file").ask("write:file");
    let builder = builder(temp.path(), JournalLimits::default()).policy(asks);
    let (runtime, grants) = builder.approver(DenyAll).build().await.unwrap();
    let world = World {
        temp,
        runtime,
        grants,
    };
    let worker = world.worker().await;
    // Without a grant, everything is asked about, and denied.
    let refused = worker.call("write_file", json!({"path": "/r/a", "content": "a"}));
    assert_eq!(refused.await.unwrap_err().code(), Code::PermissionDenied);
    let file = vec![
        "write:file:/r".parse().unwrap(),
        "read:file:/r".parse().unwrap(),
    ];
    for (name, tool, arguments) in [
        ("a", "write_file", json!({"path": "/r/a", "content": "a"})),
        (
            ".mcp.json",
            "write_file",
            json!({"path": "/r/.mcp.json", "content": "{}"}),
        ),
    ] {
        let mut granted = file.clone();
        granted.push(format!("write:file:/r/{name}").parse().unwrap());
        let call = Call::new(tool, arguments);
        world.grants.submit(&worker, call, granted).await.unwrap();
    }
    assert_eq!(
        undo(&worker, json!({})).await.unwrap_err().code(),
        Code::PermissionDenied
    );
    let journal = world.runtime.journal().unwrap();
    let changes = journal.changes_of(worker.id());
    assert_eq!(changes.len(), 2);
    let preview = world.grants.preview_undo(&changes).await.unwrap();
    assert_eq!(preview.changes.len(), 2);
    world.grants.undo(&changes).await.unwrap();
    assert_eq!((world.read("a"), world.read(".mcp.json")), (None, None));
}

#[tokio::test]
async fn what_the_configuration_denies_is_not_undone() {
    let world = World::new().await;
    let worker = world.worker().await;
    write(&worker, "/r/a", "a").await;
    world.runtime.shutdown().await;
    drop((worker, world.runtime, world.grants));
    let denies = Policy::new().deny("write:file:/r/a");
    let builder = builder(world.temp.path(), JournalLimits::default()).policy(denies);
    let (runtime, grants) = builder.build().await.unwrap();
    let changes = runtime.journal().unwrap().changes_of_agent("main");
    assert_eq!(changes.len(), 1);
    let error = grants.undo(&changes).await.unwrap_err();
    assert_eq!(error.code(), Code::PermissionDenied);
    assert!(world.temp.path().join("r/a").exists());
}

#[tokio::test]
async fn shutdown_releases_the_journal_while_the_runtime_is_kept() {
    let world = World::new().await;
    write(&world.worker().await, "/r/a", "a").await;
    let dir = world.temp.path().join("journal");
    Journal::open(&dir).unwrap_err();
    world.runtime.shutdown().await;
    let journal = Journal::open(&dir).unwrap();
    assert_eq!(journal.entries().len(), 1);
    // The old handle can still be read.
    assert_eq!(world.runtime.journal().unwrap().entries().len(), 1);
}

#[tokio::test]
async fn without_a_journal_nothing_can_be_undone() {
    let temp = tempfile::tempdir().unwrap();
    let builder = Runtime::builder().root("r", temp.path());
    let builder = builder
        .tools(bailiwick_fs::tools())
        .tools(bailiwick_fs::undo_tools(Durability::Visible));
    let (runtime, _grants) = builder.build().await.unwrap();
    let spec = WorkerSpec::new("main").policy(Policy::new());
    let worker = runtime.spawn(spec).await.unwrap();
    let arguments = json!({"path": "/r/a", "content": "a"});
    let preview = worker.preview("write_file", arguments).await.unwrap();
    assert!(!preview.undoable);
    worker.apply(&preview).await.unwrap();
    let error = undo(&worker, json!({})).await.unwrap_err();
    assert!(error.message().contains("no journal"), "{error}");
    assert_eq!(runtime.changes(worker.id()), []);
}

#[tokio::test]
async fn without_the_undo_tool_nothing_can_be_undone() {
    let temp = tempfile::tempdir().unwrap();
    fs::create_dir(temp.path().join("r")).unwrap();
    for has_tool in [true, false] {
        let journal = Journal::open(temp.path().join(format!("journal-{has_tool}"))).unwrap();
        let builder = Runtime::builder().root("r", temp.path().join("r"));
        let mut builder = builder.journal(journal).tools(bailiwick_fs::tools());
        if has_tool {
            builder = builder.tools(bailiwick_fs::undo_tools(Durability::Visible));
        }
        let (runtime, grants) = builder.build().await.unwrap();
        let spec = WorkerSpec::new("main").policy(Policy::new());
        let worker = runtime.spawn(spec).await.unwrap();
        let arguments = json!({"path": "/r/a", "content": "a"});
        let preview = worker.preview("write_file", arguments).await.unwrap();
        assert_eq!(preview.undoable, has_tool);
        worker.apply(&preview).await.unwrap();
        let changes = runtime.journal().unwrap().changes_of_agent("main");
        for failed in [
            grants.preview_undo(&changes).await.map(drop).err(),
            grants.undo(&changes).await.map(drop).err(),
        ] {
            assert_eq!(failed.is_none(), has_tool, "{failed:?}");
            if let Some(error) = failed {
                assert!(error.message().contains("undo_tools"), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn root_that_contains_the_journal_is_rejected() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("r/journal");
    fs::create_dir_all(&dir).unwrap();
    let journal = || Journal::open(&dir).unwrap();
    for root in [temp.path().join("r"), dir.clone()] {
        let builder = Runtime::builder().root("r", &root).journal(journal());
        builder.build().await.unwrap_err();
    }
    fs::create_dir(temp.path().join("r/sub")).unwrap();
    let builder = Runtime::builder().root("r", temp.path().join("r/sub"));
    builder.journal(journal()).build().await.unwrap();
}

/// Calls of file tools.
fn calls() -> impl Strategy<Value = Vec<(&'static str, Value)>> {
    proptest::collection::vec(call(), 1..12)
}

/// One call of a file tool.
fn call() -> impl Strategy<Value = (&'static str, Value)> {
    let path = || {
        proptest::sample::select(vec![
            "a", "b", "d", "d/a", "d/b", "d/e/a", "e", "e/f/a", "x/y",
        ])
        .prop_map(|path| format!("/r/{path}"))
    };
    let content =
        proptest::sample::select(vec!["", "one\n", "two\r\n", "\u{0}\u{1}", "long text\n"]);
    let mode = proptest::sample::select(vec!["create", "overwrite", "append"]);
    let flag = any::<bool>;
    prop_oneof![
        3 => (path(), content, mode, flag()).prop_map(|(path, content, mode, parents)| (
            "write_file",
            json!({"path": path, "content": content, "mode": mode, "create_parents": parents})
        )),
        1 => path().prop_map(|path| (
            "edit_file",
            json!({"path": path, "edits": [{"old_text": "o", "new_text": "0", "replace_all": true}]})
        )),
        1 => (path(), flag()).prop_map(|(path, parents)| (
            "make_directory",
            json!({"path": path, "create_parents": parents})
        )),
        2 => (path(), path(), flag(), flag()).prop_map(|(from, to, overwrite, parents)| (
            "move",
            json!({"from": from, "to": to, "overwrite": overwrite, "create_parents": parents})
        )),
        1 => (path(), path(), flag(), flag()).prop_map(|(from, to, overwrite, parents)| (
            "copy",
            json!({"from": from, "to": to, "overwrite": overwrite, "create_parents": parents})
        )),
        2 => (path(), flag()).prop_map(|(path, recursive)| (
            "delete",
            json!({"path": path, "recursive": recursive})
        )),
    ]
}

/// Calls of two workers, some of which undo others.
fn calls_with_undo() -> impl Strategy<Value = Vec<(bool, (&'static str, Value))>> {
    let undo = prop_oneof![
        3 => (1_u32..4).prop_map(|last| ("undo", json!({ "last": last }))),
        2 => proptest::collection::vec(1_u64..20, 1..3)
            .prop_map(|changes| ("undo", json!({ "changes": changes }))),
        3 => (1_u32..3).prop_map(|last| ("redo", json!({ "last": last }))),
    ];
    let calls = proptest::collection::vec((call(), proptest::option::of(undo)), 1..12);
    let calls = calls.prop_map(|calls| {
        let calls = calls.into_iter();
        calls
            .flat_map(|(call, undo)| std::iter::once(call).chain(undo))
            .collect::<Vec<_>>()
    });
    (calls, proptest::collection::vec(any::<bool>(), 24))
        .prop_map(|(calls, workers)| workers.into_iter().zip(calls).collect())
}

/// A tree with unusual modes.
fn plant(root: &Path) {
    fs::create_dir_all(root.join("d/e")).unwrap();
    for (name, content, mode) in [
        ("a", &b"one\n"[..], 0o640),
        ("d/a", b"\x00\xff binary", 0o755),
        ("d/e/a", b"foo\r\nboo", 0o600),
    ] {
        fs::write(root.join(name), content).unwrap();
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(root.join(name), mode).unwrap();
    }
    for (name, mode) in [("d", 0o775), ("d/e", 0o750)] {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(root.join(name), mode).unwrap();
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let mut executor = tokio::runtime::Builder::new_current_thread();
    executor.enable_all().build().unwrap().block_on(future)
}

proptest! {
    #![proptest_config(cases(48))]

    #[test]
    fn undo_restores_the_tree_and_redo_the_changes(calls in calls()) {
        run(async {
            let world = World::new().await;
            let (root, worker) = (world.root(), world.worker().await);
            plant(&root);
            let mut trees = vec![tree(&root)];
            for (tool, arguments) in &calls {
                let done = worker.call(tool, arguments.clone()).await;
                if done.is_ok_and(|outcome| !outcome.changes.is_empty()) {
                    trees.push(tree(&root));
                }
            }
            let (first, last) = (trees[0].clone(), tree(&root));
            if trees.len() > 1 {
                // All at once.
                for _ in 0..2 {
                    undo(&worker, json!({"agent": "main"})).await.unwrap();
                    assert_eq!(tree(&root), first);
                    worker.call("redo", json!({})).await.unwrap();
                    assert_eq!(tree(&root), last);
                }
            }
            // Call by call.
            trees.pop();
            while let Some(before) = trees.pop() {
                undo(&worker, json!({})).await.unwrap();
                assert_eq!(tree(&root), before);
            }
            assert_eq!(tree(&root), first);
        });
    }

    #[test]
    fn everything_can_be_undone_whatever_was_undone_and_redone(
        calls in calls_with_undo(),
    ) {
        run(async {
            let world = World::new().await;
            let (root, workers) = (world.root(), [world.worker().await, world.worker().await]);
            plant(&root);
            let first = tree(&root);
            for (worker, (tool, arguments)) in &calls {
                // Many of them fail.
                let _ = workers[usize::from(*worker)].call(tool, arguments.clone()).await;
            }
            let changes = world.runtime.journal().unwrap().changes_of_agent("main");
            if !changes.is_empty() {
                world.grants.undo(&changes).await.unwrap();
            }
            assert_eq!(tree(&root), first);
        });
    }

    #[test]
    fn undo_never_loses_what_others_wrote(
        calls in calls(),
        others in proptest::collection::vec(
            proptest::sample::select(vec!["a", "b", "d/a", "d/new", "e/f/a", "d/e/a", "x"]),
            1..3,
        ),
    ) {
        run(async {
            let world = World::new().await;
            let (root, worker) = (world.root(), world.worker().await);
            plant(&root);
            for (tool, arguments) in &calls {
                let _ = worker.call(tool, arguments.clone()).await;
            }
            let others: Vec<&str> = others
                .into_iter()
                .filter(|name| fs::write(root.join(name), "by others").is_ok())
                .collect();
            let before = tree(&root);
            match undo(&worker, json!({"agent": "main"})).await {
                Ok(_) => {}
                Err(error) => {
                    assert!(
                        [Code::Conflict, Code::NotFound, Code::StalePreview].contains(&error.code()),
                        "{error}"
                    );
                    assert_eq!(tree(&root), before, "{error}");
                }
            }
            for name in others {
                assert_eq!(fs::read(root.join(name)).unwrap(), b"by others", "{name}");
            }
        });
    }
}
