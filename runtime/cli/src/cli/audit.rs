//! The command line of what looks at an audit in, what is to be shown of it out.

use std::path::PathBuf;

use bailiwick::{ContentHash, Decision, HistoryFilter, ToolName};
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use super::when::{self, When};

/// What a person wants to see of an audit.
#[derive(Debug)]
pub(crate) struct AuditCommand {
    /// The file that `--audit` named.
    pub(crate) file: PathBuf,
    /// What of it.
    pub(crate) action: AuditAction,
}

/// What of an audit is shown.
#[derive(Debug)]
pub(crate) enum AuditAction {
    /// Whether it is as it was written.
    Verify {
        /// The hash that one of its records must have.
        head: Option<ContentHash>,
    },
    /// What was asked, decided, granted and taken back.
    History {
        /// Which of it.
        filter: HistoryFilter,
        /// From when on.
        since: Option<When>,
        until: Option<When>,
        /// What is made of it.
        view: HistoryView,
        /// As JSON lines, for programs.
        json: bool,
    },
}

/// What is made of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HistoryView {
    /// Each entry.
    Entries,
    /// Counts.
    Report,
    /// Rules that would have spared questions.
    Suggestions,
}

const DECISIONS: [(&str, Decision); 4] = [
    ("granted", Decision::Granted),
    ("denied", Decision::Denied),
    ("expired", Decision::Expired),
    ("cancelled", Decision::Cancelled),
];

/// The commands that look at an audit.
pub(super) fn commands() -> [Command; 2] {
    [
        Command::new("history")
            .about("Show what was asked, decided and granted, from a file that --audit wrote")
            .long_about(
                "Shows what was asked, decided and granted, from a file that --audit wrote and the numbered files beside it: \
                 its finished segments (FILE.00000001) and the audits of further clients (FILE.2). Standard output has plain columns, or JSON lines with --json; the record is checked as it is read.",
            )
            .arg(audit_arg())
            .args(filters())
            .args([
                bool_flag("report", "Show counts: of questions, of uses of each grant, of what is asked again and again"),
                bool_flag("suggest", "Show rules that would have spared questions; nothing gives them by itself. Of protected names only those built in \
                     are known here, not what --protect adds: look at each rule with that in mind")
                    // A part of a history does not tell what was refused elsewhere.
                .conflicts_with_all(["report", "agent", "session", "server", "tool", "decision", "since", "until"]),
                bool_flag("json", "Print JSON lines"),
            ]),
        Command::new("verify")
            .about("Check that a file that --audit wrote is as it was written")
            .long_about(
                "Checks that a file that --audit wrote and the numbered files beside it are as they were written: its finished \
                 segments (FILE.00000001) and the audits of further clients (FILE.2). Exit status 0 and their counts, or 1 and the first line that is \
                 not, or the first file that is missing between others. That the end was cut off shows only against a hash noted before: give it by \
                 --head.",
            )
            .arg(audit_arg())
            .arg(
                Arg::new("head")
                    .long("head")
                    .value_name("HASH")
                    .value_parser(|text: &str| text.parse::<ContentHash>())
                    .help("A hash that verify printed earlier; fail if no record has it, since then records were cut off or replaced"),
            ),
    ]
}

fn audit_arg() -> Arg {
    Arg::new("audit")
        .value_name("AUDIT")
        .required(true)
        .value_parser(value_parser!(PathBuf))
        .help("The file that --audit named")
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
            .help("Only of this agent and those beneath it, such as main/tests"),
        Arg::new("session")
            .long("session")
            .value_name("NAME")
            .help("Only of workers in this session, as --json names it"),
        Arg::new("server")
            .long("server")
            .value_name("NAME")
            .help("Only of the tools of this MCP server, by the name that its host gave it"),
        Arg::new("tool")
            .long("tool")
            .value_name("NAME")
            .help("Only of calls of this tool"),
        Arg::new("decision")
            .long("decision")
            .value_name("HOW")
            .value_parser(decision.map(|text| parse_decision(&text)))
            .help("Only what was decided this way"),
        Arg::new("since")
            .long("since")
            .value_name("WHEN")
            .value_parser(when::parse)
            .help("Only from then on: 2026-11-22, 2026-11-22T08:30:00Z (both UTC), or so long ago, such as 12h"),
        Arg::new("until")
            .long("until")
            .value_name("WHEN")
            .value_parser(when::parse)
            .help("Only before then"),
    ]
}

fn parse_decision(text: &str) -> Option<Decision> {
    let mut decisions = DECISIONS.into_iter();
    decisions
        .find(|(name, _)| *name == text)
        .map(|(_, decision)| decision)
}

/// What is to be looked at, if it is one of these commands.
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
