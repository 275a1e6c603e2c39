//! The command line of `bailiwick check`.

use std::ffi::OsString;
use std::time::Duration;

use bailiwick_cli::check::{Connection, Revision, Target};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::{Map, Value};

use super::CliError;
use super::audit::bool_flag;

const CHECK: &str = "check";
/// The default timeout, in seconds.
const TIMEOUT: &str = "60";

/// The options of `bailiwick check`.
#[derive(Debug)]
pub(crate) struct CheckCommand {
    /// The server.
    pub(crate) target: Target,
    /// How to connect.
    pub(crate) connection: Connection,
    /// The timeout for all checks together.
    pub(crate) within: Duration,
    /// Print JSON.
    pub(crate) json: bool,
}

/// Defines the command.
pub(super) fn command() -> Command {
    Command::new(CHECK)
        .about("Check an MCP server for protocol errors")
        .long_about(
            "Connects to an MCP server, over stdio (COMMAND starts it) or HTTP (--url), and prints a line for each check: pass, \
             warn, fail or skip, its name and details. The checks call one tool that is annotated as read-only, and preview tools \
             that support previews, so they change nothing if these annotations are correct. A server that was started is ended \
             with all processes that it started.\n\nExit status 0 if no check failed, 1 if one failed, 2 if the \
             server cannot be reached, the arguments are wrong or the check is interrupted.\n\nExamples:\n  bailiwick check node server.js\n  bailiwick check --json --url https://example.com/mcp --bearer-env TOKEN",
        )
        .override_usage("bailiwick check [OPTIONS] (COMMAND [ARGS]... | --url URL)")
        .args([
            Arg::new("command")
                .value_name("COMMAND")
                .action(ArgAction::Append)
                .trailing_var_arg(true)
                .value_parser(value_parser!(OsString))
                .conflicts_with_all(["url", "bearer-env"])
                .help("The command that starts the server, and its arguments; options of `check` must precede it"),
            Arg::new("url")
                .long("url")
                .value_name("URL")
                .help("Check the Streamable HTTP server at this URL, http:// or https://; redirects are not followed"),
            Arg::new("bearer-env")
                .long("bearer-env")
                .value_name("VAR")
                .help("Send the value of this environment variable as bearer token (over https:// or to this machine only)"),
            Arg::new("revision")
                .long("revision")
                .value_name("REVISION")
                .value_parser(|text: &str| text.parse::<Revision>())
                .help("The MCP revision: 2025-11-25 (the server may choose an earlier one) or 2026-07-28 (stateless) [default: 2025-11-25]"),
            Arg::new("configuration")
                .long("configuration")
                .value_name("JSON")
                .value_parser(parse_object)
                .help("Send this JSON object as experimental.configuration"),
            Arg::new("timeout")
                .long("timeout")
                .value_name("SECONDS")
                .value_parser(value_parser!(u64).range(1..=3600))
                .default_value(TIMEOUT)
                .help("The timeout for all checks together; each response but the first must arrive within 10 seconds"),
            bool_flag("json", "Print the report as JSON"),
        ])
}

/// Parses a JSON object.
fn parse_object(text: &str) -> Result<Map<String, Value>, serde_json::Error> {
    bailiwick::json::read_json(text.as_bytes())
}

/// The options, if this is the command.
pub(super) fn from_matches(
    matches: &ArgMatches,
    variables: &[(OsString, OsString)],
) -> Result<Option<CheckCommand>, CliError> {
    let Some(given) = matches.subcommand_matches(CHECK) else {
        return Ok(None);
    };
    let command = given.get_many::<OsString>("command");
    let mut command = command.into_iter().flatten().cloned();
    let target = match (given.get_one::<String>("url"), command.next()) {
        (Some(url), _) => {
            let bearer = given.get_one::<String>("bearer-env");
            let bearer = bearer.map(|name| variable(name, variables)).transpose()?;
            Target::url(url, bearer)?
        }
        (None, Some(program)) => Target::command(program, command),
        (None, None) => return Err(CliError::NoServer),
    };
    let connection = Connection {
        revision: given.get_one("revision").copied().unwrap_or_default(),
        configuration: given.get_one("configuration").cloned(),
    };
    let seconds = given.get_one("timeout").copied().unwrap_or_default();
    Ok(Some(CheckCommand {
        target,
        connection,
        within: Duration::from_secs(seconds),
        json: given.get_flag("json"),
    }))
}

/// The value of an environment variable.
fn variable(name: &str, variables: &[(OsString, OsString)]) -> Result<String, CliError> {
    let found = variables.iter().find(|(variable, _)| variable == name);
    let (_, value) = found.ok_or_else(|| CliError::NoBearer(name.to_owned()))?;
    let value = value.to_str();
    let value = value.ok_or_else(|| CliError::NotUtf8(name.to_owned()))?;
    Ok(value.to_owned())
}
