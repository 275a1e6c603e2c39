//! Lists and undoes recorded changes.

use std::path::PathBuf;

use bailiwick::config::ConfigSources;
use bailiwick::effect::{Change, Op};
use bailiwick::journal::{ChangeId, ChangeState, Journal, JournalError};
use bailiwick::permission::Terminal;
use bailiwick::text::escape;
use bailiwick::{BuildError, CallError, Runtime};
use bailiwick_fs::Durability;

use crate::cli::{JournalCommand, format_time};
use crate::table::{json_lines, or_dash, table};

/// What to undo.
#[derive(Debug)]
pub(crate) struct UndoOptions {
    /// The directory of the journal.
    pub(crate) directory: PathBuf,
    /// The roots.
    pub(crate) sources: ConfigSources,
    /// The changes.
    pub(crate) which: Which,
    /// Whether nothing is changed.
    pub(crate) preview: bool,
}

/// The changes to undo.
#[derive(Debug)]
pub(crate) enum Which {
    /// These changes.
    Changes(Vec<ChangeId>),
    /// All of an agent and its sub-agents that are in effect.
    Agent(String),
}

/// Why changes cannot be listed or undone.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JournalCommandError {
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A root cannot be opened.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// There is nothing to undo.
    #[error("the journal has no changes of `{0}` that are in effect")]
    NoChanges(String),
    /// They are not undone.
    #[error(transparent)]
    Undo(#[from] CallError),
    /// The output cannot be written.
    #[error("cannot write JSON")]
    Json(#[from] serde_json::Error),
}

/// Lists the changes.
pub(crate) fn list(command: &JournalCommand) -> Result<String, JournalCommandError> {
    let mut entries = Journal::read(&command.directory)?;
    if let Some(agent) = &command.agent {
        entries.retain(|entry| entry.is_made_at_or_beneath(agent));
    }
    if command.json {
        return Ok(json_lines(&entries)?);
    }
    if entries.is_empty() {
        return Ok("No changes.".to_owned());
    }
    Ok(table(
        ["CHANGE", "MADE", "AGENT", "STATE", "WHAT"],
        entries.iter().map(|entry| {
            [
                entry.id.to_string(),
                format_time(entry.at_ms),
                or_dash(&entry.agent),
                state(&entry.state),
                entry.intent.to_string(),
            ]
        }),
    ))
}

fn state(state: &ChangeState) -> String {
    match state {
        ChangeState::Running | ChangeState::Interrupted => "interrupted, or being made".to_owned(),
        ChangeState::Applied => "in effect".to_owned(),
        ChangeState::Undone { by } => format!("undone by {by}"),
        ChangeState::NotApplied => "not made".to_owned(),
        ChangeState::Failed => "made in part".to_owned(),
        ChangeState::RolledBack => "rolled back".to_owned(),
        ChangeState::Conflict { .. } => "rolled back in part".to_owned(),
        _ => "unknown".to_owned(),
    }
}

/// Undoes changes. Returns what was changed.
pub(crate) async fn undo(options: UndoOptions) -> Result<String, JournalCommandError> {
    // A journal that does not exist would be created.
    Journal::read(&options.directory)?;
    let journal = Journal::open(&options.directory)?;
    let config = options.sources.effective().map_err(BuildError::from)?;
    let mut builder = Runtime::builder()
        .configured(config.config)
        .tools(bailiwick_fs::undo_tools(Durability::default()))
        .journal(journal);
    if let Ok(terminal) = Terminal::tty() {
        builder = builder.approver(terminal);
    }
    let (runtime, grants) = builder.build().await?;
    let mut lines: Vec<String> = runtime
        .recovered()
        .iter()
        .map(ToString::to_string)
        .collect();
    let changes = match (options.which, runtime.journal()) {
        (Which::Changes(changes), _) => changes,
        (Which::Agent(agent), journal) => {
            let changes = journal.map(|journal| journal.changes_of_agent(&agent));
            let changes = changes.unwrap_or_default();
            if changes.is_empty() {
                return Err(JournalCommandError::NoChanges(escape(&agent).into_owned()));
            }
            changes
        }
    };
    let undone = if options.preview {
        let preview = grants.preview_undo(&changes).await;
        preview.map(|preview| describe("would ", &preview.changes))
    } else {
        let outcome = grants.undo(&changes).await;
        outcome.map(|outcome| describe("", &outcome.changes))
    };
    runtime.shutdown().await;
    lines.extend(undone?);
    Ok(lines.join("\n"))
}

/// A line for each change. `mood` is `would ` if nothing was changed.
fn describe(mood: &str, changes: &[Change]) -> Vec<String> {
    if changes.is_empty() {
        return vec!["nothing to change: all files are as before these changes".to_owned()];
    }
    let line = |change: &Change| {
        let done = mood.is_empty();
        let verb = match change.op {
            Op::Create if done => "created",
            Op::Create => "create",
            Op::Modify if done => "changed",
            Op::Modify => "change",
            Op::Delete if done => "deleted",
            Op::Delete => "delete",
            Op::Move if done => "moved",
            Op::Move => "move",
            Op::Copy if done => "copied",
            Op::Copy => "copy",
            Op::MakeDirectory if done => "created the directory",
            Op::MakeDirectory => "create the directory",
        };
        let to = change.to.as_ref().map(|to| format!(" to {to}"));
        let line = format!("{mood}{verb} {}{}", change.path, to.unwrap_or_default());
        escape(&line).into_owned()
    };
    changes.iter().map(line).collect()
}
