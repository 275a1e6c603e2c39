//! The command lines of `bailiwick grants` and `bailiwick templates`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use bailiwick::permission::Narrowing;
use bailiwick::{GrantId, PathError, ScopePattern, VirtualPath};
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, value_parser};

use super::audit::bool_flag;

/// The options of `bailiwick grants`.
#[derive(Debug)]
pub(crate) struct GrantsCommand {
    /// The grant store.
    pub(crate) file: PathBuf,
    /// What to do.
    pub(crate) action: GrantsAction,
    /// Print JSON lines.
    pub(crate) json: bool,
}

/// What to do with the grants.
#[derive(Debug)]
pub(crate) enum GrantsAction {
    /// Show all grants, or those of an agent and its sub-agents.
    Show(Option<String>),
    /// Revoke these grants.
    Revoke(BTreeSet<GrantId>),
    /// Revoke all grants of an agent and its sub-agents.
    RevokeAll(String),
    /// Narrow a grant.
    Narrow(GrantId, Narrowing),
    /// Add the grants of a template.
    Apply(ApplyTemplate),
}

/// A template to apply.
#[derive(Debug)]
pub(crate) struct ApplyTemplate {
    /// The name of the template.
    pub(crate) template: String,
    /// The file that contains it, or `None` if it is built in.
    pub(crate) file: Option<PathBuf>,
    /// The agent that gets the grants.
    pub(crate) agent: String,
    /// The virtual paths of the directories to apply it to.
    pub(crate) roots: Vec<VirtualPath>,
}

/// The options of `bailiwick templates`.
#[derive(Debug)]
pub(crate) struct TemplatesCommand {
    /// The template file to check and show, or `None` to show the built-in templates.
    pub(crate) file: Option<PathBuf>,
    /// Print JSON lines.
    pub(crate) json: bool,
}

const GRANTS: &str = "grants";
const TEMPLATES: &str = "templates";

/// Defines the commands.
pub(super) fn commands() -> [Command; 2] {
    [grants(), templates()]
}

fn grants() -> Command {
    Command::new(GRANTS)
        .about("Show, revoke, narrow or add permanent grants")
        .long_about(
            "Shows the permanent grants of agents, from the file of --grants. --revoke and --revoke-all revoke grants, --narrow \
             narrows one, and --apply adds those of a template; the changed grants are shown. A change is stored completely \
             or not at all, and is not audited. Servers that use the file must be stopped first. Prints columns, or JSON lines \
             with --json.",
        )
        .args([file_arg("FILE", "The grant store: the file of --grants").required(true)])
        .args(revoke_args())
        .args(narrow_args())
        .args(apply_args())
        .args([
            Arg::new("agent")
                .long("agent")
                .value_name("PATH")
                .conflicts_with_all(["revoke", "narrow"])
                .help("Only grants of this agent and its sub-agents, such as main/tests; with --apply, the agent that gets the grants"),
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
            .help("Revoke these grants (e.g. g3); all or none"),
        bool_flag("revoke-all", "Revoke all grants of --agent").requires("agent"),
    ]
}

fn narrow_args() -> [Arg; 3] {
    [
        Arg::new("narrow")
            .long("narrow")
            .value_name("ID")
            .value_parser(value_parser!(GrantId))
            .requires("narrowing")
            .help("Narrow a grant: to --to, or to its holder only with --holder-only"),
        Arg::new("to")
            .long("to")
            .value_name("PATTERN")
            .value_parser(value_parser!(ScopePattern))
            .requires("narrow")
            .help(
                "The new pattern of the grant, such as write:file:/repo/src; it must be narrower",
            ),
        bool_flag("holder-only", "Exclude sub-agents of the grant's holder").requires("narrow"),
    ]
}

fn apply_args() -> [Arg; 3] {
    [
        Arg::new("apply")
            .long("apply")
            .value_name("TEMPLATE")
            .requires("agent")
            .help("Add the grants of this template for --agent and each --root; `bailiwick templates` lists the built-in templates"),
        Arg::new("template-file")
            .long("template-file")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .requires("apply")
            .help("The file with the template, if it is not built in"),
        Arg::new("root")
            .long("root")
            .value_name("PATH")
            .num_args(1..)
            .action(ArgAction::Append)
            .value_parser(parse_root)
            .requires("apply")
            .help("A directory to apply the template to, as agents see it, such as /repo"),
    ]
}

fn parse_root(text: &str) -> Result<VirtualPath, PathError> {
    VirtualPath::parse(text, None)
}

fn templates() -> Command {
    Command::new(TEMPLATES)
        .about("Show the built-in templates, or check a template file")
        .long_about(
            "Shows the built-in templates and what they allow, or checks the template in FILE: its syntax, its patterns, and \
             its examples of what it covers and refuses. {root} stands for each directory that a template is applied to. To \
             add the grants of a template, use `bailiwick grants FILE --apply TEMPLATE`.",
        )
        .args([
            file_arg("FILE", "A JSON file with name, about, allows, covers and refuses"),
            bool_flag("json", "Print JSON lines"),
        ])
}

/// The options of `bailiwick grants`, if this is the command.
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

/// The options of `bailiwick templates`, if this is the command.
pub(super) fn templates_from_matches(matches: &ArgMatches) -> Option<TemplatesCommand> {
    let given = matches.subcommand_matches(TEMPLATES)?;
    Some(TemplatesCommand {
        file: given.get_one::<PathBuf>("file").cloned(),
        json: given.get_flag("json"),
    })
}
