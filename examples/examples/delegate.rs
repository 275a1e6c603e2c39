//! A directory in; a coordinator and two sub-agents at work in it, what each was refused, and the record of it out.
//!
//! `cargo run -p bailiwick-examples --example delegate [DIR]` plays on a scratch copy of this repository's sources,
//! or on DIR, where every change is taken back at the end. It exits with 0 only if all it says did happen.
#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::fs;
use std::io::{self, BufReader, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bailiwick::{
    Answer, JsonLines, Policy, Runtime, RuntimeBuilder, Scripted, Terminal, Verdict, WorkerSpec,
    listed, verify,
};
use bailiwick_examples::{Failure, coloured, diff, ended};

#[path = "delegate/place.rs"]
mod place;
#[path = "delegate/script.rs"]
mod script;

use place::{NOTES, Place, scratch_copy};
use script::{play, print_lines};

#[tokio::main]
async fn main() -> ExitCode {
    let given = std::env::args_os().nth(1).map(PathBuf::from);
    ended(run(given).await)
}

async fn run(given: Option<PathBuf>) -> Result<(), Failure> {
    let temp = tempfile::tempdir()?;
    let scratch = given.is_none();
    let host = match given {
        Some(dir) => dir
            .canonicalize()
            .map_err(|error| format!("{}: {error}", dir.display()))?,
        None => scratch_copy(&temp.path().join("scratch"))?,
    };
    let log = temp.path().join("audit.jsonl");
    let builder = Runtime::builder()
        .root("repo", &host)
        .policy(Policy::new().deny_glob("**/.env"))
        .tools(bailiwick_fs::tools())
        .audit(JsonLines::create(&log)?);
    let (runtime, _grants) = with_somebody_to_ask(builder).build().await?;
    let place = Place::survey(&runtime, host, scratch).await?;
    println!(
        "The place   {}, which agents see as /repo",
        place.host.display()
    );
    let whose = if scratch {
        "a scratch copy of this repository's sources, with a .env in it"
    } else {
        "yours: what is changed in it is taken back at the end"
    };
    println!("            {whose}");
    println!("The record  {}, out of their reach", log.display());

    let story = story(&runtime, &place).await;
    let undone = if scratch {
        Ok(())
    } else {
        place.take_back(&runtime).await
    };
    let ended = runtime.shutdown().await;
    story?;
    undone?;
    ensure(ended.unfinished == 0, "an effect outlived the runtime")?;
    audit(&log)
}

fn ensure(holds: bool, otherwise: &str) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}

/// A person where there is a terminal; elsewhere a script that allows one thing, once.
fn with_somebody_to_ask(builder: RuntimeBuilder) -> RuntimeBuilder {
    if io::stdin().is_terminal() && io::stdout().is_terminal() {
        return builder.approver(Terminal::stdio());
    }
    builder.approver(Scripted::new().rule(|question| {
        let request = &question.request;
        let needs: Vec<String> = request.needs.iter().map(ToString::to_string).collect();
        let expected = format!("write:file:{NOTES}");
        let answer = (needs == [expected]).then_some(Answer::ONCE);
        let said = if answer.is_some() {
            "yes, this once"
        } else {
            "no"
        };
        let agents = request.agent_path.join(" > ");
        println!("    you are asked: {agents} needs {}", listed(&needs, ", "));
        if let Some(preview) = &request.preview {
            print_lines(&diff(&preview.changes, coloured()));
        }
        println!("    no terminal, so a script answers for you: {said}");
        answer
    }))
}

async fn story(runtime: &Runtime, place: &Place) -> Result<(), Failure> {
    let hands_on = Policy::new()
        .delegate_only("read:file:/repo")
        .delegate_only("write:file:/repo");
    let spec = WorkerSpec::new("coordinator").policy(hands_on);
    let coordinator = runtime.spawn(spec).await?;
    println!("\nThe coordinator may do nothing itself. It may hand on all of /repo.");
    play(&coordinator, place, script::coordinator(place)).await?;

    let reading = Policy::new().allow(&format!("read:file:{}", place.reads));
    let spec = WorkerSpec::new("reader").policy(reading);
    let reader = coordinator.spawn(spec).await?;
    println!("\nThe reader may read {}, and nothing else.", place.reads);
    play(&reader, place, script::reader(place)).await?;
    let there = place.on_disk(&place.secret()).is_ok();
    let which = if there {
        "Only the first .env is there"
    } else {
        "Neither .env is there"
    };
    println!("  ({which}; the answers do not tell.)");

    let editing = Policy::new()
        .allow("read:file:/repo")
        .allow(&format!("write:file:{}", place.edits))
        .otherwise(Verdict::Ask);
    let spec = WorkerSpec::new("editor").policy(editing);
    let editor = coordinator.spawn(spec).await?;
    println!(
        "\nThe editor may read /repo, change {}, and must ask for more.",
        place.edits
    );
    play(&editor, place, script::editor(place)).await?;

    let revoked = coordinator.revoke().await;
    println!("\nYou revoke the coordinator, and with it the two beneath it.");
    ensure(
        revoked.workers == 3 && revoked.unfinished == 0,
        "the revocation left somebody out",
    )?;
    play(&reader, place, script::late_reader(place)).await?;
    play(&editor, place, script::late_editor(place)).await
}

/// Follows the record from its beginning to its end.
fn audit(log: &Path) -> Result<(), Failure> {
    let verified = verify(BufReader::new(fs::File::open(log)?))?;
    let text = fs::read_to_string(log)?;
    let count = |step: &str| {
        text.lines()
            .filter(|line| line.contains(&format!("\"step\":\"{step}\"")))
            .count()
    };
    println!(
        "\nThe record has {} entries and no break.",
        verified.records
    );
    println!(
        "  calls denied: {}, put to people: {}, carried out: {}",
        count("denied"),
        count("asked"),
        count("applied")
    );
    println!("  head {}", verified.head.hash);
    ensure(
        text.lines().count() as u64 == verified.records,
        "the record has lines that were not verified",
    )?;
    ensure(
        count("denied") >= 4 && count("asked") == 1,
        "the record does not tell all that happened",
    )?;
    ensure(
        count("applied") >= 1,
        "the record does not tell of the edit",
    )
}
