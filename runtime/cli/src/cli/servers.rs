//! The part of the command line about third-party MCP servers.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use bailiwick::Bounds;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use super::CliError;
use super::audit::bool_flag;

const SERVERS: &str = "servers";

/// What the names of all variables with values for `${input:ID}` begin with.
pub(crate) const INPUT_PREFIX: &str = "BAILIWICK_INPUT_";

/// A file of servers, and what the placeholders in it stand for.
#[derive(Clone, Debug)]
pub(crate) struct ServersOptions {
    /// The file, as editors write it.
    pub(crate) file: PathBuf,
    /// Where the approved forms of tools are kept; else in the state directory.
    pub(crate) pins: Option<PathBuf>,
    /// How long a server may take to start.
    pub(crate) start_timeout: Duration,
    /// The environment of the program, without the variables that are this program's own.
    pub(crate) variables: BTreeMap<String, String>,
    /// The values of inputs, by the end of the variable's name.
    pub(crate) inputs: BTreeMap<String, String>,
}

/// A look at servers and their tools.
#[derive(Debug)]
pub(crate) struct ServersCommand {
    pub(crate) options: ServersOptions,
    /// Tools to approve in the form that they have now, as `NAME@FORM`.
    pub(crate) approve: Vec<String>,
    /// As JSON lines, for programs.
    pub(crate) json: bool,
}

/// The flags of a server that has third-party servers behind it.
pub(super) fn flags() -> [Arg; 3] {
    [
        Arg::new(SERVERS)
            .long(SERVERS)
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help(
                "Offer the tools, resources and prompts of the MCP servers in this file (mcp.json as editors write it), too; \
                 without a ROOT nothing else is offered. Calls of them ask, unless --allow says otherwise, such as read:mcp:NAME",
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
        .help("Remember the tools of --servers in this file; changed and added tools are withheld until you approve them [default: bailiwick/pins in the state directory]")
}

fn start_timeout() -> Arg {
    let default = Bounds::default().connect.as_secs();
    Arg::new("start-timeout")
        .long("start-timeout")
        .value_name("SECONDS")
        .value_parser(value_parser!(u64).range(1..=3600))
        .help(format!(
            "How long each of the servers may take to start, connect and list its tools [default: {default}]"
        ))
}

/// The command that looks at servers.
pub(super) fn command() -> Command {
    Command::new(SERVERS)
        .about("Show the MCP servers in a file and their tools, and approve tools that changed")
        .long_about(
            "Connects to the MCP servers in FILE (mcp.json as editors write it) and shows each with its tools, or why it cannot be \
             used. A tool that changed since it was approved, or that was added since, is withheld from models; read what it says, \
             then approve that form of it with --approve.\n\nExample: bailiwick servers mcp.json --approve notes__search@1a2b3c4d",
        )
        .args([
            Arg::new("file")
                .value_name("FILE")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("The file with the servers"),
            pins(),
            start_timeout(),
            Arg::new("approve")
                .long("approve")
                .value_name("TOOL@FORM")
                .action(ArgAction::Append)
                .help("Approve this form of a tool, as it is shown"),
            bool_flag("json", "Print JSON lines"),
        ])
}

/// What servers a gateway has, if any.
pub(super) fn options(matches: &ArgMatches, variables: &Environment) -> Option<ServersOptions> {
    let file = matches.get_one::<PathBuf>(SERVERS)?;
    Some(variables.options(file, matches))
}

/// What is wanted of servers, if it is that command.
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

/// What the environment has for placeholders.
#[derive(Debug, Default)]
pub(super) struct Environment {
    variables: BTreeMap<String, String>,
    inputs: BTreeMap<String, String>,
}

impl Environment {
    /// Takes the values of inputs out of the environment. A variable that is not UTF-8 has no value for a placeholder.
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

/// The end of the variable's name for an input: capitals, digits and `_`.
pub(crate) fn input_variable_suffix(id: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    id.chars()
        .map(plain)
        .collect::<String>()
        .to_ascii_uppercase()
}
