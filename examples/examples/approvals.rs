//! Two sub-agents at work in a scratch tree and a person's answers in; what each answer let through, and its record out.
//!
//! `cargo run -p bailiwick-examples --example approvals [-- --answers FILE]` asks you, if you sit at a terminal and name no
//! file; else a file answers, which is `approvals/answers.jsonl` if you name none. It exits with 0 only if all it says did
//! happen, and leaves nothing behind.
//!
//! A file of answers is JSON, one answer a line. A question takes the first line left that is for it, and every line must
//! be taken:
//!
//! - `agent`: who asks, by the path of its names, such as `team/editor`
//! - `needs`: exactly the scopes that it asks for
//! - `answer`: `{"deny": {"note": "what the agent is told"}}`, or `{"allow": {...}}` with `lifetime` (`"once"`, `{"uses": 2}`,
//!   `{"for_ms": 60000}`, `"session"`, `"agent"`) and, if you like, `patterns` (what may be done, if it is more than was asked),
//!   `descendants` (`true` for sub-agents too) and `left_out` (`[{"path": ..., "hunks": [1]}]`: the second hunk is not made)
#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[path = "approvals/desk.rs"]
mod desk;
#[path = "approvals/person.rs"]
mod person;
#[path = "approvals/scenes.rs"]
mod scenes;

use bailiwick_examples::{Failure, ended};
use desk::Desk;
use person::Person;

#[tokio::main]
async fn main() -> ExitCode {
    ended(run(std::env::args_os().skip(1)).await)
}

async fn run(arguments: impl Iterator<Item = OsString>) -> Result<(), Failure> {
    let arguments: Vec<OsString> = arguments.collect();
    let person = Person::find(answers(&arguments)?)?;
    let temp = tempfile::tempdir()?;
    let kept = temp.path().to_owned();
    story(&kept, person).await?;
    temp.close()?;
    ensure(!kept.exists(), "the scratch tree was left behind")?;
    println!("\nThe tree, the grants and the record are gone: this was an example.");
    Ok(())
}

/// The file that `--answers` names.
fn answers(arguments: &[OsString]) -> Result<Option<PathBuf>, Failure> {
    match arguments {
        [] => Ok(None),
        [flag, file] if flag == "--answers" => Ok(Some(file.into())),
        _ => Err("usage: approvals [--answers FILE]".into()),
    }
}

fn ensure(holds: bool, otherwise: &str) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}

async fn story(temp: &Path, person: Person) -> Result<(), Failure> {
    let tree = temp.join("tree");
    fs::create_dir_all(tree.join("notes"))?;
    fs::write(tree.join("limits.toml"), scenes::limits(3, 10))?;
    let mut desk = Desk::open(temp, person).await?;
    println!("The tree is {}, which agents see as /repo.", tree.display());
    println!("They may read it, and must ask for every change.");

    let team = desk.team().await?;
    let said = scenes::both_at_once(&mut desk, &team).await?;
    scenes::runs_out(&mut desk, &team, &said.editor).await?;
    scenes::without_a_hunk(&mut desk, &team).await?;
    scenes::taken_back(&mut desk, &team, &said.tester).await?;
    scenes::for_good(&mut desk, &team).await?;
    scenes::looked_back(&desk).await
}
