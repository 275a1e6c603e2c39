//! The command lines of `bailiwick history` and `bailiwick verify`.

use std::path::PathBuf;

use bailiwick::effect::ContentHash;
use bailiwick::permission::Decision;
use clap::Args;

use super::command::one_of;
use super::when::{self, When};

/// Show the history of calls, questions and grants from an audit file
#[derive(Debug, Args)]
#[command(
    long_about = "Shows the history of calls, questions and grants from an audit file (--audit), its finished segments (FILE.00000001) \
        and the audits of further clients (FILE.2). Prints columns, or JSON lines with --json. Verifies the audit while reading it."
)]
pub(crate) struct HistoryCommand {
    /// The audit file
    pub(crate) audit: PathBuf,
    /// Only entries of this agent and its sub-agents, such as main/tests
    #[arg(long, value_name = "PATH")]
    pub(crate) agent: Option<String>,
    /// Only entries of this session, as shown by --json
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    /// Only entries of tools of this third-party MCP server
    #[arg(long, value_name = "NAME")]
    pub(crate) server: Option<String>,
    /// Only entries of this tool
    #[arg(long, value_name = "NAME")]
    pub(crate) tool: Option<String>,
    /// Only entries with this decision
    #[arg(long, value_name = "HOW", value_parser = one_of(&DECISIONS))]
    pub(crate) decision: Option<Decision>,
    /// Only entries since this UTC date or time (2026-11-22 or 2026-11-22T08:30:00Z), or an age such as 12h
    #[arg(long, value_name = "WHEN", value_parser = when::parse)]
    pub(crate) since: Option<When>,
    /// Only entries before this date, time or age
    #[arg(long, value_name = "WHEN", value_parser = when::parse)]
    pub(crate) until: Option<When>,
    /// Show counts: questions, uses of each grant, repeated questions
    #[arg(long)]
    pub(crate) report: bool,
    /// Suggest rules that would have avoided questions; they are not applied. Names protected with --protect
    /// are not considered, so review each rule
    // Suggestions need the whole history, since a part may lack denials.
    #[arg(long, conflicts_with_all = ["report", "agent", "session", "server", "tool", "decision", "since", "until"])]
    pub(crate) suggest: bool,
    /// Print JSON lines
    #[arg(long)]
    pub(crate) json: bool,
}

const DECISIONS: [(&str, Decision); 4] = [
    ("granted", Decision::Granted),
    ("denied", Decision::Denied),
    ("expired", Decision::Expired),
    ("cancelled", Decision::Cancelled),
];

/// Verify that an audit file was not changed
#[derive(Debug, Args)]
#[command(
    long_about = "Verifies the hash chain of an audit file (--audit), its finished segments (FILE.00000001) and the audits of further \
        clients (FILE.2). Exits with 0 and prints counts, or exits with 1 and names the first changed line or missing file. To \
        detect truncation, give a hash that was printed earlier with --head."
)]
pub(crate) struct VerifyCommand {
    /// The audit file
    pub(crate) audit: PathBuf,
    /// A hash that `verify` printed earlier; fails if no record has it, because records were removed or replaced
    #[arg(long, value_name = "HASH")]
    pub(crate) head: Option<ContentHash>,
}
