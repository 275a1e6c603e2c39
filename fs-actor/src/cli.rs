//! Arguments and variables in, a text to show or the options of a server out; or one line that says what is wrong.

mod check;
mod command;
mod durability;
mod file;
mod grants;
mod http;
mod record;
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
use bailiwick::{
    ConfigError, ConfigSource, ConfigSources, JsonLines, Rate, Trust, UnknownSection, VirtualPath,
};
use bailiwick_fs::Durability;
use bailiwick_fs::check::UrlError;
use clap::ArgMatches;
use clap::error::ErrorKind;
use serde_json::json;
use tracing::level_filters::LevelFilter;

pub(crate) use check::CheckCommand;
pub(crate) use grants::{Applied, Granted, Templates, Wish};
pub(crate) use http::Allowed;
pub(crate) use record::{At, Look, Show};
pub(crate) use servers::{INPUT, ServersCommand, ServersOptions, input_name};
pub(crate) use when::time_of;

/// What the person wants.
#[derive(Debug)]
pub(crate) enum Wanted {
    /// A text on standard output.
    Text(String),
    /// A look at an audit.
    Look(Look),
    /// A look at a grant store, or a change of its grants.
    Granted(Granted),
    /// A look at templates of grants.
    Templates(Templates),
    /// A look at third-party servers, or the approval of their tools.
    Servers(ServersCommand),
    /// A check of an MCP server.
    Check(Box<CheckCommand>),
    /// A server.
    Server(Box<Options>),
}

/// The options of a server.
#[derive(Debug)]
pub(crate) struct Options {
    /// What file, environment and flags say; each was read and checked.
    pub(crate) sources: ConfigSources,
    /// The file that was read; no root may hold it.
    pub(crate) config_file: Option<PathBuf>,
    /// Where to listen; else standard input and output are served.
    pub(crate) http: Option<SocketAddr>,
    /// Who may use the HTTP server besides.
    pub(crate) allowed: Allowed,
    /// Who is at the other end.
    pub(crate) trust: Trust,
    /// Where the audit is kept; else in memory.
    pub(crate) audit: Option<PathBuf>,
    /// The size from which on the audit file is rotated; 0 if it is not.
    pub(crate) audit_segment_bytes: u64,
    /// Where grants to agents are kept; else they end with the server.
    pub(crate) grants: Option<PathBuf>,
    /// The socket of a worker's endpoint to join; nothing else is served then.
    pub(crate) attach: Option<PathBuf>,
    /// Who is asked what a person must allow.
    pub(crate) ask: Ask,
    /// What a write survives.
    pub(crate) durability: Durability,
    /// How fast one connection may call.
    pub(crate) rate: Rate,
    /// What HTTP clients must send as bearer; else one is made up and told.
    pub(crate) token: Option<String>,
    /// Third-party servers whose tools are offered as well.
    pub(crate) servers: Option<ServersOptions>,
    /// What is logged.
    pub(crate) log: LevelFilter,
}

/// How calls that need approval are handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ask {
    /// As `Client` where the client can elicit, else as `Page` if this program was started on a terminal, else as `Replay`.
    #[default]
    Auto,
    /// The client is told which scopes it lacks, and sends the call again with them.
    Replay,
    /// The person behind the client is asked by elicitation.
    Client,
    /// The person at the approval page of this program is asked.
    Page,
}

/// Why the arguments, the environment or the configuration file are no options.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    #[error("{0}")]
    Arguments(String),
    #[error("`{0}` is the variable of no field; see --help")]
    Variable(String),
    #[error("`{0}` is not UTF-8")]
    NotUtf8(String),
    #[error("--grants needs --trust host: any other client could take the name of an agent")]
    Grants,
    #[error("`{0}` must have 32 or more visible ASCII characters")]
    Token(&'static str),
    #[error("each item of `{variable}` {reason}")]
    Name {
        variable: &'static str,
        reason: http::NameError,
    },
    #[error("{0} must be `visible`, `ordered` or `durable`")]
    Durability(String),
    #[error("cannot read the configuration file `{}`", .path.display())]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("the configuration file `{}` is no JSON", .path.display())]
    Json {
        path: PathBuf,
        source: serde_json::Error,
    },
    #[error("the configuration file `{}` is larger than {most} bytes", .path.display())]
    Large { path: PathBuf, most: u64 },
    #[error(
        "name the server to check: `bailiwick-fs check COMMAND [ARGS]...` starts one over stdio, `bailiwick-fs check --url URL` \
         connects to one over HTTP"
    )]
    NoServer,
    #[error("the variable `{0}` of --bearer-env is not set")]
    NoBearer(String),
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error(transparent)]
    Section(#[from] UnknownSection),
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// Reads the command line; relative roots lie beneath `here`.
pub(crate) fn parse(
    arguments: impl IntoIterator<Item = OsString>,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    here: Option<&VirtualPath>,
) -> Result<Wanted, CliError> {
    let matches = match command::command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => return shown(&error),
    };
    if let Some(wanted) = look(&matches) {
        return Ok(wanted);
    }
    let variables: Vec<_> = variables.into_iter().collect();
    if let Some(command) = check::check(&matches, &variables)? {
        return Ok(Wanted::Check(Box::new(command)));
    }
    let (environment, variables) = servers::Environment::read(variables)?;
    if let Some(look) = servers::look(&matches, &environment) {
        return Ok(Wanted::Servers(look));
    }
    let asked = command::SHOWN
        .iter()
        .find(|shown| matches.get_flag(shown.flag));
    if let Some(shown) = asked {
        return (shown.text)(&matches).map(Wanted::Text);
    }
    let config_file = matches.get_one::<PathBuf>("config").cloned();
    let (mut sources, durability) = read_file(config_file.as_deref())?;
    let mut variables = variables.into_iter().collect();
    let token = variables::token(&mut variables)?;
    let allowed = http::allowed(&matches, &mut variables)?;
    let durability = durability::chosen(&matches, &mut variables, durability)?;
    let texts = variables::texts(variables)?;
    sources = sources.with_texts(ConfigSource::Environment, &texts, here)?;
    sources = sources.with_texts(ConfigSource::Flags, &flags(&matches), here)?;
    let http = matches.get_one::<SocketAddr>("http").copied();
    let trust = matches.get_one("trust").copied();
    let trust = trust.unwrap_or_else(|| default_trust(http));
    let grants = matches.get_one::<PathBuf>("grants").cloned();
    if grants.is_some() && trust != Trust::Host {
        return Err(CliError::Grants);
    }
    Ok(Wanted::Server(Box::new(Options {
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
        servers: servers::options(&matches, &environment),
        log: *matches.get_one("log").unwrap_or(&LevelFilter::WARN),
    })))
}

/// What the configuration file says, and the durability that it sets.
fn read_file(path: Option<&Path>) -> Result<(ConfigSources, Option<Durability>), CliError> {
    let sources = ConfigSources::new().tools(bailiwick_fs::tools().names());
    let Some(path) = path else {
        return Ok((sources, None));
    };
    let mut document = file::read(path)?;
    let durability = durability::take(path, &mut document)?;
    Ok((sources.with(ConfigSource::File, document)?, durability))
}

/// What is wanted of a record, of grants or of templates, if it is one of those commands.
fn look(matches: &ArgMatches) -> Option<Wanted> {
    let look = record::look(matches).map(Wanted::Look);
    let look = look.or_else(|| grants::granted(matches).map(Wanted::Granted));
    look.or_else(|| grants::shown(matches).map(Wanted::Templates))
}

fn default_trust(http: Option<SocketAddr>) -> Trust {
    match http {
        // The client over stdio started this program; a port is open to every program of this machine.
        None => Trust::Client,
        Some(_) => Trust::Agent,
    }
}

/// The flags of fields that were given, and the roots.
fn flags(matches: &ArgMatches) -> BTreeMap<&'static str, Vec<String>> {
    let given = |id: &str| -> Vec<String> {
        let texts = matches.get_many::<String>(id);
        texts.into_iter().flatten().cloned().collect()
    };
    let mut flags: BTreeMap<_, Vec<_>> = Key::settable()
        .map(|field| (field.key, given(&field.flag())))
        .filter(|(_, texts)| !texts.is_empty())
        .collect();
    let roots = given(command::ROOT);
    if !roots.is_empty() {
        let roots = roots.into_iter().map(one_root);
        flags.entry("roots").or_default().extend(roots);
    }
    flags
}

/// The text of an argument that is no flag: one directory whatever is in its name, unless it is JSON.
fn one_root(argument: String) -> String {
    if argument.starts_with(['[', '{']) {
        argument
    } else {
        json!([argument]).to_string()
    }
}

/// What clap shows instead of options: help on standard output, or what is wrong in one line.
fn shown(error: &clap::Error) -> Result<Wanted, CliError> {
    let text = error.to_string();
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    ) {
        return Ok(Wanted::Text(text));
    }
    let on_one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut parts = text.split("\n\n");
    let first = on_one_line(parts.next().unwrap_or_default());
    let mut line = first.strip_prefix("error: ").unwrap_or(&first).to_owned();
    if let Some(usage) = parts.find_map(|part| part.strip_prefix("Usage: ")) {
        line += &format!(" (usage: {})", on_one_line(usage));
    }
    Err(CliError::Arguments(line))
}
