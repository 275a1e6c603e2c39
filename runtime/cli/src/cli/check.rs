//! The command line of `bailiwick check`.

use std::ffi::OsString;

use bailiwick_cli::check::{Connection, Revision, Target};
use clap::{Args, value_parser};
use serde_json::{Map, Value};

use super::CliError;

/// Check an MCP server for protocol errors
#[derive(Debug, Args)]
#[command(
    long_about = "Connects to an MCP server, over stdio (COMMAND starts it) or HTTP (--url), and prints a line for each check: pass, \
        warn, fail or skip, its name and details. The checks call one tool that is annotated as read-only, and preview tools \
        that support previews, so they change nothing if these annotations are correct. A server that was started is ended \
        with all processes that it started.\n\nExit status 0 if no check failed, 1 if one failed, 2 if the \
        server cannot be reached, the arguments are wrong or the check is interrupted.\n\nExamples:\n  bailiwick check node server.js\n  bailiwick check --json --url https://example.com/mcp --bearer-env TOKEN",
    override_usage = "bailiwick check [OPTIONS] (COMMAND [ARGS]... | --url URL)"
)]
pub(crate) struct CheckFlags {
    /// The command that starts the server, and its arguments; options of `check` must precede it
    #[arg(trailing_var_arg = true, conflicts_with_all = ["url", "bearer_env"])]
    command: Vec<OsString>,
    /// Check the Streamable HTTP server at this URL, http:// or https://; redirects are not followed
    #[arg(long)]
    url: Option<String>,
    /// Send the value of this environment variable as bearer token (over https:// or to this machine only)
    #[arg(long, value_name = "VAR")]
    bearer_env: Option<String>,
    /// The MCP revision: 2025-11-25 (the server may choose an earlier one) or 2026-07-28 (stateless)
    #[arg(long, default_value_t)]
    revision: Revision,
    /// Send this JSON object as experimental.configuration
    #[arg(long, value_name = "JSON", value_parser = parse_object)]
    configuration: Option<Map<String, Value>>,
    /// The timeout for all checks together; each response but the first must arrive within 10 seconds
    #[arg(
        long,
        value_name = "SECONDS",
        value_parser = value_parser!(u64).range(1..=3600),
        default_value_t = 60
    )]
    pub(crate) timeout: u64,
    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Parses a JSON object.
fn parse_object(text: &str) -> Result<Map<String, Value>, serde_json::Error> {
    bailiwick::json::read_json(text.as_bytes())
}

impl CheckFlags {
    /// The server.
    pub(super) fn target(
        &self,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Target, CliError> {
        if let Some(url) = &self.url {
            let bearer = self.bearer_env.as_ref();
            let bearer = bearer.map(|name| variable(name, variables)).transpose()?;
            return Ok(Target::url(url, bearer)?);
        }
        let (program, arguments) = self.command.split_first().ok_or(CliError::NoServer)?;
        Ok(Target::command(program, arguments))
    }

    /// How to connect.
    pub(crate) fn connection(&self) -> Connection {
        Connection {
            revision: self.revision,
            configuration: self.configuration.clone(),
        }
    }
}

/// The value of an environment variable.
fn variable(
    name: &str,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<String, CliError> {
    let mut variables = variables.into_iter();
    let found = variables.find(|(variable, _)| variable == name);
    let (_, value) = found.ok_or_else(|| CliError::NoBearer(name.to_owned()))?;
    let not_utf8 = |_| CliError::NotUtf8(name.to_owned());
    value.into_string().map_err(not_utf8)
}
