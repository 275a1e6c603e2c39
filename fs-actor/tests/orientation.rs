//! Open folders and relative paths of confined workers.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and makes its files itself"
)]

use std::fs;
use std::path::Path;

use bailiwick::{Code, Config, Policy, Runtime, SpawnError, Worker, WorkerSpec};
use serde_json::{Value, json};

/// The roots `/r` with `src` and `docs`, and `/s`.
async fn runtime() -> (Runtime, tempfile::TempDir) {
    let temp = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("r/src/main.rs", "fn main() {}\n"),
        ("r/src/deep/lib.rs", "fn lib() {}\n"),
        ("r/src/.env", "fn key() {}\n"),
        ("r/docs/a.md", "fn docs() {}\n"),
        ("s/other", "fn other() {}\n"),
    ] {
        let path = temp.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let builder = Runtime::builder()
        .root("r", temp.path().join("r"))
        .root("s", temp.path().join("s"));
    let (runtime, _) = builder.tools(bailiwick_fs::tools()).build().await.unwrap();
    (runtime, temp)
}

async fn spawned(runtime: &Runtime, policy: Policy) -> Worker {
    let spec = WorkerSpec::new("reader").policy(policy);
    runtime.spawn(spec).await.unwrap()
}

async fn structured(worker: &Worker, tool: &str, arguments: Value) -> Value {
    let outcome = worker.call(tool, arguments).await.unwrap();
    outcome.structured().unwrap()
}

fn paths(worker: &Worker) -> Vec<String> {
    let open = worker.open_folders().iter();
    open.map(ToString::to_string).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn narrowed_worker_starts_in_its_folder() {
    let (runtime, _temp) = runtime().await;
    for policy in [
        Policy::new().root("/r/src").deny_glob(".env"),
        Policy::new().allow("read:file:/r/src").deny_glob(".env"),
    ] {
        let worker = spawned(&runtime, policy).await;
        let listed = structured(&worker, "list_roots", json!({})).await;
        assert_eq!(listed["roots"], json!(["/r/src"]));
        assert_eq!(listed["default_root"], json!("/r/src"));
        let found = structured(&worker, "find", json!({"pattern": "*"})).await;
        let expected = json!(["/r/src/deep", "/r/src/deep/lib.rs", "/r/src/main.rs"]);
        assert_eq!(found["paths"], expected);
        let read = worker.call("read_file", json!({"path": "main.rs"})).await;
        assert_eq!(read.unwrap().text(), "fn main() {}\n");
        let listing = worker.call("list_directory", json!({})).await.unwrap();
        assert!(!listing.text().contains(".env"), "{}", listing.text());
        let found = worker
            .call("grep", json!({"pattern": "fn "}))
            .await
            .unwrap();
        let text = found.text();
        assert!(
            text.contains("main.rs") && text.contains("lib.rs"),
            "{text}"
        );
        assert!(!text.contains("key") && !text.contains("docs"), "{text}");
        for denied in [".env", "../docs/a.md", "/s/other"] {
            let refused = worker.call("read_file", json!({"path": denied})).await;
            assert!(refused.is_err(), "{denied}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn children_of_a_narrowed_worker_start_in_their_folder() {
    let (runtime, _temp) = runtime().await;
    let worker = spawned(&runtime, Policy::new().root("/r/src")).await;
    let same = WorkerSpec::new("same").policy(Policy::new());
    let same = worker.spawn(same).await.unwrap();
    assert_eq!(same.cwd().unwrap().as_str(), "/r/src");
    let deep = WorkerSpec::new("deep").policy(Policy::new().root("/r/src/deep"));
    let deep = worker.spawn(deep).await.unwrap();
    let read = deep.call("read_file", json!({"path": "lib.rs"})).await;
    assert_eq!(read.unwrap().text(), "fn lib() {}\n");
    assert_eq!(paths(&deep), ["`/r/src/deep` (read and write)"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn error_about_a_path_names_the_argument() {
    let (runtime, _temp) = runtime().await;
    let policy = Policy::new().allow("read:file:/r").allow("read:file:/s");
    let worker = spawned(&runtime, policy).await;
    let (edits, x) = (json!([{"old_text": "a", "new_text": "b"}]), "/r/docs/x");
    for (tool, arguments, field) in [
        ("read_file", json!({"path": "a\0"}), "/path"),
        ("read_file", json!({"paths": [x, ""]}), "/paths/1"),
        ("edit_file", json!({"path": "", "edits": edits}), "/path"),
        ("copy", json!({"from": "", "to": x}), "/from"),
        ("move", json!({"from": x, "to": "/r/../.."}), "/to"),
    ] {
        let refused = worker.call(tool, arguments).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArguments, "{refused}");
        assert_eq!(refused.details()["field"], field, "{refused}");
    }
    let operation = json!({"tool": "move", "from": x, "to": ""});
    let batch = json!({"operations": [{"tool": "delete", "path": x}, operation]});
    let refused = worker.call("apply_batch", batch).await.unwrap_err();
    assert_eq!(refused.details()["field"], "/operations/1/to", "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_that_may_read_the_default_root_starts_there() {
    let (runtime, _temp) = runtime().await;
    let policy = Policy::new().allow("read:file").allow("write:file:/r/src");
    let worker = spawned(&runtime, policy).await;
    assert_eq!(worker.cwd().unwrap().as_str(), "/r");
    let listed = worker.call("list_roots", json!({})).await.unwrap();
    assert_eq!(
        listed.text(),
        "`/r` (read only)\n`/r/src` (read and write)\n`/s` (read only)\nrelative paths begin in `/r`\n"
    );
    let listed = listed.structured().unwrap();
    assert_eq!(listed["roots"], json!(["/r", "/s"]));
    assert_eq!(listed["writable"], json!(["/r/src"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_with_several_folders_must_name_one() {
    let (runtime, _temp) = runtime().await;
    let policy = Policy::new().root("/r/src").root("/r/docs");
    let worker = spawned(&runtime, policy.clone()).await;
    assert_eq!(worker.cwd(), None);
    let refused = worker.call("find", json!({"pattern": "*"})).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArguments);
    for folder in ["`/r/src`", "`/r/docs`"] {
        assert!(refused.message().contains(folder), "{refused}");
    }
    let spec = WorkerSpec::new("docs").policy(policy.clone()).cwd("docs");
    let worker = runtime.spawn(spec).await.unwrap();
    let found = structured(&worker, "find", json!({"pattern": "*"})).await;
    assert_eq!(found["paths"], json!(["/r/docs/a.md"]));
    let spec = WorkerSpec::new("other").policy(policy).cwd("/s");
    let refused = runtime.spawn(spec).await.unwrap_err();
    assert!(
        matches!(&refused, SpawnError::Cwd(path) if path == "/s"),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_of_one_file_starts_in_its_folder() {
    let (runtime, _temp) = runtime().await;
    let policy = Policy::new().allow("read:file:/r/src/main.rs");
    let worker = spawned(&runtime, policy).await;
    let read = worker.call("read_file", json!({"path": "main.rs"})).await;
    assert_eq!(read.unwrap().text(), "fn main() {}\n");
    let denied = worker.call("list_directory", json!({})).await;
    assert!(denied.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn optional_roots_that_cannot_be_opened_are_left_out_and_named() {
    let temp = tempfile::tempdir().unwrap();
    let base = temp.path().canonicalize().unwrap();
    let (good, file, missing) = (base.join("good"), base.join("file"), base.join("missing"));
    fs::create_dir(&good).unwrap();
    fs::write(&file, "").unwrap();
    let config = |optional: bool, paths: &[&Path]| {
        let roots = paths.iter().enumerate().map(
            |(index, path)| json!({"path": path, "default": index == 0, "optional": optional}),
        );
        Config::parse(&json!({"roots": roots.collect::<Vec<_>>()})).unwrap()
    };
    let build = |config| {
        let builder = Runtime::builder().configured(config);
        builder.tools(bailiwick_fs::tools()).build()
    };
    let all = [&*missing, &good, &file, Path::new("/")];
    let (runtime, _) = build(config(true, &all)).await.unwrap();
    let worker = spawned(&runtime, Policy::new()).await;
    let listed = worker.call("list_roots", json!({})).await.unwrap();
    let structured = listed.structured().unwrap();
    assert_eq!(structured["roots"], json!([good]));
    assert_eq!(structured["default_root"], json!(good));
    let unavailable = structured["unavailable"].as_array().unwrap();
    let expected = [
        (&*missing, "No such file"),
        (&*file, "Not a directory"),
        (Path::new("/"), "top of the file system"),
    ];
    assert_eq!(unavailable.len(), expected.len());
    for (root, (path, reason)) in unavailable.iter().zip(expected) {
        assert_eq!(root["path"], json!(path));
        let said = root["reason"].as_str().unwrap();
        assert!(said.contains(reason), "{said}");
        let line = format!("not open: {said}\n");
        assert!(listed.text().contains(&line), "{}", listed.text());
    }
    let confined = spawned(&runtime, Policy::new().root(good.to_str().unwrap())).await;
    let listed = confined.call("list_roots", json!({})).await.unwrap();
    assert_eq!(listed.structured().unwrap().get("unavailable"), None);
    assert!(!listed.text().contains("not open"), "{}", listed.text());

    for refused in [config(false, &all), config(true, &[&missing, &file])] {
        let refused = build(refused).await.unwrap_err();
        let text = refused.to_string();
        assert!(
            text.starts_with("invalid /roots/0/path: cannot open the root"),
            "{text}"
        );
        assert_eq!(text.lines().count(), refused.faults().len());
    }
    assert!(build(config(false, &[&good])).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn optional_root_that_is_left_out_still_restricts_the_one_around_it() {
    let temp = tempfile::tempdir().unwrap();
    let outer = temp.path().canonicalize().unwrap();
    let inner = outer.join("vendor");
    let roots = json!([{"path": outer}, {"path": inner, "access": "read", "optional": true}]);
    let config = Config::parse(&json!({"roots": roots})).unwrap();
    let builder = Runtime::builder().configured(config);
    let (runtime, _) = builder.tools(bailiwick_fs::tools()).build().await.unwrap();
    let worker = spawned(&runtime, Policy::new()).await;
    fs::create_dir(&inner).unwrap();
    let write = |path: &str| json!({"path": outer.join(path), "content": "x"});
    let refused = worker.call("write_file", write("vendor/a")).await;
    assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied);
    assert!(worker.call("write_file", write("a")).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_without_a_root_say_what_to_do() {
    let builder = Runtime::builder().tools(bailiwick_fs::tools());
    let (runtime, _) = builder.build().await.unwrap();
    let worker = spawned(&runtime, Policy::new()).await;
    for path in ["a", "/etc/hostname"] {
        let refused = worker.call("read_file", json!({"path": path})).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
        assert!(
            refused.message().contains("start it with a directory"),
            "{refused}"
        );
        assert!(!refused.message().contains("MCP roots"), "{refused}");
    }
    let listed = worker.call("list_roots", json!({})).await.unwrap();
    assert!(
        listed.text().contains("for a directory, or for a policy"),
        "{}",
        listed.text()
    );
}
