//! Crashes between the steps of a batch and within one, and what the next start makes of them.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use bailiwick::Worker;
use bailiwick::journal::{JournalLimits, Recovery};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::recovery::{crash, restarted};
use super::{Tree, World, plant, run, runtime, tree};

/// A file that an unfinished write leaves.
const TEMPORARY: &str = ".bailiwick-0123456789abcdef0123456789abcdef.tmp";

fn write(path: &str, content: &str, mode: &str) -> Value {
    json!({"tool": "write_file", "path": path, "content": content, "mode": mode, "create_parents": true})
}

fn transfer(tool: &str, from: &str, to: &str) -> Value {
    json!({"tool": tool, "from": from, "to": to, "overwrite": true})
}

fn delete(path: &str) -> Value {
    json!({"tool": "delete", "path": path, "recursive": true})
}

fn make_directory(path: &str) -> Value {
    json!({"tool": "make_directory", "path": path})
}

/// Batches whose operations depend on one another, each operation one step.
fn batches() -> Vec<Vec<Value>> {
    vec![
        // Everything is new.
        vec![
            make_directory("/r/n"),
            write("/r/a", "new", "overwrite"),
            transfer("copy", "/r/a", "/r/n/copy"),
            write("/r/n/0", "0", "overwrite"),
            transfer("move", "/r/n/copy", "/r/n/moved"),
            write("/r/n/moved", "x", "append"),
            transfer("copy", "/r/n", "/r/m"),
            write("/r/m/0", "1", "overwrite"),
        ],
        // Files are replaced, and the replaced names are used again.
        vec![
            transfer("copy", "/r/d/a", "/r/o/copy"),
            transfer("move", "/r/o/copy", "/r/o/moved"),
            write("/r/o/moved", "x", "overwrite"),
            transfer("move", "/r/o/moved", "/r/o/copy"),
            write("/r/o/moved", "again", "create"),
            delete("/r/o/copy"),
            make_directory("/r/o/copy"),
            write("/r/o/copy/f", "f", "create"),
        ],
        // Directories are deleted and moved with what was changed in them.
        vec![
            write("/r/d/e/a", "changed", "overwrite"),
            transfer("move", "/r/d", "/r/n"),
            write("/r/n/e/b", "b", "create"),
            delete("/r/n"),
            write("/r/n", "a file", "create"),
            write("/r/d", "another file", "create"),
        ],
        vec![
            delete("/r/d"),
            make_directory("/r/d"),
            write("/r/d/a", "new", "create"),
            transfer("move", "/r/a", "/r/d/e"),
            transfer("move", "/r/d", "/r/a"),
        ],
    ]
}

fn plant_more(root: &Path) {
    plant(root);
    fs::create_dir(root.join("o")).unwrap();
    fs::write(root.join("o/copy"), "old copy").unwrap();
    fs::write(root.join("o/moved"), "old moved").unwrap();
}

async fn call(worker: &Worker, operation: &Value) {
    let mut arguments = operation.clone();
    let tool = arguments.as_object_mut().unwrap().remove("tool").unwrap();
    worker
        .call(tool.as_str().unwrap(), arguments)
        .await
        .unwrap();
}

/// The trees before the first operation and after each.
async fn trees(operations: &[Value]) -> Vec<Tree> {
    let world = World::new().await;
    plant_more(&world.root());
    let worker = world.worker().await;
    let mut trees = vec![tree(&world.root())];
    for operation in operations {
        call(&worker, operation).await;
        trees.push(tree(&world.root()));
    }
    trees
}

/// Makes a directory what it was when `tree` was read.
fn restore(root: &Path, tree: &Tree) {
    fs::remove_dir_all(root).unwrap();
    fs::create_dir(root).unwrap();
    for (name, (mode, content)) in tree {
        let path = root.join(name);
        match content {
            Some(content) => fs::write(&path, content).unwrap(),
            None => fs::create_dir(&path).unwrap(),
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(*mode)).unwrap();
    }
}

/// Makes the batch, and restarts with what a crash has left. Returns what became of it.
async fn restarted_with(operations: &[Value], left: impl Fn(&Path)) -> (TempDir, Recovery) {
    let world = World::new().await;
    plant_more(&world.root());
    let batch = json!({ "operations": operations });
    let worker = world.worker().await;
    worker.call("apply_batch", batch).await.unwrap();
    let temp = crash(world, left).await;
    let (runtime, outcome) = restarted(&temp).await;
    runtime.shutdown().await;
    (temp, outcome)
}

/// Restarts after a crash that left `left` of the batch, and what `more` adds.
async fn assert_all_or_none(
    operations: &[Value],
    trees: &[Tree],
    left: &Tree,
    more: impl Fn(&Path),
) {
    let (first, last) = (&trees[0], trees.last().unwrap());
    let done = restarted_with(operations, |root| {
        restore(root, left);
        more(root);
    });
    let (temp, outcome) = done.await;
    let (is_right, expected) = match &outcome {
        Recovery::NotApplied => (left == first, first),
        Recovery::Completed => (left == last, last),
        Recovery::RolledBack { .. } => (left != first && left != last, first),
        outcome => panic!("{outcome:#?} of {left:#?}"),
    };
    assert!(is_right, "{outcome:#?} of {left:#?}");
    let now = tree(&temp.path().join("r"));
    assert_eq!(now, *expected, "{left:#?}");
}

#[test]
fn batch_that_is_interrupted_after_any_step_is_rolled_back() {
    run(async {
        for operations in batches() {
            let trees = trees(&operations).await;
            for left in &trees {
                assert_all_or_none(&operations, &trees, left, |_| ()).await;
            }
        }
    });
}

#[test]
fn unfinished_files_of_an_interrupted_batch_are_removed() {
    run(async {
        for operations in batches() {
            let trees = trees(&operations).await;
            for (step, left) in trees.iter().enumerate() {
                // What the next step, or the last one, was about to make.
                let next = &operations[step.min(operations.len() - 1)];
                let target = next.get("to").or(next.get("path")).unwrap();
                let target = target.as_str().unwrap().strip_prefix("/r/").unwrap();
                let unfinished = |root: &Path| {
                    let beside = root.join(target).parent().unwrap().join(TEMPORARY);
                    fs::write(beside, "unfinished").unwrap();
                };
                assert_all_or_none(&operations, &trees, left, unfinished).await;
            }
        }
    });
}

#[test]
fn batch_that_is_interrupted_while_it_deletes_a_directory_is_rolled_back() {
    run(async {
        for operations in batches() {
            let trees = trees(&operations).await;
            let deleted = operations.iter().enumerate();
            for (step, operation) in deleted.filter(|(_, one)| one["tool"] == "delete") {
                let name = operation["path"].as_str().unwrap();
                let name = name.strip_prefix("/r/").unwrap();
                let before = trees[step].iter();
                let mut left: Vec<&String> = before.map(|(path, _)| path).collect();
                left.retain(|path| Path::new(path).strip_prefix(name).is_ok());
                // A directory is deleted after its contents.
                for kept in 0..left.len() {
                    let mut partly = trees[step].clone();
                    partly.retain(|path, _| !left[kept..].contains(&path));
                    assert_all_or_none(&operations, &trees, &partly, |_| ()).await;
                }
            }
        }
    });
}

#[test]
fn file_that_others_changed_after_a_crash_is_named_and_the_batch_undone_when_it_is_restored() {
    run(async {
        for operations in batches() {
            let trees = trees(&operations).await;
            let names = operations
                .iter()
                .flat_map(|one| [one.get("path"), one.get("to")]);
            let names = names
                .flatten()
                .filter_map(|name| name.as_str()?.strip_prefix("/r/"));
            let names: BTreeSet<&str> = names.collect();
            let mut changed = 0;
            for left in &trees[1..trees.len() - 1] {
                let is_file =
                    |name: &&&str| left.get(**name).is_some_and(|(_, file)| file.is_some());
                for name in names.iter().filter(is_file) {
                    changed += 1;
                    let (temp, outcome) = restarted_with(&operations, |root| {
                        restore(root, left);
                        fs::write(root.join(name), "by others").unwrap();
                    })
                    .await;
                    let Recovery::Conflict { paths, .. } = outcome else {
                        panic!("{outcome:#?} of {left:#?}");
                    };
                    assert!(paths.contains(&format!("/r/{name}")), "{name}: {paths:?}");
                    let root = temp.path().join("r");
                    let mut now = tree(&root);
                    assert_eq!(now[*name].1.as_deref(), Some(&b"by others"[..]));
                    now.insert((*name).to_owned(), left[*name].clone());
                    assert_eq!(now, *left);

                    // A person restores the file, and undoes what is left of the batch.
                    restore(&root, left);
                    let (runtime, grants) = runtime(temp.path(), JournalLimits::default()).await;
                    let changes = runtime.journal().unwrap().changes_of_agent("main");
                    grants.undo(&changes).await.unwrap();
                    assert_eq!(tree(&root), trees[0]);
                    runtime.shutdown().await;
                }
            }
            assert!(changed > 0);
        }
    });
}
