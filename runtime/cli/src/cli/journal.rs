//! The command lines of `bailiwick journal` and `bailiwick undo`.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

use bailiwick::journal::ChangeId;

/// List the changes in a journal
#[derive(Debug, Args)]
#[command(
    long_about = "Lists the changes in the directory of `serve --journal`, those first that took effect last: their numbers, when and by which agent they \
        were made, whether they are in effect, and what they are. A server may use the journal meanwhile. Prints columns, or \
        JSON lines with --json."
)]
pub(crate) struct JournalCommand {
    /// The directory of --journal
    pub(crate) directory: PathBuf,
    /// Only changes of this agent and its sub-agents, such as main/tests
    #[arg(long, value_name = "PATH")]
    pub(crate) agent: Option<String>,
    /// Print JSON lines
    #[arg(long)]
    pub(crate) json: bool,
}

/// Undo changes of agents
#[derive(Debug, Args)]
#[command(
    long_about = "Undoes changes in the directory of `serve --journal`: those of --change, or all of an agent and its sub-agents that are \
        in effect. All are undone, or none: if a file was changed since, the command names it and changes nothing. An undo is \
        itself a change, and can be undone. Changes that a crash interrupted are first checked: complete ones are kept, others \
        are rolled back. Servers that use the journal must be stopped first; while they run, their approval page can undo.",
    group(ArgGroup::new("which").args(["change", "agent"]).required(true))
)]
pub(super) struct UndoFlags {
    /// The directory of --journal
    pub(super) directory: PathBuf,
    /// The numbers of changes, as `bailiwick journal` lists them
    #[arg(long, value_name = "N", num_args = 1.., value_parser = parse_change)]
    pub(super) change: Vec<ChangeId>,
    /// All changes of this agent and its sub-agents, such as main/tests
    #[arg(long, value_name = "PATH")]
    pub(super) agent: Option<String>,
    /// A directory that was served, or a root as JSON; repeatable [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub(super) root: Vec<String>,
    /// Show what the undo would change, without doing it
    #[arg(long)]
    pub(super) preview: bool,
}

fn parse_change(text: &str) -> Result<ChangeId, std::num::ParseIntError> {
    text.parse().map(ChangeId)
}
