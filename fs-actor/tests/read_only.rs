//! Writing tools in a read-only root.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests create and check the root directly"
)]

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use serde_json::{Value, json};

use bailiwick::policy::Access;
use bailiwick::{Code, Policy, Runtime, RuntimeBuilder, Worker};
use bailiwick_test_support::stage::started;

/// A call of each writing tool, on a tree with the file `f` and the empty directory `d`.
fn writes() -> Vec<(&'static str, Value)> {
    vec![
        (
            "write_file",
            json!({ "path": "f", "content": "x", "mode": "overwrite" }),
        ),
        (
            "write_file",
            json!({ "path": "f", "content": "x", "mode": "append" }),
        ),
        ("write_file", json!({ "path": "new", "content": "x" })),
        (
            "edit_file",
            json!({ "path": "f", "edits": [{ "old_text": "old", "new_text": "new" }] }),
        ),
        ("make_directory", json!({ "path": "d/new" })),
        ("move", json!({ "from": "f", "to": "g" })),
        ("copy", json!({ "from": "f", "to": "h" })),
        ("delete", json!({ "path": "f" })),
        ("delete", json!({ "path": "d" })),
        (
            "apply_batch",
            json!({ "operations": [{ "tool": "delete", "path": "f" }] }),
        ),
    ]
}

/// State that any write would change.
fn state(root: &Path) -> Vec<(u64, i64, i64, Vec<u8>)> {
    let facts = |path: &Path| {
        let meta = fs::metadata(path).unwrap();
        (
            meta.ino(),
            meta.mtime_nsec(),
            meta.ctime_nsec(),
            fs::read(path).unwrap_or_default(),
        )
    };
    [root.to_path_buf(), root.join("f"), root.join("d")]
        .iter()
        .map(|path| facts(path))
        .collect()
}

async fn worker(
    root: &Path,
    configure: impl FnOnce(RuntimeBuilder, &Path) -> RuntimeBuilder,
    policy: Policy,
) -> (Runtime, Worker) {
    fs::write(root.join("f"), "old").unwrap();
    fs::create_dir(root.join("d")).unwrap();
    let builder = configure(Runtime::builder(), root).tools(bailiwick_fs::tools());
    started(builder, policy).await
}

/// Configures the root, read-only or not.
type Configure = fn(RuntimeBuilder, &Path) -> RuntimeBuilder;

#[tokio::test]
async fn no_tool_changes_a_read_only_root() {
    let ways: [(Configure, Policy); 3] = [
        (
            |builder, root| builder.root_read_only("r", root),
            Policy::new(),
        ),
        (
            |builder, root| builder.root("r", root),
            Policy::new().read_only(true),
        ),
        (
            |builder, root| builder.root("r", root),
            Policy::new().access(Access::Read),
        ),
    ];
    for (configure, policy) in ways {
        let root = tempfile::tempdir().unwrap();
        let (_runtime, worker) = worker(root.path(), configure, policy).await;
        let before = state(root.path());
        for (tool, args) in writes() {
            let called = worker.call(tool, args.clone()).await.unwrap_err();
            assert_eq!(called.code(), Code::PermissionDenied, "{tool} {args}");
            let shown = worker.preview(tool, args.clone()).await.unwrap_err();
            assert_eq!(shown.code(), Code::PermissionDenied, "{tool} {args}");
        }
        assert!(
            worker
                .call("read_file", json!({ "path": "f" }))
                .await
                .is_ok()
        );
        assert_eq!(state(root.path()), before);
    }
}

#[tokio::test]
async fn same_calls_succeed_in_a_writable_root() {
    for (tool, args) in writes() {
        let root = tempfile::tempdir().unwrap();
        let (_runtime, worker) = worker(
            root.path(),
            |builder, root| builder.root("r", root),
            Policy::new(),
        )
        .await;
        let before = state_of_names(root.path());
        worker.preview(tool, args.clone()).await.unwrap();
        assert_eq!(state_of_names(root.path()), before, "{tool} {args}");
        worker.call(tool, args.clone()).await.unwrap();
        assert_ne!(state_of_names(root.path()), before, "{tool} {args}");
    }
}

/// All names beneath the root with their content.
fn state_of_names(root: &Path) -> Vec<(String, Vec<u8>)> {
    let mut names = Vec::new();
    for folder in [root.to_path_buf(), root.join("d")] {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            names.push((
                path.display().to_string(),
                fs::read(&path).unwrap_or_default(),
            ));
        }
    }
    names.sort();
    names
}
