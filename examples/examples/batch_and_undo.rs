//! Changes several files in one batch, undoes it, makes it again, and takes back all that an agent changed.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "examples print what happens and panic on failure"
)]

use std::error::Error;
use std::fs;

use bailiwick::journal::Journal;
use bailiwick::{Code, Policy, Runtime, WorkerSpec};
use bailiwick_examples::{format_diff, use_color};
use bailiwick_fs::Durability;
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let shop = dir.path().join("shop");
    fs::create_dir(&shop)?;
    fs::write(shop.join("cart.py"), "from price import total\n")?;
    fs::write(shop.join("price.py"), "def total(): ...\n")?;
    let (runtime, grants) = Runtime::builder()
        .root("shop", &shop)
        .journal(Journal::open(dir.path().join("journal"))?)
        .tools(bailiwick_fs::tools())
        .tools(bailiwick_fs::undo_tools(Durability::default()))
        .build()
        .await?;
    let worker = runtime
        .spawn(WorkerSpec::new("renamer").policy(Policy::new()))
        .await?;

    // All operations succeed, or nothing changes; each sees what those before it did.
    let batch = json!({ "operations": [
        { "tool": "move", "from": "/shop/price.py", "to": "/shop/prices.py" },
        { "tool": "edit_file", "path": "/shop/cart.py",
          "edits": [{ "old_text": "from price import", "new_text": "from prices import" }] },
        { "tool": "write_file", "path": "/shop/NEWS", "content": "The module is called prices.\n" },
    ]});
    let preview = worker.preview("apply_batch", batch).await?;
    for line in format_diff(&preview.changes, use_color()) {
        println!("  {line}");
    }
    assert!(preview.undoable);
    assert!(shop.join("price.py").exists(), "a preview changes nothing");
    let done = worker.apply(&preview).await?;
    println!("{}", done.text());
    assert!(shop.join("prices.py").exists() && shop.join("NEWS").exists());

    // The agent undoes its last call, and makes it again.
    let undone = worker.call("undo", json!({})).await?;
    println!("undo: {}", undone.text());
    assert!(shop.join("price.py").exists() && !shop.join("NEWS").exists());
    worker.call("redo", json!({})).await?;
    assert!(!shop.join("price.py").exists() && shop.join("NEWS").exists());

    // An undo overwrites nobody's work: it fails and names the file.
    fs::write(shop.join("NEWS"), "Written by somebody else.\n")?;
    let error = worker.call("undo", json!({})).await.unwrap_err();
    println!("undo after another change: {error}");
    assert_eq!(error.code(), Code::Conflict);
    assert!(!shop.join("price.py").exists(), "all or nothing");
    fs::write(shop.join("NEWS"), "The module is called prices.\n")?;

    // A person takes back everything that the agent changed, also after it has ended.
    worker.revoke().await;
    let journal = runtime.journal().ok_or("the runtime has a journal")?;
    grants.undo(&journal.changes_of_agent("renamer")).await?;
    assert_eq!(
        fs::read_to_string(shop.join("cart.py"))?,
        "from price import total\n"
    );
    assert!(shop.join("price.py").exists() && !shop.join("NEWS").exists());
    println!("everything is as before");
    Ok(())
}
