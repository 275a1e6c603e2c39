//! The command line of the test host.

use bailiwick_cli::check::{Connection, Revision, Target};
use bailiwick_examples::BoxError;
use serde_json::{Map, Value};

use super::builtin;

const USAGE: &str = "usage: test_host [check [--json] | --serve] [--url URL [--bearer TOKEN]] [--revision REVISION] \
                     [--configuration JSON] [--elicit] [--port PORT] [--] [SERVER COMMAND...]";

/// What to do with the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Serve the page on this port.
    Serve { port: u16 },
    /// Run the checks and print them.
    Check { json: bool },
}

/// The parsed command line.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) mode: Mode,
    pub(crate) target: Target,
    pub(crate) connection: Connection,
}

#[derive(Default)]
struct Arguments {
    check: bool,
    json: bool,
    serve: bool,
    elicit: bool,
    port: Option<u16>,
    url: Option<String>,
    bearer: Option<String>,
    revision: Revision,
    configuration: Option<Map<String, Value>>,
    command: Vec<String>,
}

impl Options {
    /// Parses the arguments without the program's name. On a terminal, the default is to serve the page.
    ///
    /// # Errors
    /// If an argument is unknown, or two arguments conflict.
    pub(crate) fn parse(arguments: Vec<String>, at_terminal: bool) -> Result<Self, BoxError> {
        let read = Arguments::parse(arguments)?;
        let named = read.url.is_some() || !read.command.is_empty();
        let serve = read.serve || (!read.check && (named || at_terminal));
        if read.check && read.serve || read.json && serve || read.port.is_some() && !serve {
            return Err(USAGE.into());
        }
        let target = match (read.url, read.command.split_first()) {
            (Some(url), None) if !read.elicit => Target::url(&url, read.bearer)?,
            (None, None) if read.bearer.is_none() => builtin::target(read.elicit),
            (None, Some((program, arguments))) if read.bearer.is_none() && !read.elicit => {
                Target::command(program, arguments)
            }
            _ => return Err(USAGE.into()),
        };
        let port = read.port.unwrap_or(0);
        Ok(Self {
            mode: if serve {
                Mode::Serve { port }
            } else {
                Mode::Check { json: read.json }
            },
            target,
            connection: Connection {
                revision: read.revision,
                configuration: read.configuration,
            },
        })
    }
}

impl Arguments {
    fn parse(arguments: Vec<String>) -> Result<Self, BoxError> {
        let mut read = Self::default();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| BoxError::from(USAGE));
            match argument.as_str() {
                "check" if !read.check => read.check = true,
                "--json" => read.json = true,
                "--serve" => read.serve = true,
                "--elicit" => read.elicit = true,
                "--url" => read.url = Some(value()?),
                "--bearer" => read.bearer = Some(value()?),
                "--port" => read.port = Some(value()?.parse()?),
                "--revision" => read.revision = value()?.parse()?,
                "--configuration" => {
                    read.configuration = Some(serde_json::from_str(&value()?)?);
                }
                "--" => read.command = arguments.by_ref().collect(),
                option if option.starts_with("--") => return Err(USAGE.into()),
                _ => read.command = std::iter::once(argument).chain(&mut arguments).collect(),
            }
        }
        Ok(read)
    }
}
