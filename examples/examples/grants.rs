//! Grants with different lifetimes: a number of uses, a duration, and a session.
#![expect(clippy::print_stdout, reason = "examples print what happens")]

use std::error::Error;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use bailiwick::permission::{GrantHolder, Lifetime, NewGrant};
use bailiwick::{CallError, Code, Policy, Runtime, Worker, WorkerSpec};
use serde_json::json;

async fn write(worker: &Worker, name: &str) -> Result<(), CallError> {
    let arguments = json!({ "path": name, "content": "x", "mode": "overwrite" });
    let result = worker.call("write_file", arguments).await;
    match &result {
        Ok(_) => println!("  {} writes {name}", worker.agent()),
        Err(error) => println!("  {} cannot write {name}: {error}", worker.agent()),
    }
    result.map(drop)
}

/// Tries to write `name`; returns the error code if that fails.
async fn write_error(worker: &Worker, name: &str) -> Option<Code> {
    write(worker, name).await.err().map(|error| error.code())
}

fn grant(worker: &Worker, pattern: &str, lifetime: Lifetime) -> Result<NewGrant, Box<dyn Error>> {
    Ok(NewGrant {
        pattern: pattern.parse()?,
        holder: GrantHolder::Worker(worker.id()),
        lifetime,
        descendants: false,
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let repo = tempfile::tempdir()?;
    let builder = Runtime::builder().root("repo", repo.path());
    // Only the holder of `grants`, the one `GrantAuthority` of this runtime, can grant anything.
    let (runtime, grants) = builder.tools(bailiwick_fs::tools()).build().await?;
    let policy = Policy::nothing()
        .ask("write:file:/repo")
        .deny("write:file:/repo/locked");
    let spec = || WorkerSpec::new("writer").policy(policy.clone());
    let (worker, other) = (runtime.spawn(spec()).await?, runtime.spawn(spec()).await?);

    println!("Without a grant (and without an approver):");
    assert_eq!(write_error(&worker, "a").await, Some(Code::ScopeRequired));

    println!("Two uses, for one worker:");
    let two = Lifetime::Uses(NonZeroU32::MIN.saturating_add(1));
    grants
        .grant(grant(&worker, "write:file:/repo", two)?)
        .await?;
    assert_eq!(write_error(&other, "a").await, Some(Code::ScopeRequired));
    assert_eq!(write_error(&worker, "a").await, None);
    assert_eq!(write_error(&worker, "b").await, None);
    assert_eq!(write_error(&worker, "c").await, Some(Code::ScopeRequired));
    assert_eq!(grants.grants().await?, [], "a used-up grant is removed");

    println!("Two seconds:");
    let (start, time) = (Instant::now(), Duration::from_secs(2));
    let pattern = "write:file:/repo/notes";
    grants
        .grant(grant(&worker, pattern, Lifetime::For(time))?)
        .await?;
    assert_eq!(write_error(&worker, "notes").await, None);
    let left = (start + time).saturating_duration_since(Instant::now());
    tokio::time::sleep(left + Duration::from_millis(100)).await;
    assert_eq!(
        write_error(&worker, "notes").await,
        Some(Code::ScopeRequired)
    );

    println!("For the session:");
    let id = grants
        .grant(grant(&worker, "write:file:/repo", Lifetime::Session)?)
        .await?;
    assert_eq!(write_error(&worker, "d").await, None);
    println!("A grant does not override a deny:");
    let locked = write_error(&worker, "locked/e").await;
    assert_eq!(locked, Some(Code::PermissionDenied));
    grants.revoke(id).await?;
    println!("After the grant is revoked:");
    assert_eq!(write_error(&worker, "f").await, Some(Code::ScopeRequired));

    let mut written: Vec<_> = std::fs::read_dir(repo.path())?
        .map(|entry| Ok(entry?.file_name()))
        .collect::<std::io::Result<_>>()?;
    written.sort();
    assert_eq!(written, ["a", "b", "d", "notes"]);
    Ok(())
}
