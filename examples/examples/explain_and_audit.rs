//! Calls in, the layer and rule behind each verdict out; and a log in, the first record that somebody changed out.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "an example shows what happens, and fails by panicking"
)]

use std::error::Error;
use std::fs;

use bailiwick::{
    BreakReason, Call, Explanation, JsonLines, LayerName, Policy, Runtime, Verdict, Worker,
    WorkerSpec, verify,
};
use serde_json::json;

/// What decides on writing `path`. Nothing is looked at, and nobody is asked.
fn decides(worker: &Worker, path: &str) -> Result<Explanation, Box<dyn Error>> {
    let call = Call::new("write_file", json!({ "path": path, "content": "x" }));
    let mut explained = worker.explain(&call)?;
    let why = explained.pop().ok_or("every call needs something")?;
    println!("  {path}: {why}");
    if let Some(grant) = &why.grant {
        println!("    the smallest grant that would allow it: {grant}");
    }
    Ok(why)
}

async fn explain(runtime: &Runtime) -> Result<(), Box<dyn Error>> {
    let main = Policy::new().ask("write:file:/repo").deny_glob("**/*.pem");
    let main = runtime.spawn(WorkerSpec::new("main").policy(main)).await?;
    let coder = Policy::new().ask("write:file:/repo/src");
    let coder = main.spawn(WorkerSpec::new("coder").policy(coder)).await?;
    println!("What decides on a write of the coder, which is beneath main:");

    let key = decides(&coder, "/repo/src/key.pem")?;
    assert_eq!(
        (key.verdict, key.layer),
        (Verdict::Deny, LayerName::Agent(0))
    );
    assert_eq!(
        (key.key, key.pattern.as_deref()),
        ("deny", Some("**/*.pem"))
    );
    assert_eq!(key.grant, None, "no grant beats a deny");

    let docs = decides(&coder, "/repo/docs/x")?;
    assert_eq!(
        (docs.verdict, docs.layer),
        (Verdict::Deny, LayerName::Agent(1))
    );

    let source = decides(&coder, "/repo/src/x")?;
    assert_eq!(source.verdict, Verdict::Ask);
    let smallest = source.grant.map(|grant| grant.to_string());
    assert_eq!(
        smallest.as_deref(),
        Some("write:file:/repo/src/x (only create)")
    );

    let outside = decides(&coder, "/etc/hosts")?;
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
    let refused = reader.call("read_file", json!({ "path": "b" })).await;
    assert!(refused.is_err());
    runtime.shutdown().await;

    let whole = verify(fs::read(&log)?.as_slice())?;
    println!(
        "The log: {} records, head {}",
        whole.records, whole.head.hash
    );

    let honest = fs::read_to_string(&log)?;
    fs::write(
        &log,
        honest.replacen("\"verdict\":\"deny\"", "\"verdict\":\"allow\"", 1),
    )?;
    let broken = verify(fs::read(&log)?.as_slice()).unwrap_err();
    println!("One word changed: {broken}, because {}", broken.reason);
    assert!(matches!(broken.reason, BreakReason::Changed));

    let without_first: String = honest.split_inclusive('\n').skip(1).collect();
    fs::write(&log, without_first)?;
    let broken = verify(fs::read(&log)?.as_slice()).unwrap_err();
    println!("One record removed: {broken}, because {}", broken.reason);
    assert!(matches!(broken.reason, BreakReason::Order { .. }));

    // A shorter log is a whole one; only a head that was noted elsewhere tells that its end is missing.
    let cut: String = honest.split_inclusive('\n').take(2).collect();
    fs::write(&log, cut)?;
    let shorter = verify(fs::read(&log)?.as_slice())?;
    println!("The end cut off: {} records, another head", shorter.records);
    assert_ne!(shorter.head, whole.head);
    Ok(())
}
