//! What a worker learns about files that only another worker may access.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests create and check files directly"
)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use bailiwick::{Code, Policy, Runtime, Worker, WorkerSpec};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The roots `/theirs` and `/ours`, with links from the second into the first.
struct Stage {
    runtime: Runtime,
    temp: TempDir,
}

impl Stage {
    async fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let (theirs, ours) = (temp.path().join("theirs"), temp.path().join("ours"));
        for root in [&theirs, &ours] {
            fs::create_dir(root).unwrap();
        }
        fs::write(ours.join("file"), "needle of ours\n").unwrap();
        for (link, target) in [
            ("link", theirs.join("key")),
            ("dangling", theirs.join("absent")),
            ("folder", "../theirs/dir".into()),
        ] {
            symlink(target, ours.join(link)).unwrap();
        }
        let (runtime, _grants) = Runtime::builder()
            .root("theirs", &theirs)
            .root("ours", &ours)
            .tools(bailiwick_fs::tools())
            .build()
            .await
            .unwrap();
        Self { runtime, temp }
    }

    /// Writes the files of `/theirs`.
    fn fill(&self) {
        let theirs = self.temp.path().join("theirs");
        fs::create_dir(theirs.join("dir")).unwrap();
        fs::write(theirs.join("key"), "needle of theirs\n").unwrap();
        fs::write(theirs.join("dir/inner"), "needle of theirs\n").unwrap();
    }

    /// Removes them.
    fn clear(&self) {
        let theirs = self.temp.path().join("theirs");
        fs::remove_dir_all(theirs.join("dir")).unwrap();
        fs::remove_file(theirs.join("key")).unwrap();
    }

    async fn worker(&self, name: &str, root: &str) -> Worker {
        let policy = Policy::parse(&json!({ "roots": [{ "path": root }] })).unwrap();
        let spec = WorkerSpec::new(name).policy(policy);
        self.runtime.spawn(spec).await.unwrap()
    }
}

/// Calls of every tool with `path`, which is below `/theirs`.
fn calls_of(path: &str) -> Vec<(&'static str, Value)> {
    let edits = json!([{ "old_text": "needle", "new_text": "pin" }]);
    let write = json!({ "tool": "write_file", "path": path, "content": "x" });
    vec![
        ("list_directory", json!({ "path": path })),
        ("stat", json!({ "path": path })),
        ("read_file", json!({ "path": path })),
        ("read_file", json!({ "paths": ["/ours/file", path] })),
        ("write_file", json!({ "path": path, "content": "x" })),
        ("edit_file", json!({ "path": path, "edits": edits })),
        ("make_directory", json!({ "path": path })),
        ("move", json!({ "from": path, "to": "/ours/moved" })),
        ("move", json!({ "from": "/ours/file", "to": path })),
        ("copy", json!({ "from": path, "to": "/ours/copied" })),
        ("copy", json!({ "from": "/ours/file", "to": path })),
        ("delete", json!({ "path": path, "recursive": true })),
        ("apply_batch", json!({ "operations": [write] })),
        ("find", json!({ "path": path, "pattern": "**" })),
        ("grep", json!({ "path": path, "pattern": "needle" })),
    ]
}

/// The answers to calls with the paths of `/theirs`, directly and by links, and to calls about all roots. None of them changes
/// anything.
async fn answers(worker: &Worker) -> Vec<(String, String)> {
    let names = ["", "/key", "/dir", "/dir/inner", "/absent", "/dir/absent"];
    let mut calls: Vec<_> = names
        .iter()
        .flat_map(|name| calls_of(&format!("/theirs{name}")))
        .chain(calls_of("/ours/../theirs/key"))
        .collect();
    for link in [
        "link",
        "dangling",
        "folder",
        "folder/inner",
        "folder/absent",
    ] {
        let path = format!("/ours/{link}");
        let through = calls_of(&path).into_iter().filter(|(tool, arguments)| {
            // These are about the link itself, which is in `/ours`.
            *tool != "delete" && arguments.get("from") != Some(&json!(path))
        });
        calls.extend(through);
    }
    calls.push(("list_roots", json!({})));
    for path in ["/", "/ours"] {
        calls.push(("list_directory", json!({ "path": path })));
        calls.push(("find", json!({ "path": path, "pattern": "**" })));
        calls.push(("grep", json!({ "path": path, "pattern": "needle" })));
    }
    let mut answers = Vec::new();
    for (tool, arguments) in calls {
        let preview = worker.preview(tool, arguments.clone()).await;
        let preview = preview.map(|preview| (preview.intent, preview.reply.content));
        let outcome = worker.call(tool, arguments.clone()).await;
        if let Err(error) = &outcome {
            assert_ne!(error.code(), Code::InvalidArguments, "{tool}: {error}");
        }
        let outcome = outcome.map(|outcome| outcome.text());
        let answer = format!("{outcome:?}\n{preview:?}");
        answers.push((format!("{tool} {arguments}"), answer));
    }
    answers
}

#[tokio::test]
async fn answers_are_the_same_whether_or_not_the_files_of_another_worker_exist() {
    let stage = Stage::new().await;
    stage.fill();
    let theirs = stage.worker("theirs", "/theirs").await;
    let ours = stage.worker("ours", "/ours").await;
    // These files have been opened, read and listed in this runtime.
    for path in ["/theirs/key", "/theirs/dir/inner"] {
        let read = theirs.call("read_file", json!({ "path": path })).await;
        assert!(read.unwrap().text().contains("needle of theirs"));
    }
    let listed = theirs.call("list_directory", json!({ "path": "/theirs" }));
    assert!(listed.await.unwrap().text().contains("key"));
    let with_files = answers(&ours).await;
    let kept = fs::read_to_string(stage.temp.path().join("theirs/key")).unwrap();
    assert_eq!(kept, "needle of theirs\n");
    stage.clear();
    let without_files = answers(&ours).await;
    for ((call, one), (_, other)) in with_files.iter().zip(&without_files) {
        assert_eq!(one, other, "{call}");
        assert!(!one.contains("needle of theirs"), "{call}: {one}");
    }
    let own = ours
        .call("read_file", json!({ "path": "/ours/file" }))
        .await;
    assert!(own.unwrap().text().contains("needle of ours"));
    assert_eq!(entries(&stage.temp.path().join("theirs")), 0);
}

fn entries(directory: &Path) -> usize {
    fs::read_dir(directory).unwrap().count()
}
