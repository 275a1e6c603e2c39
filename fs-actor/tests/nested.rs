//! Nested roots with real files and links.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "tests create and check files directly"
)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use bailiwick::{
    Call, CallError, CallMeta, Code, Config, Outcome, Policy, Runtime, Worker, WorkerSpec,
};
use bailiwick_test_support::stage::started;
use bailiwick_test_support::temp_files::snapshot;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The root `repo` with nested roots: `repo/vendor` is readable, `repo/vendor/out` writable, and `repo/pkg/keys`
/// blocked.
struct Stage {
    _runtime: Runtime,
    worker: Worker,
    temp: TempDir,
}

const FILES: &[&str] = &[
    "repo/src/a",
    "repo/vendor/v",
    "repo/vendor/lib/w",
    "repo/vendor/out/o",
    "repo/pkg/keys/k",
    "repo/pkg/p",
    "repo/plain/x",
];

fn roots(base: &Path) -> Value {
    let at = |name: &str| base.join(name).to_str().unwrap().to_owned();
    json!([
        {"path": at("repo")},
        {"path": at("repo/vendor"), "access": "read"},
        {"path": at("repo/vendor/out")},
        {"path": at("repo/pkg/keys"), "blocked": true},
    ])
}

impl Stage {
    async fn new(policy: Policy) -> Self {
        Self::with(policy, |_| json!([])).await
    }

    async fn with(policy: Policy, grantable: impl Fn(&Path) -> Value) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let base = temp.path().canonicalize().unwrap();
        for file in FILES {
            let file = base.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, format!("old line of {}\n", file.display())).unwrap();
        }
        for (link, target) in [
            ("repo/src/relative", "../vendor/v".into()),
            ("repo/src/absolute", base.join("repo/vendor/v")),
            ("repo/src/folder", "../vendor/lib".into()),
            ("repo/src/out", "../vendor/out".into()),
            ("repo/vendor/up", "../src/a".into()),
            ("repo/vendor/keys", "../pkg/keys/k".into()),
        ] {
            symlink(target, base.join(link)).unwrap();
        }
        let config = json!({"roots": roots(&base), "grantable": grantable(&base)});
        let builder = Runtime::builder()
            .configured(Config::parse(&config).unwrap())
            .tools(bailiwick_fs::tools());
        let (runtime, worker) = started(builder, policy).await;
        Self {
            _runtime: runtime,
            worker,
            temp,
        }
    }

    fn host(&self, name: &str) -> PathBuf {
        self.temp.path().canonicalize().unwrap().join(name)
    }

    async fn call(&self, tool: &str, arguments: Value) -> Result<Outcome, CallError> {
        self.worker.call(tool, self.placed(arguments)).await
    }

    /// Makes all paths in the arguments absolute.
    fn placed(&self, mut arguments: Value) -> Value {
        for key in ["path", "from", "to"] {
            if let Some(path) = arguments[key].as_str() {
                arguments[key] = self.host(path).to_str().unwrap().into();
            }
        }
        // Indexing a missing key would insert null.
        arguments
            .as_object_mut()
            .unwrap()
            .retain(|_, value| !value.is_null());
        arguments
    }

    /// Checks that a call is refused and changes nothing. A call that a person may allow can be previewed.
    async fn refused(&self, tool: &str, arguments: Value) -> CallError {
        let before = snapshot(self.temp.path());
        let named = format!("{tool} {arguments}");
        let error = self.call(tool, arguments.clone()).await;
        let error = error
            .err()
            .unwrap_or_else(|| panic!("{named} was carried out"));
        let preview = self.worker.preview(tool, self.placed(arguments)).await;
        let previewed = preview.is_ok() && error.code() != Code::ScopeRequired;
        assert!(!previewed, "{named} can be previewed");
        assert_eq!(snapshot(self.temp.path()), before, "{named}");
        let refusals = [
            Code::PermissionDenied,
            Code::NotFound,
            Code::InvalidArguments,
            Code::ScopeRequired,
        ];
        assert!(refusals.contains(&error.code()), "{named}: {error}");
        error
    }
}

/// A call of each writing tool that changes `file`.
fn changes(file: &str) -> Vec<(&'static str, Value)> {
    let folder = Path::new(file).parent().unwrap();
    let beside = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let edit = json!([{"old_text": "old", "new_text": "new"}]);
    vec![
        ("write_file", json!({"path": beside("new"), "content": "x"})),
        (
            "write_file",
            json!({"path": file, "content": "x", "mode": "overwrite"}),
        ),
        (
            "write_file",
            json!({"path": file, "content": "x", "mode": "append"}),
        ),
        (
            "write_file",
            json!({"path": beside("d/e"), "content": "x", "create_parents": true}),
        ),
        ("edit_file", json!({"path": file, "edits": edit})),
        ("make_directory", json!({"path": beside("made")})),
        ("copy", json!({"from": file, "to": beside("copy")})),
        (
            "copy",
            json!({"from": "repo/src/a", "to": file, "overwrite": true}),
        ),
        ("move", json!({"from": file, "to": "repo/src/moved"})),
        (
            "move",
            json!({"from": "repo/plain/x", "to": beside("moved")}),
        ),
        ("delete", json!({"path": file})),
    ]
}

#[tokio::test]
async fn nested_read_only_root_refuses_every_change() {
    let stage = Stage::new(Policy::new()).await;
    for (tool, arguments) in changes("repo/vendor/v") {
        stage.refused(tool, arguments).await;
    }
    for (tool, arguments) in changes("repo/vendor/lib/w") {
        stage.refused(tool, arguments).await;
    }
    let read = stage
        .call("read_file", json!({"path": "repo/vendor/v"}))
        .await;
    assert!(read.unwrap().text().contains("old line"));
}

#[tokio::test]
async fn nested_writable_root_and_outer_root_allow_every_change() {
    for file in ["repo/vendor/out/o", "repo/pkg/p"] {
        for (tool, arguments) in changes(file) {
            let stage = Stage::new(Policy::new()).await;
            let before = snapshot(stage.temp.path());
            stage.call(tool, arguments).await.unwrap();
            assert_ne!(snapshot(stage.temp.path()), before, "{tool} {file}");
        }
    }
}

#[tokio::test]
async fn links_into_a_nested_root_use_its_access() {
    let stage = Stage::new(Policy::new()).await;
    for link in [
        "repo/src/relative",
        "repo/src/absolute",
        "repo/src/folder/w",
    ] {
        let read = stage
            .call("read_file", json!({"path": link}))
            .await
            .unwrap();
        assert!(read.text().contains("old line"), "{link}");
        let write = json!({"path": link, "content": "x", "mode": "overwrite"});
        stage.refused("write_file", write).await;
        let edit = json!([{"old_text": "old", "new_text": "new"}]);
        stage
            .refused("edit_file", json!({"path": link, "edits": edit}))
            .await;
    }
    let beneath = json!({"path": "repo/src/folder/new", "content": "x"});
    stage.refused("write_file", beneath).await;
    let beneath = json!({"from": "repo/src/a", "to": "repo/src/folder/new"});
    stage.refused("copy", beneath).await;
    stage
        .refused("delete", json!({"path": "repo/src/folder/w"}))
        .await;
    let out = json!({"path": "repo/src/out/new", "content": "x"});
    stage.call("write_file", out).await.unwrap();
    assert_eq!(
        fs::read_to_string(stage.host("repo/vendor/out/new")).unwrap(),
        "x"
    );
}

#[tokio::test]
async fn relative_links_out_of_a_nested_root_resolve_in_the_outer_one() {
    let stage = Stage::new(Policy::new()).await;
    let up = stage
        .call("read_file", json!({"path": "repo/vendor/up"}))
        .await;
    assert!(up.unwrap().text().contains("old line"));
    let keys = stage
        .refused("read_file", json!({"path": "repo/vendor/keys"}))
        .await;
    assert_eq!(keys.code(), Code::NotFound);
    let write = json!({"path": "repo/vendor/up", "content": "x", "mode": "overwrite"});
    stage.refused("write_file", write).await;
}

#[tokio::test]
async fn subtree_calls_do_not_change_nested_roots() {
    let stage = Stage::new(Policy::new()).await;
    for path in [
        "repo",
        "repo/pkg",
        "repo/pkg/keys",
        "repo/vendor",
        "repo/vendor/lib",
    ] {
        stage
            .refused("delete", json!({"path": path, "recursive": true}))
            .await;
        stage
            .refused("move", json!({"from": path, "to": "repo/src/moved"}))
            .await;
    }
    // A copy would make blocked files readable.
    stage
        .refused("copy", json!({"from": "repo/pkg", "to": "repo/src/copy"}))
        .await;
    let copy = json!({"from": "repo/vendor/lib", "to": "repo/src/copy"});
    stage.call("copy", copy).await.unwrap();
    stage
        .call(
            "delete",
            json!({"path": "repo/src/copy", "recursive": true}),
        )
        .await
        .unwrap();
    stage
        .call("delete", json!({"path": "repo/plain", "recursive": true}))
        .await
        .unwrap();
    let moved = json!({"from": "repo/pkg/p", "to": "repo/src/p"});
    stage.call("move", moved).await.unwrap();
    assert!(stage.host("repo/vendor/lib/w").exists());
}

#[tokio::test]
async fn search_skips_a_nested_blocked_root() {
    let stage = Stage::new(Policy::new()).await;
    let found = stage
        .call("find", json!({"path": "repo", "pattern": "**/*"}))
        .await;
    let found = found.unwrap().text();
    assert!(
        found.contains("vendor/lib/w") && found.contains("vendor/out/o"),
        "{found}"
    );
    assert!(!found.contains("pkg/keys"), "{found}");
    let lines = stage
        .call("grep", json!({"path": "repo", "pattern": "old line"}))
        .await;
    let lines = lines.unwrap().text();
    assert!(
        lines.contains("vendor/v") && lines.contains("src/a"),
        "{lines}"
    );
    assert!(!lines.contains("pkg/keys"), "{lines}");
    let listed = stage
        .call("list_directory", json!({"path": "repo/pkg"}))
        .await;
    let listed = listed.unwrap().text();
    assert!(listed.contains('p') && !listed.contains("keys"), "{listed}");
    stage
        .refused("read_file", json!({"path": "repo/pkg/keys/k"}))
        .await;
}

#[tokio::test]
async fn nested_read_only_root_is_writable_only_by_grant() {
    let stage = Stage::with(Policy::new(), |base| {
        json!([format!(
            "write:file:{}",
            base.join("repo/vendor/lib").display()
        )])
    })
    .await;
    let write = |path: &str| json!({"path": path, "content": "x", "mode": "overwrite"});
    let asked = stage
        .refused("write_file", write("repo/vendor/lib/w"))
        .await;
    assert_eq!(asked.code(), Code::ScopeRequired);
    assert_eq!(asked.requested_scopes().len(), 1);
    let denied = stage.refused("write_file", write("repo/vendor/v")).await;
    assert_eq!(denied.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn policy_may_close_a_nested_root_and_open_nothing() {
    let stage = Stage::new(Policy::new()).await;
    let at = |name: &str| stage.host(name).to_str().unwrap().to_owned();
    let closed = Policy::new().block(&at("repo/vendor"));
    let child = stage
        .worker
        .spawn(WorkerSpec::new("closed").policy(closed))
        .await
        .unwrap();
    let read = |name: &str| json!({"path": at(name)});
    child
        .call("read_file", read("repo/vendor/v"))
        .await
        .unwrap_err();
    child.call("read_file", read("repo/src/a")).await.unwrap();
    let nested = json!({"roots": [
        {"path": at("repo"), "allow": ["src/**"]},
        {"path": at("repo/vendor")},
    ]});
    let nested = Policy::parse(&nested).unwrap();
    let child = stage
        .worker
        .spawn(WorkerSpec::new("nested").policy(nested))
        .await
        .unwrap();
    child
        .call("read_file", read("repo/vendor/v"))
        .await
        .unwrap();
    child
        .call("read_file", read("repo/pkg/p"))
        .await
        .unwrap_err();
    let write = json!({"path": at("repo/vendor/new"), "content": "x"});
    child.call("write_file", write).await.unwrap_err();
    let write = json!({"path": at("repo/src/new"), "content": "x"});
    child.call("write_file", write).await.unwrap();
    let unblocked = json!({"roots": [{"path": at("repo/pkg/keys"), "blocked": false}]});
    let unblocked = Policy::parse(&unblocked).unwrap();
    let child = stage
        .worker
        .spawn(WorkerSpec::new("unblocked").policy(unblocked))
        .await;
    assert!(child.is_err());
}

#[tokio::test]
async fn policy_root_that_is_a_link_includes_its_target() {
    let stage = Stage::new(Policy::new()).await;
    let at = |name: &str| stage.host(name).to_str().unwrap().to_owned();
    let read = |name: &str| json!({"path": at(name)});
    let through = json!({"roots": [{"path": at("repo/src/folder")}]});
    let spawned =
        |name: &str, policy: &Value| WorkerSpec::new(name).policy(Policy::parse(policy).unwrap());
    let child = stage
        .worker
        .spawn(spawned("through", &through))
        .await
        .unwrap();
    for name in ["repo/src/folder/w", "repo/vendor/lib/w"] {
        child.call("read_file", read(name)).await.unwrap();
        let narrowed = Call::new("read_file", read(name)).meta(CallMeta {
            policy: Some(through.clone()),
            ..CallMeta::default()
        });
        stage.worker.submit(narrowed).await.unwrap();
    }
    for name in ["repo/src/a", "repo/vendor/v"] {
        child.call("read_file", read(name)).await.unwrap_err();
    }
    let closed = json!({"roots": [{"path": at("repo/src/folder"), "blocked": true}]});
    let child = stage
        .worker
        .spawn(spawned("closed", &closed))
        .await
        .unwrap();
    for name in ["repo/src/folder/w", "repo/vendor/lib/w"] {
        child.call("read_file", read(name)).await.unwrap_err();
    }
    child
        .call("read_file", read("repo/vendor/v"))
        .await
        .unwrap();
    // A link grants nothing that the issuer lacks.
    let only = json!({"roots": [{"path": at("repo/src")}]});
    let child = stage.worker.spawn(spawned("only", &only)).await.unwrap();
    let grandchild = child.spawn(spawned("beneath", &through)).await.unwrap();
    for name in ["repo/src/folder/w", "repo/vendor/lib/w"] {
        grandchild.call("read_file", read(name)).await.unwrap_err();
    }
}
