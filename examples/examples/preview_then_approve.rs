//! Previews an edit, then applies exactly what was previewed.
//!
//! The preview token ties the call to the previewed change: the call fails with `STALE_PREVIEW` if the file has changed
//! since.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "examples print what happens and panic on failure"
)]

use std::error::Error;
use std::fs;

use bailiwick::{Code, Policy, Runtime, WorkerSpec};
use bailiwick_examples::{format_diff, use_color};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let repo = tempfile::tempdir()?;
    let file = repo.path().join("limits.toml");
    fs::write(&file, "retries = 3\ntimeout = 10\n")?;
    let builder = Runtime::builder().root("repo", repo.path());
    let (runtime, _grants) = builder.tools(bailiwick_fs::tools()).build().await?;
    // This worker may only apply changes that were previewed.
    let policy = Policy::inherit().require_preview(true);
    let worker = runtime
        .spawn(WorkerSpec::new("tuner").policy(policy))
        .await?;

    let edit = json!({
        "path": "limits.toml",
        "edits": [{ "old_text": "timeout = 10", "new_text": "timeout = 60" }],
    });
    let error = worker.call("edit_file", edit.clone()).await.unwrap_err();
    println!("without a preview: {error}");
    assert_eq!(error.code(), Code::StalePreview);

    let first = worker.preview("edit_file", edit.clone()).await?;
    for line in format_diff(&first.changes, use_color()) {
        println!("  {line}");
    }
    assert_eq!(
        fs::read_to_string(&file)?,
        "retries = 3\ntimeout = 10\n",
        "a preview changes nothing"
    );

    // Another program changes the file before the preview is applied.
    fs::write(&file, "retries = 5\ntimeout = 10\n")?;
    let error = worker.apply(&first).await.unwrap_err();
    println!("after another change: {error}");
    assert_eq!(error.code(), Code::StalePreview);
    assert_eq!(fs::read_to_string(&file)?, "retries = 5\ntimeout = 10\n");

    let second = worker.preview("edit_file", edit).await?;
    assert_ne!(second.token, first.token);
    let outcome = worker.apply(&second).await?;
    println!("with a new preview: {}", outcome.text());
    assert_eq!(fs::read_to_string(&file)?, "retries = 5\ntimeout = 60\n");

    let error = worker.apply(&second).await.unwrap_err();
    println!("applied a second time: {}", error.code());
    assert_eq!(fs::read_to_string(&file)?, "retries = 5\ntimeout = 60\n");

    let patch = outcome
        .artifacts
        .iter()
        .find(|artifact| artifact.name == "diff")
        .ok_or("every change has a diff artifact")?;
    let patch = runtime.artifact(&patch.uri)?;
    println!("the patch:\n{}", String::from_utf8_lossy(&patch.bytes));
    assert!(patch.bytes.ends_with(b"+timeout = 60\n"));
    Ok(())
}
