//! A call that must ask in, the address of a page on which a person answers out, and what came of the answer.
//!
//! `cargo run -p bailiwick-examples --example ask_on_a_page` waits for you if you sit at a terminal; else it answers itself.
#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::fs;
use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::sync::Arc;

use bailiwick::{
    Answer, Call, CallProgress, Console, ConsoleRecord, ConsoleSource, Deferred, MemoryAudit,
    Policy, Runtime, ServerCard, WorkerSpec, escape,
};
use bailiwick_examples::{Failure, ended};
use serde_json::json;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> ExitCode {
    ended(run().await)
}

async fn run() -> Result<(), Failure> {
    let repo = tempfile::tempdir()?;
    let note = repo.path().join("note.md");
    fs::write(&note, "Ask first.\n")?;
    let audit = MemoryAudit::new(1000);
    let (runtime, people) = Runtime::builder()
        .root("repo", repo.path())
        .tools(bailiwick_fs::tools())
        // Questions wait until they are answered on the page.
        .approver(Deferred)
        .audit(audit.clone())
        .build()
        .await?;
    let people = Arc::new(people);

    let console = Console::serve(TcpListener::bind("127.0.0.1:0").await?)?;
    let card = ServerCard {
        name: "Example".into(),
        icons: "✎".into(),
        description: "Writes notes".into(),
    };
    let source = ConsoleSource::new(Arc::clone(&people)).record(ConsoleRecord::Memory(audit));
    console.attend(source.server(card));

    let policy = Policy::new()
        .allow("read:file:/repo")
        .ask("write:file:/repo");
    let writer = runtime
        .spawn(WorkerSpec::new("writer").policy(policy))
        .await?;
    let arguments = json!({
        "path": "/repo/note.md", "edits": [{ "old_text": "Ask first.", "new_text": "Ask on a page." }],
    });
    let CallProgress::Pending(pending) = writer.begin(Call::new("edit_file", arguments)).await?
    else {
        return Err("a change was made that nobody had allowed".into());
    };
    if io::stdin().is_terminal() {
        println!("An agent asks. Answer it at {}", console.url());
    } else {
        println!("An agent asks, and nobody is here to open the page; it is allowed, once.");
        let question = pending.question().id;
        people.answer(question, Answer::ONCE).await?;
    }
    match pending.resume().await {
        Ok(CallProgress::Ended(outcome)) => println!("It did: {}", escape(&outcome.text())),
        Ok(CallProgress::Pending(_)) => return Err("it asked for what it had been told".into()),
        Err(refused) => println!("It is told: {}", escape(refused.message())),
    }
    println!(
        "The file says: {}",
        escape(fs::read_to_string(&note)?.trim())
    );
    console.shutdown().await;
    runtime.shutdown().await;
    Ok(())
}
