//! The command lines of `bailiwick history` and `bailiwick verify`.

use std::path::PathBuf;

use bailiwick::effect::ContentHash;
use bailiwick::permission::{Decision, HistoryFilter};
use bailiwick::tool::ToolName;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use super::when::{self, When};

/// The options of `bailiwick history` and `bailiwick verify`.
#[derive(Debug)]
pub(crate) struct AuditCommand {
    /// The audit file.
    pub(crate) file: PathBuf,
    /// What to do.
    pub(crate) action: AuditAction,
}

/// What to do with an audit.
#[derive(Debug)]
pub(crate) enum AuditAction {
    /// Verify its hash chain.
    Verify {
        /// A hash that one of its records must have.
        head: Option<ContentHash>,
    },
    /// Show the history of calls, questions and grants.
    History {
        /// Which entries.
        filter: HistoryFilter,
        /// The start and end of the time range.
        since: Option<When>,
        until: Option<When>,
        /// How to show them.
        view: HistoryView,
        /// Print JSON lines.
        json: bool,
    },
}

/// How to show a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HistoryView {
    /// All entries.
    Entries,
    /// Counts.
    Report,
    /// Rules that would have avoided questions.
    Suggestions,
}

const DECISIONS: [(&str, Decision); 4] = [
    ("granted", Decision::Granted),
    ("denied", Decision::Denied),
    ("expired", Decision::Expired),
    ("cancelled", Decision::Cancelled),
];

/// Defines the commands.
pub(super) fn commands() -> [Command; 2] {
    [
        Command::new("history")
            .about("Show the history of calls, questions and grants from an audit file")
            .long_about(
                "Shows the history of calls, questions and grants from an audit file (--audit), its finished segments (FILE.00000001) \
                 and the audits of further clients (FILE.2). Prints columns, or JSON lines with --json. Verifies the audit while reading it.",
            )
            .arg(audit_arg())
            .args(filters())
            .args([
                bool_flag("report", "Show counts: questions, uses of each grant, repeated questions"),
                bool_flag("suggest", "Suggest rules that would have avoided questions; they are not applied. Names protected with --protect are not considered, \
                     so review each rule")
                    // Suggestions need the whole history, since a part may lack denials.
                .conflicts_with_all(["report", "agent", "session", "server", "tool", "decision", "since", "until"]),
                bool_flag("json", "Print JSON lines"),
            ]),
        Command::new("verify")
            .about("Verify that an audit file was not changed")
            .long_about(
                "Verifies the hash chain of an audit file (--audit), its finished segments (FILE.00000001) and the audits of further \
                 clients (FILE.2). Exits with 0 and prints counts, or exits with 1 and names the first changed line or missing file. To \
                 detect truncation, give a hash that was printed earlier with --head.",
            )
            .arg(audit_arg())
            .arg(
                Arg::new("head")
                    .long("head")
                    .value_name("HASH")
                    .value_parser(|text: &str| text.parse::<ContentHash>())
                    .help("A hash that `verify` printed earlier; fails if no record has it, because records were removed or replaced"),
            ),
    ]
}

fn audit_arg() -> Arg {
    Arg::new("audit")
        .value_name("AUDIT")
        .required(true)
        .value_parser(value_parser!(PathBuf))
        .help("The audit file")
}

pub(super) fn bool_flag(name: &'static str, about: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .help(about)
        .action(ArgAction::SetTrue)
}

fn filters() -> [Arg; 7] {
    let decision = PossibleValuesParser::new(DECISIONS.map(|(name, _)| name));
    [
        Arg::new("agent")
            .long("agent")
            .value_name("PATH")
            .help("Only entries of this agent and its sub-agents, such as main/tests"),
        Arg::new("session")
            .long("session")
            .value_name("NAME")
            .help("Only entries of this session, as shown by --json"),
        Arg::new("server")
            .long("server")
            .value_name("NAME")
            .help("Only entries of tools of this third-party MCP server"),
        Arg::new("tool")
            .long("tool")
            .value_name("NAME")
            .help("Only entries of this tool"),
        Arg::new("decision")
            .long("decision")
            .value_name("HOW")
            .value_parser(decision.map(|text| parse_decision(&text)))
            .help("Only entries with this decision"),
        Arg::new("since")
            .long("since")
            .value_name("WHEN")
            .value_parser(when::parse)
            .help("Only entries since this UTC date or time (2026-11-22 or 2026-11-22T08:30:00Z), or an age such as 12h"),
        Arg::new("until")
            .long("until")
            .value_name("WHEN")
            .value_parser(when::parse)
            .help("Only entries before this date, time or age"),
    ]
}

fn parse_decision(text: &str) -> Option<Decision> {
    let mut decisions = DECISIONS.into_iter();
    decisions
        .find(|(name, _)| *name == text)
        .map(|(_, decision)| decision)
}

/// The options, if this is one of the commands.
pub(super) fn from_matches(matches: &ArgMatches) -> Option<AuditCommand> {
    let (name, given) = matches.subcommand()?;
    let text = |id: &str| given.get_one::<String>(id).map(String::as_str);
    let action = match name {
        "verify" => AuditAction::Verify {
            head: given.get_one("head").copied(),
        },
        "history" => AuditAction::History {
            filter: HistoryFilter {
                agent: text("agent").map(Into::into),
                session: text("session").map(Into::into),
                server: text("server").map(Into::into),
                tool: text("tool").map(ToolName::new),
                decision: given.get_one("decision").copied().flatten(),
                ..HistoryFilter::default()
            },
            since: given.get_one("since").copied(),
            until: given.get_one("until").copied(),
            view: match (given.get_flag("report"), given.get_flag("suggest")) {
                (true, _) => HistoryView::Report,
                (false, true) => HistoryView::Suggestions,
                (false, false) => HistoryView::Entries,
            },
            json: given.get_flag("json"),
        },
        _ => return None,
    };
    let file = given.get_one::<PathBuf>("audit").cloned()?;
    Some(AuditCommand { file, action })
}
