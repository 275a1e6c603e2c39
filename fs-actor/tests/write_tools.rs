//! Writing tools through a runtime.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests create and check files directly"
)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use bailiwick::effect::{ContentHash, Op};
use bailiwick::permission::{GrantHolder, Lifetime, NewGrant};
use bailiwick::{CallError, Code, GrantAuthority, Outcome, Policy, Runtime, Worker, WorkerSpec};
use bailiwick_test_support::temp_files::snapshot;
use serde_json::{Value, json};

struct Stage {
    _runtime: Runtime,
    grants: GrantAuthority,
    worker: Worker,
    temp: tempfile::TempDir,
}

impl Stage {
    /// A worker under `policy` over the root `/r` with `files`, next to a directory `outside`.
    async fn new(files: &[(&str, &str)], policy: Policy) -> Self {
        let temp = tempfile::tempdir().unwrap();
        for name in ["root", "outside"] {
            fs::create_dir(temp.path().join(name)).unwrap();
        }
        for (name, content) in files {
            let name = temp.path().join("root").join(name);
            fs::create_dir_all(name.parent().unwrap()).unwrap();
            fs::write(name, content).unwrap();
        }
        let builder = Runtime::builder()
            .root("r", temp.path().join("root"))
            .tools(bailiwick_fs::tools());
        let (runtime, grants) = builder.build().await.unwrap();
        let spec = WorkerSpec::new("main").policy(policy);
        let worker = runtime.spawn(spec).await.unwrap();
        Self {
            _runtime: runtime,
            grants,
            worker,
            temp,
        }
    }

    fn host(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    /// Grants writing to the path for the session.
    async fn grant(&self, path: &str) {
        let grant = NewGrant {
            pattern: format!("write:file:{path}").parse().unwrap(),
            holder: GrantHolder::Worker(self.worker.id()),
            lifetime: Lifetime::Session,
            descendants: false,
        };
        self.grants.grant(grant).await.unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.host("root").join(name)).unwrap()
    }

    async fn call(&self, tool: &str, arguments: Value) -> Result<Outcome, CallError> {
        self.worker.call(tool, arguments).await
    }

    /// Checks that a call is refused with `code` and changes nothing.
    #[track_caller]
    fn refused(
        &self,
        tool: &'static str,
        arguments: Value,
        code: Code,
    ) -> impl Future<Output = CallError> {
        let caller = std::panic::Location::caller();
        async move {
            let before = snapshot(self.temp.path());
            let error = self.worker.call(tool, arguments).await.err();
            assert_eq!(
                error.as_ref().map(CallError::code),
                Some(code),
                "{caller}: {error:?}"
            );
            assert_eq!(snapshot(self.temp.path()), before, "{caller}");
            error.unwrap()
        }
    }
}

const FILES: [(&str, &str); 4] = [
    ("f", "one\r\ntwo\r\n"),
    ("d/a", "1"),
    ("d/e/b", "2"),
    ("d/.env", "KEY"),
];

#[tokio::test]
async fn file_is_overwritten_only_on_request() {
    let stage = Stage::new(&[], Policy::new()).await;
    let write = |content: &str| json!({"path": "/r/n/f", "content": content});
    stage
        .refused("write_file", write("a"), Code::NotFound)
        .await;
    let made = json!({"path": "/r/n/f", "content": "a", "create_parents": true});
    let outcome = stage.call("write_file", made).await.unwrap();
    assert_eq!(
        outcome
            .changes
            .iter()
            .map(|change| change.op)
            .collect::<Vec<_>>(),
        [Op::MakeDirectory, Op::Create]
    );
    let written = outcome.output::<bailiwick_fs::WriteFileOutput>().unwrap();
    assert_eq!(written.hash, Some(ContentHash::of(b"a")));
    assert_eq!(outcome.structured().unwrap().get("hash"), None);
    stage
        .refused("write_file", write("b"), Code::AlreadyExists)
        .await;
    let append = json!({"path": "/r/n/f", "content": "b", "mode": "append"});
    stage.call("write_file", append).await.unwrap();
    assert_eq!(stage.read("n/f"), "ab");
    let hash = ContentHash::of(b"ab").to_string();
    let over = |hash: &str| json!({"path": "/r/n/f", "content": "c", "mode": "overwrite", "expected_hash": hash});
    stage
        .refused(
            "write_file",
            over(&ContentHash::of(b"x").to_string()),
            Code::Conflict,
        )
        .await;
    stage.call("write_file", over(&hash)).await.unwrap();
    assert_eq!(stage.read("n/f"), "c");
}

#[tokio::test]
async fn preview_changes_nothing_and_equals_the_call() {
    let stage = Stage::new(&FILES, Policy::new()).await;
    for (tool, arguments) in [
        (
            "write_file",
            json!({"path": "/r/new/x", "content": "a", "create_parents": true}),
        ),
        (
            "edit_file",
            json!({"path": "/r/f", "edits": [{"old_text": "one", "new_text": "1"}]}),
        ),
        (
            "make_directory",
            json!({"path": "/r/m/n", "create_parents": true}),
        ),
        ("copy", json!({"from": "/r/d", "to": "/r/c"})),
        ("move", json!({"from": "/r/c", "to": "/r/moved"})),
        ("delete", json!({"path": "/r/moved", "recursive": true})),
    ] {
        let before = snapshot(stage.temp.path());
        let preview = stage.worker.preview(tool, arguments.clone()).await.unwrap();
        assert_eq!(snapshot(stage.temp.path()), before, "{tool}");
        let outcome = stage.call(tool, arguments).await.unwrap();
        assert_eq!(preview.changes, outcome.changes, "{tool}");
        assert_eq!(preview.reply.content, outcome.reply.content, "{tool}");
        assert_ne!(snapshot(stage.temp.path()), before, "{tool}");
    }
}

#[tokio::test]
async fn edit_keeps_line_endings_and_reports_its_strategy() {
    let stage = Stage::new(&FILES, Policy::new()).await;
    let edits =
        json!({"path": "/r/f", "edits": [{"old_text": "one\ntwo\n", "new_text": "one\n2\n3\n"}]});
    let outcome = stage.call("edit_file", edits).await.unwrap();
    assert_eq!(stage.read("f"), "one\r\n2\r\n3\r\n");
    assert_eq!(
        outcome.structured().unwrap()["edits"][0]["strategy"],
        "line_endings"
    );
    assert!(!outcome.text().contains("two"), "the answer holds no diff");
    let patch = json!({"path": "/r/f", "patch": "@@ -1,2 +1,2 @@\n one\n-2\n+two\n"});
    stage.call("edit_file", patch).await.unwrap();
    assert_eq!(stage.read("f"), "one\r\ntwo\r\n3\r\n");
}

#[tokio::test]
async fn unmatched_edits_are_refused_with_advice() {
    let stage = Stage::new(&[("f", "a = 1\nb = 1\n"), ("bin", "a\0b")], Policy::new()).await;
    fs::write(stage.host("root/latin"), b"caf\xe9").unwrap();
    let edit = |path: &str, old: &str| json!({"path": path, "edits": [{"old_text": old, "new_text": "new"}]});
    let error = stage
        .refused("edit_file", edit("/r/f", "= 1"), Code::AmbiguousMatch)
        .await;
    assert_eq!(error.details()["lines"], json!([1, 2]));
    let error = stage
        .refused("edit_file", edit("/r/f", "a = 2"), Code::NoMatch)
        .await;
    assert_eq!(error.details()["nearest"]["first_line"], json!(1));
    stage
        .refused("edit_file", edit("/r/f", ""), Code::InvalidArguments)
        .await;
    stage
        .refused("edit_file", edit("/r/f", "new"), Code::InvalidArguments)
        .await;
    stage
        .refused("edit_file", edit("/r/bin", "a"), Code::NotText)
        .await;
    stage
        .refused("edit_file", edit("/r/latin", "caf"), Code::NotText)
        .await;
    stage
        .refused("edit_file", edit("/r/none", "a"), Code::NotFound)
        .await;
    stage
        .refused("edit_file", json!({"path": "/r/f"}), Code::InvalidArguments)
        .await;
}

#[tokio::test]
async fn tree_with_denied_entry_is_refused_without_naming_it() {
    let stage = Stage::new(&FILES, Policy::new().deny_glob("**/.env")).await;
    for (tool, arguments) in [
        ("move", json!({"from": "/r/d", "to": "/r/x"})),
        ("copy", json!({"from": "/r/d", "to": "/r/x"})),
        ("delete", json!({"path": "/r/d", "recursive": true})),
    ] {
        let error = stage.refused(tool, arguments, Code::PermissionDenied).await;
        assert!(!error.to_string().contains(".env"), "{tool}");
    }
    stage
        .call("move", json!({"from": "/r/d/e", "to": "/r/x"}))
        .await
        .unwrap();
    assert_eq!(stage.read("x/b"), "2");
}

#[tokio::test]
async fn denied_destination_is_not_written_by_any_tool() {
    let stage = Stage::new(&FILES, Policy::new().deny_glob("**/secret/**")).await;
    fs::create_dir(stage.host("root/secret")).unwrap();
    for (tool, arguments) in [
        ("write_file", json!({"path": "/r/secret/f", "content": ""})),
        ("make_directory", json!({"path": "/r/secret/d"})),
        ("move", json!({"from": "/r/f", "to": "/r/secret/f"})),
        ("copy", json!({"from": "/r/d/e", "to": "/r/secret/e"})),
    ] {
        let before = snapshot(stage.temp.path());
        assert!(stage.call(tool, arguments).await.is_err(), "{tool}");
        assert_eq!(snapshot(stage.temp.path()), before);
    }
}

#[tokio::test]
async fn move_that_makes_a_file_readable_is_refused() {
    let open = Policy::new().allow("write:file").allow("read:file:/r/open");
    let stage = Stage::new(
        &[
            ("closed/f", "secret"),
            ("closed/d/g", "secret"),
            ("open/x", ""),
        ],
        open,
    )
    .await;
    let to_open = json!({"from": "/r/closed/f", "to": "/r/open/f"});
    assert!(stage.call("move", to_open).await.is_err());
    assert!(
        stage
            .call("move", json!({"from": "/r/closed/d", "to": "/r/open/d"}))
            .await
            .is_err()
    );
    assert_eq!(stage.read("closed/f"), "secret");
    stage
        .call("move", json!({"from": "/r/closed/f", "to": "/r/closed/h"}))
        .await
        .unwrap();
    assert_eq!(stage.read("closed/h"), "secret");
}

#[tokio::test]
async fn overwriting_does_not_reveal_unreadable_content() {
    let blind = Policy::new().allow("write:file");
    let stage = Stage::new(&[("f", "secret")], blind).await;
    let over = json!({"path": "/r/f", "content": "secret", "mode": "overwrite"});
    let preview = stage
        .worker
        .preview("write_file", over.clone())
        .await
        .unwrap();
    assert_eq!(preview.changes.len(), 1);
    assert!(preview.changes[0].diff.hidden && preview.changes[0].diff.hunks.is_empty());
    let shown = format!("{:?}", preview.changes[0].before);
    assert!(!shown.contains(&ContentHash::of(b"secret").to_string()) && shown.contains("bytes: 0"));
    let guess = json!({"path": "/r/f", "content": "x", "mode": "overwrite", "expected_hash": ContentHash::of(b"secret")});
    assert!(stage.call("write_file", guess).await.is_err());
    assert!(
        stage
            .call(
                "write_file",
                json!({"path": "/r/f", "content": "x", "mode": "append"})
            )
            .await
            .is_err()
    );
    stage.call("write_file", over).await.unwrap();
}

#[tokio::test]
async fn roots_and_nested_destinations_are_refused() {
    let stage = Stage::new(&FILES, Policy::new()).await;
    for path in ["/r", "/r/", "/r/.", "/r/d/..", "."] {
        let delete = json!({"path": path, "recursive": true});
        stage
            .refused("delete", delete, Code::InvalidArguments)
            .await;
        stage
            .refused(
                "move",
                json!({"from": path, "to": "/r/d/x"}),
                Code::InvalidArguments,
            )
            .await;
    }
    stage
        .refused(
            "move",
            json!({"from": "/r/d", "to": "/r/d/e/d"}),
            Code::InvalidArguments,
        )
        .await;
    stage
        .refused(
            "copy",
            json!({"from": "/r/d", "to": "/r/d/c"}),
            Code::InvalidArguments,
        )
        .await;
    stage
        .refused(
            "move",
            json!({"from": "/r/f", "to": "/r/f"}),
            Code::InvalidArguments,
        )
        .await;
    stage
        .refused("delete", json!({"path": "/r/d"}), Code::InvalidArguments)
        .await;
    stage
        .call("delete", json!({"path": "/r/d", "recursive": true}))
        .await
        .unwrap();
}

#[tokio::test]
async fn only_files_are_replaced_and_only_on_request() {
    let stage = Stage::new(&FILES, Policy::new()).await;
    for tool in ["move", "copy"] {
        stage
            .refused(
                tool,
                json!({"from": "/r/f", "to": "/r/d/a"}),
                Code::AlreadyExists,
            )
            .await;
        stage
            .refused(
                tool,
                json!({"from": "/r/f", "to": "/r/d/e", "overwrite": true}),
                Code::AlreadyExists,
            )
            .await;
        stage
            .refused(
                tool,
                json!({"from": "/r/d/e", "to": "/r/f", "overwrite": true}),
                Code::AlreadyExists,
            )
            .await;
    }
    stage
        .call(
            "copy",
            json!({"from": "/r/f", "to": "/r/d/a", "overwrite": true}),
        )
        .await
        .unwrap();
    assert_eq!(stage.read("d/a"), stage.read("f"));
}

#[tokio::test]
async fn links_to_outside_are_never_written_through() {
    let stage = Stage::new(&FILES, Policy::new()).await;
    fs::write(stage.host("outside/f"), "theirs").unwrap();
    symlink(stage.host("outside/f"), stage.host("root/l")).unwrap();
    symlink(stage.host("outside/new"), stage.host("root/dangling")).unwrap();
    symlink(stage.host("outside"), stage.host("root/dir")).unwrap();
    for path in ["/r/l", "/r/dangling", "/r/dir/f", "/r/dir/new"] {
        for (tool, arguments) in [
            (
                "write_file",
                json!({"path": path, "content": "x", "mode": "overwrite", "create_parents": true}),
            ),
            (
                "edit_file",
                json!({"path": path, "edits": [{"old_text": "theirs", "new_text": "x"}]}),
            ),
            (
                "copy",
                json!({"from": "/r/f", "to": path, "overwrite": true}),
            ),
            (
                "move",
                json!({"from": "/r/f", "to": path, "overwrite": true}),
            ),
            (
                "make_directory",
                json!({"path": path, "create_parents": true}),
            ),
        ] {
            let before = snapshot(stage.temp.path());
            assert!(stage.call(tool, arguments).await.is_err(), "{tool} {path}");
            assert_eq!(snapshot(stage.temp.path()), before, "{tool} {path}");
        }
    }
    symlink("f", stage.host("root/inside")).unwrap();
    let edit = json!({"path": "/r/inside", "edits": [{"old_text": "one", "new_text": "1"}]});
    stage.call("edit_file", edit).await.unwrap();
    assert_eq!(stage.read("f"), "1\r\ntwo\r\n");
    assert!(
        stage
            .host("root/inside")
            .symlink_metadata()
            .unwrap()
            .file_type()
            .is_symlink()
    );
}

#[tokio::test]
async fn protected_name_needs_approval() {
    let stage = Stage::new(&[("x/config", "evil")], Policy::new()).await;
    fs::create_dir(stage.host("root/.git")).unwrap();
    stage
        .refused(
            "write_file",
            json!({"path": "/r/.git/hooks/pre-commit", "content": "", "create_parents": true}),
            Code::ScopeRequired,
        )
        .await;
    stage
        .refused(
            "move",
            json!({"from": "/r/x", "to": "/r/.vscode"}),
            Code::ScopeRequired,
        )
        .await;
    stage
        .call("move", json!({"from": "/r/x", "to": "/r/y"}))
        .await
        .unwrap();
}

#[tokio::test]
async fn hidden_hash_differs_from_equal_content_elsewhere() {
    let blind = Policy::new().allow("write:file");
    let stage = Stage::new(&[("f", "secret"), ("guess", "secret")], blind).await;
    let mut shown = Vec::new();
    for path in ["/r/f", "/r/guess", "/r/f"] {
        let over = json!({"path": path, "content": "x", "mode": "overwrite"});
        let preview = stage.worker.preview("write_file", over).await.unwrap();
        shown.push(format!("{:?}", preview.changes[0].before));
    }
    assert_ne!(shown[0], shown[1]);
    assert_eq!(shown[0], shown[2]);
    let onto = json!({"from": "/r/guess", "to": "/r/f", "overwrite": true});
    let preview = stage.worker.preview("move", onto).await.unwrap();
    let replaced = &preview.changes[0];
    assert_ne!(replaced.before, replaced.after);
}

#[tokio::test]
async fn directory_that_would_become_protected_needs_approval() {
    let files = [
        ("g/hooks/pre-commit", "evil"),
        ("w/workflows/ci.yml", "evil"),
    ];
    let stage = Stage::new(&files, Policy::new()).await;
    fs::create_dir(stage.host("root/empty")).unwrap();
    for (tool, from, to) in [
        ("move", "/r/g", "/r/.git"),
        ("copy", "/r/g", "/r/.GIT"),
        ("move", "/r/w", "/r/.github"),
        ("copy", "/r/w", "/r/.GitHub"),
        ("move", "/r/w/workflows", "/r/.github/workflows"),
        ("move", "/r/empty", "/r/.git"),
        ("move", "/r/empty", "/r/a/.vscode"),
        ("copy", "/r/empty", "/r/.\u{200d}vscode"),
    ] {
        let arguments = json!({"from": from, "to": to, "create_parents": true});
        stage.refused(tool, arguments, Code::ScopeRequired).await;
    }
    stage
        .call("move", json!({"from": "/r/w", "to": "/r/github"}))
        .await
        .unwrap();
}

#[tokio::test]
async fn temporary_files_are_hidden_from_tools() {
    let ours = format!(".bailiwick-{}.tmp", "0".repeat(32));
    let inside = format!("d/{ours}/f");
    let stage = Stage::new(
        &[("f", "text"), ("d/x", "text"), (&inside, "text")],
        Policy::new(),
    )
    .await;
    for (tool, arguments) in [
        ("list_directory", json!({"path": "/r", "depth": 9})),
        ("find", json!({"pattern": "*"})),
        ("grep", json!({"pattern": "text"})),
    ] {
        let told = stage.call(tool, arguments).await.unwrap().text();
        assert!(
            told.contains("d/x") && !told.contains(".bailiwick-"),
            "{tool}: {told}"
        );
    }
    for path in [format!("/r/d/{ours}"), format!("/r/{inside}")] {
        for tool in ["read_file", "stat", "list_directory", "delete"] {
            let arguments = json!({ "path": path });
            stage.refused(tool, arguments, Code::NotFound).await;
        }
    }
}

#[tokio::test]
async fn temporary_names_are_refused() {
    let stage = Stage::new(&FILES, Policy::new()).await;
    let name = format!("/r/.bailiwick-{}.tmp", "0".repeat(32));
    stage
        .refused(
            "write_file",
            json!({"path": name, "content": ""}),
            Code::InvalidArguments,
        )
        .await;
    stage
        .refused(
            "move",
            json!({"from": "/r/f", "to": name}),
            Code::InvalidArguments,
        )
        .await;
    stage
        .call(
            "write_file",
            json!({"path": "/r/.bailiwick-x.tmp", "content": ""}),
        )
        .await
        .unwrap();
}

#[tokio::test]
async fn rewrite_that_elides_text_has_a_warning() {
    let stage = Stage::new(
        &[("f", "fn a() {}\nfn b() {}\nfn c() {}\nfn d() {}\n")],
        Policy::new(),
    )
    .await;
    let over = |content: &str| json!({"path": "/r/f", "content": content, "mode": "overwrite"});
    let outcome = stage
        .call(
            "write_file",
            over("fn a() {}\n// ... rest stays the same\n"),
        )
        .await
        .unwrap();
    assert!(
        outcome.structured().unwrap()["warning"]
            .as_str()
            .unwrap()
            .contains("line 2")
    );
    let outcome = stage.call("write_file", over("fn a() {}\n")).await.unwrap();
    assert_eq!(outcome.structured().unwrap().get("warning"), None);
    let outcome = stage.call("write_file", over("fn a() {}\n")).await.unwrap();
    assert_eq!(outcome.structured().unwrap()["done"], "unchanged");
    assert_eq!(outcome.changes, []);
}

#[tokio::test]
async fn size_limit_applies_to_every_writing_tool() {
    let stage = Stage::new(
        &[("f", "12345678"), ("big", "1234567890")],
        Policy::new().write_max_bytes(8),
    )
    .await;
    stage
        .refused(
            "write_file",
            json!({"path": "/r/x", "content": "123456789"}),
            Code::TooLarge,
        )
        .await;
    stage
        .refused(
            "write_file",
            json!({"path": "/r/f", "content": "9", "mode": "append"}),
            Code::TooLarge,
        )
        .await;
    stage
        .refused(
            "edit_file",
            json!({"path": "/r/f", "edits": [{"old_text": "1", "new_text": "11"}]}),
            Code::TooLarge,
        )
        .await;
    stage
        .refused(
            "copy",
            json!({"from": "/r/big", "to": "/r/x"}),
            Code::TooLarge,
        )
        .await;
    stage
        .call("write_file", json!({"path": "/r/x", "content": "12345678"}))
        .await
        .unwrap();
}

#[tokio::test]
async fn excluded_write_mode_is_refused_by_every_tool() {
    let only = Policy::new().write_modes([bailiwick::policy::WriteMode::Create]);
    let stage = Stage::new(&FILES, only).await;
    for (tool, arguments) in [
        (
            "write_file",
            json!({"path": "/r/f", "content": "", "mode": "overwrite"}),
        ),
        (
            "write_file",
            json!({"path": "/r/f", "content": "x", "mode": "append"}),
        ),
        (
            "edit_file",
            json!({"path": "/r/f", "edits": [{"old_text": "one", "new_text": "1"}]}),
        ),
        ("move", json!({"from": "/r/f", "to": "/r/g"})),
        (
            "copy",
            json!({"from": "/r/f", "to": "/r/d/a", "overwrite": true}),
        ),
        ("delete", json!({"path": "/r/f"})),
    ] {
        stage.refused(tool, arguments, Code::PermissionDenied).await;
    }
    stage
        .call("write_file", json!({"path": "/r/g", "content": ""}))
        .await
        .unwrap();
    stage
        .call("copy", json!({"from": "/r/f", "to": "/r/h"}))
        .await
        .unwrap();
    stage
        .call("make_directory", json!({"path": "/r/m"}))
        .await
        .unwrap();
}

#[tokio::test]
async fn copy_excludes_temporary_files_of_other_writers() {
    let unfinished = format!("d/e/.bailiwick-{}.tmp", "0".repeat(32));
    let alike = "d/.bailiwick-notes.tmp";
    let files = [("d/a", "1"), (unfinished.as_str(), "half"), (alike, "2")];
    let stage = Stage::new(&files, Policy::new()).await;
    let copied = stage.call("copy", json!({"from": "/r/d", "to": "/r/x"}));
    let copied = copied.await.unwrap();
    assert!(copied.text().ends_with("1 unfinished files left out"));
    let told = copied.structured().unwrap();
    assert_eq!(
        (&told["entries"], &told["left_out"], &told["bytes"]),
        (&4.into(), &1.into(), &2.into())
    );
    let copy = snapshot(&stage.host("root/x"));
    let names: Vec<_> = copy.into_keys().collect();
    let expected = [".bailiwick-notes.tmp", "a", "e"].map(PathBuf::from);
    assert_eq!(names, expected);
    assert_eq!(stage.read(&unfinished), "half");
}

#[tokio::test]
async fn previews_of_directory_changes_list_the_contents() {
    let stage = Stage::new(&FILES, Policy::new()).await;
    symlink("f", stage.host("root/d/l")).unwrap();
    fs::remove_file(stage.host("root/d/.env")).unwrap();
    let contents = async |tool: &str, arguments: Value| {
        let preview = stage.worker.preview(tool, arguments).await.unwrap();
        let change = preview.changes.last().unwrap();
        assert_eq!(
            change.before,
            bailiwick::effect::Entry::Directory { entries: 4 }
        );
        change.diff.contents.clone().unwrap()
    };
    let delete = json!({"path": "/r/d", "recursive": true});
    let deleted = contents("delete", delete.clone()).await;
    let counts = (deleted.files, deleted.directories, deleted.others);
    assert_eq!((counts, deleted.bytes), ((2, 1, 1), 2));
    let first: Vec<_> = deleted.first.iter().map(|entry| &*entry.path).collect();
    assert_eq!(first, ["a", "e", "l", "e/b"]);
    let moved = contents("move", json!({"from": "/r/d", "to": "/r/x"})).await;
    assert_eq!(moved, deleted);

    fs::write(stage.host("root/d/e/b"), "3").unwrap();
    assert_ne!(contents("delete", delete).await.hash, deleted.hash);
    fs::remove_file(stage.host("root/d/l")).unwrap();
    fs::write(stage.host("root/d/m"), "4").unwrap();
    let copied = contents("copy", json!({"from": "/r/d", "to": "/r/x"})).await;
    assert_eq!((copied.files, copied.bytes), (3, 3));
}

#[tokio::test]
async fn large_directory_listing_is_bounded_with_full_counts() {
    let stage = Stage::new(&[], Policy::new()).await;
    let long = "n".repeat(200);
    fs::create_dir(stage.host("root/d")).unwrap();
    for index in 0..200 {
        fs::write(stage.host(&format!("root/d/{long}{index:03}")), "x").unwrap();
    }
    let arguments = json!({"path": "/r/d", "recursive": true});
    let preview = stage.worker.preview("delete", arguments).await.unwrap();
    let contents = preview.changes[0].diff.contents.as_ref().unwrap();
    assert_eq!((contents.entries(), contents.bytes), (200, 200));
    let listed: usize = contents.first.iter().map(|entry| entry.path.len()).sum();
    assert!(!contents.first.is_empty() && listed <= 8 << 10);
}

#[tokio::test]
async fn unreadable_directory_is_deleted_and_moved_without_counts() {
    let blind = Policy::new().allow("write:file").allow("read:file:/r/open");
    let files = [
        ("closed/a", "1"),
        ("closed/e/b", "2"),
        ("open/a", "1"),
        ("open/secret/b", "2"),
    ];
    let stage = Stage::new(&files, blind).await;
    fs::create_dir(stage.host("root/empty")).unwrap();
    let plain = async |path: &str| {
        let error = stage.call("delete", json!({"path": path})).await;
        let error = error.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArguments);
        error.to_string().replace(path, "")
    };
    assert_eq!(plain("/r/closed").await, plain("/r/empty").await);
    assert!(plain("/r/open").await.contains("not empty"));

    let delete = |path: &str| json!({"path": path, "recursive": true});
    let previewed = async |path: &str| {
        let preview = stage.worker.preview("delete", delete(path)).await.unwrap();
        let change = preview.changes[0].clone();
        let contents = change.diff.contents.unwrap();
        let counted = (contents.entries(), contents.bytes, contents.first.len());
        let reply = preview.reply.structured().unwrap();
        let replied = (reply["files"].clone(), reply["directories"].clone());
        (change.before, change.diff.hidden, counted, replied)
    };
    let nothing = (0, 0, 0);
    let directory = |entries| bailiwick::effect::Entry::Directory { entries };
    assert_eq!(
        previewed("/r/closed").await,
        (directory(0), true, nothing, (Value::Null, Value::Null))
    );
    assert_eq!(
        previewed("/r/open").await,
        (directory(3), false, (3, 2, 3), (json!(2), json!(2)))
    );
    let moved = stage.call("move", json!({"from": "/r/closed", "to": "/r/c"}));
    let moved = moved.await.unwrap();
    assert_eq!(moved.structured().unwrap()["entries"], Value::Null);
    assert!(moved.text().ends_with("with everything in it"));
    stage.call("delete", delete("/r/c")).await.unwrap();
    assert!(!stage.host("root/c").exists());
}

#[tokio::test]
async fn binary_file_preview_has_kind_size_and_hash() {
    let stage = Stage::new(&[], Policy::new()).await;
    let bytes = b"\x89PNG\r\n\x1a\n\0";
    fs::write(stage.host("root/p"), bytes).unwrap();
    let delete = json!({"path": "/r/p"});
    let preview = stage.worker.preview("delete", delete).await.unwrap();
    let change = &preview.changes[0];
    assert!(change.diff.binary);
    assert_eq!(change.diff.binary_type, Some("image/png"));
    let entry = bailiwick::effect::Entry::File {
        hash: ContentHash::of(bytes),
        bytes: 9,
    };
    assert_eq!(change.before, entry);
}

/// The protected paths that the error requests.
fn requested(error: &CallError) -> Vec<String> {
    let scopes = error.requested_scopes().iter();
    scopes
        .map(|scope| scope.path().unwrap().to_string())
        .collect()
}

const BARE: [(&str, &str); 5] = [
    ("bare/HEAD", "ref: refs/heads/main"),
    ("bare/config", "[core]"),
    ("bare/objects/x", ""),
    ("bare/refs/x", ""),
    ("bare/hooks/h", ""),
];

#[tokio::test]
async fn completing_a_bare_repository_needs_approval_in_any_order() {
    for first in 0..4 {
        let stage = Stage::new(&[("config", "")], Policy::new()).await;
        stage.grant("/r/bare").await;
        let mut refused = Vec::new();
        for index in 0..4 {
            let (path, content) = BARE[(first + index) % 4];
            let path = format!("/r/{path}");
            let arguments = json!({"path": path, "content": content, "create_parents": true});
            if let Err(error) = stage.call("write_file", arguments).await {
                assert_eq!(error.code(), Code::ScopeRequired, "{error}");
                refused.extend(requested(&error));
            }
        }
        // The last of the three markers, and the configuration if it comes later.
        let expected: &[&str] = match first {
            0 => &["/r/bare/refs"],
            1 => &["/r/bare/HEAD"],
            2 => &["/r/bare/HEAD"],
            _ => &["/r/bare/objects"],
        };
        assert_eq!(refused, expected, "from {first}");
    }
}

#[tokio::test]
async fn bare_repository_configuration_and_hooks_need_their_own_grant() {
    let stage = Stage::new(&BARE, Policy::new()).await;
    fs::write(stage.host("root/evil"), "").unwrap();
    stage.grant("/r/bare").await;
    let overwrite = json!({"path": "/r/bare/config", "content": "x", "mode": "overwrite"});
    for (tool, arguments, named) in [
        ("write_file", overwrite.clone(), "/r/bare/config"),
        (
            "edit_file",
            json!({"path": "/r/bare/config", "edits": [{"old_text": "core", "new_text": "x"}]}),
            "/r/bare/config",
        ),
        (
            "write_file",
            json!({"path": "/r/bare/hooks/post-checkout", "content": ""}),
            "/r/bare/hooks/post-checkout",
        ),
        (
            "write_file",
            json!({"path": "/r/bare/info/attributes", "content": "", "create_parents": true}),
            "/r/bare/info/attributes",
        ),
        (
            "move",
            json!({"from": "/r/evil", "to": "/r/bare/config.worktree"}),
            "/r/bare/config.worktree",
        ),
        (
            "copy",
            json!({"from": "/r/evil", "to": "/r/bare/CommonDir"}),
            "/r/bare/CommonDir",
        ),
        (
            "delete",
            json!({"path": "/r/bare/config"}),
            "/r/bare/config",
        ),
    ] {
        let error = stage.refused(tool, arguments, Code::ScopeRequired).await;
        assert_eq!(requested(&error), [named], "{tool}");
    }
    for name in ["description", "objects/y", "refs/y", "worktree/config"] {
        let arguments =
            json!({"path": format!("/r/bare/{name}"), "content": "", "create_parents": true});
        stage.call("write_file", arguments).await.unwrap();
    }
    stage.grant("/r/bare/config").await;
    stage.call("write_file", overwrite).await.unwrap();
    assert_eq!(stage.read("bare/config"), "x");
}

#[tokio::test]
async fn file_needs_its_own_grant_once_a_repository_is_made_around_it() {
    let stage = Stage::new(&[("b/config", "old")], Policy::new()).await;
    let overwrite =
        |content| json!({"path": "/r/b/config", "content": content, "mode": "overwrite"});
    stage.call("write_file", overwrite("first")).await.unwrap();
    for name in ["objects", "refs"] {
        fs::create_dir(stage.host("root/b").join(name)).unwrap();
    }
    fs::write(stage.host("root/b/HEAD"), "ref: refs/heads/main").unwrap();
    let error = stage
        .refused("write_file", overwrite("second"), Code::ScopeRequired)
        .await;
    assert_eq!(requested(&error), ["/r/b/config"]);
}

#[tokio::test]
async fn copied_or_moved_repository_is_protected() {
    let git = BARE.map(|(name, content)| (name.replace("bare", "p/.git"), content));
    let git = git.each_ref().map(|(name, content)| (&**name, *content));
    let stage = Stage::new(&git, Policy::new()).await;
    for (name, content) in BARE {
        let name = stage.host("root/q").join(name);
        fs::create_dir_all(name.parent().unwrap()).unwrap();
        fs::write(name, content).unwrap();
    }
    let made =
        |top: &str| ["HEAD", "config", "hooks", "hooks/h"].map(|name| format!("{top}/{name}"));
    let copy = json!({"from": "/r/p/.git", "to": "/r/x"});
    let error = stage
        .refused("copy", copy.clone(), Code::ScopeRequired)
        .await;
    assert_eq!(requested(&error), made("/r/x"));
    let copied = json!({"from": "/r/q", "to": "/r/y"});
    let error = stage.refused("copy", copied, Code::ScopeRequired).await;
    assert_eq!(requested(&error), made("/r/y/bare"));
    let moved = json!({"from": "/r/q/bare", "to": "/r/z"});
    let error = stage.refused("move", moved, Code::ScopeRequired).await;
    let from = ["config", "hooks", "hooks/h"].map(|name| format!("/r/q/bare/{name}"));
    let needed: Vec<String> = from.into_iter().chain(made("/r/z")).collect();
    assert_eq!(requested(&error), needed);
    for path in made("/r/x") {
        stage.grant(&path).await;
    }
    stage.call("copy", copy).await.unwrap();
    assert_eq!(stage.read("x/config"), "[core]");
}

#[tokio::test]
async fn repository_names_are_ordinary_elsewhere() {
    let stage = Stage::new(&[("d/objects/x", ""), ("d/config", "")], Policy::new()).await;
    for name in [
        "d/HEAD",
        "config",
        "src/hooks/use.ts",
        "e/refs/x",
        "info/attributes",
    ] {
        let arguments =
            json!({"path": format!("/r/{name}"), "content": "", "create_parents": true});
        stage.call("write_file", arguments).await.unwrap();
    }
    let arguments = json!({"path": "/r/d/config", "content": "x", "mode": "overwrite"});
    stage.call("write_file", arguments).await.unwrap();
    stage
        .call("copy", json!({"from": "/r/d", "to": "/r/f"}))
        .await
        .unwrap();
}

#[tokio::test]
async fn files_with_hard_links_are_refused_only_under_strict_hardlinks() {
    for strict in [true, false] {
        let policy = Policy::new().strict_hardlinks(strict);
        let stage = Stage::new(&[("d/plain", "one")], policy).await;
        fs::write(stage.host("outside/secret"), "one").unwrap();
        fs::hard_link(stage.host("outside/secret"), stage.host("root/d/linked")).unwrap();
        for (tool, arguments) in [
            ("read_file", json!({"path": "/r/d/linked"})),
            ("copy", json!({"from": "/r/d/linked", "to": "/r/c"})),
            ("copy", json!({"from": "/r/d", "to": "/r/e"})),
            (
                "edit_file",
                json!({"path": "/r/d/linked", "edits": [{"old_text": "one", "new_text": "two"}]}),
            ),
        ] {
            let answer = stage.call(tool, arguments).await;
            let code = answer.as_ref().err().map(CallError::code);
            assert_eq!(code, strict.then_some(Code::PermissionDenied), "{tool}");
        }
        stage
            .call("read_file", json!({"path": "/r/d/plain"}))
            .await
            .unwrap();
        let found = stage.call("grep", json!({"path": "/r/d", "pattern": "one|two"}));
        let found = found.await.unwrap().structured().unwrap();
        assert_eq!(
            found["files"].as_array().unwrap().len(),
            if strict { 1 } else { 2 }
        );
    }
}

#[tokio::test]
async fn move_to_another_file_system_is_refused_in_its_preview() {
    let here = tempfile::tempdir().unwrap();
    let there = tempfile::tempdir_in("/dev/shm").unwrap();
    fs::write(here.path().join("f"), "text").unwrap();
    let builder = Runtime::builder()
        .root("here", here.path())
        .root("there", there.path())
        .tools(bailiwick_fs::tools());
    let (runtime, _grants) = builder.build().await.unwrap();
    let spec = WorkerSpec::new("main").policy(Policy::new());
    let worker = runtime.spawn(spec).await.unwrap();
    for to in ["/there/f", "/there/new/f"] {
        let arguments = json!({"from": "/here/f", "to": to, "create_parents": true});
        let refused = worker.call("move", arguments.clone()).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArguments, "{refused}");
        let preview = worker.preview("move", arguments).await.unwrap_err();
        assert_eq!(preview.code(), Code::InvalidArguments, "{preview}");
    }
    let arguments = json!({"from": "/here/f", "to": "/here/new/f", "create_parents": true});
    worker.preview("move", arguments.clone()).await.unwrap();
    worker.call("move", arguments).await.unwrap();
    assert!(here.path().join("new/f").exists());
    runtime.shutdown().await;
}

#[tokio::test]
async fn preview_that_cannot_be_planned_again_is_stale() {
    let check = async |tool: &str, arguments: Value, changed: &str, content: &str, cause: &str| {
        let stage = Stage::new(&[("f", "old\n")], Policy::inherit()).await;
        let preview = stage.worker.preview(tool, arguments).await.unwrap();
        fs::write(stage.host("root").join(changed), content).unwrap();
        let stale = stage.worker.apply(&preview).await.unwrap_err();
        assert_eq!(stale.code(), Code::StalePreview, "{stale}");
        assert_eq!(stale.details()["cause"]["code"], cause, "{stale:#?}");
        let message = stale.details()["cause"]["message"].as_str().unwrap();
        let expected = format!(
            "the files changed since the preview; preview the call again. The call now fails: {message}"
        );
        assert_eq!(stale.message(), expected);
        let read = fs::read_to_string(stage.host("root").join(changed)).unwrap();
        assert_eq!(read, content);
    };
    let edit = json!({"path": "/r/f", "edits": [{"old_text": "old", "new_text": "new"}]});
    check("edit_file", edit.clone(), "f", "theirs\n", "NO_MATCH").await;
    check("edit_file", edit, "f", "old old\n", "AMBIGUOUS_MATCH").await;
    let write = json!({"path": "/r/new", "content": "mine"});
    check("write_file", write, "new", "theirs", "ALREADY_EXISTS").await;
}

#[tokio::test]
async fn preview_whose_write_a_policy_denies_is_denied_not_stale() {
    let policy = Policy::inherit().deny("write:file:/r/f");
    let stage = Stage::new(&[("f", "old\n")], Policy::inherit()).await;
    let edit = json!({"path": "/r/f", "edits": [{"old_text": "old", "new_text": "new"}]});
    let preview = stage.worker.preview("edit_file", edit).await.unwrap();
    fs::write(stage.host("root").join("f"), "theirs\n").unwrap();
    let mut call = preview.call().unwrap();
    call.meta.policy = Some(serde_json::to_value(policy).unwrap());
    let denied = stage.worker.submit(call).await.unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn file_with_several_links_is_not_moved_to_a_protected_name() {
    let files = [("f", "text"), ("plain", "text"), ("d/tasks.json", "{}")];
    let stage = Stage::new(&files, Policy::new()).await;
    for (name, link) in [("f", "other"), ("d/tasks.json", "tasks")] {
        fs::hard_link(stage.host("root").join(name), stage.host("root").join(link)).unwrap();
    }
    for path in ["/r/AGENTS.md", "/r/.vscode", "/r/.vscode/tasks.json"] {
        stage.grant(path).await;
    }
    let moved =
        |from: &str, to: &str| json!({"from": format!("/r/{from}"), "to": format!("/r/{to}")});
    for (from, to) in [("f", "AGENTS.md"), ("d", ".vscode")] {
        stage
            .refused("move", moved(from, to), Code::PermissionDenied)
            .await;
    }
    let batch = json!({"operations": [{"tool": "move", "from": "/r/f", "to": "/r/AGENTS.md"}]});
    stage
        .refused("apply_batch", batch, Code::PermissionDenied)
        .await;
    stage
        .call("move", moved("plain", "AGENTS.md"))
        .await
        .unwrap();
    stage.call("move", moved("f", "g")).await.unwrap();
    assert_eq!(
        (stage.read("AGENTS.md"), stage.read("g")),
        ("text".into(), "text".into())
    );
}
