//! The command line of `bailiwick doctor`.

use std::collections::BTreeMap;

use bailiwick::config::{ConfigSource, ConfigSources};
use bailiwick::{Config, VirtualPath};
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::audit::bool_flag;
use super::command::ROOT;
use super::{CliError, roots};

const DOCTOR: &str = "doctor";

/// The options of `bailiwick doctor`.
#[derive(Debug)]
pub(crate) struct DoctorCommand {
    /// The configuration with the roots to check.
    pub(crate) config: Config,
    /// Print JSON.
    pub(crate) json: bool,
}

/// Defines the command.
pub(super) fn command() -> Command {
    Command::new(DOCTOR)
        .about("Report what this machine and this installation can enforce")
        .long_about(
            "Checks what `bailiwick serve` uses on this machine: the kernel, the file system of each ROOT (or of the current \
             directory), the state directory, file watches, limits, and how people are asked. Prints a line for each check: \
             ok, limited or missing, its name, what it means, and what to do. Each check runs in a temporary directory that \
             is removed again; nothing else is changed.\n\nExit status 0 unless something that `serve` needs is missing, then 1; \
             2 if the arguments are wrong.\n\nExample: bailiwick doctor ./my-repo",
        )
        .args([
            Arg::new(ROOT)
                .help("A directory to serve, or a root as JSON, as for `serve`")
                .action(ArgAction::Append),
            bool_flag("json", "Print the report as JSON"),
        ])
}

/// The options, if this is the command.
pub(super) fn from_matches(
    matches: &ArgMatches,
    current_dir: Option<&VirtualPath>,
) -> Result<Option<DoctorCommand>, CliError> {
    let Some(given) = matches.subcommand_matches(DOCTOR) else {
        return Ok(None);
    };
    let mut sources = ConfigSources::new();
    let roots = roots(given);
    if !roots.is_empty() {
        let texts = BTreeMap::from([("roots", roots)]);
        sources = sources.with_texts(ConfigSource::Flags, &texts, current_dir)?;
    }
    Ok(Some(DoctorCommand {
        config: sources.effective()?.config,
        json: given.get_flag("json"),
    }))
}
