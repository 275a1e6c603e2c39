//! The command line of what looks at a grant store in, which of its grants are to be shown or taken back out.

use std::collections::BTreeSet;
use std::path::PathBuf;

use bailiwick::GrantId;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use super::record::switch;

/// What a person wants of a grant store.
#[derive(Debug)]
pub(crate) struct Granted {
    /// The file that `--grants` named.
    pub(crate) file: PathBuf,
    /// What of it.
    pub(crate) wish: Wish,
    /// As JSON lines, for programs.
    pub(crate) json: bool,
}

/// What is done with grants of a store.
#[derive(Debug)]
pub(crate) enum Wish {
    /// They are shown: all, or those of one agent and of those beneath it.
    Show(Option<String>),
    /// These are taken back.
    Revoke(BTreeSet<GrantId>),
    /// Those of one agent, and of those beneath it, are taken back.
    RevokeAll(String),
}

pub(super) const NAME: &str = "grants";

pub(super) fn command() -> Command {
    Command::new(NAME)
        .about("Show what agents were granted for good, from a file that --grants named, or take it back")
        .long_about(
            "Shows what agents were granted for good, from a file that --grants named. With --revoke or --revoke-all it takes \
             grants back and shows those: they are gone from the disk then, or all are there still. That needs the file for \
             itself, so a server that has it must end first; no audit tells of it. Standard output has plain columns, or JSON \
             lines with --json.",
        )
        .args([
            Arg::new("file")
                .value_name("FILE")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("The file that --grants named"),
            Arg::new("agent")
                .long("agent")
                .value_name("PATH")
                .conflicts_with("revoke")
                .help("Only of this agent and those beneath it, such as main/tests"),
            Arg::new("revoke")
                .long("revoke")
                .value_name("ID")
                .num_args(1..)
                .action(ArgAction::Append)
                .value_parser(value_parser!(GrantId))
                .help("Take these grants back, such as g3, all or none"),
            switch("revoke-all", "Take back every grant of --agent")
                .requires("agent")
                .conflicts_with("revoke"),
            switch("json", "Print JSON lines"),
        ])
}

/// What is wanted of a grant store, if it is this command.
pub(super) fn granted(matches: &ArgMatches) -> Option<Granted> {
    let given = matches.subcommand_matches(NAME)?;
    let agent = given.get_one::<String>("agent").cloned();
    let ids = given.get_many::<GrantId>("revoke");
    let wish = match (ids, agent) {
        (Some(ids), _) => Wish::Revoke(ids.copied().collect()),
        (None, Some(agent)) if given.get_flag("revoke-all") => Wish::RevokeAll(agent),
        (None, agent) => Wish::Show(agent),
    };
    Some(Granted {
        file: given.get_one::<PathBuf>("file").cloned()?,
        wish,
        json: given.get_flag("json"),
    })
}
