//! Two sub-agents ask for approval of their changes; a person on a terminal or a file answers.
//!
//! Shows batched questions, a grant with a number of uses, an edit with an excluded hunk, a revoked grant, a grant that is
//! stored across runtimes, and the history of all that. Usage:
//!
//! ```text
//! cargo run -p bailiwick-examples --example approvals [-- --answers FILE]
//! ```
//!
//! On a terminal, you are asked. With `--answers`, or without a terminal, answers are read from a file (by default
//! `approvals/answers.jsonl`) with one JSON object per line. The first unused line with the same `agent` and `needs` answers
//! a question, and every line must be used:
//!
//! - `agent`: the path of the agent's names, such as `team/editor`
//! - `needs`: exactly the scopes that the question names
//! - `answer`: `{"deny": {"note": "a text for the agent"}}`, or `{"allow": {...}}` with `lifetime` (`"once"`, `{"uses": 2}`,
//!   `{"for_ms": 60000}`, `"session"`, `"agent"`) and optionally `patterns` (what to grant, if it is more than the needs),
//!   `descendants` (`true` to include sub-agents) and `left_out` (`[{"path": ..., "hunks": [1]}]` excludes the second hunk)
#![expect(clippy::print_stdout, reason = "examples print what happens")]

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[path = "approvals/answers.rs"]
mod answers;
#[path = "approvals/host.rs"]
mod host;
#[path = "approvals/scenarios.rs"]
mod scenarios;

use answers::AnswerSource;
use bailiwick_examples::{BoxError, exit_code};
use host::Host;

#[tokio::main]
async fn main() -> ExitCode {
    exit_code(run(std::env::args_os().skip(1)).await)
}

async fn run(arguments: impl Iterator<Item = OsString>) -> Result<(), BoxError> {
    let arguments: Vec<OsString> = arguments.collect();
    let answers = AnswerSource::open(answers_file(&arguments)?)?;
    let temp = tempfile::tempdir()?;
    let path = temp.path().to_owned();
    scenario(&path, answers).await?;
    temp.close()?;
    ensure(!path.exists(), "the scratch directory was not removed")?;
    println!("\nThe scratch directory with its grants and audit logs is removed.");
    Ok(())
}

/// The value of `--answers`.
fn answers_file(arguments: &[OsString]) -> Result<Option<PathBuf>, BoxError> {
    match arguments {
        [] => Ok(None),
        [flag, file] if flag == "--answers" => Ok(Some(file.into())),
        _ => Err("usage: approvals [--answers FILE]".into()),
    }
}

fn ensure(condition: bool, message: &str) -> Result<(), BoxError> {
    if condition {
        Ok(())
    } else {
        Err(message.into())
    }
}

async fn scenario(temp: &Path, answers: AnswerSource) -> Result<(), BoxError> {
    let repo = temp.join("repo");
    fs::create_dir_all(repo.join("notes"))?;
    fs::write(repo.join("limits.toml"), scenarios::limits(3, 10))?;
    let mut host = Host::start(temp, answers).await?;
    println!("Directory: {}, which agents see as /repo", repo.display());
    println!("The agents may read it; every change needs approval.");

    let team = host.spawn_team().await?;
    let first = scenarios::batched_questions(&mut host, &team).await?;
    scenarios::use_limit(&mut host, &team, &first.editor).await?;
    scenarios::excluded_hunk(&mut host, &team).await?;
    scenarios::revoked_grant(&mut host, &team, &first.tester).await?;
    scenarios::stored_grant(&mut host, &team).await?;
    scenarios::history(&host).await
}
