//! Arguments and variables in, a text to show or the options of a server out; or one line that says what is wrong.

mod command;
mod file;
mod grants;
mod record;
#[cfg(test)]
mod tests;
mod variables;
mod when;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use bailiwick::{
    ConfigError, ConfigSource, ConfigSources, Field, Rate, Trust, UnknownSection, VirtualPath,
};
use clap::ArgMatches;
use clap::error::ErrorKind;
use serde_json::json;
use tracing::level_filters::LevelFilter;

pub(crate) use grants::{Applied, Granted, Templates, Wish};
pub(crate) use record::{At, Look, Show};
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
    /// Who is at the other end.
    pub(crate) trust: Trust,
    /// Where the audit is kept; else in memory.
    pub(crate) audit: Option<PathBuf>,
    /// Where grants to agents are kept; else they end with the server.
    pub(crate) grants: Option<PathBuf>,
    /// The socket of a worker's endpoint to join; nothing else is served then.
    pub(crate) attach: Option<PathBuf>,
    /// Who is asked what a person must allow.
    pub(crate) ask: Ask,
    /// How fast one connection may call.
    pub(crate) rate: Rate,
    /// What HTTP clients must send as bearer; else one is made up and told.
    pub(crate) token: Option<String>,
    /// What is logged.
    pub(crate) log: LevelFilter,
}

/// What becomes of a call that a person must allow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ask {
    /// The client is told which scopes it lacks, and sends the call again with them.
    #[default]
    Replay,
    /// The person behind the client is asked by elicitation.
    Client,
    /// Whoever has the page of this program is asked.
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
    if let Some(look) = record::look(&matches) {
        return Ok(Wanted::Look(look));
    }
    if let Some(granted) = grants::granted(&matches) {
        return Ok(Wanted::Granted(granted));
    }
    if let Some(templates) = grants::shown(&matches) {
        return Ok(Wanted::Templates(templates));
    }
    let asked = command::SHOWN
        .iter()
        .find(|shown| matches.get_flag(shown.flag));
    if let Some(shown) = asked {
        return (shown.text)(&matches).map(Wanted::Text);
    }
    let config_file = matches.get_one::<PathBuf>("config").cloned();
    let mut sources = ConfigSources::new().tools(bailiwick_fs::tools().names());
    if let Some(path) = &config_file {
        sources = sources.with(ConfigSource::File, file::read(path)?)?;
    }
    let (token, variables) = variables::token(variables)?;
    let texts = variables::texts(variables)?;
    sources = sources.with_texts(ConfigSource::Environment, &texts, here)?;
    sources = sources.with_texts(ConfigSource::Flags, &flags(&matches), here)?;
    let http = matches.get_one::<SocketAddr>("http").copied();
    let trust = matches.get_one::<Trust>("trust").copied();
    let trust = trust.unwrap_or(match http {
        // Whoever starts the program holds its standard input; a port is open to every program of this machine.
        None => Trust::Host,
        Some(_) => Trust::Agent,
    });
    let grants = matches.get_one::<PathBuf>("grants").cloned();
    if grants.is_some() && trust != Trust::Host {
        return Err(CliError::Grants);
    }
    Ok(Wanted::Server(Box::new(Options {
        sources,
        config_file,
        http,
        trust,
        audit: matches.get_one::<PathBuf>("audit").cloned(),
        grants,
        attach: matches.get_one::<PathBuf>("attach").cloned(),
        ask: matches.get_one("ask").copied().unwrap_or_default(),
        rate: matches.get_one("rate").copied().unwrap_or_default(),
        token,
        log: *matches.get_one("log").unwrap_or(&LevelFilter::WARN),
    })))
}

/// The flags of fields that were given, and the roots.
fn flags(matches: &ArgMatches) -> BTreeMap<&'static str, Vec<String>> {
    let given = |id: &str| -> Vec<String> {
        let texts = matches.get_many::<String>(id);
        texts.into_iter().flatten().cloned().collect()
    };
    let mut flags: BTreeMap<_, Vec<_>> = Field::settable()
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
    let first = text.split("\n\n").next().unwrap_or_default();
    let line: Vec<_> = first.split_whitespace().collect();
    let line = line.join(" ");
    Err(CliError::Arguments(
        line.strip_prefix("error: ").unwrap_or(&line).to_owned(),
    ))
}
