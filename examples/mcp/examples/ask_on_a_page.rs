//! Serves the approval page and waits for the answer to one question of a sub-agent.
//!
//! `cargo run -p bailiwick-mcp-examples --example ask_on_a_page` waits for your answer on a terminal. Without a terminal, it
//! answers the question itself.
#![expect(clippy::print_stdout, reason = "examples print what happens")]

use std::fs;
use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::sync::Arc;

use bailiwick::activity::KeepCalls;
use bailiwick::permission::ServerCard;
use bailiwick::text::escape;
use bailiwick::worker::CallProgress;
use bailiwick::{Answer, Call, Deferred, MemoryAudit, Policy, Runtime, WorkerSpec};
use bailiwick_console::{Console, ConsoleAudit, ConsoleSource};
use bailiwick_examples::{BoxError, exit_code};
use serde_json::json;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> ExitCode {
    exit_code(run().await)
}

async fn run() -> Result<(), BoxError> {
    let repo = tempfile::tempdir()?;
    let note = repo.path().join("note.md");
    fs::write(&note, "Ask first.\n")?;
    let audit = MemoryAudit::new(1000);
    let (runtime, grants) = Runtime::builder()
        .root("repo", repo.path())
        .tools(bailiwick_fs::tools())
        // Questions wait until they are answered on the page.
        .approver(Deferred)
        // The page shows what the agents did.
        .keep_calls(KeepCalls::default())
        .audit(audit.clone())
        .build()
        .await?;
    let grants = Arc::new(grants);

    let console = Console::serve(TcpListener::bind("127.0.0.1:0").await?)?;
    let card = ServerCard {
        name: "Example".into(),
        icons: "✎".into(),
        description: "Writes notes".into(),
    };
    let source = ConsoleSource::new(Arc::clone(&grants))
        .runtime(&runtime)
        .audit(ConsoleAudit::Memory(audit));
    console.add_source(source.server(card));

    let policy = Policy::nothing()
        .allow("read:file:/repo")
        .ask("write:file:/repo");
    let writer = runtime
        .spawn(WorkerSpec::new("writer").policy(policy.clone()))
        .await?;
    let proofreader = writer
        .spawn(WorkerSpec::new("proofreader").policy(policy))
        .await?;
    let arguments = json!({
        "path": "/repo/note.md", "edits": [{ "old_text": "Ask first.", "new_text": "Ask on a page." }],
    });
    let CallProgress::Pending(pending) =
        proofreader.begin(Call::new("edit_file", arguments)).await?
    else {
        return Err("a change was made without approval".into());
    };
    if io::stdin().is_terminal() {
        println!("Answer the question at {}", console.url());
    } else {
        println!("There is no terminal, so the question is answered with `allow once`.");
        let question = pending.question().id;
        grants.answer(question, Answer::ONCE).await?;
    }
    match pending.resume().await {
        Ok(CallProgress::Ended(outcome)) => println!("Reply: {}", escape(&outcome.text())),
        Ok(CallProgress::Pending(_)) => return Err("the call asked again".into()),
        Err(error) => println!("Error: {}", escape(error.message())),
    }
    println!(
        "File content: {}",
        escape(fs::read_to_string(&note)?.trim())
    );
    console.shutdown().await;
    runtime.shutdown().await;
    Ok(())
}
