//! The command line of what looks at a grant store in, which of its grants are to be shown or changed out.

use std::collections::BTreeSet;
use std::path::PathBuf;

use bailiwick::{GrantId, Narrowing, PathError, ScopePattern, VirtualPath};
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, value_parser};

use super::audit::bool_flag;

/// What a person wants of a grant store.
#[derive(Debug)]
pub(crate) struct GrantsCommand {
    /// The file that `--grants` named.
    pub(crate) file: PathBuf,
    /// What of it.
    pub(crate) action: GrantsAction,
    /// As JSON lines, for programs.
    pub(crate) json: bool,
}

/// What is done with grants of a store.
#[derive(Debug)]
pub(crate) enum GrantsAction {
    /// They are shown: all, or those of one agent and of those beneath it.
    Show(Option<String>),
    /// These are taken back.
    Revoke(BTreeSet<GrantId>),
    /// Those of one agent, and of those beneath it, are taken back.
    RevokeAll(String),
    /// Less is left of one.
    Narrow(GrantId, Narrowing),
    /// What a template says is added.
    Apply(ApplyTemplate),
}

/// A template and whom it is for.
#[derive(Debug)]
pub(crate) struct ApplyTemplate {
    /// Its name.
    pub(crate) template: String,
    /// Where it is; else it is built in.
    pub(crate) file: Option<PathBuf>,
    /// Who is granted what it says.
    pub(crate) agent: String,
    /// The directories it is applied to, as agents see them.
    pub(crate) roots: Vec<VirtualPath>,
}

/// What a person wants to see of templates.
#[derive(Debug)]
pub(crate) struct TemplatesCommand {
    /// The one to be checked and shown; else those that are built in are.
    pub(crate) file: Option<PathBuf>,
    /// As JSON lines, for programs.
    pub(crate) json: bool,
}

const GRANTS: &str = "grants";
const TEMPLATES: &str = "templates";

/// The commands on grants for good.
pub(super) fn commands() -> [Command; 2] {
    [grants(), templates()]
}

fn grants() -> Command {
    Command::new(GRANTS)
        .about("Show what agents were granted for good, from a file that --grants named; take it back, narrow it or add to it")
        .long_about(
            "Shows what agents were granted for good, from a file that --grants named. With --revoke or --revoke-all it takes \
             grants back, with --narrow it leaves less of one, with --apply it adds what a template says; then it shows those \
             grants. All of that is on the disk then, or nothing is. It needs the file for itself, so a server that has it must \
             end first; no audit tells of it. Standard output has plain columns, or JSON lines with --json.",
        )
        .args([file_arg("FILE", "The file that --grants named").required(true)])
        .args(revoke_args())
        .args(narrow_args())
        .args(apply_args())
        .args([
            Arg::new("agent")
                .long("agent")
                .value_name("PATH")
                .conflicts_with_all(["revoke", "narrow"])
                .help("Only of this agent and those beneath it, such as main/tests; with --apply, this agent itself"),
            bool_flag("json", "Print JSON lines"),
        ])
        .group(ArgGroup::new("narrowing").args(["to", "holder-only"]).multiple(true))
        .group(ArgGroup::new("action").args(["revoke", "revoke-all", "narrow", "apply"]))
}

fn file_arg(name: &'static str, about: &'static str) -> Arg {
    Arg::new("file")
        .value_name(name)
        .value_parser(value_parser!(PathBuf))
        .help(about)
}

fn revoke_args() -> [Arg; 2] {
    [
        Arg::new("revoke")
            .long("revoke")
            .value_name("ID")
            .num_args(1..)
            .action(ArgAction::Append)
            .value_parser(value_parser!(GrantId))
            .help("Take these grants back, such as g3, all or none"),
        bool_flag("revoke-all", "Take back every grant of --agent").requires("agent"),
    ]
}

fn narrow_args() -> [Arg; 3] {
    [
        Arg::new("narrow")
            .long("narrow")
            .value_name("ID")
            .value_parser(value_parser!(GrantId))
            .requires("narrowing")
            .help("Leave less of this grant: what --to covers, or nothing for sub-agents with --holder-only; it never becomes wider"),
        Arg::new("to")
            .long("to")
            .value_name("PATTERN")
            .value_parser(value_parser!(ScopePattern))
            .requires("narrow")
            .help("What the grant of --narrow covers from now on, such as write:file:/repo/src"),
        bool_flag("holder-only", "The sub-agents of who holds the grant of --narrow lose it").requires("narrow"),
    ]
}

fn apply_args() -> [Arg; 3] {
    [
        Arg::new("apply")
            .long("apply")
            .value_name("TEMPLATE")
            .requires("agent")
            .help("Grant --agent what this template says for each --root; the command `templates` lists those built in"),
        Arg::new("template-file")
            .long("template-file")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .requires("apply")
            .help("The file that holds the template of --apply, if it is not built in"),
        Arg::new("root")
            .long("root")
            .value_name("PATH")
            .num_args(1..)
            .action(ArgAction::Append)
            .value_parser(parse_root)
            .requires("apply")
            .help("A directory that --apply is for, as agents see it, such as /repo"),
    ]
}

fn parse_root(text: &str) -> Result<VirtualPath, PathError> {
    VirtualPath::parse(text, None)
}

fn templates() -> Command {
    Command::new(TEMPLATES)
        .about("Show the templates that are built in, or check a file that holds one")
        .long_about(
            "Shows the templates that are built in and what they allow, or checks the one in FILE: its form, its patterns, and \
             that it covers and refuses the examples that it names. {root} stands for each directory that a template is applied \
             to. Nothing is granted: `grants FILE --apply TEMPLATE` does that.",
        )
        .args([
            file_arg("FILE", "A JSON file with name, about, allows, covers and refuses"),
            bool_flag("json", "Print JSON lines"),
        ])
}

/// What is wanted of a grant store, if it is that command.
pub(super) fn from_matches(matches: &ArgMatches) -> Option<GrantsCommand> {
    let given = matches.subcommand_matches(GRANTS)?;
    Some(GrantsCommand {
        file: given.get_one::<PathBuf>("file").cloned()?,
        action: action(given),
        json: given.get_flag("json"),
    })
}

fn action(given: &ArgMatches) -> GrantsAction {
    let agent = given.get_one::<String>("agent").cloned();
    if let Some(ids) = given.get_many::<GrantId>("revoke") {
        return GrantsAction::Revoke(ids.copied().collect());
    }
    if let Some(id) = given.get_one::<GrantId>("narrow") {
        let change = Narrowing {
            pattern: given.get_one::<ScopePattern>("to").cloned(),
            holder_only: given.get_flag("holder-only"),
            ..Narrowing::default()
        };
        return GrantsAction::Narrow(*id, change);
    }
    match (given.get_one::<String>("apply"), agent) {
        (Some(template), Some(agent)) => {
            let roots = given.get_many::<VirtualPath>("root");
            GrantsAction::Apply(ApplyTemplate {
                template: template.clone(),
                file: given.get_one::<PathBuf>("template-file").cloned(),
                agent,
                roots: roots.into_iter().flatten().cloned().collect(),
            })
        }
        (_, Some(agent)) if given.get_flag("revoke-all") => GrantsAction::RevokeAll(agent),
        (_, agent) => GrantsAction::Show(agent),
    }
}

/// What is wanted of templates, if it is that command.
pub(super) fn templates_from_matches(matches: &ArgMatches) -> Option<TemplatesCommand> {
    let given = matches.subcommand_matches(TEMPLATES)?;
    Some(TemplatesCommand {
        file: given.get_one::<PathBuf>("file").cloned(),
        json: given.get_flag("json"),
    })
}
