//! Grants with an end in, calls that they let through and the first that they do not out.
#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::error::Error;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use bailiwick::{
    CallError, Code, GrantHolder, Lifetime, NewGrant, Policy, Runtime, Worker, WorkerSpec,
};
use serde_json::json;

async fn write(worker: &Worker, name: &str) -> Result<(), CallError> {
    let arguments = json!({ "path": name, "content": "x", "mode": "overwrite" });
    let ended = worker.call("write_file", arguments).await;
    match &ended {
        Ok(_) => println!("  {} writes {name}", worker.agent()),
        Err(refused) => println!("  {} may not write {name}: {refused}", worker.agent()),
    }
    ended.map(drop)
}

/// The code with which `worker` is refused to write `name`; none if it may.
async fn refusal(worker: &Worker, name: &str) -> Option<Code> {
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
    // `people` is all that can widen what workers may do. There is one, and no model can reach it.
    let (runtime, people) = builder.tools(bailiwick_fs::tools()).build().await?;
    let policy = Policy::new()
        .ask("write:file:/repo")
        .deny("write:file:/repo/locked");
    let spec = || WorkerSpec::new("writer").policy(policy.clone());
    let (worker, other) = (runtime.spawn(spec()).await?, runtime.spawn(spec()).await?);

    println!("Nobody granted anything, and nobody is there to be asked:");
    assert_eq!(refusal(&worker, "a").await, Some(Code::ScopeRequired));

    println!("Two uses, for one worker:");
    let two = Lifetime::Uses(NonZeroU32::MIN.saturating_add(1));
    people
        .grant(grant(&worker, "write:file:/repo", two)?)
        .await?;
    assert_eq!(refusal(&other, "a").await, Some(Code::ScopeRequired));
    assert_eq!(refusal(&worker, "a").await, None);
    assert_eq!(refusal(&worker, "b").await, None);
    assert_eq!(refusal(&worker, "c").await, Some(Code::ScopeRequired));
    assert_eq!(people.grants().await?, [], "a spent grant is gone");

    println!("Two seconds:");
    let (began, time) = (Instant::now(), Duration::from_secs(2));
    let pattern = "write:file:/repo/notes";
    people
        .grant(grant(&worker, pattern, Lifetime::For(time))?)
        .await?;
    assert_eq!(refusal(&worker, "notes").await, None);
    let left = (began + time).saturating_duration_since(Instant::now());
    tokio::time::sleep(left + Duration::from_millis(100)).await;
    assert_eq!(refusal(&worker, "notes").await, Some(Code::ScopeRequired));

    println!("Until it is taken back:");
    let id = people
        .grant(grant(&worker, "write:file:/repo", Lifetime::Session)?)
        .await?;
    assert_eq!(refusal(&worker, "d").await, None);
    println!("Whatever is granted, what a policy denies stays denied:");
    let locked = refusal(&worker, "locked/e").await;
    assert_eq!(locked, Some(Code::PermissionDenied));
    people.revoke(id).await?;
    println!("Taken back, it ends with the next call:");
    assert_eq!(refusal(&worker, "f").await, Some(Code::ScopeRequired));

    let mut written: Vec<_> = std::fs::read_dir(repo.path())?
        .map(|entry| Ok(entry?.file_name()))
        .collect::<std::io::Result<_>>()?;
    written.sort();
    assert_eq!(written, ["a", "b", "d", "notes"]);
    Ok(())
}
