//! Parses the command line, the environment and the configuration file.

mod audit;
mod check;
mod command;
mod doctor;
mod durability;
mod file;
mod grants;
mod http;
mod servers;
#[cfg(test)]
mod tests;
mod variables;
mod when;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use bailiwick::config::Key;
use bailiwick::config::{ConfigSource, ConfigSources};
use bailiwick::describe::UnknownSection;
use bailiwick::{ConfigError, JsonLines, VirtualPath};
use bailiwick_cli::check::UrlError;
use bailiwick_fs::Durability;
use bailiwick_mcp::gateway::{Rate, Trust};
use clap::ArgMatches;
use clap::error::ErrorKind;
use serde_json::json;
use tracing::level_filters::LevelFilter;

pub(crate) use audit::{AuditAction, AuditCommand, HistoryView};
pub(crate) use check::CheckCommand;
pub(crate) use doctor::DoctorCommand;
pub(crate) use grants::{ApplyTemplate, GrantsAction, GrantsCommand, TemplatesCommand};
pub(crate) use http::AllowList;
pub(crate) use servers::{INPUT_PREFIX, ServersCommand, ServersOptions, input_variable_suffix};
pub(crate) use when::format_time;

/// What to do.
#[derive(Debug)]
pub(crate) enum Invocation {
    /// Print a text to standard output.
    Print(String),
    /// Show or verify an audit.
    Audit(AuditCommand),
    /// Show or change grants.
    Grants(GrantsCommand),
    /// Show or check templates.
    Templates(TemplatesCommand),
    /// Show third-party servers and approve their tools.
    Servers(ServersCommand),
    /// Check an MCP server.
    Check(Box<CheckCommand>),
    /// Report what this machine can enforce.
    Doctor(Box<DoctorCommand>),
    /// Serve MCP.
    Serve(Box<Options>),
}

/// The options of `bailiwick serve`.
#[derive(Debug)]
pub(crate) struct Options {
    /// The configuration from file, environment and flags, parsed and checked.
    pub(crate) sources: ConfigSources,
    /// The configuration file; no root may contain it.
    pub(crate) config_file: Option<PathBuf>,
    /// The address to listen on, or `None` to serve standard input and output.
    pub(crate) http: Option<SocketAddr>,
    /// Further accepted values of the `Host` and `Origin` headers.
    pub(crate) allowed: AllowList,
    /// The trust in clients.
    pub(crate) trust: Trust,
    /// The audit file, or `None` to audit in memory.
    pub(crate) audit: Option<PathBuf>,
    /// The size at which the audit file is rotated, or 0 to never rotate it.
    pub(crate) audit_segment_bytes: u64,
    /// The file of stored grants, or `None` to keep grants in memory.
    pub(crate) grants: Option<PathBuf>,
    /// The socket of a worker's endpoint to forward standard input and output to.
    pub(crate) attach: Option<PathBuf>,
    /// How calls that need approval are handled.
    pub(crate) ask: Ask,
    /// The durability of writes.
    pub(crate) durability: Durability,
    /// The rate limit of a connection.
    pub(crate) rate: Rate,
    /// The bearer token that HTTP clients must send, or `None` to generate one.
    pub(crate) token: Option<String>,
    /// Third-party servers whose tools are offered, too.
    pub(crate) servers: Option<ServersOptions>,
    /// The log level.
    pub(crate) log: LevelFilter,
}

/// How calls that need approval are handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ask {
    /// `Client` if the client supports elicitation, else `Page` if the program was started on a terminal, else `Replay`.
    #[default]
    Auto,
    /// The call fails with the missing scopes, and a trusted client repeats it with these scopes.
    Replay,
    /// The client asks its user by elicitation.
    Client,
    /// A person answers on the approval page.
    Page,
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
    #[error("cannot read the configuration file `{}`", .path.display())]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("invalid JSON in the configuration file `{}`", .path.display())]
    Json {
        path: PathBuf,
        source: serde_json::Error,
    },
    #[error("the configuration file `{}` is larger than {max} bytes", .path.display())]
    TooLarge { path: PathBuf, max: u64 },
    #[error(
        "missing server: use `bailiwick check COMMAND [ARGS]...` to start one over stdio, or `bailiwick check --url URL` \
         to connect to one over HTTP"
    )]
    NoServer,
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
    let matches = match command::command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => return clap_output(&error),
    };
    if let Some(wanted) = inspect_command(&matches) {
        return Ok(wanted);
    }
    if let Some(command) = doctor::from_matches(&matches, current_dir)? {
        return Ok(Invocation::Doctor(Box::new(command)));
    }
    let variables: Vec<_> = variables.into_iter().collect();
    if let Some(command) = check::from_matches(&matches, &variables)? {
        return Ok(Invocation::Check(Box::new(command)));
    }
    let (environment, variables) = servers::Environment::read(variables)?;
    if let Some(command) = servers::from_matches(&matches, &environment) {
        return Ok(Invocation::Servers(command));
    }
    let serve = matches.subcommand_matches(command::SERVE);
    let given = serve.unwrap_or(&matches);
    let text = command::PRINT_FLAGS
        .iter()
        .find(|print| given.get_flag(print.flag));
    if let Some(print) = text {
        return (print.text)(given).map(Invocation::Print);
    }
    let matches = serve.ok_or(CliError::NoCommand)?;
    serve_options(matches, &environment, variables, current_dir)
}

/// Reads the options of `bailiwick serve`.
fn serve_options(
    matches: &ArgMatches,
    environment: &servers::Environment,
    variables: Vec<(OsString, OsString)>,
    current_dir: Option<&VirtualPath>,
) -> Result<Invocation, CliError> {
    let config_file = matches.get_one::<PathBuf>("config").cloned();
    let (mut sources, durability) = read_file(config_file.as_deref())?;
    let mut variables = variables.into_iter().collect();
    let token = variables::take_token(&mut variables)?;
    let allowed = http::allow_list(matches, &mut variables)?;
    let durability = durability::resolve(matches, &mut variables, durability)?;
    let texts = variables::field_values(variables)?;
    sources = sources.with_texts(ConfigSource::Environment, &texts, current_dir)?;
    sources = sources.with_texts(ConfigSource::Flags, &flags(matches), current_dir)?;
    let http = matches.get_one::<SocketAddr>("http").copied();
    let trust = matches.get_one("trust").copied();
    let trust = trust.unwrap_or_else(|| default_trust(http));
    let grants = matches.get_one::<PathBuf>("grants").cloned();
    if grants.is_some() && trust != Trust::Host {
        return Err(CliError::Grants);
    }
    Ok(Invocation::Serve(Box::new(Options {
        sources,
        config_file,
        http,
        allowed,
        trust,
        audit: matches.get_one::<PathBuf>("audit").cloned(),
        audit_segment_bytes: *matches
            .get_one("audit-segment-bytes")
            .unwrap_or(&JsonLines::SEGMENT_BYTES),
        grants,
        attach: matches.get_one::<PathBuf>("attach").cloned(),
        ask: matches.get_one("ask").copied().unwrap_or_default(),
        durability,
        rate: matches.get_one("rate").copied().unwrap_or_default(),
        token,
        servers: servers::options(matches, environment),
        log: *matches.get_one("log").unwrap_or(&LevelFilter::WARN),
    })))
}

/// Reads the configuration file and the durability that it sets.
fn read_file(path: Option<&Path>) -> Result<(ConfigSources, Option<Durability>), CliError> {
    let sources = ConfigSources::new().tools(bailiwick_fs::tools().names());
    let Some(path) = path else {
        return Ok((sources, None));
    };
    let mut document = file::read(path)?;
    let durability = durability::take(path, &mut document)?;
    Ok((sources.with(ConfigSource::File, document)?, durability))
}

/// The commands that only read files or edit grants.
fn inspect_command(matches: &ArgMatches) -> Option<Invocation> {
    let command = audit::from_matches(matches).map(Invocation::Audit);
    let command = command.or_else(|| grants::from_matches(matches).map(Invocation::Grants));
    command.or_else(|| grants::templates_from_matches(matches).map(Invocation::Templates))
}

fn default_trust(http: Option<SocketAddr>) -> Trust {
    match http {
        // A client over stdio started this program, while any local program can connect to a port.
        None => Trust::Client,
        Some(_) => Trust::Agent,
    }
}

/// The values of configuration flags, and the roots.
fn flags(matches: &ArgMatches) -> BTreeMap<&'static str, Vec<String>> {
    let given = |id: &str| -> Vec<String> {
        let texts = matches.get_many::<String>(id);
        texts.into_iter().flatten().cloned().collect()
    };
    let mut flags: BTreeMap<_, Vec<_>> = Key::settable()
        .map(|field| (field.key, given(&field.flag())))
        .filter(|(_, texts)| !texts.is_empty())
        .collect();
    let roots = roots(matches);
    if !roots.is_empty() {
        flags.entry("roots").or_default().extend(roots);
    }
    flags
}

/// The positional arguments, as texts of the configuration key `roots`.
fn roots(matches: &ArgMatches) -> Vec<String> {
    let roots = matches.get_many::<String>(command::ROOT);
    let roots = roots.into_iter().flatten().cloned();
    roots.map(root_argument).collect()
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
