//! A preview that a person approved in, exactly that change out: or nothing, if the file is no longer what they saw.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "an example shows what happens, and fails by panicking"
)]

use std::error::Error;
use std::fs;

use bailiwick::{Call, CallMeta, Code, Policy, Preview, Runtime, WorkerSpec};
use bailiwick_examples::{coloured, diff};
use serde_json::{Value, json};

/// The call that carries out what `preview` showed, and nothing else.
fn approved(preview: &Preview, arguments: &Value) -> Call {
    let meta = CallMeta {
        preview_token: Some(preview.token),
        ..CallMeta::default()
    };
    Call::new("edit_file", arguments.clone()).meta(meta)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let repo = tempfile::tempdir()?;
    let file = repo.path().join("limits.toml");
    fs::write(&file, "retries = 3\ntimeout = 10\n")?;
    let builder = Runtime::builder().root("repo", repo.path());
    let (runtime, _grants) = builder.tools(bailiwick_fs::tools()).build().await?;
    // This worker may change nothing that was not previewed.
    let policy = Policy::new().require_preview(true);
    let worker = runtime
        .spawn(WorkerSpec::new("tuner").policy(policy))
        .await?;

    let edit = json!({
        "path": "limits.toml",
        "edits": [{ "old_text": "timeout = 10", "new_text": "timeout = 60" }],
    });
    let unseen = worker.call("edit_file", edit.clone()).await.unwrap_err();
    println!("without a preview: {unseen}");
    assert_eq!(unseen.code(), Code::StalePreview);

    let first = worker.preview("edit_file", edit.clone()).await?;
    for line in diff(&first.changes, coloured()) {
        println!("  {line}");
    }
    assert_eq!(
        fs::read_to_string(&file)?,
        "retries = 3\ntimeout = 10\n",
        "a preview changes nothing"
    );

    // While the person reads, somebody else saves the file.
    fs::write(&file, "retries = 5\ntimeout = 10\n")?;
    let stale = worker.submit(approved(&first, &edit)).await.unwrap_err();
    println!("the file changed since: {stale}");
    assert_eq!(stale.code(), Code::StalePreview);
    assert_eq!(fs::read_to_string(&file)?, "retries = 5\ntimeout = 10\n");

    let second = worker.preview("edit_file", edit.clone()).await?;
    assert_ne!(second.token, first.token);
    let outcome = worker.submit(approved(&second, &edit)).await?;
    println!("previewed again and approved: {}", outcome.text());
    assert_eq!(fs::read_to_string(&file)?, "retries = 5\ntimeout = 60\n");

    let again = worker.submit(approved(&second, &edit)).await.unwrap_err();
    println!("approved once, tried twice: {}", again.code());
    assert_eq!(fs::read_to_string(&file)?, "retries = 5\ntimeout = 60\n");

    let patch = outcome
        .artifacts
        .iter()
        .find(|artifact| artifact.name == "diff")
        .ok_or("a change leaves a patch")?;
    let patch = runtime.artifact(&patch.uri)?;
    println!(
        "what is left for people:\n{}",
        String::from_utf8_lossy(&patch.bytes)
    );
    assert!(patch.bytes.ends_with(b"+timeout = 60\n"));
    Ok(())
}
