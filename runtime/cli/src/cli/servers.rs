//! The command line of `bailiwick servers`, and the flags for third-party MCP servers.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use bailiwick_mcp::upstream::Bounds;
use clap::{Args, value_parser};

use super::CliError;
use super::variables::Variables;

/// The prefix of environment variables with values for `${input:ID}`.
pub(crate) const INPUT_PREFIX: &str = "BAILIWICK_INPUT_";

/// A servers file, and the values of its placeholders.
#[derive(Clone, Debug)]
pub(crate) struct ServersOptions {
    /// The servers file (`mcp.json`).
    pub(crate) file: PathBuf,
    pub(crate) pins: PinFlags,
    pub(crate) environment: Environment,
}

/// The flags of commands that start third-party servers.
#[derive(Clone, Debug, Args)]
pub(crate) struct PinFlags {
    /// Store the fingerprints of approved tools in this file; changed and added tools are withheld until you
    /// approve them [default: bailiwick/pins in the state directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) pins: Option<PathBuf>,
    /// The timeout for each server to start, connect and list its tools
    #[arg(
        long,
        value_name = "SECONDS",
        value_parser = value_parser!(u64).range(1..=3600),
        default_value_t = Bounds::default().connect.as_secs()
    )]
    pub(crate) start_timeout: u64,
}

/// Show the MCP servers in a file and their tools, and approve tools that changed
#[derive(Debug, Args)]
#[command(
    long_about = "Connects to the MCP servers in FILE (an editor's mcp.json) and shows each server with its tools, or why it is not \
        available. Tools that were changed or added since the last approval are withheld from models. Review their \
        descriptions, then approve them with --approve.\n\nExample: bailiwick servers mcp.json --approve notes__search@1a2b3c4d"
)]
pub(crate) struct ServersFlags {
    /// The servers file
    pub(super) file: PathBuf,
    #[command(flatten)]
    pub(super) pins: PinFlags,
    /// Approve a tool with this fingerprint, as shown
    #[arg(long, value_name = "TOOL@FINGERPRINT")]
    pub(crate) approve: Vec<String>,
    /// Print JSON lines
    #[arg(long)]
    pub(crate) json: bool,
}

/// Environment variables for placeholders.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    /// The environment without the variables of this program.
    pub(crate) variables: BTreeMap<String, String>,
    /// The values of inputs, by variable name without the prefix.
    pub(crate) inputs: BTreeMap<String, String>,
}

impl Environment {
    /// Removes input values from the environment. Variables that are not UTF-8 are not available to placeholders.
    pub(super) fn read(
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<(Self, Variables), CliError> {
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
}

/// The variable name of an input without the prefix: capital letters, digits and `_`.
pub(crate) fn input_variable_suffix(id: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    id.chars()
        .map(plain)
        .collect::<String>()
        .to_ascii_uppercase()
}
