//! Parses the command line, the environment and the configuration file.

mod audit;
mod check;
mod command;
mod doctor;
mod durability;
mod grants;
mod http;
mod journal;
mod run;
mod servers;
#[cfg(test)]
mod tests;
mod variables;
mod when;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{ArgMatches, FromArgMatches as _};
use command::{Cli, CliCommand};
use serde_json::json;

pub(crate) use audit::{HistoryCommand, VerifyCommand};
pub(crate) use command::{Ask, ServeFlags};
pub(crate) use grants::{GrantsCommand, TemplatesCommand};
pub(crate) use journal::JournalCommand;
use journal::UndoFlags;
use run::RunFlags;
pub(crate) use servers::{INPUT_PREFIX, ServersOptions, input_variable_suffix};
pub(crate) use when::format_time;

use crate::bounded_file::{self, ReadError};
use crate::journal::{UndoOptions, Which};
use crate::run::RunOptions;
use bailiwick::config::{ConfigError, ConfigSource, ConfigSources, Key};
use bailiwick::describe::UnknownSection;
use bailiwick::{Config, VirtualPath};
use bailiwick_cli::check::{Connection, Target, UrlError};
use bailiwick_exec::Commands;
use bailiwick_fs::Durability;
use bailiwick_mcp::gateway::{Rate, Trust};

/// The maximum size of a configuration file, in bytes.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// What to do.
#[derive(Debug)]
pub(crate) enum Invocation {
    /// Print a text to standard output.
    Print(String),
    /// Show the history of an audit.
    History(HistoryCommand),
    /// Verify an audit.
    Verify(VerifyCommand),
    /// Show or change grants.
    Grants(GrantsCommand),
    /// List the changes in a journal.
    Journal(JournalCommand),
    /// Undo changes.
    Undo(Box<UndoOptions>),
    /// Show or check templates.
    Templates(TemplatesCommand),
    /// Show third-party servers, and approve tools given as `TOOL@FINGERPRINT`.
    Servers {
        options: ServersOptions,
        approve: Vec<String>,
        json: bool,
    },
    /// Check an MCP server.
    Check {
        target: Target,
        connection: Connection,
        timeout: Duration,
        json: bool,
    },
    /// Serve a page for trying an MCP server on this loopback port.
    TestHost {
        target: Target,
        connection: Connection,
        port: u16,
    },
    /// Report what this machine can enforce for the roots of this configuration.
    Doctor { config: Box<Config>, json: bool },
    /// Run a command in a sandbox.
    Run(Box<RunOptions>),
    /// Serve MCP.
    Serve(Box<Options>),
}

/// The options of `bailiwick serve`.
#[derive(Debug)]
pub(crate) struct Options {
    /// The flags. Accepted `Host` and `Origin` headers may also come from variables.
    pub(crate) flags: ServeFlags,
    /// The configuration from file, environment and flags, parsed and checked.
    pub(crate) sources: ConfigSources,
    /// The trust in clients.
    pub(crate) trust: Trust,
    /// The durability of writes.
    pub(crate) durability: Durability,
    /// The bearer token that HTTP clients must send, or `None` to generate one.
    pub(crate) token: Option<String>,
    /// Third-party servers whose tools are offered, too.
    pub(crate) servers: Option<ServersOptions>,
    /// The tool that runs commands, if it is offered.
    pub(crate) commands: Option<Commands>,
}

/// Invalid arguments, environment variables or configuration file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    #[error("{0}")]
    Arguments(String),
    #[error("missing command, such as `bailiwick serve ./my-repo`; see --help")]
    NoCommand,
    #[error("unknown variable `{0}`; see --help")]
    Variable(String),
    #[error("`{0}` is not UTF-8")]
    NotUtf8(String),
    #[error("--grants needs --trust host: untrusted clients could use the name of another agent")]
    Grants,
    #[error("`{0}` must be at least 32 visible ASCII characters")]
    Token(&'static str),
    #[error("each item of `{variable}` {reason}")]
    Name {
        variable: &'static str,
        reason: http::AllowListError,
    },
    #[error("{0} must be `visible`, `ordered` or `durable`")]
    Durability(String),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("invalid JSON in the configuration file `{}`", .path.display())]
    Json {
        path: PathBuf,
        source: serde_json::Error,
    },
    #[error(
        "missing server: use `bailiwick {0} COMMAND [ARGS]...` to start one over stdio, or `bailiwick {0} --url URL` \
         to connect to one over HTTP"
    )]
    NoServer(&'static str),
    #[error("invalid --toolchain `{}`", .path.display())]
    Toolchain { path: PathBuf, source: io::Error },
    #[error("invalid --toolchain `{}`: it contains `{}`, which commands must not read; keep that elsewhere", .path.display(), .held.display())]
    ToolchainHolds { path: PathBuf, held: PathBuf },
    #[error("invalid --env `{0}`: must be NAME=VALUE, or the name of a variable that is set")]
    Env(String),
    #[error("the environment variable `{0}` (--bearer-env) is not set")]
    NoBearer(String),
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error(transparent)]
    Section(#[from] UnknownSection),
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// Parses the command line. Relative roots are resolved against `current_dir`.
pub(crate) fn parse(
    arguments: impl IntoIterator<Item = OsString>,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    current_dir: Option<&VirtualPath>,
) -> Result<Invocation, CliError> {
    let matches = command::command().try_get_matches_from(arguments);
    let parsed = matches.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let (cli, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return clap_output(&error),
    };
    Ok(match cli.command {
        None => {
            let text = cli.print.text(Rate::default())?;
            Invocation::Print(text.ok_or(CliError::NoCommand)?)
        }
        Some(CliCommand::History(command)) => Invocation::History(command),
        Some(CliCommand::Verify(command)) => Invocation::Verify(command),
        Some(CliCommand::Grants(command)) => Invocation::Grants(command),
        Some(CliCommand::Journal(command)) => Invocation::Journal(command),
        Some(CliCommand::Undo(flags)) => {
            Invocation::Undo(Box::new(undo_options(flags, current_dir)?))
        }
        Some(CliCommand::Templates(command)) => Invocation::Templates(command),
        Some(CliCommand::Doctor(flags)) => {
            let mut sources = ConfigSources::new();
            let texts = roots(flags.root);
            if !texts.is_empty() {
                let texts = BTreeMap::from([("roots", texts)]);
                sources = sources.with_texts(ConfigSource::Flags, &texts, current_dir)?;
            }
            Invocation::Doctor {
                config: Box::new(sources.effective()?.config),
                json: flags.json,
            }
        }
        Some(CliCommand::Check(flags)) => Invocation::Check {
            target: flags.server.target("check", variables)?,
            connection: flags.server.connection(),
            timeout: Duration::from_secs(flags.timeout),
            json: flags.json,
        },
        Some(CliCommand::TestHost(flags)) => Invocation::TestHost {
            target: flags.server.target("test-host", variables)?,
            connection: flags.server.connection(),
            port: flags.port,
        },
        Some(CliCommand::Servers(flags)) => Invocation::Servers {
            options: ServersOptions {
                file: flags.file,
                pins: flags.pins,
                environment: servers::Environment::read(variables)?.0,
            },
            approve: flags.approve,
            json: flags.json,
        },
        Some(CliCommand::Run(flags)) => {
            let keys = matches.subcommand_matches(command::RUN);
            let keys = keys.map(key_flags).unwrap_or_default();
            Invocation::Run(Box::new(run_options(flags, keys, variables, current_dir)?))
        }
        Some(CliCommand::Serve(flags)) => match flags.print.text(flags.rate)? {
            Some(text) => Invocation::Print(text),
            None => {
                let keys = matches.subcommand_matches(command::SERVE);
                let keys = keys.map(key_flags).unwrap_or_default();
                Invocation::Serve(Box::new(serve_options(
                    *flags,
                    keys,
                    variables,
                    current_dir,
                )?))
            }
        },
    })
}

/// Completes the flags of `bailiwick serve` with the configuration and the environment. `keys` are the flags of
/// configuration keys.
fn serve_options(
    mut flags: ServeFlags,
    mut keys: BTreeMap<&'static str, Vec<String>>,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    current_dir: Option<&VirtualPath>,
) -> Result<Options, CliError> {
    let (environment, mut variables) = servers::Environment::read(variables)?;
    let commands = flags
        .exec
        .then(|| flags.commands.add_to(Commands::new(), &variables));
    let commands = commands.transpose()?;
    let (mut sources, durability) = read_file(flags.config.as_deref())?;
    let token = variables::take_token(&mut variables)?;
    http::complete(&mut flags, &mut variables)?;
    let durability = durability::resolve(flags.durability, &mut variables, durability)?;
    let texts = variables::field_values(variables)?;
    sources = sources.with_texts(ConfigSource::Environment, &texts, current_dir)?;
    let roots = roots(std::mem::take(&mut flags.root));
    if !roots.is_empty() {
        keys.entry("roots").or_default().extend(roots);
    }
    sources = sources.with_texts(ConfigSource::Flags, &keys, current_dir)?;
    let trust = flags.trust.unwrap_or_else(|| default_trust(flags.http));
    if flags.grants.is_some() && trust != Trust::Host {
        return Err(CliError::Grants);
    }
    let servers = flags.servers.clone().map(|file| ServersOptions {
        file,
        pins: flags.pins.clone(),
        environment,
    });
    let mut kept_out: Vec<_> = [&flags.config, &flags.audit, &flags.grants, &flags.journal]
        .into_iter()
        .flatten()
        .cloned()
        .collect();
    if let Some(servers) = &servers {
        kept_out.push(servers.file.clone());
        kept_out.extend(crate::servers::pins_file(servers));
    }
    flags.commands.keep_out(&kept_out)?;
    Ok(Options {
        flags,
        sources,
        trust,
        durability,
        token,
        servers,
        commands,
    })
}

/// Completes the flags of `bailiwick run` as those of `bailiwick serve`. The root is the current directory by default.
fn run_options(
    flags: RunFlags,
    mut keys: BTreeMap<&'static str, Vec<String>>,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    current_dir: Option<&VirtualPath>,
) -> Result<RunOptions, CliError> {
    let (_, mut variables) = servers::Environment::read(variables)?;
    let term = variables.iter().find(|(name, _)| name == "TERM");
    let mut commands = Commands::new();
    if let Some(term) = term.and_then(|(_, value)| value.to_str()) {
        commands = commands.env("TERM", term);
    }
    let has_optional_layers = !flags.commands.optional_layers.is_empty();
    flags.commands.keep_out(flags.config.as_slice())?;
    let commands = flags.commands.add_to(commands, &variables)?;
    let (sources, _) = read_file(flags.config.as_deref())?;
    variables::drop_serve_only(&mut variables);
    let texts = variables::field_values(variables)?;
    let mut sources = sources.with_texts(ConfigSource::Environment, &texts, current_dir)?;
    let roots = roots(flags.root);
    if !roots.is_empty() {
        keys.insert("roots", roots);
    }
    if !keys.contains_key("roots") && sources.effective()?.config.roots.is_empty() {
        keys.insert("roots", vec![json!(["."]).to_string()]);
    }
    sources = sources.with_texts(ConfigSource::Flags, &keys, current_dir)?;
    Ok(RunOptions {
        sources,
        config: flags.config,
        commands,
        has_optional_layers,
        argv: flags.argv,
        overlay: flags.overlay,
        current_dir: current_dir.cloned(),
    })
}

/// Completes the flags of `bailiwick undo`. The root is the current directory by default.
fn undo_options(
    flags: UndoFlags,
    current_dir: Option<&VirtualPath>,
) -> Result<UndoOptions, CliError> {
    let mut texts = roots(flags.root);
    if texts.is_empty() {
        texts.push(json!(["."]).to_string());
    }
    let texts = BTreeMap::from([("roots", texts)]);
    let sources = ConfigSources::new().with_texts(ConfigSource::Flags, &texts, current_dir)?;
    Ok(UndoOptions {
        directory: flags.directory,
        sources,
        which: match flags.agent {
            Some(agent) => Which::Agent(agent),
            None => Which::Changes(flags.change),
        },
        preview: flags.preview,
    })
}

/// Reads the configuration file and the durability that it sets.
fn read_file(path: Option<&Path>) -> Result<(ConfigSources, Option<Durability>), CliError> {
    // Tools that this invocation does not offer are known, too.
    let mut tools = [&bailiwick_fs::TOOL_NAMES[..], &bailiwick_exec::TOOL_NAMES].concat();
    tools.sort_unstable();
    let sources = ConfigSources::new().tools(tools);
    let sources = sources.resources(["file", "command", "network", "mcp"]);
    let Some(path) = path else {
        return Ok((sources, None));
    };
    let bytes = bounded_file::read("configuration file", path, MAX_CONFIG_BYTES)?;
    let invalid = |source| CliError::Json {
        path: path.to_owned(),
        source,
    };
    let mut document = bailiwick::json::read_json(&bytes).map_err(invalid)?;
    let durability = durability::take(path, &mut document)?;
    Ok((sources.with(ConfigSource::File, document)?, durability))
}

fn default_trust(http: Option<SocketAddr>) -> Trust {
    match http {
        // A client over stdio started this program, while any local program can connect to a port.
        None => Trust::Client,
        Some(_) => Trust::Agent,
    }
}

/// The values of the flags of configuration keys.
fn key_flags(matches: &ArgMatches) -> BTreeMap<&'static str, Vec<String>> {
    let given = |field: &Key| {
        // `bailiwick run` does not have all of them.
        let texts = matches.try_get_many::<String>(&field.flag()).ok()?;
        texts.map(|texts| texts.cloned().collect())
    };
    Key::settable()
        .filter_map(|field| Some((field.key, given(field)?)))
        .collect()
}

/// Positional arguments, as texts of the configuration key `roots`.
fn roots(arguments: Vec<String>) -> Vec<String> {
    arguments.into_iter().map(root_argument).collect()
}

/// A positional argument: JSON, or a single directory whose name may contain commas.
fn root_argument(argument: String) -> String {
    if argument.starts_with(['[', '{']) {
        argument
    } else {
        json!([argument]).to_string()
    }
}

/// The help or version text, or a clap error on one line.
fn clap_output(error: &clap::Error) -> Result<Invocation, CliError> {
    let text = error.to_string();
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    ) {
        return Ok(Invocation::Print(text));
    }
    let join_lines = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut parts = text.split("\n\n");
    let first = join_lines(parts.next().unwrap_or_default());
    let mut line = first.strip_prefix("error: ").unwrap_or(&first).to_owned();
    if let Some(usage) = parts.find_map(|part| part.strip_prefix("Usage: ")) {
        line += &format!(" (usage: {})", join_lines(usage));
    }
    Err(CliError::Arguments(line))
}
