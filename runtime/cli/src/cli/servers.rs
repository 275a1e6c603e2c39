//! The command line of `bailiwick servers`, and the flags for third-party MCP servers.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use bailiwick_mcp::upstream::Bounds;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use super::CliError;
use super::audit::bool_flag;

const SERVERS: &str = "servers";

/// The prefix of environment variables with values for `${input:ID}`.
pub(crate) const INPUT_PREFIX: &str = "BAILIWICK_INPUT_";

/// A servers file, and the values of its placeholders.
#[derive(Clone, Debug)]
pub(crate) struct ServersOptions {
    /// The servers file (`mcp.json`).
    pub(crate) file: PathBuf,
    /// The file with the fingerprints of approved tools, or `None` for the default in the state directory.
    pub(crate) pins: Option<PathBuf>,
    /// The timeout for starting a server.
    pub(crate) start_timeout: Duration,
    /// The environment without the variables of this program.
    pub(crate) variables: BTreeMap<String, String>,
    /// The values of inputs, by variable name without the prefix.
    pub(crate) inputs: BTreeMap<String, String>,
}

/// The options of `bailiwick servers`.
#[derive(Debug)]
pub(crate) struct ServersCommand {
    pub(crate) options: ServersOptions,
    /// Tools to approve, as `TOOL@FINGERPRINT`.
    pub(crate) approve: Vec<String>,
    /// Print JSON lines.
    pub(crate) json: bool,
}

/// The flags of `bailiwick serve` for third-party servers.
pub(super) fn flags() -> [Arg; 3] {
    [
        Arg::new(SERVERS)
            .long(SERVERS)
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help(
                "Also offer the tools, resources and prompts of the MCP servers in this file (an editor's mcp.json); the file tools are \
                 offered only with a ROOT. Calls need approval unless --allow covers them, such as read:mcp:NAME",
            ),
        pins().requires(SERVERS),
        start_timeout().requires(SERVERS),
    ]
}

fn pins() -> Arg {
    Arg::new("pins")
        .long("pins")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .help("Store the fingerprints of approved tools in this file; changed and added tools are withheld until you approve them [default: bailiwick/pins in the state directory]")
}

fn start_timeout() -> Arg {
    let default = Bounds::default().connect.as_secs();
    Arg::new("start-timeout")
        .long("start-timeout")
        .value_name("SECONDS")
        .value_parser(value_parser!(u64).range(1..=3600))
        .help(format!(
            "The timeout for each server to start, connect and list its tools [default: {default}]"
        ))
}

/// Defines the command.
pub(super) fn command() -> Command {
    Command::new(SERVERS)
        .about("Show the MCP servers in a file and their tools, and approve tools that changed")
        .long_about(
            "Connects to the MCP servers in FILE (an editor's mcp.json) and shows each server with its tools, or why it is not \
             available. Tools that were changed or added since the last approval are withheld from models. Review their \
             descriptions, then approve them with --approve.\n\nExample: bailiwick servers mcp.json --approve notes__search@1a2b3c4d",
        )
        .args([
            Arg::new("file")
                .value_name("FILE")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("The servers file"),
            pins(),
            start_timeout(),
            Arg::new("approve")
                .long("approve")
                .value_name("TOOL@FINGERPRINT")
                .action(ArgAction::Append)
                .help("Approve a tool with this fingerprint, as shown"),
            bool_flag("json", "Print JSON lines"),
        ])
}

/// The options of `bailiwick serve` for third-party servers, if any.
pub(super) fn options(matches: &ArgMatches, variables: &Environment) -> Option<ServersOptions> {
    let file = matches.get_one::<PathBuf>(SERVERS)?;
    Some(variables.options(file, matches))
}

/// The options, if this is the command.
pub(super) fn from_matches(
    matches: &ArgMatches,
    variables: &Environment,
) -> Option<ServersCommand> {
    let given = matches.subcommand_matches(SERVERS)?;
    let approve = given.get_many::<String>("approve");
    Some(ServersCommand {
        options: variables.options(given.get_one::<PathBuf>("file")?, given),
        approve: approve.into_iter().flatten().cloned().collect(),
        json: given.get_flag("json"),
    })
}

/// Environment variables for placeholders.
#[derive(Debug, Default)]
pub(super) struct Environment {
    variables: BTreeMap<String, String>,
    inputs: BTreeMap<String, String>,
}

impl Environment {
    /// Removes input values from the environment. Variables that are not UTF-8 are not available to placeholders.
    pub(super) fn read(
        variables: Vec<(OsString, OsString)>,
    ) -> Result<(Self, Vec<(OsString, OsString)>), CliError> {
        let (mut environment, mut rest) = (Self::default(), Vec::new());
        for (name, value) in variables {
            let input = name
                .to_str()
                .and_then(|name| name.strip_prefix(INPUT_PREFIX));
            if let Some(input) = input {
                let not_utf8 = |_| CliError::NotUtf8(format!("{INPUT_PREFIX}{input}"));
                let value = value.into_string().map_err(not_utf8)?;
                environment.inputs.insert(input.to_owned(), value);
                continue;
            }
            if let (Some(name), Some(value)) = (name.to_str(), value.to_str())
                && !name.starts_with("BAILIWICK_")
            {
                environment.variables.insert(name.into(), value.into());
            }
            rest.push((name, value));
        }
        Ok((environment, rest))
    }

    fn options(&self, file: &std::path::Path, given: &ArgMatches) -> ServersOptions {
        ServersOptions {
            file: file.to_owned(),
            pins: given.get_one::<PathBuf>("pins").cloned(),
            start_timeout: given
                .get_one("start-timeout")
                .map_or(Bounds::default().connect, |seconds| {
                    Duration::from_secs(*seconds)
                }),
            variables: self.variables.clone(),
            inputs: self.inputs.clone(),
        }
    }
}

/// The variable name of an input without the prefix: capital letters, digits and `_`.
pub(crate) fn input_variable_suffix(id: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    id.chars()
        .map(plain)
        .collect::<String>()
        .to_ascii_uppercase()
}
