//! Arguments in, options out.

use bailiwick_examples::Failure;
use serde_json::Value;

use super::connect::{Connection, Era};

const USAGE: &str = "usage: test_host [check [--json] | --serve] [--url URL [--bearer TOKEN]] [--revision REVISION] \
                     [--configuration JSON] [--elicit] [--port PORT] [--] [SERVER COMMAND...]";

/// What is done with the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A page is served, on this port.
    Serve { port: u16 },
    /// Checks are made and printed.
    Check { json: bool },
}

/// The server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The file tools on a small tree, in this process.
    Own { elicit: bool },
    /// A child process.
    Command(Vec<String>),
    /// A Streamable HTTP server.
    Url { url: String, bearer: Option<String> },
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Options {
    pub(crate) mode: Mode,
    pub(crate) target: Target,
    pub(crate) connection: Connection,
}

#[derive(Default)]
struct Read {
    check: bool,
    json: bool,
    serve: bool,
    elicit: bool,
    port: Option<u16>,
    url: Option<String>,
    bearer: Option<String>,
    era: Era,
    configuration: Option<Value>,
    command: Vec<String>,
}

impl Options {
    /// Reads the arguments after the program's name. At a terminal somebody is there to open the page.
    ///
    /// # Errors
    /// An argument that means nothing, or two that exclude each other.
    pub(crate) fn read(arguments: Vec<String>, at_terminal: bool) -> Result<Self, Failure> {
        let read = Read::from(arguments)?;
        let named = read.url.is_some() || !read.command.is_empty();
        let serve = read.serve || (!read.check && (named || at_terminal));
        if read.check && read.serve || read.json && serve || read.port.is_some() && !serve {
            return Err(USAGE.into());
        }
        let target = match (read.url, read.command) {
            (Some(url), command) if command.is_empty() && !read.elicit => Target::Url {
                url: plain(url)?,
                bearer: read.bearer,
            },
            (None, command) if read.bearer.is_none() && command.is_empty() => Target::Own {
                elicit: read.elicit,
            },
            (None, command) if read.bearer.is_none() && !read.elicit => Target::Command(command),
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
                era: read.era,
                configuration: read.configuration,
            },
        })
    }
}

/// This host has no TLS: what it tries runs on the same machine.
fn plain(url: String) -> Result<String, Failure> {
    if url.starts_with("http://") {
        Ok(url)
    } else {
        Err(format!("`{url}` does not begin with http://").into())
    }
}

impl Read {
    fn from(arguments: Vec<String>) -> Result<Self, Failure> {
        let mut read = Self::default();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| Failure::from(USAGE));
            match argument.as_str() {
                "check" if !read.check => read.check = true,
                "--json" => read.json = true,
                "--serve" => read.serve = true,
                "--elicit" => read.elicit = true,
                "--url" => read.url = Some(value()?),
                "--bearer" => read.bearer = Some(value()?),
                "--port" => read.port = Some(value()?.parse()?),
                "--revision" => read.era = value()?.parse()?,
                "--configuration" => {
                    let value: Value = serde_json::from_str(&value()?)?;
                    if !value.is_object() {
                        return Err("`--configuration` must be a JSON object".into());
                    }
                    read.configuration = Some(value);
                }
                "--" => read.command = arguments.by_ref().collect(),
                option if option.starts_with("--") => return Err(USAGE.into()),
                _ => read.command = std::iter::once(argument).chain(&mut arguments).collect(),
            }
        }
        Ok(read)
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Own { .. } => f.write_str("file tools on a tree of its own"),
            Self::Command(command) => f.write_str(&command.join(" ")),
            Self::Url { url, .. } => f.write_str(url),
        }
    }
}
