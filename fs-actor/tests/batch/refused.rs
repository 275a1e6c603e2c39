//! Batches that are refused, each with a twin that is not.

use std::fs;

use bailiwick::journal::JournalLimits;
use bailiwick::worker::CallProgress;
use bailiwick::{Answer, Call, Code, Deferred, Policy};
use serde_json::{Value, json};

use super::{World, link};

fn write(path: &str, content: &str) -> Value {
    json!({"tool": "write_file", "path": path, "content": content, "mode": "overwrite"})
}

#[tokio::test]
async fn number_of_operations_is_limited() {
    let world = World::new().await;
    for count in [0, 501] {
        let operations: Vec<Value> = (0..count).map(|n| write(&format!("/r/{n}"), "x")).collect();
        let error = world.refused(json!(operations)).await;
        assert_eq!(error.code(), Code::InvalidArguments);
        assert_eq!(error.details()["field"], "/operations");
        assert!(
            error.message().contains("expected 1 to 500 operations"),
            "{error}"
        );
    }
    world.batch(json!([write("/r/0", "x")])).await.unwrap();
}

#[tokio::test]
async fn unknown_operations_and_arguments_are_named() {
    let world = World::new().await;
    for (operation, field) in [
        (
            json!({"tool": "chmod", "path": "/r/a"}),
            "/operations/1/tool",
        ),
        (json!({"path": "/r/a"}), "/operations/1/tool"),
        (
            json!({"tool": "write_file", "path": "/r/a"}),
            "/operations/1/content",
        ),
        (
            json!({"tool": "delete", "path": "/r/a", "force": true}),
            "/operations/1/force",
        ),
        (
            json!({"tool": "delete", "path": "/r/d", "recursive": 5}),
            "/operations/1/recursive",
        ),
        (
            json!({"tool": "move", "from": "/r/a", "to": 5}),
            "/operations/1/to",
        ),
    ] {
        let error = world.refused(json!([write("/r/x", "x"), operation])).await;
        assert_eq!(error.code(), Code::InvalidArguments, "{operation}");
        let named = error.details().get("field").cloned();
        assert_eq!(named.unwrap_or_default(), field, "{operation}: {error}");
    }
    let lenient = json!({"tool": "delete", "path": "/r/d", "recursive": "true"});
    world
        .batch(json!([write("/r/x", "x"), lenient]))
        .await
        .unwrap();
    assert!(!world.at("r/d").exists());
}

#[tokio::test]
async fn denied_path_in_the_middle_denies_all() {
    let policy = Policy::new().deny("write:file:/r/a");
    let world = World::with(JournalLimits::default(), policy, |builder| builder).await;
    let (first, last) = (write("/r/x", "x"), write("/s/y", "y"));
    let error = world
        .refused(json!([first, write("/r/a", "new"), last]))
        .await;
    assert_eq!(error.code(), Code::PermissionDenied);
    assert!(error.message().contains("/r/a"), "{error}");
    world.batch(json!([first, last])).await.unwrap();
}

#[tokio::test]
async fn denied_entry_below_a_deleted_directory_denies_all_and_is_not_named() {
    let policy = Policy::new()
        .deny("read:file:/r/d/e/a")
        .deny("write:file:/r/d/e/a");
    let world = World::with(JournalLimits::default(), policy, |builder| builder).await;
    for operation in [
        json!({"tool": "delete", "path": "/r/d", "recursive": true}),
        json!({"tool": "move", "from": "/r/d", "to": "/r/x"}),
        json!({"tool": "copy", "from": "/r/d", "to": "/r/x"}),
    ] {
        let error = world.refused(json!([write("/r/y", "y"), operation])).await;
        assert_eq!(error.code(), Code::PermissionDenied, "{operation}");
        assert!(!error.message().contains("d/e/a"), "{error}");
    }
    let file = json!({"tool": "delete", "path": "/r/d/a"});
    world
        .batch(json!([write("/r/y", "y"), file]))
        .await
        .unwrap();
}

#[tokio::test]
async fn entry_moved_into_a_new_directory_is_judged_where_it_gets() {
    let policy = Policy::new().deny("write:file:/s/to/e");
    let world = World::with(JournalLimits::default(), policy, |builder| builder).await;
    let operations = |to: &str| {
        json!([
            {"tool": "make_directory", "path": "/r/new"},
            {"tool": "move", "from": "/r/d/e", "to": "/r/new/e"},
            {"tool": "move", "from": "/r/new", "to": to},
        ])
    };
    let error = world.refused(operations("/s/to")).await;
    assert_eq!(error.code(), Code::PermissionDenied, "{error}");
    world.batch(operations("/s/other")).await.unwrap();
    assert!(world.at("s/other/e/a").exists());
}

#[tokio::test]
async fn read_only_root_refuses_all() {
    let world = World::new().await;
    for operation in [
        write("/o/f", "new"),
        json!({"tool": "move", "from": "/o/f", "to": "/r/f"}),
        json!({"tool": "delete", "path": "/o/f"}),
        json!({"tool": "copy", "from": "/r/a", "to": "/o/a"}),
    ] {
        let error = world.refused(json!([write("/r/x", "x"), operation])).await;
        assert_eq!(error.code(), Code::PermissionDenied, "{operation}");
    }
    let copy = json!({"tool": "copy", "from": "/o/f", "to": "/r/f"});
    world
        .batch(json!([write("/r/x", "x"), copy]))
        .await
        .unwrap();
    assert_eq!(world.read("r/f").unwrap(), "read only\n");
}

#[tokio::test]
async fn write_modes_of_the_policy_hold_for_each_operation() {
    let policy: Policy =
        serde_json::from_value(json!({"write_modes": ["create", "append"]})).unwrap();
    let world = World::with(JournalLimits::default(), policy, |builder| builder).await;
    let append = json!({"tool": "write_file", "path": "/r/a", "content": "x", "mode": "append"});
    for operation in [
        write("/r/a", "one\ntwo\nxy"),
        json!({"tool": "delete", "path": "/r/a"}),
        json!({"tool": "move", "from": "/r/a", "to": "/r/x"}),
    ] {
        let error = world.refused(json!([append, operation])).await;
        assert_eq!(error.code(), Code::PermissionDenied, "{operation}");
    }
    world
        .batch(json!([append, write("/r/x", "x")]))
        .await
        .unwrap();
}

#[tokio::test]
async fn file_over_the_limit_refuses_all() {
    let policy: Policy = serde_json::from_value(json!({"write_max_bytes": 8})).unwrap();
    let world = World::with(JournalLimits::default(), policy, |builder| builder).await;
    let error = world
        .refused(json!([write("/r/x", "small"), write("/r/y", "too large")]))
        .await;
    assert_eq!(error.code(), Code::TooLarge);
    world
        .batch(json!([write("/r/x", "small"), write("/r/y", "small")]))
        .await
        .unwrap();
}

#[tokio::test]
async fn bytes_of_a_batch_are_limited() {
    let world = World::new().await;
    let large = "x".repeat(9 << 20);
    let error = world
        .refused(json!([write("/r/x", &large), write("/r/y", &large)]))
        .await;
    assert_eq!(error.code(), Code::TooLarge);
    assert!(
        error.message().contains("more than the 16777216 allowed"),
        "{error}"
    );
    world.batch(json!([write("/r/x", &large)])).await.unwrap();
    // Further copies are not planned, which would read the file each time.
    let copy = |to: &str| json!({"tool": "copy", "from": "/r/x", "to": to});
    let unread = json!({"tool": "delete", "path": "/r/none"});
    let error = world
        .refused(json!([copy("/r/one"), copy("/r/two"), unread]))
        .await;
    assert_eq!(error.code(), Code::TooLarge, "{error}");
    let error = world.refused(json!([copy("/r/one"), unread])).await;
    assert_eq!(error.code(), Code::NotFound, "{error}");
}

#[tokio::test]
async fn batch_that_the_journal_cannot_keep_is_refused() {
    let limits = JournalLimits {
        change_bytes: 1_000,
        ..JournalLimits::default()
    };
    let world = World::with(limits, Policy::new(), |builder| builder).await;
    fs::write(world.at("r/large"), "l".repeat(2_000)).unwrap();
    let error = world
        .refused(json!([write("/r/x", "x"), {"tool": "delete", "path": "/r/large"}]))
        .await;
    assert_eq!(error.code(), Code::TooLarge);
    assert!(error.message().contains("more than the 1000"), "{error}");
    world
        .batch(json!([write("/r/x", "x"), {"tool": "delete", "path": "/r/a"}]))
        .await
        .unwrap();
}

#[tokio::test]
async fn batch_is_refused_at_the_first_operation_that_exceeds_what_can_be_kept() {
    let limits = JournalLimits {
        change_bytes: 5_000,
        ..JournalLimits::default()
    };
    let world = World::with(limits, Policy::new(), |builder| builder).await;
    for name in ["r/x", "r/y"] {
        fs::write(world.at(name), name.repeat(1_000)).unwrap();
    }
    let delete = |path: &str| json!({"tool": "delete", "path": path});
    let unread = delete("/r/none");
    let error = world
        .refused(json!([delete("/r/x"), delete("/r/y"), unread]))
        .await;
    assert_eq!(error.code(), Code::TooLarge, "{error}");
    assert!(error.message().contains("more than the 5000"), "{error}");
    let error = world.refused(json!([delete("/r/x"), unread])).await;
    assert_eq!(error.code(), Code::NotFound, "{error}");
    // What a later operation makes unnecessary is kept once.
    let write = write("/r/x", "x");
    world
        .batch(json!([write, delete("/r/x"), write, delete("/r/x")]))
        .await
        .unwrap();
    world.batch(json!([delete("/r/y")])).await.unwrap();
}

#[tokio::test]
async fn operation_that_cannot_be_rolled_back_is_refused() {
    let world = World::new().await;
    let _socket = std::os::unix::net::UnixListener::bind(world.at("r/d/socket")).unwrap();
    for path in ["/r/d", "/r/d/socket"] {
        let delete = json!({"tool": "delete", "path": path, "recursive": true});
        let error = world.refused(json!([write("/r/x", "x"), delete])).await;
        assert_eq!(error.code(), Code::TooLarge, "{path}");
        assert!(
            error.message().contains("operation 1 (`delete`)"),
            "{error}"
        );
        assert!(error.message().contains("could not be restored"), "{error}");
    }
    // A socket moves with its directory, and a link can be restored.
    link("../a", &world.at("r/link"));
    let moved = json!({"tool": "move", "from": "/r/d", "to": "/r/moved"});
    let deleted = json!({"tool": "delete", "path": "/r/link"});
    world
        .batch(json!([write("/r/x", "x"), moved, deleted]))
        .await
        .unwrap();
    assert!(world.at("r/moved/socket").exists());
    world.undo().await;
    assert_eq!(
        fs::read_link(world.at("r/link")).unwrap().to_str(),
        Some("../a")
    );
}

#[tokio::test]
async fn link_that_another_operation_replaces_is_refused() {
    let world = World::new().await;
    link("a", &world.at("r/link"));
    let error = world
        .refused(json!([
            write("/r/link", "x"),
            {"tool": "move", "from": "/r/link", "to": "/r/link2"},
        ]))
        .await;
    assert_eq!(error.code(), Code::InvalidArguments, "{error}");
    // What is moved before is a file then.
    world
        .batch(json!([
            {"tool": "move", "from": "/r/link", "to": "/r/link2"},
            write("/r/link", "x"),
        ]))
        .await
        .unwrap();
    assert_eq!(world.read("r/link").unwrap(), "x");
    assert_eq!(world.read("r/a").unwrap(), "one\ntwo\n");
}

#[tokio::test]
async fn conflicting_operations_are_refused() {
    let world = World::new().await;
    let create = json!({"tool": "write_file", "path": "/r/x", "content": "x"});
    let moved = json!({"tool": "move", "from": "/r/a", "to": "/r/b"});
    for (operations, code, operation) in [
        (json!([create, create]), Code::AlreadyExists, 1),
        (json!([moved, moved]), Code::AlreadyExists, 1),
        (
            json!([{"tool": "delete", "path": "/r/a"}, moved]),
            Code::NotFound,
            1,
        ),
        (
            json!([create, {"tool": "make_directory", "path": "/r/x/y"}]),
            Code::NotDirectory,
            1,
        ),
        (
            json!([{"tool": "delete", "path": "/r/d", "recursive": true}, {"tool": "write_file", "path": "/r/d/n", "content": "x"}]),
            Code::NotFound,
            1,
        ),
    ] {
        let error = world.refused(operations.clone()).await;
        assert_eq!(error.code(), code, "{operations}: {error}");
        assert_eq!(error.details()["operation"], operation, "{operations}");
    }
    world.batch(json!([create, moved])).await.unwrap();
}

#[tokio::test]
async fn all_operations_that_fail_are_named() {
    let world = World::new().await;
    let edit = |path: &str, old: &str| json!({"tool": "edit_file", "path": path, "edits": [{"old_text": old, "new_text": "new"}]});
    let error = world
        .refused(json!([
            edit("/r/a", "three"),
            edit("/r/a", "one"),
            edit("/s/b", "of"),
            edit("/s/none", "x"),
        ]))
        .await;
    assert_eq!(error.code(), Code::NoMatch);
    let failures = &error.details()["failures"];
    assert_eq!(failures[0]["operation"], 0);
    assert_eq!(failures[1]["operation"], 3);
    assert_eq!(failures[1]["code"], "NOT_FOUND");
    assert_eq!(failures.as_array().unwrap().len(), 2);
    assert!(
        error.message().starts_with("2 of 4 operations fail"),
        "{error}"
    );
    world
        .batch(json!([edit("/r/a", "one"), edit("/s/b", "of")]))
        .await
        .unwrap();
}

#[tokio::test]
async fn unexpected_hashes_are_named_per_file() {
    let world = World::new().await;
    let hash = |path: &str, hash: &str| json!({"tool": "write_file", "path": path, "content": "x", "mode": "overwrite", "expected_hash": hash});
    let error = world
        .refused(json!([
            hash("/r/a", "000000000000"),
            hash("/s/b", "000000000000"),
            write("/r/x", "x")
        ]))
        .await;
    assert_eq!(error.code(), Code::Conflict);
    for path in ["/r/a", "/s/b"] {
        assert!(error.message().contains(path), "{error}");
    }
    let stat = world
        .worker
        .call("stat", json!({"path": "/r/a", "hash": true}))
        .await
        .unwrap();
    let now = stat.structured().unwrap()["hash"]
        .as_str()
        .unwrap()
        .to_owned();
    world
        .batch(json!([hash("/r/a", &now), write("/r/x", "x")]))
        .await
        .unwrap();
}

#[tokio::test]
async fn stale_preview_changes_nothing_and_names_the_files() {
    let world = World::new().await;
    let operations =
        json!([write("/r/x", "x"), write("/r/a", "new"), {"tool": "delete", "path": "/s/b"}]);
    let arguments = json!({"operations": operations});
    let preview = world
        .worker
        .preview("apply_batch", arguments.clone())
        .await
        .unwrap();
    fs::write(world.at("r/a"), "by others").unwrap();
    let before = world.tree();
    let error = world.worker.apply(&preview).await.unwrap_err();
    assert_eq!(error.code(), Code::StalePreview);
    assert_eq!(world.tree(), before);
    let preview = world
        .worker
        .preview("apply_batch", arguments)
        .await
        .unwrap();
    world.worker.apply(&preview).await.unwrap();
    assert_eq!(world.read("r/a").unwrap(), "new");
}

#[tokio::test]
async fn repository_that_a_batch_completes_is_protected() {
    let world = World::new().await;
    let mut operations = vec![
        json!({"tool": "make_directory", "path": "/r/bare/objects", "create_parents": true}),
        json!({"tool": "make_directory", "path": "/r/bare/refs"}),
        write("/r/bare/config", "[core]\n"),
    ];
    world.batch(json!(operations)).await.unwrap();
    world.undo().await;
    operations.push(write("/r/bare/HEAD", "ref: refs/heads/main\n"));
    let error = world.refused(json!(operations)).await;
    assert_eq!(error.code(), Code::ScopeRequired, "{error}");
    // Also if the directory has another name when it is completed.
    let moved = json!([
        {"tool": "make_directory", "path": "/r/x/objects", "create_parents": true},
        {"tool": "make_directory", "path": "/r/x/refs"},
        {"tool": "move", "from": "/r/x", "to": "/r/y"},
        write("/r/y/HEAD", "ref: refs/heads/main\n"),
    ]);
    let error = world.refused(moved).await;
    assert_eq!(error.code(), Code::ScopeRequired, "{error}");
}

#[tokio::test]
async fn files_that_changed_since_the_question_are_named_and_nothing_is_applied() {
    let policy = Policy::new().allow("read:file").ask("write:file");
    for changed in [false, true] {
        let world = World::with(JournalLimits::default(), policy.clone(), |builder| {
            builder.approver(Deferred)
        })
        .await;
        let operations = json!([
            write("/r/x", "x"),
            write("/r/a", "new"),
            {"tool": "delete", "path": "/s/b"},
        ]);
        let call = Call::new("apply_batch", json!({"operations": operations}));
        let CallProgress::Pending(pending) = world.worker.begin(call).await.unwrap() else {
            panic!("nobody was asked");
        };
        if changed {
            fs::write(world.at("r/a"), "by others").unwrap();
            fs::write(world.at("s/b"), "by others").unwrap();
        }
        let before = world.tree();
        let question = pending.question().id;
        world.grants.answer(question, Answer::ONCE).await.unwrap();
        let done = pending.resume().await;
        if changed {
            let error = done.unwrap_err();
            assert_eq!(error.code(), Code::StalePreview);
            assert_eq!(error.details()["conflicts"], json!(["/r/a", "/s/b"]));
            assert_eq!(world.tree(), before);
        } else {
            done.unwrap();
            assert_eq!(world.read("r/a").unwrap(), "new");
        }
    }
}
