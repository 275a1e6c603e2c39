//! Reading tools.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and makes its files itself"
)]

use std::fs;
use std::os::unix::fs::symlink;

use bailiwick::{Code, Outcome, Policy, Runtime, Worker, WorkerSpec};
use serde_json::{Value, json};

/// The roots `/r` and `/s`, and a file outside both.
struct Stage {
    runtime: Runtime,
    temp: tempfile::TempDir,
}

async fn stage() -> Stage {
    let temp = tempfile::tempdir().unwrap();
    let base = temp.path();
    for dir in ["r/src/deep", "r/secrets", "s", "outside"] {
        fs::create_dir_all(base.join(dir)).unwrap();
    }
    for (name, text) in [
        ("r/src/main.rs", "fn main() {}\n"),
        ("r/src/deep/lib.rs", "pub fn lib() {}\n"),
        ("r/secrets/key", "fn secret() {}\n"),
        ("s/other", "fn other() {}\n"),
        ("outside/f", "fn outside() {}\n"),
    ] {
        fs::write(base.join(name), text).unwrap();
    }
    let host = |name: &str| base.canonicalize().unwrap().join(name);
    for (link, target) in [
        ("r/inner", host("r/src/main.rs")),
        ("r/denied", host("r/secrets/key")),
        ("r/out", host("outside/f")),
        ("r/dir", host("outside")),
        ("r/other", host("s/other")),
        ("r/relative", "src/deep".into()),
    ] {
        symlink(target, base.join(link)).unwrap();
    }
    let builder = Runtime::builder()
        .root("r", base.join("r"))
        .root("s", base.join("s"));
    let (runtime, _) = builder.tools(bailiwick_fs::tools()).build().await.unwrap();
    Stage { runtime, temp }
}

impl Stage {
    async fn worker(&self) -> Worker {
        self.with(
            Policy::new()
                .deny_glob("**/secrets/**")
                .deny_glob("**/secrets"),
        )
        .await
    }

    async fn with(&self, policy: Policy) -> Worker {
        self.runtime
            .spawn(WorkerSpec::new("reader").policy(policy))
            .await
            .unwrap()
    }
}

fn at(path: &str) -> Value {
    json!({ "path": path })
}

async fn read(worker: &Worker, path: &str) -> Result<String, Code> {
    let read = worker.call("read_file", at(path)).await;
    read.map(|outcome| outcome.text())
        .map_err(|error| error.code())
}

fn field(outcome: &Outcome, name: &str) -> Value {
    outcome.structured().unwrap()[name].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn file_is_readable_by_every_path_inside() {
    let stage = stage().await;
    let worker = stage.worker().await;
    for path in [
        "src/main.rs",
        "/r/src/main.rs",
        "/r/src/../src/main.rs",
        "/r/inner",
    ] {
        assert_eq!(
            read(&worker, path).await.as_deref(),
            Ok("fn main() {}\n"),
            "{path}"
        );
    }
    assert_eq!(
        read(&worker, "/r/relative/lib.rs").await.as_deref(),
        Ok("pub fn lib() {}\n")
    );
    assert_eq!(
        read(&worker, "/r/other").await.as_deref(),
        Ok("fn other() {}\n")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_and_outside_files_are_not_readable_by_any_path() {
    let stage = stage().await;
    let worker = stage.worker().await;
    for path in [
        "/r/secrets/key",
        "/r/denied",
        "/r/out",
        "/r/dir/f",
        "/r/../outside/f",
        "/etc/passwd",
    ] {
        assert!(read(&worker, path).await.is_err(), "{path}");
    }
    for tool in ["read_file", "stat", "list_directory", "grep"] {
        let arguments = |path: &str| match tool {
            "grep" => json!({ "path": path, "pattern": "fn" }),
            _ => at(path),
        };
        for path in ["/r/denied", "/r/out", "/r/secrets"] {
            let error = worker.call(tool, arguments(path)).await.unwrap_err();
            assert!(
                !error.message().contains("outside/f"),
                "{tool} {path}: {error}"
            );
            assert!(
                !error.message().contains("secrets/key"),
                "{tool} {path}: {error}"
            );
            let host = stage.temp.path().to_str().unwrap();
            assert!(!error.message().contains(host), "{tool} {path}: {error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn link_out_of_the_roots_looks_like_a_dangling_link() {
    let stage = stage().await;
    let worker = stage.worker().await;
    let answer = async |path: &str| {
        let error = worker.call("read_file", at(path)).await.unwrap_err();
        (error.code(), error.message().replace(path, "P"))
    };
    let out = answer("/r/out").await;
    fs::remove_file(stage.temp.path().join("outside/f")).unwrap();
    assert_eq!(answer("/r/out").await, out);
    let denied = answer("/r/denied").await;
    fs::remove_file(stage.temp.path().join("r/secrets/key")).unwrap();
    assert_eq!(answer("/r/denied").await, denied);
}

#[tokio::test(flavor = "multi_thread")]
async fn listings_and_searches_have_only_readable_files() {
    let stage = stage().await;
    let worker = stage.worker().await;
    let listed = worker
        .call("list_directory", json!({"path": "/r", "depth": 5}))
        .await
        .unwrap();
    assert!(!listed.text().contains("secrets"), "{}", listed.text());
    assert!(listed.text().contains("src/deep/lib.rs"));
    let listed = worker
        .call(
            "list_directory",
            json!({"path": "/r", "depth": 5, "sizes": true}),
        )
        .await
        .unwrap();
    assert!(!listed.text().contains("secrets"), "{}", listed.text());
    assert!(listed.text().contains("src/deep/lib.rs 16"));
    let found = worker
        .call("find", json!({"path": "/r", "pattern": "*"}))
        .await
        .unwrap();
    assert!(!found.text().contains("secrets") && found.text().contains("/r/src/main.rs"));
    let matches = worker
        .call("grep", json!({"path": "/r", "pattern": "fn \\w+"}))
        .await
        .unwrap();
    assert_eq!(
        matches.text(),
        "/r/src/deep/lib.rs\n1:pub fn lib() {}\n/r/src/main.rs\n1:fn main() {}\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_of_a_subtree_cannot_see_the_rest() {
    let stage = stage().await;
    let worker = stage.with(Policy::new().allow("read:file:/r/src")).await;
    assert!(read(&worker, "/r/src/main.rs").await.is_ok());
    for path in ["/s/other", "/r/secrets/key", "/r/inner", "/r/none"] {
        assert!(read(&worker, path).await.is_err(), "{path}");
    }
    let error = worker.call("stat", at("/r/src/mian.rs")).await.unwrap_err();
    assert!(
        error.message().contains("did you mean `/r/src/main.rs`?"),
        "{error}"
    );
    let roots = worker.call("list_roots", json!({})).await.unwrap();
    assert_eq!(field(&roots, "roots"), json!(["/r/src"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_arguments_are_refused() {
    let stage = stage().await;
    let worker = stage.worker().await;
    for (tool, arguments) in [
        ("read_file", json!({})),
        ("read_file", json!({"path": "a", "paths": ["b"]})),
        ("read_file", json!({"path": "a", "offset": 0})),
        ("read_file", json!({"path": "a", "lines": 3})),
        ("read_file", json!({"path": "a\u{0}"})),
        ("grep", json!({"pattern": "\\w{1000}"})),
        ("grep", json!({"pattern": "("})),
        ("find", json!({"pattern": "["})),
        ("list_directory", json!({"cursor": "?"})),
    ] {
        let error = worker.call(tool, arguments.clone()).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArguments, "{tool} {arguments}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn file_with_a_known_hash_is_unchanged() {
    let stage = stage().await;
    let worker = stage.worker().await;
    let outcome = worker
        .call("read_file", at("/r/src/main.rs"))
        .await
        .unwrap();
    let facts = &field(&outcome, "files")[0];
    let again = json!({"path": "/r/src/main.rs", "known_hash": facts["hash"]});
    let same = worker.call("read_file", again).await.unwrap();
    assert_eq!(same.text(), "[unchanged since it was read]");
}
