//! Grants beyond every root in, exactly what was granted opened out.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(
    clippy::disallowed_methods,
    reason = "the world around the roots is made here"
)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use bailiwick::{CallError, Code, Lifetime, Policy, Runtime, Scripted, Worker, WorkerSpec};
use serde_json::json;
use tempfile::TempDir;

/// A worker whose only root is empty, while people may grant reads and writes beneath `open`.
async fn worker(world: &TempDir, approver: Option<Scripted>) -> (Runtime, Worker) {
    let at = world.path().display();
    fs::create_dir(world.path().join("root")).unwrap();
    fs::create_dir_all(world.path().join("open/sub")).unwrap();
    fs::create_dir(world.path().join("closed")).unwrap();
    fs::write(world.path().join("open/file"), "beyond").unwrap();
    fs::write(world.path().join("closed/file"), "never").unwrap();
    symlink(world.path().join("closed"), world.path().join("open/link")).unwrap();
    let builder = Runtime::builder()
        .root("root", world.path().join("root"))
        .grantable(&format!("read:file:{at}/open"))
        .grantable(&format!("write:file:{at}/open"))
        .tools(bailiwick_fs::tools());
    let builder = match approver {
        Some(approver) => builder.approver(approver),
        None => builder,
    };
    let (runtime, _) = builder.build().await.unwrap();
    let worker = runtime
        .spawn(WorkerSpec::new("main").policy(Policy::new()))
        .await
        .unwrap();
    (runtime, worker)
}

fn yes() -> Scripted {
    Scripted::new().allow("*".parse().unwrap(), Lifetime::Once)
}

async fn read(worker: &Worker, path: &Path) -> Result<String, CallError> {
    let outcome = worker.call("read_file", json!({ "path": path })).await?;
    Ok(outcome.text())
}

#[tokio::test]
async fn a_person_may_open_what_is_grantable_and_no_more() {
    let world = tempfile::tempdir().unwrap();
    let (_runtime, worker) = worker(
        &world,
        Some(Scripted::new().rule(|_| Some(bailiwick::Answer::ONCE))),
    )
    .await;
    assert!(
        read(&worker, &world.path().join("open/file"))
            .await
            .unwrap()
            .contains("beyond")
    );
    let closed = read(&worker, &world.path().join("closed/file"))
        .await
        .unwrap_err();
    assert_eq!(closed.code(), Code::PermissionDenied);
    let through = read(&worker, &world.path().join("open/link/file"))
        .await
        .unwrap_err();
    assert!(!through.message().contains("closed"), "{through}");
}

#[tokio::test]
async fn a_write_beyond_the_roots_lands_where_it_was_granted() {
    let world = tempfile::tempdir().unwrap();
    let (_runtime, worker) = worker(
        &world,
        Some(Scripted::new().rule(|_| Some(bailiwick::Answer::ONCE))),
    )
    .await;
    let new = world.path().join("open/sub/new");
    worker
        .call("write_file", json!({ "path": new, "content": "granted" }))
        .await
        .unwrap();
    assert_eq!(fs::read_to_string(&new).unwrap(), "granted");
    let aside = world.path().join("closed/new");
    worker
        .call("write_file", json!({ "path": aside, "content": "x" }))
        .await
        .unwrap_err();
    assert!(!aside.exists());
}

#[tokio::test]
async fn nothing_beyond_the_roots_is_open_without_a_person() {
    let world = tempfile::tempdir().unwrap();
    let (_runtime, worker) = worker(&world, None).await;
    let file = world.path().join("open/file");
    let error = read(&worker, &file).await.unwrap_err();
    assert_eq!(error.code(), Code::ScopeRequired);
    let absent = read(&worker, &world.path().join("open/absent"))
        .await
        .unwrap_err();
    assert_eq!(absent.message().replace("absent", "file"), error.message());
}

#[tokio::test]
async fn a_person_who_allows_everything_allows_only_what_is_asked() {
    let world = tempfile::tempdir().unwrap();
    let (_runtime, worker) = worker(&world, Some(yes())).await;
    let closed = read(&worker, &world.path().join("closed/file"))
        .await
        .unwrap_err();
    assert_eq!(closed.code(), Code::PermissionDenied);
}
