//! Tools on deep trees with few file descriptors.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and makes its files itself"
)]

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;

use bailiwick::{Code, Policy, Runtime, Worker};
use bailiwick_test_support::stage::started;
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};

/// Enough for one call and the runtime.
const DESCRIPTORS: u64 = 64;

/// Creates `depth` nested directories with a file in each.
fn deep(root: &std::path::Path, depth: usize) {
    let open = |dir: &OwnedFd| openat(dir, "d", OFlags::RDONLY, Mode::empty()).unwrap();
    mkdirat(CWD, root, Mode::RWXU).unwrap();
    let mut dir = openat(CWD, root, OFlags::RDONLY, Mode::empty()).unwrap();
    for _ in 0..depth {
        let flags = OFlags::CREATE | OFlags::WRONLY;
        let file = openat(&dir, "f", flags, Mode::RUSR | Mode::WUSR).unwrap();
        rustix::io::write(file, b"needle\n").unwrap();
        mkdirat(&dir, "d", Mode::RWXU).unwrap();
        dir = open(&dir);
    }
}

async fn field(worker: &Worker, tool: &str, arguments: Value, name: &str) -> Value {
    let outcome = worker.call(tool, arguments).await.unwrap();
    outcome.structured().unwrap().get(name).unwrap().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_need_few_descriptors_at_any_depth_and_width() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("r");
    fs::create_dir(&root).unwrap();
    deep(&root.join("deep"), 240);
    deep(&root.join("deepest"), 2_000);
    for n in 0..2 * DESCRIPTORS {
        deep(&root.join(format!("wide{n}")), 4);
    }
    symlink(
        "d/".repeat(200) + &"../".repeat(200) + "f",
        root.join("deep/up"),
    )
    .unwrap();
    let builder = Runtime::builder().root("r", &root);
    let (_runtime, worker) = started(builder.tools(bailiwick_fs::tools()), Policy::new()).await;
    let open = fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    let limit = Rlimit {
        current: Some(open + DESCRIPTORS),
        maximum: getrlimit(Resource::Nofile).maximum,
    };
    setrlimit(Resource::Nofile, limit).unwrap();

    let all = json!({"path": "/r/deep", "depth": 256});
    assert_eq!(field(&worker, "list_directory", all, "total").await, 481);
    let named = json!({"path": "/r/deep", "pattern": "f"});
    assert_eq!(field(&worker, "find", named, "total").await, 240);
    // Each thread has a part of it open, and some of the wide directories wait for one.
    let wide = json!({"path": "/r", "pattern": "wide*/**/f", "limit": 1000});
    let outcome = worker.call("find", wide).await.unwrap();
    let found = outcome.structured().unwrap();
    assert_eq!(
        (&found["total"], &found["unreadable"]),
        (&json!(8 * DESCRIPTORS), &json!(1)),
        "only `deepest` is too deep"
    );
    let text = json!({"path": "/r/deep", "pattern": "needle", "mode": "count"});
    worker.call("grep", text).await.unwrap();
    let up = worker
        .call("read_file", json!({"path": "/r/deep/up"}))
        .await;
    assert_eq!(up.unwrap().text(), "needle\n");
    fs::remove_file(root.join("deep/up")).unwrap();
    let copy = json!({"from": "/r/deep", "to": "/r/copy"});
    assert_eq!(field(&worker, "copy", copy, "entries").await, 481);
    let rename = json!({"from": "/r/copy", "to": "/r/moved"});
    assert_eq!(field(&worker, "move", rename, "entries").await, 481);
    let delete = |path: &str| json!({"path": path, "recursive": true});
    assert_eq!(
        field(&worker, "delete", delete("/r/moved"), "files").await,
        240
    );
    assert!(!root.join("moved").exists());

    let beyond = worker.call("delete", delete("/r/deepest")).await;
    assert_eq!(beyond.unwrap_err().code(), Code::TooLarge);
    assert!(root.join("deepest/d/f").exists());
    let all = json!({"path": "/r/deepest", "depth": 256});
    assert_eq!(field(&worker, "list_directory", all, "unreadable").await, 1);
}
