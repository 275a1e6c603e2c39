//! What a person says of a server in, whether it can be used and what it is known by out.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

#[cfg(feature = "oauth")]
use super::address::{self, NetworkZone};
use super::classify::ToolProvider;
use super::pins::Fingerprint;
use crate::effect::ContentHash;
use crate::scope::Verb;

/// The longest name of a server, in bytes.
const MAX_NAME_BYTES: usize = 32;
/// What the names of apps begin with, whose tools stand beside those of servers.
pub(crate) const APP_PREFIX: &str = "app_";
/// How many hexadecimal digits stand for what a server runs.
const MARK_DIGITS: usize = 16;

/// One MCP server of somebody else, as a person configures it.
///
/// Its environment is clean: `PATH`, `HOME`, `LANG` and what is said here.
///
/// What people grant counts for what the server is now: its command, its arguments, the folder that it is started in and
/// its environment, or its address. A secret ([`ServerSpec::secret`], `${env:X}` in a file) counts by the name of its
/// variable and headers do not count, so that changing them takes no grant away. Neither does what the host's own `PATH`
/// says of a command that is no path: whoever sets that starts the host.
///
/// ```
/// use bailiwick::{ServerSpec, Verb};
/// let notes = ServerSpec::stdio("notes", "notes-server").args(["--folder", "/srv/notes"]).secret("TOKEN", "hidden");
/// let search = ServerSpec::http("search", "http://127.0.0.1:9000/mcp").tool("query", Verb::Read);
/// assert!(!format!("{notes:?}").contains("hidden"));
/// # drop(search);
/// ```
#[derive(Clone)]
pub struct ServerSpec {
    pub(super) name: String,
    pub(super) transport: TransportConfig,
    /// What a person says a tool does; no hint counts beside it.
    pub(super) verbs: BTreeMap<String, Verb>,
    /// Tools as they were when a person approved them.
    pub(super) approved: BTreeMap<String, Fingerprint>,
    /// The same with the names of secrets in their place: what the server is known by.
    pub(super) identity: TransportConfig,
}

/// How a server is reached. Arguments, variables and headers may be secrets and are shown nowhere.
#[derive(Clone)]
pub(super) enum TransportConfig {
    Child {
        command: String,
        args: Vec<String>,
        env: BTreeMap<String, String>,
        folder: Option<PathBuf>,
    },
    Http(HttpConfig),
}

/// How a server is reached by HTTP.
#[derive(Clone)]
pub(super) struct HttpConfig {
    pub(super) url: String,
    pub(super) headers: BTreeMap<String, String>,
    /// Whose certificates count, besides those that count on this machine; each a PEM.
    #[cfg(feature = "tls")]
    pub(super) authorities: Vec<Vec<u8>>,
}

impl TransportConfig {
    /// Sets a variable of a program's environment.
    fn set(&mut self, name: &str, value: &str) {
        if let Self::Child { env, .. } = self {
            env.insert(name.to_owned(), value.to_owned());
        }
    }
}

/// A text that was said in full, as a server is known by it: with `${}{` for each `${`, so that none of it reads as the
/// `${env:X}` of the editors' file, where no `${}` is let stand.
pub(super) fn escape_placeholders(text: &str) -> String {
    text.replace("${", "${}{")
}

impl fmt::Debug for ServerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerSpec")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The most servers of one host.
pub(super) const MAX_SERVERS: usize = 64;

/// Why a server cannot be used as it is configured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The name would make those of its tools ambiguous, or too long.
    #[error(
        "`{0}` cannot name a server; use [A-Za-z0-9_-]{{1,32}} without `__`, without `_` at its ends and without `app_` before it"
    )]
    Name(String),
    /// There are too many.
    #[error("there are more than {MAX_SERVERS} servers")]
    TooMany,
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
    Insecure(String),
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
    RedirectUri(String),
    /// It is not said where a secret goes.
    #[error(
        "the host has a secret for the server `{0}`; say which authorisation server it goes to"
    )]
    Issuer(String),
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
        let config = TransportConfig::Child {
            command: command.into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            folder: None,
        };
        Self::new(name.into(), config)
    }

    /// A server that is reached by HTTP.
    #[must_use]
    pub fn http(name: impl Into<String>, url: impl Into<String>) -> Self {
        let config = HttpConfig {
            url: url.into(),
            headers: BTreeMap::new(),
            #[cfg(feature = "tls")]
            authorities: Vec::new(),
        };
        Self::new(name.into(), TransportConfig::Http(config))
    }

    fn new(name: String, transport: TransportConfig) -> Self {
        let mut identity = transport.clone();
        if let TransportConfig::Http(identity) = &mut identity {
            identity.url = escape_placeholders(&identity.url);
        }
        Self {
            name,
            identity,
            transport,
            verbs: BTreeMap::new(),
            approved: BTreeMap::new(),
        }
    }

    /// Adds arguments of the program.
    #[must_use]
    pub fn args<A: Into<String>>(mut self, more: impl IntoIterator<Item = A>) -> Self {
        let more: Vec<String> = more.into_iter().map(Into::into).collect();
        if let TransportConfig::Child { args, .. } = &mut self.identity {
            args.extend(more.iter().map(|arg| escape_placeholders(arg)));
        }
        if let TransportConfig::Child { args, .. } = &mut self.transport {
            args.extend(more);
        }
        self
    }

    /// Sets a variable of the program's environment. Grants count for this value of it.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let (name, value) = (name.into(), value.into());
        self.transport.set(&name, &value);
        self.identity.set(&name, &escape_placeholders(&value));
        self
    }

    /// Sets a variable of the program's environment that holds a secret. Grants count for any value of it.
    #[must_use]
    pub fn secret(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let name = name.into();
        self.transport.set(&name, &value.into());
        self.identity.set(&name, &format!("${{env:{name}}}"));
        self
    }

    /// Sets the folder that the program is started in; without, it is the host's own.
    #[must_use]
    pub fn folder(mut self, path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        for config in [&mut self.transport, &mut self.identity] {
            if let TransportConfig::Child { folder, .. } = config {
                *folder = Some(path.clone());
            }
        }
        self
    }

    /// Sets a header that goes with every request.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let TransportConfig::Http(config) = &mut self.transport {
            config.headers.insert(name.into(), value.into());
        }
        self
    }

    /// Trusts whom this authority certifies, as well as those whom the machine trusts: PEM, one certificate or more.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn authority(mut self, pem: impl Into<Vec<u8>>) -> Self {
        if let TransportConfig::Http(config) = &mut self.transport {
            config.authorities.push(pem.into());
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

    /// Takes what a server is known by from how it was written, so that it is not known by its secrets.
    pub(super) fn with_identity(mut self, written: Self) -> Self {
        self.identity = written.transport;
        self
    }

    /// The name in scopes: with a mark of what the server is, so that grants for it are none once it is another.
    pub(super) fn label(&self) -> String {
        let whole = match &self.identity {
            TransportConfig::Child {
                command,
                args,
                env,
                folder,
            } => {
                // A program that is started elsewhere may find another one behind a relative name.
                let folder = folder.clone().unwrap_or_else(|| ".".into());
                let folder = std::path::absolute(&folder).unwrap_or(folder);
                serde_json::json!(["stdio", command, args, env, folder.to_string_lossy()])
            }
            TransportConfig::Http(config) => serde_json::json!(["http", config.url]),
        };
        let mark = ContentHash::of(whole.to_string().as_bytes()).to_string();
        let mark: String = mark.chars().take(MARK_DIGITS).collect();
        format!("{}~{mark}", self.name)
    }

    /// Whether it is reached by HTTP on this machine.
    #[cfg(feature = "oauth")]
    pub(super) fn is_loopback(&self) -> bool {
        let TransportConfig::Http(config) = &self.transport else {
            return false;
        };
        address::parse_http_url(&config.url)
            .is_some_and(|url| NetworkZone::of_url(&url) == NetworkZone::Loopback)
    }

    /// Its tools' provider, called `label` in scopes.
    pub(super) fn provider<'a>(&'a self, label: &'a str) -> ToolProvider<'a> {
        ToolProvider {
            name: &self.name,
            label,
            verbs: &self.verbs,
            preface: "",
        }
    }

    pub(super) fn check(&self) -> Result<(), SpecError> {
        let name = &self.name;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let ambiguous = name.contains("__")
            || name.starts_with('_')
            || name.ends_with('_')
            || name.starts_with(APP_PREFIX);
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.chars().all(plain) || ambiguous {
            return Err(SpecError::Name(crate::escape(name).into()));
        }
        match &self.transport {
            TransportConfig::Child { command, .. } if command.is_empty() => {
                Err(SpecError::Command(name.clone()))
            }
            TransportConfig::Child { .. } => Ok(()),
            #[cfg(not(feature = "http"))]
            TransportConfig::Http(_) => Err(SpecError::NoHttp(name.clone())),
            #[cfg(feature = "http")]
            TransportConfig::Http(config) => super::http::check(name, config),
        }
    }
}

/// Refuses servers that cannot be used, and two of one name.
pub(super) fn check_all(specs: &[ServerSpec]) -> Result<(), SpecError> {
    if specs.len() > MAX_SERVERS {
        return Err(SpecError::TooMany);
    }
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
    fn so_many_servers_and_no_more() {
        let specs: Vec<_> = (0..=MAX_SERVERS)
            .map(|n| ServerSpec::stdio(format!("s{n}"), "x"))
            .collect();
        assert_eq!(check_all(&specs), Err(SpecError::TooMany));
        assert_eq!(check_all(&specs[1..]), Ok(()));
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
            "app_a",
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
            ("http://example.com", Some(SpecError::Insecure(name()))),
            ("http://10.0.0.1:80/mcp", Some(SpecError::Insecure(name()))),
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
        assert!(one.label().starts_with("a~"));
        let secret = |value| one.clone().secret("TOKEN", value).label();
        assert_eq!(secret("s"), secret("t"));
        let header = |value| ServerSpec::http("a", "http://x").header("x-key", value);
        assert_eq!(header("s").label(), header("t").label());
        assert_eq!(one.label(), one.clone().folder(".").label());
        for other in [
            one.clone().secret("TOKEN", "s"),
            one.clone().env("NODE_OPTIONS", "--require=./evil.js"),
            one.clone().folder("/elsewhere"),
            ServerSpec::stdio("a", "y").args(["1"]),
            ServerSpec::stdio("a", "x").args(["2"]),
            ServerSpec::stdio("a", "x").args(["1", "2"]),
            ServerSpec::http("a", "http://x"),
        ] {
            assert_ne!(one.label(), other.label());
        }
        let set = |value| one.clone().env("NODE_PATH", value).label();
        assert_ne!(set("/a"), set("/b"));
    }

    #[test]
    fn nothing_of_a_server_but_its_name_is_shown() {
        let spec = ServerSpec::stdio("a", "command-7")
            .args(["argument-7"])
            .env("X", "value-7");
        assert!(!format!("{spec:?}").contains('7'));
    }
}
