//! What a batch can do, and what people and models see of it.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use bailiwick::effect::{ExcludedChange, Op};
use bailiwick::journal::ChangeState;
use bailiwick::permission::{AskLimits, DangerKind};
use bailiwick::worker::CallProgress;
use bailiwick::{Answer, Call, Deferred, Policy, RuntimeBuilder, VirtualPath};
use serde_json::{Value, json};

use super::{World, link};

/// Several kinds of operations, of which some depend on earlier ones.
fn operations() -> Value {
    json!([
        {"tool": "make_directory", "path": "/r/new"},
        {"tool": "write_file", "path": "/r/new/f", "content": "1\n2\n"},
        {"tool": "edit_file", "path": "/r/new/f", "edits": [{"old_text": "2", "new_text": "two"}]},
        {"tool": "edit_file", "path": "/r/a", "edits": [{"old_text": "one", "new_text": "1"}]},
        {"tool": "edit_file", "path": "/r/a", "edits": [{"old_text": "two", "new_text": "2"}]},
        {"tool": "move", "from": "/r/d", "to": "/s/moved"},
        {"tool": "copy", "from": "/s/moved/a", "to": "/s/deep/copy", "create_parents": true},
        {"tool": "delete", "path": "/s/b"},
    ])
}

#[tokio::test]
async fn operations_depend_on_earlier_ones_across_roots() {
    let world = World::new().await;
    let first = world.tree();
    let outcome = world.batch(operations()).await.unwrap();
    assert_eq!(world.read("r/new/f").unwrap(), "1\ntwo\n");
    assert_eq!(world.read("r/a").unwrap(), "1\n2\n");
    let after = world.tree();
    assert_eq!(after["s/deep/copy"], first["r/d/a"]);
    assert_eq!(after["s/moved/e/a"], first["r/d/e/a"]);
    assert_eq!(after["s/moved/e"].0, first["r/d/e"].0);
    assert!(!after.contains_key("r/d") && !after.contains_key("s/b"));
    assert_eq!(after["r/a"].0, first["r/a"].0);

    let expected = json!({
        "operations": 8, "created": 1, "changed": 1, "moved": 1, "copied": 1, "deleted": 1, "made": 2,
    });
    assert_eq!(outcome.structured().unwrap(), expected);
    assert_eq!(
        outcome.text(),
        "8 operations: 1 created, 1 changed, 1 moved, 1 copied, 1 deleted, 2 directories made"
    );
    // Two edits of one file are one change.
    let changed = outcome
        .changes
        .iter()
        .filter(|change| change.op == Op::Modify);
    assert_eq!(changed.count(), 1);
}

#[tokio::test]
async fn batch_is_one_change_that_can_be_undone_and_redone() {
    let world = World::new().await;
    let first = world.tree();
    world.batch(operations()).await.unwrap();
    let then = world.tree();
    let entries = world.runtime.journal().unwrap().changes_of_agent("main");
    assert_eq!(entries.len(), 1);
    assert!(world.runtime.changes(world.worker.id()).len() > 5);
    world.undo().await;
    assert_eq!(world.tree(), first);
    world.worker.call("redo", json!({})).await.unwrap();
    assert_eq!(world.tree(), then);
}

#[tokio::test]
async fn preview_changes_nothing_and_is_what_is_applied() {
    let world = World::new().await;
    let first = world.tree();
    let arguments = json!({"operations": operations()});
    let preview = world
        .worker
        .preview("apply_batch", arguments)
        .await
        .unwrap();
    assert_eq!(world.tree(), first);
    let outcome = world.worker.apply(&preview).await.unwrap();
    assert_eq!(outcome.changes, preview.changes);
    assert_eq!(outcome.structured(), preview.reply.structured());
    assert_eq!(world.read("r/new/f").unwrap(), "1\ntwo\n");
}

#[tokio::test]
async fn batch_of_200_asked_changes_is_asked_about_once() {
    let policy = Policy::new().allow("read:file").ask("write:file");
    let limits = bailiwick::journal::JournalLimits::default();
    let world = World::with(limits, policy, |builder| builder.approver(Deferred)).await;
    let write = |n| json!({"tool": "write_file", "path": format!("/r/n{n}"), "content": "x\n"});
    let writes: Vec<Value> = (0..200).map(write).collect();
    let call = Call::new("apply_batch", json!({ "operations": writes }));
    let CallProgress::Pending(pending) = world.worker.begin(call).await.unwrap() else {
        panic!("nobody was asked");
    };
    let request = &pending.question().request;
    assert_eq!(request.needs.len(), 200);
    assert_eq!(request.preview.as_ref().unwrap().changes.len(), 200);
    let covers = request.offered().remove(0).covers;
    assert!(covers.ends_with("; and 180 more"), "{covers}");
    let question = pending.question().id;
    world.grants.answer(question, Answer::ONCE).await.unwrap();
    let CallProgress::Ended(outcome) = pending.resume().await.unwrap() else {
        panic!("it was asked about again");
    };
    assert_eq!(outcome.changes.len(), 200);
    assert_eq!(world.read("r/n199").unwrap(), "x\n");
    // The answer has allowed exactly this batch.
    let call = Call::new(
        "apply_batch",
        json!({ "operations": [write(0), write(200)] }),
    );
    let again = world.worker.begin(call).await;
    assert!(matches!(again, Ok(CallProgress::Pending(_)) | Err(_)));
    assert_eq!(world.read("r/n200"), None);
}

#[tokio::test]
async fn one_question_describes_the_whole_batch() {
    let policy = Policy::new().allow("read:file").ask("write:file");
    let limits = bailiwick::journal::JournalLimits::default();
    let world = World::with(limits, policy, |builder| builder.approver(Deferred)).await;
    let operations = json!([
        {"tool": "write_file", "path": "/r/a", "content": "replaced\n", "mode": "overwrite"},
        {"tool": "write_file", "path": "/r/new", "content": "new\n"},
        {"tool": "delete", "path": "/r/d", "recursive": true},
        {"tool": "move", "from": "/s/b", "to": "/s/c"},
        {"tool": "write_file", "path": "/r/.gitattributes", "content": "x\n"},
    ]);
    let call = Call::new("apply_batch", json!({"operations": operations}));
    let CallProgress::Pending(pending) = world.worker.begin(call).await.unwrap() else {
        panic!("nobody was asked");
    };
    let request = &pending.question().request;
    let needs: Vec<String> = request.needs.iter().map(ToString::to_string).collect();
    assert_eq!(needs.len(), 6, "{needs:?}");
    assert_eq!(
        request.intent,
        "Make 5 changes together: write 3 files, move 1 entry, delete 1 entry"
    );
    assert_eq!(
        request.sentence,
        "Delete /r/d/ (2 files); replace /r/a; create /r/new and /r/.gitattributes; move /s/b to /s/c",
    );
    let kinds: Vec<DangerKind> = request.dangers.iter().map(|danger| danger.kind).collect();
    for kind in [
        DangerKind::Delete,
        DangerKind::Recursive,
        DangerKind::Overwrite,
        DangerKind::Protected,
    ] {
        assert!(kinds.contains(&kind), "{kind:?} {:?}", request.dangers);
    }
    let preview = request.preview.as_ref().unwrap();
    assert_eq!(preview.changes.len(), 5);
    world
        .grants
        .answer(pending.question().id, Answer::ONCE)
        .await
        .unwrap();
    let CallProgress::Ended(outcome) = pending.resume().await.unwrap() else {
        panic!("asked again");
    };
    assert_eq!(outcome.changes.len(), 5);
    assert_eq!(world.read("s/c").unwrap(), "of s\n");
}

#[tokio::test]
async fn answer_allows_nothing_but_the_described_batch() {
    let policy = Policy::new().allow("read:file").ask("write:file");
    let limits = bailiwick::journal::JournalLimits::default();
    let world = World::with(limits, policy, |builder| builder.approver(Deferred)).await;
    let call = |content: &str| {
        let operations = json!([
            {"tool": "write_file", "path": "/r/x", "content": content},
            {"tool": "write_file", "path": "/r/y", "content": content},
        ]);
        Call::new("apply_batch", json!({"operations": operations}))
    };
    let CallProgress::Pending(pending) = world.worker.begin(call("1")).await.unwrap() else {
        panic!("nobody was asked");
    };
    world
        .grants
        .answer(pending.question().id, Answer::ONCE)
        .await
        .unwrap();
    pending.resume().await.unwrap();
    assert_eq!(world.read("r/y").unwrap(), "1");
    let again = world.worker.begin(call("2")).await.unwrap_err();
    assert_eq!(again.code(), bailiwick::Code::AlreadyExists);
    let other = json!([{"tool": "write_file", "path": "/r/z", "content": "1"}]);
    let other = Call::new("apply_batch", json!({"operations": other}));
    let CallProgress::Pending(_) = world.worker.begin(other).await.unwrap() else {
        panic!("nobody was asked");
    };
}

#[tokio::test]
async fn unchanged_operations_and_warnings_are_reported_by_index() {
    let world = World::new().await;
    let long = "let x = 1;\n".repeat(9);
    fs::write(world.at("r/code"), long).unwrap();
    let operations = json!([
        {"tool": "write_file", "path": "/r/a", "content": "one\ntwo\n", "mode": "overwrite"},
        {"tool": "write_file", "path": "/r/code", "content": "// ... rest unchanged\n", "mode": "overwrite"},
    ]);
    let outcome = world.batch(operations).await.unwrap();
    let reply = outcome.structured().unwrap();
    assert_eq!(reply["unchanged"], json!([0]));
    assert_eq!(reply["warnings"][0]["operation"], 1);
    assert!(
        outcome.text().contains("unchanged: operation 0"),
        "{}",
        outcome.text()
    );
    assert!(
        outcome.text().contains("warning: operation 1: line 1"),
        "{}",
        outcome.text()
    );
}

#[tokio::test]
async fn batch_that_changes_nothing_is_not_recorded() {
    let world = World::new().await;
    let operations = json!([{"tool": "make_directory", "path": "/r/d", "create_parents": true}]);
    let outcome = world.batch(operations).await.unwrap();
    assert_eq!(
        outcome.text(),
        "1 operations: nothing changed; unchanged: operation 0"
    );
    assert!(world.runtime.journal().unwrap().entries().is_empty());
}

#[tokio::test]
async fn links_are_followed_as_single_calls_follow_them() {
    let world = World::new().await;
    link("a", &world.at("r/link"));
    link("d", &world.at("r/dir"));
    for name in 0..40 {
        link("a", &world.at(&format!("r/link{name}")));
    }
    world
        .batch(json!([
            {"tool": "write_file", "path": "/r/link", "content": "x\n", "mode": "append"},
            {"tool": "write_file", "path": "/r/dir/new", "content": "y\n"},
            {"tool": "edit_file", "path": "/r/a", "edits": [{"old_text": "x", "new_text": "z"}]},
        ]))
        .await
        .unwrap();
    assert_eq!(world.read("r/a").unwrap(), "one\ntwo\nz\n");
    assert_eq!(world.read("r/d/new").unwrap(), "y\n");
    // All links are resolved at once.
    let many = (0..40).map(|name| {
        let path = format!("/r/link{name}");
        json!({"tool": "write_file", "path": path, "content": "w\n", "mode": "append"})
    });
    world.batch(many.collect()).await.unwrap();
    assert!(world.read("r/a").unwrap().ends_with(&"w\n".repeat(40)));
}

#[tokio::test]
async fn largest_number_of_operations_is_made() {
    let world = World::new().await;
    let first = world.tree();
    let write = |n: usize| json!({"tool": "write_file", "path": format!("/r/n/{n}"), "content": "x", "create_parents": true});
    world.batch((0..500).map(write).collect()).await.unwrap();
    assert_eq!(fs::read_dir(world.at("r/n")).unwrap().count(), 500);
    world.undo().await;
    assert_eq!(world.tree(), first);
}

#[tokio::test]
async fn failed_step_is_rolled_back_with_those_before_it() {
    let world = World::new().await;
    // The system has no such name for a file, which is found when it is created.
    let long = "n".repeat(300);
    let first = world.tree();
    let operations = json!([
        {"tool": "write_file", "path": "/r/a", "content": "new\n", "mode": "overwrite"},
        {"tool": "delete", "path": "/r/d", "recursive": true},
        {"tool": "make_directory", "path": "/r/x"},
        {"tool": "write_file", "path": format!("/r/x/{long}"), "content": "new\n"},
    ]);
    let error = world.batch(operations).await.unwrap_err();
    assert_eq!(world.tree(), first, "{error:#?}");
    let entries = world.runtime.journal().unwrap().entries();
    assert!(
        entries
            .iter()
            .all(|entry| entry.state == ChangeState::RolledBack),
        "{entries:?}"
    );
}

/// Thirty lines, so that distant edits are separate hunks.
fn text(change: impl Fn(usize) -> Option<&'static str>) -> String {
    let line =
        |n: usize| change(n).map_or_else(|| format!("line {n}\n"), |line| format!("{line}\n"));
    (1..=30).map(line).collect()
}

#[tokio::test]
async fn excluded_hunks_and_files_are_not_applied_and_reported() {
    let world = World::new().await;
    for name in ["r/f", "r/g"] {
        fs::write(world.at(name), text(|_| None)).unwrap();
    }
    let first = world.tree();
    let edit = |path: &str| {
        let edits = [("line 2\n", "two\n"), ("line 28\n", "28\n")];
        let edits = edits.map(|(old, new)| json!({"old_text": old, "new_text": new}));
        json!({"tool": "edit_file", "path": path, "edits": edits})
    };
    let operations = json!([
        edit("/r/f"),
        edit("/r/g"),
        {"tool": "write_file", "path": "/r/new", "content": "x"},
        {"tool": "edit_file", "path": "/r/a", "edits": [{"old_text": "one", "new_text": "1"}]},
        {"tool": "copy", "from": "/r/a", "to": "/s/copy"},
    ]);
    let arguments = json!({"operations": operations});
    let preview = world
        .worker
        .preview("apply_batch", arguments)
        .await
        .unwrap();
    let excluded = |path: &str, hunks: &[usize]| ExcludedChange {
        path: VirtualPath::parse(path, None).unwrap(),
        hunks: Some(hunks.to_vec()),
    };
    // The copy depends on the content of `a`.
    for wrong in [excluded("/r/a", &[0]), excluded("/r/f", &[2])] {
        let error = world
            .worker
            .apply_without(&preview, &[wrong])
            .await
            .unwrap_err();
        assert_eq!(error.code(), bailiwick::Code::InvalidArguments);
        assert_eq!(world.tree(), first);
    }
    let left_out = [excluded("/r/f", &[0]), excluded("/r/g", &[0, 1])];
    let outcome = world
        .worker
        .apply_without(&preview, &left_out)
        .await
        .unwrap();
    assert_eq!(
        world.read("r/f").unwrap(),
        text(|n| (n == 28).then_some("28"))
    );
    assert_eq!(world.read("r/g").unwrap(), text(|_| None));
    assert_eq!(world.read("s/copy").unwrap(), "1\ntwo\n");
    let reply = outcome.structured().unwrap();
    assert_eq!(reply["changed"], 2);
    assert_eq!(reply["left_out"].as_array().unwrap().len(), 3);
    assert_eq!(
        reply["left_out"][0],
        json!({"path": "/r/f", "line": 2, "added": 1, "removed": 1})
    );
    assert!(
        outcome
            .text()
            .contains("a person excluded the changes at /r/f line 2 (+1 -1), /r/g line 2"),
        "{}",
        outcome.text()
    );
    let entries = world.runtime.journal().unwrap().entries();
    let intent = &entries[0].intent;
    assert!(intent.ends_with(", without what was left out"), "{intent}");
    world.undo().await;
    assert_eq!(world.tree(), first);
}

fn without(paths: &[&str]) -> Vec<ExcludedChange> {
    let path = |path: &&str| VirtualPath::parse(path, None).unwrap();
    paths.iter().map(path).map(ExcludedChange::whole).collect()
}

/// One operation of each kind, by the path that excludes its change.
fn every_kind() -> Vec<(&'static str, Value)> {
    vec![
        (
            "/s/new",
            json!({"tool": "write_file", "path": "/s/new", "content": "x"}),
        ),
        (
            "/s/folder",
            json!({"tool": "make_directory", "path": "/s/folder"}),
        ),
        (
            "/r/f",
            json!({"tool": "edit_file", "path": "/r/f", "edits": [{"old_text": "1", "new_text": "2"}]}),
        ),
        (
            "/r/g",
            json!({"tool": "move", "from": "/r/g", "to": "/s/g"}),
        ),
        (
            "/r/h",
            json!({"tool": "copy", "from": "/r/h", "to": "/s/h"}),
        ),
        ("/r/i", json!({"tool": "delete", "path": "/r/i"})),
        (
            "/r/old",
            json!({"tool": "delete", "path": "/r/old", "recursive": true}),
        ),
    ]
}

/// Makes the files of [`every_kind`].
fn prepared(world: World) -> World {
    for name in ["r/f", "r/g", "r/h", "r/i"] {
        fs::write(world.at(name), "1\n").unwrap();
    }
    fs::create_dir(world.at("r/old")).unwrap();
    fs::write(world.at("r/old/x"), "x\n").unwrap();
    world
}

/// What remains of a batch is what the remaining operations do as a batch of their own, and can be undone.
#[tokio::test]
async fn every_kind_of_change_can_be_left_out() {
    let operations = every_kind();
    let all: Vec<_> = operations.iter().map(|(_, made)| made).collect();
    for (path, _) in &operations {
        let (world, expected) = (prepared(World::new().await), prepared(World::new().await));
        let first = world.tree();
        let arguments = json!({"operations": all});
        let preview = world.worker.preview("apply_batch", arguments).await;
        let preview = preview.unwrap();
        let excluded = without(&[path]);
        let applied = world.worker.apply_without(&preview, &excluded);
        let outcome = applied.await.unwrap();
        let rest = operations.iter().filter(|(other, _)| other != path);
        let rest: Vec<_> = rest.map(|(_, made)| made).collect();
        let of_rest = expected.batch(json!(rest)).await.unwrap();
        assert_eq!(world.tree(), expected.tree(), "without {path}");
        assert_eq!(outcome.changes, of_rest.changes, "without {path}");
        let reply = outcome.structured().unwrap();
        assert_eq!(reply["left_out"], json!([{"path": path}]));
        world.undo().await;
        assert_eq!(world.tree(), first, "without {path}");
    }
}

/// A question from which changes were excluded says what a question about the remaining operations says.
#[tokio::test]
async fn question_without_some_changes_says_what_a_question_about_the_others_says() {
    let mut operations = every_kind();
    let protected = json!({"tool": "write_file", "path": "/s/.mcp.json", "content": "{}\n"});
    operations.push(("/s/.mcp.json", protected));
    let policy = Policy::new().allow("read:file").ask("write:file");
    let limits = bailiwick::journal::JournalLimits::default();
    let asks = AskLimits {
        per_minute: 100,
        open_per_worker: 100,
        ..AskLimits::default()
    };
    let timeout = Duration::from_secs(600);
    let adjust = |builder: RuntimeBuilder| builder.approver(Deferred).asks(asks, timeout);
    let world = prepared(World::with(limits, policy, adjust).await);
    let question = async |operations: &[&(&str, Value)]| {
        let made: Vec<&Value> = operations.iter().map(|(_, made)| made).collect();
        let call = Call::new("apply_batch", json!({ "operations": made }));
        match world.worker.begin(call).await.unwrap() {
            CallProgress::Pending(pending) => pending.question().request.clone(),
            CallProgress::Ended(outcome) => panic!("nobody was asked: {outcome:?}"),
        }
    };
    let whole = question(&operations.iter().collect::<Vec<_>>()).await;
    let mut sentences = BTreeSet::from([whole.sentence.clone()]);
    // Each operation alone, all but each one, and each pair of neighbors.
    let count = operations.len();
    for at in 0..count {
        for kept in [
            vec![at],
            (0..count).filter(|one| *one != at).collect(),
            vec![at, (at + 1) % count],
        ] {
            let (rest, gone): (Vec<_>, Vec<_>) =
                (operations.iter().enumerate()).partition(|(index, _)| kept.contains(index));
            let gone: Vec<&str> = gone.iter().map(|(_, (path, _))| *path).collect();
            let rest: Vec<_> = rest.into_iter().map(|(_, one)| one).collect();
            let (found, expected) = (
                whole.without(&without(&gone)).unwrap(),
                question(&rest).await,
            );
            assert_eq!(found.sentence, expected.sentence);
            assert_eq!(found.dangers, expected.dangers);
            assert_eq!(found.files, expected.files);
            assert_eq!(found.needs, expected.needs);
            assert_eq!(found.protected, expected.protected);
            sentences.insert(found.sentence);
        }
    }
    assert!(sentences.len() > 2 * count, "{sentences:?}");
}

#[tokio::test]
async fn change_on_which_another_depends_is_left_out_only_with_it() {
    let world = World::new().await;
    fs::write(world.at("r/f"), "1\n").unwrap();
    fs::write(world.at("r/g"), "2\n").unwrap();
    let first = world.tree();
    let operations = json!([
        {"tool": "make_directory", "path": "/s/n"},
        {"tool": "write_file", "path": "/s/n/x", "content": "x"},
        {"tool": "move", "from": "/r/f", "to": "/r/g", "overwrite": true},
        {"tool": "write_file", "path": "/s/y", "content": "y"},
    ]);
    let arguments = json!({"operations": operations});
    let preview = world.worker.preview("apply_batch", arguments).await;
    let preview = preview.unwrap();
    let all = ["/s/n", "/s/n/x", "/r/f", "/r/g", "/s/y"];
    for (refused, reason) in [
        (
            &["/s/n"][..],
            "the change of `/s/n/x` depends on that of `/s/n`",
        ),
        (&["/r/f"], "the change of `/r/g` depends on that of `/r/f`"),
        (&["/r/g"], "depends on that of `/r/g`"),
        (&["/s/z"], "`/s/z` has no such change"),
        (&all, "no change remains"),
    ] {
        let excluded = without(refused);
        let error = world.worker.apply_without(&preview, &excluded);
        let error = error.await.unwrap_err();
        assert_eq!(error.code(), bailiwick::Code::InvalidArguments);
        assert!(error.message().contains(reason), "{error}");
        assert_eq!(world.tree(), first);
    }
    let excluded = without(&["/s/n", "/s/n/x", "/r/f", "/r/g"]);
    let applied = world.worker.apply_without(&preview, &excluded);
    applied.await.unwrap();
    assert_eq!(world.read("s/y").unwrap(), "y");
    assert_eq!(world.read("r/g").unwrap(), "2\n");
    assert!(!world.at("s/n").exists());
    world.undo().await;
    assert_eq!(world.tree(), first);
}
