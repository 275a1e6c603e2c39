//! Calls in, the layer and rule behind each verdict out; and a log in, the first record that somebody changed out.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "an example shows what happens, and fails by panicking"
)]

use std::error::Error;
use std::fs;

use bailiwick::{
    BreakReason, Call, JsonLines, LayerName, Policy, Runtime, Verdict, Worker, WorkerSpec, verify,
};
use serde_json::json;

/// What decides on writing `path`: the verdict, the layer, the entry and the smallest grant that would help.
fn decides(
    worker: &Worker,
    path: &str,
) -> Result<(Verdict, LayerName, Option<String>, Option<String>), Box<dyn Error>> {
    let call = Call::new("write_file", json!({ "path": path, "content": "x" }));
    let explained = worker.explain(&call)?;
    let why = explained.first().ok_or("every call needs something")?;
    let grant = why.grant.as_ref().map(ToString::to_string);
    println!("  {path}: {why}");
    if let Some(grant) = &grant {
        println!("    the smallest grant that would allow it: {grant}");
    }
    Ok((why.verdict, why.layer, why.pattern.clone(), grant))
}

async fn explain(runtime: &Runtime) -> Result<(), Box<dyn Error>> {
    let parent = Policy::new().ask("write:file:/repo").deny_glob("**/*.pem");
    let parent = runtime
        .spawn(WorkerSpec::new("main").policy(parent))
        .await?;
    let child = Policy::new().ask("write:file:/repo/src");
    let child = parent.spawn(WorkerSpec::new("coder").policy(child)).await?;
    println!("What decides on a write of the coder, which is beneath main:");
    let (outer, inner) = (LayerName::Agent(0), LayerName::Agent(1));
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        decides(&child, "/repo/src/key.pem")?,
        (Verdict::Deny, outer, some("**/*.pem"), None)
    );
    assert_eq!(
        decides(&child, "/repo/docs/x")?,
        (Verdict::Deny, inner, None, None)
    );
    let (verdict, _, _, grant) = decides(&child, "/repo/src/x")?;
    assert_eq!(
        (verdict, grant),
        (Verdict::Ask, some("write:file:/repo/src/x"))
    );
    assert_eq!(decides(&child, "/etc/hosts")?.1, LayerName::Configuration);
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
