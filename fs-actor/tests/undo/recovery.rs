//! What the next runtime makes of changes that a crash interrupted.

use std::fs;
use std::path::Path;

use bailiwick::journal::{ChangeState, Journal, JournalLimits, Recovery};
use bailiwick::{Call, Runtime};
use serde_json::json;

use super::{World, delete_repository, plant, plant_repository, run, runtime, tree, undo};

/// Makes one call, and removes the record of its end from the journal, as if the program had been killed. `spoil` changes
/// the files between the crash and the next start.
fn crashed(tool: &str, arguments: serde_json::Value, spoil: impl Fn(&Path)) -> tempfile::TempDir {
    run(async {
        let world = World::new().await;
        plant(&world.root());
        let worker = world.worker().await;
        worker.call(tool, arguments).await.unwrap();
        crash(world, spoil).await
    })
}

/// Removes the record of the end of the latest change.
pub(super) async fn crash(world: World, spoil: impl Fn(&Path)) -> tempfile::TempDir {
    world.runtime.shutdown().await;
    let segment = world.temp.path().join("journal/changes.00000001");
    let file = fs::OpenOptions::new().write(true).open(segment).unwrap();
    // A record that is cut off was not written.
    file.set_len(file.metadata().unwrap().len() - 1).unwrap();
    spoil(&world.root());
    world.temp
}

pub(super) async fn restarted(temp: &tempfile::TempDir) -> (Runtime, Recovery) {
    let (runtime, _grants) = runtime(temp.path(), JournalLimits::default()).await;
    let [recovered] = runtime.recovered() else {
        panic!("{:?}", runtime.recovered());
    };
    let outcome = recovered.outcome.clone();
    (runtime, outcome)
}

fn state(temp: &tempfile::TempDir) -> ChangeState {
    let entries = Journal::read(temp.path().join("journal")).unwrap();
    let first = entries
        .into_iter()
        .find(|entry| entry.id.to_string() == "1");
    first.unwrap().state
}

fn new_file() -> serde_json::Value {
    json!({"path": "/r/x/y/z", "content": "new", "create_parents": true})
}

#[test]
fn interrupted_change_that_is_complete_is_kept_and_can_be_undone() {
    let temp = crashed("write_file", new_file(), |_| ());
    let root = temp.path().join("r");
    run(async {
        let (runtime, outcome) = restarted(&temp).await;
        assert_eq!(outcome, Recovery::Completed);
        assert_eq!(fs::read(root.join("x/y/z")).unwrap(), b"new");
        runtime.shutdown().await;
    });
    assert_eq!(state(&temp), ChangeState::Applied);
    // It is recovered once.
    run(async {
        let (runtime, grants) = runtime(temp.path(), JournalLimits::default()).await;
        assert!(runtime.recovered().is_empty());
        let changes = runtime.journal().unwrap().changes_of_agent("main");
        grants.undo(&changes).await.unwrap();
        assert!(!root.join("x").exists());
    });
}

#[test]
fn interrupted_change_that_changed_nothing_is_not_in_effect() {
    let temp = crashed("write_file", new_file(), |root| {
        fs::remove_dir_all(root.join("x")).unwrap();
    });
    run(async {
        let (runtime, outcome) = restarted(&temp).await;
        assert_eq!(outcome, Recovery::NotApplied);
        runtime.shutdown().await;
    });
    assert_eq!(state(&temp), ChangeState::NotApplied);
}

#[test]
fn interrupted_change_is_rolled_back_from_every_step() {
    let left: [(&str, &[&str]); 2] = [("x/y", &["x/y/z"]), ("x", &["x/y/z", "x/y"])];
    for (last, missing) in left {
        let temp = crashed("write_file", new_file(), |root| {
            for name in missing {
                let path = root.join(name);
                fs::remove_file(&path)
                    .or_else(|_| fs::remove_dir(&path))
                    .unwrap();
            }
            assert!(root.join(last).exists());
        });
        run(async {
            let (runtime, outcome) = restarted(&temp).await;
            assert!(
                matches!(outcome, Recovery::RolledBack { .. }),
                "{outcome:?}"
            );
            assert!(!temp.path().join("r/x").exists());
            runtime.shutdown().await;
        });
        assert_eq!(state(&temp), ChangeState::RolledBack);
    }
}

#[test]
fn directory_that_was_deleted_in_part_is_restored() {
    let reference = tempfile::tempdir().unwrap();
    plant(reference.path());
    let before = tree(reference.path());
    let delete = json!({"path": "/r/d", "recursive": true});
    let temp = crashed("delete", delete, |root| {
        // Only the file `d/a` was deleted.
        fs::remove_file(root.join("a")).unwrap();
        plant(root);
        fs::remove_file(root.join("d/a")).unwrap();
    });
    run(async {
        let (runtime, outcome) = restarted(&temp).await;
        assert!(
            matches!(outcome, Recovery::RolledBack { .. }),
            "{outcome:?}"
        );
        assert_eq!(tree(&temp.path().join("r")), before);
        runtime.shutdown().await;
    });
}

/// Makes a batch that changes protected names, which a person allows once, and crashes before the record of its end.
fn crashed_with_protected_names(spoil: impl Fn(&Path)) -> tempfile::TempDir {
    run(async {
        let world = World::new().await;
        plant(&world.root());
        let worker = world.worker().await;
        let write = |path: &str| json!({"tool": "write_file", "path": path, "content": "new", "create_parents": true});
        let names = [
            "/r/AGENTS.md",
            "/r/.github/workflows/ci.yml",
            "/r/.mcp.json",
        ];
        let operations: Vec<_> = names.iter().map(|name| write(name)).collect();
        let call = Call::new("apply_batch", json!({"operations": operations}));
        let created = ["/r/.github/workflows"];
        let granted = names.iter().chain(&created);
        let granted = granted.map(|name| format!("write:file:{name}").parse().unwrap());
        let submitted = world.grants.submit(&worker, call, granted.collect());
        submitted.await.unwrap();
        crash(world, spoil).await
    })
}

#[test]
fn interrupted_batch_of_protected_names_is_recovered() {
    let reference = tempfile::tempdir().unwrap();
    plant(reference.path());
    let first = tree(reference.path());
    for (missing, expected) in [
        (&[][..], ChangeState::Applied),
        (&[".mcp.json"], ChangeState::RolledBack),
        (
            &[".mcp.json", ".github/workflows/ci.yml"],
            ChangeState::RolledBack,
        ),
    ] {
        let temp = crashed_with_protected_names(|root| {
            for name in missing {
                fs::remove_file(root.join(name)).unwrap();
            }
        });
        run(async {
            let (runtime, outcome) = restarted(&temp).await;
            let complete = outcome == Recovery::Completed;
            assert_eq!(complete, missing.is_empty(), "{outcome:?}");
            let root = temp.path().join("r");
            assert_eq!(root.join("AGENTS.md").exists(), complete);
            assert_eq!(tree(&root) == first, !complete);
            runtime.shutdown().await;
        });
        assert_eq!(state(&temp), expected);
    }
}

#[test]
fn interrupted_deletion_of_a_bare_repository_is_rolled_back() {
    let reference = tempfile::tempdir().unwrap();
    plant_repository(reference.path());
    let before = tree(reference.path());
    for missing in [
        &["refs/x"][..],
        &["refs/x", "refs"],
        &["refs/x", "refs", "config", "HEAD"],
    ] {
        let temp = run(async {
            let world = World::new().await;
            plant_repository(&world.root());
            delete_repository(&world, &world.worker().await).await;
            let spoil = |root: &Path| {
                plant_repository(root);
                for name in missing {
                    let path = root.join("old.git").join(name);
                    fs::remove_file(&path)
                        .or_else(|_| fs::remove_dir(&path))
                        .unwrap();
                }
            };
            crash(world, spoil).await
        });
        run(async {
            let (runtime, outcome) = restarted(&temp).await;
            assert!(
                matches!(outcome, Recovery::RolledBack { .. }),
                "{missing:?}: {outcome:?}"
            );
            assert_eq!(tree(&temp.path().join("r")), before);
            runtime.shutdown().await;
        });
        assert_eq!(state(&temp), ChangeState::RolledBack);
    }
}

#[test]
fn files_that_others_changed_after_a_crash_are_named_and_left() {
    let overwrite = json!({"path": "/r/a", "content": "new", "mode": "overwrite"});
    let temp = crashed("write_file", overwrite, |root| {
        fs::write(root.join("a"), "by others").unwrap();
    });
    let named = vec!["/r/a".to_owned()];
    run(async {
        let (runtime, outcome) = restarted(&temp).await;
        let Recovery::Conflict { paths, .. } = &outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(*paths, named);
        let text = runtime.recovered()[0].to_string();
        assert!(
            text.contains("not rolled back: `/r/a` changed since"),
            "{text}"
        );
        runtime.shutdown().await;
    });
    assert_eq!(fs::read(temp.path().join("r/a")).unwrap(), b"by others");
    assert_eq!(state(&temp), ChangeState::Conflict { paths: named });
}

#[test]
fn interrupted_change_waits_for_a_runtime_with_the_tool_undo() {
    let temp = crashed("write_file", new_file(), |_| ());
    run(async {
        let journal = Journal::open(temp.path().join("journal")).unwrap();
        let builder = Runtime::builder().root("r", temp.path().join("r"));
        let (runtime, _grants) = builder.journal(journal).build().await.unwrap();
        let outcome = &runtime.recovered()[0].outcome;
        assert!(matches!(outcome, Recovery::Failed { .. }), "{outcome:?}");
        runtime.shutdown().await;
    });
    assert_eq!(state(&temp), ChangeState::Interrupted);
    run(async {
        let (runtime, outcome) = restarted(&temp).await;
        assert_eq!(outcome, Recovery::Completed);
        runtime.shutdown().await;
    });
}

#[test]
fn models_cannot_undo_interrupted_changes() {
    let temp = crashed("write_file", new_file(), |_| ());
    run(async {
        let (runtime, grants) = runtime(temp.path(), JournalLimits::default()).await;
        let world = World {
            temp,
            runtime,
            grants,
        };
        let error = undo(&world.worker().await, json!({"changes": [1]})).await;
        assert_eq!(error.unwrap_err().code(), bailiwick::Code::NotFound);
        assert!(world.root().join("x/y/z").exists());
    });
}
