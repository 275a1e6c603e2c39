//! The command lines of `bailiwick grants` and `bailiwick templates`.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

use bailiwick::VirtualPath;
use bailiwick::path::PathError;
use bailiwick::permission::GrantId;
use bailiwick::scope::ScopePattern;

/// Show, revoke, narrow or add permanent grants
#[derive(Debug, Args)]
#[command(
    long_about = "Shows the permanent grants of agents, from the file of --grants. --revoke and --revoke-all revoke grants, --narrow \
        narrows one, and --apply adds those of a template; the changed grants are shown. A change is stored completely \
        or not at all, and is not audited. Servers that use the file must be stopped first. Prints columns, or JSON lines \
        with --json.",
    group(ArgGroup::new("narrowing").args(["to", "holder_only"]).multiple(true)),
    group(ArgGroup::new("action").args(["revoke", "revoke_all", "narrow", "apply"]))
)]
pub(crate) struct GrantsCommand {
    /// The grant store: the file of --grants
    pub(crate) file: PathBuf,
    /// Revoke these grants (e.g. g3); all or none
    #[arg(long, value_name = "ID", num_args = 1..)]
    pub(crate) revoke: Vec<GrantId>,
    /// Revoke all grants of --agent
    #[arg(long, requires = "agent")]
    pub(crate) revoke_all: bool,
    /// Narrow a grant: to --to, or to its holder only with --holder-only
    #[arg(long, value_name = "ID", requires = "narrowing")]
    pub(crate) narrow: Option<GrantId>,
    /// The new pattern of the grant, such as write:file:/repo/src; it must be narrower
    #[arg(long, value_name = "PATTERN", requires = "narrow")]
    pub(crate) to: Option<ScopePattern>,
    /// Exclude sub-agents of the grant's holder
    #[arg(long, requires = "narrow")]
    pub(crate) holder_only: bool,
    /// Add the grants of this template for --agent and each --root; `bailiwick templates` lists the built-in templates
    #[arg(long, value_name = "TEMPLATE", requires = "agent")]
    pub(crate) apply: Option<String>,
    /// The file with the template, if it is not built in
    #[arg(long, value_name = "FILE", requires = "apply")]
    pub(crate) template_file: Option<PathBuf>,
    /// A directory to apply the template to, as agents see it, such as /repo
    #[arg(long, value_name = "PATH", num_args = 1.., value_parser = parse_root, requires = "apply")]
    pub(crate) root: Vec<VirtualPath>,
    /// Only grants of this agent and its sub-agents, such as main/tests; with --apply, the agent that gets the grants
    #[arg(long, value_name = "PATH", conflicts_with_all = ["revoke", "narrow"])]
    pub(crate) agent: Option<String>,
    /// Print JSON lines
    #[arg(long)]
    pub(crate) json: bool,
}

fn parse_root(text: &str) -> Result<VirtualPath, PathError> {
    VirtualPath::parse(text, None)
}

/// Show the built-in templates, or check a template file
#[derive(Debug, Args)]
#[command(
    long_about = "Shows the built-in templates and what they allow, or checks the template in FILE: its syntax, its patterns, and \
        its examples of what it covers and refuses. {root} stands for each directory that a template is applied to. To \
        add the grants of a template, use `bailiwick grants FILE --apply TEMPLATE`."
)]
pub(crate) struct TemplatesCommand {
    /// A JSON file with name, about, allows, covers and refuses
    pub(crate) file: Option<PathBuf>,
    /// Print JSON lines
    #[arg(long)]
    pub(crate) json: bool,
}
