//! Crashes during changes, and special files.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and makes its files itself"
)]

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::json;

use bailiwick::effect::ContentHash;
use bailiwick::text::is_deceptive;
use bailiwick::{Code, Policy, Runtime, Worker, WorkerSpec};
use bailiwick_test_support::stage::started;
use bailiwick_test_support::{cases, wait};

async fn worker(root: &Path) -> (Runtime, Worker) {
    let builder = Runtime::builder().root("r", root);
    started(builder.tools(bailiwick_fs::tools()), Policy::new()).await
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    let mut names: Vec<_> = entries
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn call_to_be_killed() {
    // Only the tests that kill it set the variable.
    let Some(root) = std::env::var_os("BAILIWICK_ROOT") else {
        return;
    };
    let call = std::env::var("BAILIWICK_CALL").unwrap();
    let (_runtime, worker) = worker(root.as_ref()).await;
    let arguments = match &*call {
        "copy" => json!({"from": "/r/d", "to": "/r/c"}),
        _ => json!({"path": "/r/d", "recursive": true}),
    };
    let _ = worker.call(&call, arguments).await;
}

/// Makes the call in a child process, and kills it once `begun` returns true after a change of `dir`.
fn kill(root: &Path, call: &str, dir: &Path, begun: impl Fn() -> bool + Send + 'static) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "call_to_be_killed"])
        .env("BAILIWICK_ROOT", root)
        .env("BAILIWICK_CALL", call)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait::block_for_files(dir, begun);
    child.kill().unwrap();
    child.wait().unwrap();
}

fn many(root: &Path) {
    for number in 0..3_000 {
        let dir = root.join(format!("d/{}", number % 10));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(number.to_string()), "text").unwrap();
    }
}

#[tokio::test]
async fn killed_removal_leaves_the_rest_in_place() {
    let temp = tempfile::tempdir().unwrap();
    many(temp.path());
    let first = temp.path().join("d/0/0");
    let dir = temp.path().join("d/0");
    kill(temp.path(), "delete", &dir, move || !first.exists());
    let left = names(temp.path());
    assert!(left.is_empty() || left == ["d"], "{left:?}");
    if temp.path().join("d").exists() {
        let (_runtime, worker) = worker(temp.path()).await;
        let again = json!({"path": "/r/d", "recursive": true});
        worker.call("delete", again).await.unwrap();
    }
    assert!(names(temp.path()).is_empty());
}

#[tokio::test]
async fn killed_copy_is_swept_by_the_next_change() {
    let temp = tempfile::tempdir().unwrap();
    many(temp.path());
    let root = temp.path().to_owned();
    kill(temp.path(), "copy", temp.path(), move || {
        names(&root).len() > 1
    });
    let (_runtime, worker) = worker(temp.path()).await;
    let listed = worker.call("list_directory", json!({"path": "/r"})).await;
    assert!(!listed.unwrap().text().contains("bailiwick"));
    let write = json!({"path": "/r/f", "content": ""});
    worker.call("write_file", write).await.unwrap();
    let left = names(temp.path());
    assert!(left == ["d", "f"] || left == ["c", "d", "f"], "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn special_and_endless_files_are_refused_at_once() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path();
    mknodat(CWD, root.join("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let _socket = UnixListener::bind(root.join("socket")).unwrap();
    symlink("/proc/self/environ", root.join("environ")).unwrap();
    symlink("/dev/zero", root.join("zero")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    let sparse = fs::File::create(root.join("sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    let (_runtime, worker) = worker(root).await;
    for name in ["fifo", "socket", "environ", "zero", "loop", "sparse"] {
        let path = format!("/r/{name}");
        for (tool, arguments) in [
            ("read_file", json!({"path": path})),
            ("read_file", json!({"path": path, "tail": 3})),
            ("stat", json!({"path": path})),
            ("list_directory", json!({"path": path})),
            ("grep", json!({"path": path, "pattern": "."})),
            (
                "write_file",
                json!({"path": path, "content": "x", "mode": "append"}),
            ),
            (
                "edit_file",
                json!({"path": path, "edits": [{"old_text": "a", "new_text": "b"}]}),
            ),
            ("copy", json!({"from": path, "to": "/r/copy"})),
        ] {
            let call = worker.call(tool, arguments);
            let answer = tokio::time::timeout(Duration::from_secs(5), call).await;
            match answer.unwrap_or_else(|_| unreachable!("{tool} {path} gave no answer")) {
                Ok(outcome) => assert!(outcome.text().len() < 1 << 20, "{tool} {path}"),
                Err(error) => assert_ne!(error.code(), Code::Internal, "{tool} {path}: {error}"),
            }
        }
    }
    assert!(!root.join("copy").exists());
    worker.call("grep", json!({"pattern": "."})).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writers_lose_no_update() {
    const WRITERS: usize = 8;
    let each = (cases(20_000) / 1_000).min(1_000);
    let temp = tempfile::tempdir().unwrap();
    fs::write(temp.path().join("n"), "0").unwrap();
    let (_runtime, worker) = worker(temp.path()).await;
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..WRITERS {
        let spec = WorkerSpec::new("writer").policy(Policy::new());
        let writer = worker.spawn(spec).await.unwrap();
        writers.spawn(async move {
            let mut done = 0;
            while done < each {
                let read = writer.call("read_file", json!({"path": "/r/n"})).await;
                let number = read.unwrap().text();
                let next = number.trim().parse::<usize>().unwrap() + 1;
                let write = json!({
                    "path": "/r/n", "content": next.to_string(), "mode": "overwrite",
                    "expected_hash": ContentHash::of(number.as_bytes()),
                });
                match writer.call("write_file", write).await {
                    Ok(_) => done += 1,
                    Err(error) => assert!(
                        matches!(
                            error.code(),
                            Code::Conflict | Code::StalePreview | Code::Busy
                        ),
                        "{error:?}"
                    ),
                }
            }
        });
    }
    while let Some(writer) = writers.join_next().await {
        writer.unwrap();
    }
    let total = fs::read_to_string(temp.path().join("n")).unwrap();
    assert_eq!(total, (WRITERS * each).to_string());
}

#[tokio::test]
async fn errors_escape_deceptive_names() {
    let temp = tempfile::tempdir().unwrap();
    let name = "a\u{202e}b\u{200b}c";
    fs::write(temp.path().join(name), "text").unwrap();
    let (_runtime, worker) = worker(temp.path()).await;
    let path = format!("/r/{name}");
    for (tool, arguments) in [
        ("write_file", json!({"path": path, "content": ""})),
        (
            "write_file",
            json!({"path": format!("/r/.mcp.json/{name}"), "content": ""}),
        ),
        (
            "edit_file",
            json!({"path": path, "edits": [{"old_text": "absent", "new_text": ""}]}),
        ),
        ("make_directory", json!({"path": path})),
        ("move", json!({"from": "/r", "to": path})),
        ("list_directory", json!({"path": path})),
        ("read_file", json!({name: path})),
    ] {
        let error = worker.call(tool, arguments).await.unwrap_err();
        assert!(!error.to_string().contains(is_deceptive), "{tool}: {error}");
    }
    let read = worker.call("read_file", json!({"path": path})).await;
    assert_eq!(read.unwrap().text(), "text");
}
