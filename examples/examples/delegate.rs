//! A coordinator delegates to two sub-agents with narrower policies, then all three are revoked.
//!
//! Shows delegation, denied calls, approval of one call, revocation and verification of the audit log. Usage:
//!
//! ```text
//! cargo run -p bailiwick-examples --example delegate [DIR]
//! ```
//!
//! Runs on a scratch copy of this repository's sources, or on DIR (and undoes its changes).
#![expect(clippy::print_stdout, reason = "examples print what happens")]

use std::fs;
use std::io::{self, BufReader, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bailiwick::audit::verify;
use bailiwick::text::listed;
use bailiwick::{
    Answer, JsonLines, Policy, Runtime, RuntimeBuilder, Scripted, Terminal, WorkerSpec,
};
use bailiwick_examples::{BoxError, exit_code, format_diff, use_color};

#[path = "delegate/script.rs"]
mod script;
#[path = "delegate/workspace.rs"]
mod workspace;

use script::{print_lines, run_steps};
use workspace::{NOTES, Workspace, scratch_copy};

#[tokio::main]
async fn main() -> ExitCode {
    let dir = std::env::args_os().nth(1).map(PathBuf::from);
    exit_code(run(dir).await)
}

async fn run(dir: Option<PathBuf>) -> Result<(), BoxError> {
    let temp = tempfile::tempdir()?;
    let scratch = dir.is_none();
    let dir = match dir {
        Some(dir) => dir
            .canonicalize()
            .map_err(|error| format!("{}: {error}", dir.display()))?,
        None => scratch_copy(&temp.path().join("scratch"))?,
    };
    let log = temp.path().join("audit.jsonl");
    let builder = Runtime::builder()
        .root("repo", &dir)
        .policy(Policy::inherit().deny_glob("**/.env"))
        .tools(bailiwick_fs::tools())
        .audit(JsonLines::create(&log)?);
    let (runtime, _grants) = with_approver(builder).build().await?;
    let workspace = Workspace::find(&runtime, dir, scratch).await?;
    println!(
        "Directory   {}, which agents see as /repo",
        workspace.dir.display()
    );
    let kind = if scratch {
        "a scratch copy of this repository's sources, with a .env file"
    } else {
        "your directory: changes are undone at the end"
    };
    println!("            {kind}");
    println!("Audit log   {}", log.display());

    let result = scenario(&runtime, &workspace).await;
    let undone = if scratch {
        Ok(())
    } else {
        workspace.undo(&runtime).await
    };
    let shutdown = runtime.shutdown().await;
    result?;
    undone?;
    ensure(shutdown.unfinished == 0, "effects ran past the shutdown")?;
    check_audit(&log)
}

fn ensure(condition: bool, message: &str) -> Result<(), BoxError> {
    if condition {
        Ok(())
    } else {
        Err(message.into())
    }
}

/// Asks on the terminal if there is one. Otherwise, a script allows one call once.
fn with_approver(builder: RuntimeBuilder) -> RuntimeBuilder {
    if io::stdin().is_terminal() && io::stdout().is_terminal() {
        return builder.approver(Terminal::stdio());
    }
    builder.approver(Scripted::new().rule(|question| {
        let request = &question.request;
        let needs: Vec<String> = request.needs.iter().map(ToString::to_string).collect();
        let expected = format!("write:file:{NOTES}");
        let answer = (needs == [expected]).then_some(Answer::ONCE);
        let text = if answer.is_some() {
            "allow once"
        } else {
            "deny"
        };
        let agents = request.agent_path.join(" > ");
        println!("    question: {agents} needs {}", listed(&needs, ", "));
        if let Some(preview) = &request.preview {
            print_lines(&format_diff(&preview.changes, use_color()));
        }
        println!("    answer (by a script, as there is no terminal): {text}");
        answer
    }))
}

async fn scenario(runtime: &Runtime, workspace: &Workspace) -> Result<(), BoxError> {
    let delegate_only = Policy::inherit()
        .delegate_only("read:file:/repo")
        .delegate_only("write:file:/repo");
    let spec = WorkerSpec::new("coordinator").policy(delegate_only);
    let coordinator = runtime.spawn(spec).await?;
    println!("\nThe coordinator may not read or write, but may delegate both for /repo.");
    run_steps(&coordinator, workspace, script::coordinator(workspace)).await?;

    let read_only = Policy::nothing().allow(&format!("read:file:{}", workspace.read_dir));
    let spec = WorkerSpec::new("reader").policy(read_only);
    let reader = coordinator.spawn(spec).await?;
    println!("\nThe reader may read {}.", workspace.read_dir);
    run_steps(&reader, workspace, script::reader(workspace)).await?;
    let exists = workspace.read(&workspace.secret()).is_ok();
    let which = if exists {
        "Only the first .env exists"
    } else {
        "Neither .env exists"
    };
    println!("  ({which}; both replies are the same.)");

    let edit = Policy::ask_for_everything()
        .allow("read:file:/repo")
        .allow(&format!("write:file:{}", workspace.edit_dir));
    let spec = WorkerSpec::new("editor").policy(edit);
    let editor = coordinator.spawn(spec).await?;
    println!(
        "\nThe editor may read /repo and write {}; everything else needs approval.",
        workspace.edit_dir
    );
    run_steps(&editor, workspace, script::editor(workspace)).await?;

    let revoked = coordinator.revoke().await;
    println!("\nThe coordinator is revoked, and its two sub-agents with it.");
    ensure(
        revoked.workers == 3 && revoked.unfinished == 0,
        "expected all three workers to be revoked",
    )?;
    run_steps(&reader, workspace, script::revoked_reader(workspace)).await?;
    run_steps(&editor, workspace, script::revoked_editor(workspace)).await
}

/// Verifies the audit log and counts its records.
fn check_audit(log: &Path) -> Result<(), BoxError> {
    let verified = verify(BufReader::new(fs::File::open(log)?))?;
    let text = fs::read_to_string(log)?;
    let count = |step: &str| {
        text.lines()
            .filter(|line| line.contains(&format!("\"step\":\"{step}\"")))
            .count()
    };
    println!(
        "\nThe audit log is intact and has {} records.",
        verified.records
    );
    println!(
        "  calls denied: {}, asked: {}, applied: {}",
        count("denied"),
        count("asked"),
        count("applied")
    );
    println!("  head {}", verified.head.hash);
    ensure(
        text.lines().count() as u64 == verified.records,
        "the audit log has unverified lines",
    )?;
    ensure(
        count("denied") >= 4 && count("asked") == 1,
        "the audit log lacks decisions",
    )?;
    ensure(count("applied") >= 1, "the audit log lacks the edit")
}
