//! The command lines of `bailiwick check` and `bailiwick test-host`, which name an MCP server in the same way.

use std::ffi::OsString;

use bailiwick_cli::check::{Connection, Revision, Target};
use clap::{Args, value_parser};
use serde_json::{Map, Value};

use super::CliError;

/// The flags that name a server and how to connect to it.
#[derive(Debug, Args)]
pub(super) struct ServerFlags {
    /// The command that starts the server, and its arguments; options must precede it
    #[arg(trailing_var_arg = true, conflicts_with_all = ["url", "bearer_env"])]
    command: Vec<OsString>,
    /// Connect to the Streamable HTTP server at this URL, http:// or https://; redirects are not followed
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
}

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
pub(super) struct CheckFlags {
    #[command(flatten)]
    pub(super) server: ServerFlags,
    /// The timeout for all checks together; each response but the first must arrive within 10 seconds
    #[arg(
        long,
        value_name = "SECONDS",
        value_parser = value_parser!(u64).range(1..=3600),
        default_value_t = 60
    )]
    pub(super) timeout: u64,
    /// Print the report as JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Try an MCP server on a local web page
#[derive(Debug, Args)]
#[command(
    long_about = "Connects to an MCP server, over stdio (COMMAND starts it) or HTTP (--url), serves a web page for trying it on \
        this machine, and prints the URL of the page. The page calls and previews the server's tools, asks you before it \
        grants the scopes that a call lacks, shows the server's MCP Apps views in a sandbox, has forms for its configuration \
        and policies, runs the checks of `bailiwick check`, and lists all messages. It can also start the server again.\n\n\
        Ctrl-C ends the page, and a server that was started with all processes that it started. Exit status 0 then, 2 if the arguments are \
        wrong or the page cannot be served. Use `bailiwick check` in scripts.\n\nExamples:\n  \
        bailiwick test-host node server.js\n  bailiwick test-host --url https://example.com/mcp --bearer-env TOKEN\n  \
        bailiwick test-host bailiwick serve ./my-repo",
    override_usage = "bailiwick test-host [OPTIONS] (COMMAND [ARGS]... | --url URL)"
)]
pub(super) struct TestHostFlags {
    #[command(flatten)]
    pub(super) server: ServerFlags,
    /// Serve the page on this port of 127.0.0.1; 0 is any free port
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(super) port: u16,
}

/// Parses a JSON object.
fn parse_object(text: &str) -> Result<Map<String, Value>, serde_json::Error> {
    bailiwick::json::read_json(text.as_bytes())
}

impl ServerFlags {
    /// The server. `command` is the name of the command with these flags.
    pub(super) fn target(
        &self,
        command: &'static str,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Target, CliError> {
        if let Some(url) = &self.url {
            let bearer = self.bearer_env.as_ref();
            let bearer = bearer.map(|name| variable(name, variables)).transpose()?;
            return Ok(Target::url(url, bearer)?);
        }
        let parts = self.command.split_first();
        let (program, arguments) = parts.ok_or(CliError::NoServer(command))?;
        Ok(Target::command(program, arguments))
    }

    /// How to connect.
    pub(super) fn connection(self) -> Connection {
        Connection {
            revision: self.revision,
            configuration: self.configuration,
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
