//! What a person says of a server in, whether it can be used and what it is known by out.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use super::pins::Fingerprint;
use crate::effect::ContentHash;
use crate::scope::Verb;

/// The longest name of a server, in bytes.
const LONGEST_NAME: usize = 32;
/// How many hexadecimal digits stand for what a server runs.
const MARK: usize = 16;

/// One MCP server of somebody else, as a person configures it.
///
/// Its environment is clean: `PATH`, `HOME`, `LANG` and what is said here.
///
/// ```
/// use bailiwick::{ServerSpec, Verb};
/// let notes = ServerSpec::stdio("notes", "notes-server").args(["--folder", "/srv/notes"]).env("TOKEN", "secret");
/// let search = ServerSpec::http("search", "http://127.0.0.1:9000/mcp").tool("query", Verb::Read);
/// assert!(!format!("{notes:?}").contains("secret"));
/// # drop(search);
/// ```
#[derive(Clone)]
pub struct ServerSpec {
    pub(super) name: String,
    pub(super) reach: Reach,
    /// What a person says a tool does; no hint counts beside it.
    pub(super) verbs: BTreeMap<String, Verb>,
    /// Tools as they were when a person approved them.
    pub(super) approved: BTreeMap<String, Fingerprint>,
    /// What the server runs, as it was written; secrets from the environment are not in it.
    written: Vec<String>,
}

/// How a server is reached. Arguments, variables and headers may be secrets and are shown nowhere.
#[derive(Clone)]
pub(super) enum Reach {
    Child {
        command: String,
        args: Vec<String>,
        env: BTreeMap<String, String>,
        folder: Option<PathBuf>,
    },
    Http(HttpReach),
}

/// How a server is reached by HTTP.
#[derive(Clone)]
#[cfg_attr(
    not(feature = "http"),
    expect(dead_code, reason = "without HTTP it is refused and no more")
)]
pub(super) struct HttpReach {
    pub(super) url: String,
    pub(super) headers: BTreeMap<String, String>,
    /// Whose certificates count, besides those that count on this machine; each a PEM.
    #[cfg(feature = "tls")]
    pub(super) authorities: Vec<Vec<u8>>,
}

impl fmt::Debug for ServerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerSpec")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Why a server cannot be used as it is configured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The name would make those of its tools ambiguous, or too long.
    #[error(
        "`{0}` cannot name a server; use [A-Za-z0-9_-]{{1,32}} without `__` and without `_` at its ends"
    )]
    Name(String),
    /// Two servers have one name.
    #[error("two servers are named `{0}`")]
    Duplicate(String),
    /// There is nothing to start.
    #[error("the server `{0}` has no command")]
    Command(String),
    /// The address is none that can be spoken to.
    #[error("the address of the server `{0}` must begin with `https://` or `http://`")]
    Url(String),
    /// What is sent to the address could be read on the way.
    #[error("the server `{0}` is not on this machine, so its address must begin with `https://`")]
    Clear(String),
    /// The address is reached by TLS, which this build does not speak.
    #[error("the server `{0}` is reached by TLS; build with the feature `tls`")]
    Tls(String),
    /// A certificate is none.
    #[error("a certificate for the server `{0}` cannot be read; it must be PEM")]
    Certificate(String),
    /// A code that a browser brings there would not be safe.
    #[error(
        "browsers cannot be led back to `{0}`; it must be on this machine or begin with `https://`"
    )]
    Landing(String),
    /// HTTP is not built in.
    #[error("the server `{0}` speaks HTTP; build with the feature `http`")]
    NoHttp(String),
    /// A header is none, or is not the host's to set.
    #[error("the header `{header}` of the server `{server}` cannot be sent")]
    Header {
        /// The server.
        server: String,
        /// The name of the header.
        header: String,
    },
}

impl ServerSpec {
    /// A server that is a program, spoken to over its standard input and output.
    #[must_use]
    pub fn stdio(name: impl Into<String>, command: impl Into<String>) -> Self {
        let command = command.into();
        let written = vec!["stdio".to_owned(), command.clone()];
        let reach = Reach::Child {
            command,
            args: Vec::new(),
            env: BTreeMap::new(),
            folder: None,
        };
        Self::new(name.into(), reach, written)
    }

    /// A server that is reached by HTTP.
    #[must_use]
    pub fn http(name: impl Into<String>, url: impl Into<String>) -> Self {
        let url = url.into();
        let written = vec!["http".to_owned(), url.clone()];
        let reach = HttpReach {
            url,
            headers: BTreeMap::new(),
            #[cfg(feature = "tls")]
            authorities: Vec::new(),
        };
        Self::new(name.into(), Reach::Http(reach), written)
    }

    fn new(name: String, reach: Reach, written: Vec<String>) -> Self {
        Self {
            name,
            reach,
            verbs: BTreeMap::new(),
            approved: BTreeMap::new(),
            written,
        }
    }

    /// Adds arguments of the program.
    #[must_use]
    pub fn args<A: Into<String>>(mut self, more: impl IntoIterator<Item = A>) -> Self {
        if let Reach::Child { args, .. } = &mut self.reach {
            for arg in more {
                let arg = arg.into();
                self.written.push(arg.clone());
                args.push(arg);
            }
        }
        self
    }

    /// Sets a variable of the program's environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let Reach::Child { env, .. } = &mut self.reach {
            env.insert(name.into(), value.into());
        }
        self
    }

    /// Sets the folder that the program is started in.
    #[must_use]
    pub fn folder(mut self, path: impl Into<PathBuf>) -> Self {
        if let Reach::Child { folder, .. } = &mut self.reach {
            *folder = Some(path.into());
        }
        self
    }

    /// Sets a header that goes with every request.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let Reach::Http(reach) = &mut self.reach {
            reach.headers.insert(name.into(), value.into());
        }
        self
    }

    /// Trusts whom this authority certifies, as well as those whom the machine trusts: PEM, one certificate or more.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn authority(mut self, pem: impl Into<Vec<u8>>) -> Self {
        if let Reach::Http(reach) = &mut self.reach {
            reach.authorities.push(pem.into());
        }
        self
    }

    /// Says what a tool does, whatever the server hints.
    #[must_use]
    pub fn tool(mut self, name: impl Into<String>, verb: Verb) -> Self {
        self.verbs.insert(name.into(), verb);
        self
    }

    /// Says which form of a tool a person approved before, from [`Upstreams::tools`](super::Upstreams::tools); another
    /// form is withheld until it is approved.
    #[must_use]
    pub fn approved(mut self, tool: impl Into<String>, fingerprint: Fingerprint) -> Self {
        self.approved.insert(tool.into(), fingerprint);
        self
    }

    /// Takes what was written in place of what became of it, so that a server is known by its text and not by secrets.
    pub(super) fn known_by(mut self, written: Vec<String>) -> Self {
        self.written = written;
        self
    }

    /// The name in scopes: with a mark of what the server runs, so that grants for it are none once it runs another
    /// thing.
    pub(super) fn label(&self) -> String {
        let whole = serde_json::json!(self.written).to_string();
        let mark = ContentHash::of(whole.as_bytes()).to_string();
        let mark: String = mark.chars().take(MARK).collect();
        format!("{}~{mark}", self.name)
    }

    pub(super) fn check(&self) -> Result<(), SpecError> {
        let name = &self.name;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let ambiguous = name.contains("__") || name.starts_with('_') || name.ends_with('_');
        if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(plain) || ambiguous {
            return Err(SpecError::Name(crate::escape(name).into()));
        }
        match &self.reach {
            Reach::Child { command, .. } if command.is_empty() => {
                Err(SpecError::Command(name.clone()))
            }
            Reach::Child { .. } => Ok(()),
            #[cfg(not(feature = "http"))]
            Reach::Http(_) => Err(SpecError::NoHttp(name.clone())),
            #[cfg(feature = "http")]
            Reach::Http(reach) => super::http::check(name, reach),
        }
    }
}

/// Refuses servers that cannot be used, and two of one name.
pub(super) fn check_all(specs: &[ServerSpec]) -> Result<(), SpecError> {
    let mut seen = std::collections::BTreeSet::new();
    for spec in specs {
        spec.check()?;
        if !seen.insert(&spec.name) {
            return Err(SpecError::Duplicate(spec.name.clone()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(spec: ServerSpec, expected: Option<SpecError>) {
        let expected = expected.map_or(Ok(()), Err);
        assert_eq!(check_all(&[spec]), expected);
    }

    #[test]
    fn a_name_leaves_no_doubt_which_server_a_tool_is_of() {
        for name in ["notes", "My-Server_2", &"x".repeat(32)] {
            check(ServerSpec::stdio(name, "x"), None);
        }
        for name in [
            "",
            "a__b",
            "_a",
            "a_",
            "a.b",
            "a:b",
            "a~b",
            "é",
            &"x".repeat(33),
        ] {
            check(
                ServerSpec::stdio(name, "x"),
                Some(SpecError::Name(name.into())),
            );
        }
        let twice = [ServerSpec::stdio("a", "x"), ServerSpec::stdio("a", "y")];
        assert_eq!(check_all(&twice), Err(SpecError::Duplicate("a".into())));
    }

    #[test]
    fn what_cannot_be_reached_is_refused_before_it_is_tried() {
        check(
            ServerSpec::stdio("a", ""),
            Some(SpecError::Command("a".into())),
        );
        let name = || "a".to_owned();
        let of = |http: Option<SpecError>| {
            if cfg!(feature = "http") {
                http
            } else {
                Some(SpecError::NoHttp(name()))
            }
        };
        let tls = (!cfg!(feature = "tls")).then(|| SpecError::Tls(name()));
        for (url, expected) in [
            ("ftp://x", Some(SpecError::Url(name()))),
            ("http://", Some(SpecError::Url(name()))),
            ("http://example.com", Some(SpecError::Clear(name()))),
            ("http://10.0.0.1:80/mcp", Some(SpecError::Clear(name()))),
            ("https://example.com", tls),
            ("http://127.0.0.1:1", None),
            ("http://localhost:1", None),
        ] {
            check(ServerSpec::http("a", url), of(expected));
        }
    }

    #[test]
    fn a_server_is_known_by_what_it_runs_and_not_by_its_secrets() {
        let one = ServerSpec::stdio("a", "x").args(["1"]);
        assert_eq!(one.label(), one.clone().env("TOKEN", "s").label());
        assert!(one.label().starts_with("a~"));
        for other in [
            ServerSpec::stdio("a", "y").args(["1"]),
            ServerSpec::stdio("a", "x").args(["2"]),
            ServerSpec::stdio("a", "x").args(["1", "2"]),
            ServerSpec::http("a", "http://x"),
        ] {
            assert_ne!(one.label(), other.label());
        }
    }

    #[test]
    fn nothing_of_a_server_but_its_name_is_shown() {
        let spec = ServerSpec::stdio("a", "command-7")
            .args(["argument-7"])
            .env("X", "value-7");
        assert!(!format!("{spec:?}").contains('7'));
    }
}
