//! Explains which rule decides on a call, then verifies an audit log and detects changes in it.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "examples print what happens and panic on failure"
)]

use std::error::Error;
use std::fs;

use bailiwick::audit::{BreakReason, verify};
use bailiwick::policy::{Explanation, LayerName};
use bailiwick::{Call, JsonLines, Policy, Runtime, Verdict, Worker, WorkerSpec};
use serde_json::json;

/// Explains the verdict on writing `path`, without reading anything and without asking anybody.
fn explain_write(worker: &Worker, path: &str) -> Result<Explanation, Box<dyn Error>> {
    let call = Call::new("write_file", json!({ "path": path, "content": "x" }));
    let mut explanations = worker.explain(&call)?;
    let explanation = explanations.pop().ok_or("the call has no needs")?;
    println!("  {path}: {explanation}");
    if let Some(grant) = &explanation.grant {
        println!("    the smallest grant that would allow it: {grant}");
    }
    Ok(explanation)
}

async fn explain(runtime: &Runtime) -> Result<(), Box<dyn Error>> {
    let main = Policy::new().ask("write:file:/repo").deny_glob("**/*.pem");
    let main = runtime.spawn(WorkerSpec::new("main").policy(main)).await?;
    let coder = Policy::new().ask("write:file:/repo/src");
    let coder = main.spawn(WorkerSpec::new("coder").policy(coder)).await?;
    println!("Verdicts on writes of `coder`, a sub-agent of `main`:");

    let key = explain_write(&coder, "/repo/src/key.pem")?;
    assert_eq!(
        (key.verdict, key.layer),
        (Verdict::Deny, LayerName::Agent(0))
    );
    assert_eq!(
        (key.key, key.pattern.as_deref()),
        ("deny", Some("**/*.pem"))
    );
    assert_eq!(key.grant, None, "a grant does not override a deny");

    let docs = explain_write(&coder, "/repo/docs/x")?;
    assert_eq!(
        (docs.verdict, docs.layer),
        (Verdict::Deny, LayerName::Agent(1))
    );

    let source = explain_write(&coder, "/repo/src/x")?;
    assert_eq!(source.verdict, Verdict::Ask);
    let smallest = source.grant.map(|grant| grant.to_string());
    assert_eq!(
        smallest.as_deref(),
        Some("write:file:/repo/src/x (only create)")
    );

    let outside = explain_write(&coder, "/etc/hosts")?;
    assert_eq!(outside.layer, LayerName::Configuration);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (repo, logs) = (tempfile::tempdir()?, tempfile::tempdir()?);
    fs::write(repo.path().join("a"), "one\n")?;
    let log = logs.path().join("audit.jsonl");
    let builder = Runtime::builder()
        .root("repo", repo.path())
        .tools(bailiwick_fs::tools())
        .audit(JsonLines::create(&log)?);
    let (runtime, _grants) = builder.build().await?;
    explain(&runtime).await?;
    let reader = Policy::new().allow("read:file:/repo/a");
    let reader = runtime
        .spawn(WorkerSpec::new("reader").policy(reader))
        .await?;
    reader.call("read_file", json!({ "path": "a" })).await?;
    let denied = reader.call("read_file", json!({ "path": "b" })).await;
    assert!(denied.is_err());
    runtime.shutdown().await;

    let verified = verify(fs::read(&log)?.as_slice())?;
    println!(
        "Audit log: {} records, head {}",
        verified.records, verified.head.hash
    );

    let original = fs::read_to_string(&log)?;
    fs::write(
        &log,
        original.replacen("\"verdict\":\"deny\"", "\"verdict\":\"allow\"", 1),
    )?;
    let broken = verify(fs::read(&log)?.as_slice()).unwrap_err();
    println!("One word changed: {broken} ({})", broken.reason);
    assert!(matches!(broken.reason, BreakReason::Changed));

    let without_first: String = original.split_inclusive('\n').skip(1).collect();
    fs::write(&log, without_first)?;
    let broken = verify(fs::read(&log)?.as_slice()).unwrap_err();
    println!("One record removed: {broken} ({})", broken.reason);
    assert!(matches!(broken.reason, BreakReason::Order { .. }));

    // A truncated log is still valid. To detect truncation, compare with a head that was stored elsewhere.
    let truncated: String = original.split_inclusive('\n').take(2).collect();
    fs::write(&log, truncated)?;
    let shorter = verify(fs::read(&log)?.as_slice())?;
    println!("Truncated: {} records, different head", shorter.records);
    assert_ne!(shorter.head, verified.head);
    Ok(())
}
