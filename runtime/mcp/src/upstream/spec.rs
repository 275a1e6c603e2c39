//! Configuration of third-party servers, their validation and their identity.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use super::address::{self, Zone};
use super::classify::ToolProvider;
use super::pins::Fingerprint;
use bailiwick::effect::ContentHash;
use bailiwick::scope::Verb;

/// The longest name of a server, in bytes.
const MAX_NAME_BYTES: usize = 32;
/// The name prefix of apps, which are listed beside servers.
pub(crate) const APP_PREFIX: &str = "app_";
/// The number of hexadecimal digits of the identity hash.
const MARK_DIGITS: usize = 16;

/// The configuration of a third-party MCP server.
///
/// A server process inherits only `PATH`, `HOME` and `LANG`.
///
/// Grants are bound to the identity of the server: its command, arguments, folder and environment, or its URL. Secrets
/// ([`ServerSpec::secret`], `${env:X}` in a file) count by the names of their variables, and headers do not count, so
/// changing them keeps grants valid. The resolution of a command through the host's `PATH` does not count either,
/// because `PATH` is under the control of whoever starts the host.
///
/// ```
/// use bailiwick_mcp::upstream::ServerSpec;
/// use bailiwick::Verb;
/// let notes = ServerSpec::stdio("notes", "notes-server").args(["--folder", "/srv/notes"]).secret("TOKEN", "hidden");
/// let search = ServerSpec::http("search", "http://127.0.0.1:9000/mcp").tool("query", Verb::Read);
/// assert!(!format!("{notes:?}").contains("hidden"));
/// # drop(search);
/// ```
#[derive(Clone)]
pub struct ServerSpec {
    pub(super) name: String,
    pub(super) transport: TransportConfig,
    /// The configured verbs of tools, which override hints.
    pub(super) verbs: BTreeMap<String, Verb>,
    /// The approved fingerprints of tools.
    pub(super) approved: BTreeMap<String, Fingerprint>,
    /// The transport as written, with names in place of secrets; the identity of the server.
    pub(super) identity: TransportConfig,
}

/// The transport of a server. Arguments, variables and headers may be secrets and are never shown.
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

/// The HTTP transport of a server.
#[derive(Clone)]
pub(super) struct HttpConfig {
    pub(super) url: String,
    pub(super) headers: BTreeMap<String, String>,
    /// Additional certificate authorities, as PEM.
    #[cfg(feature = "tls")]
    pub(super) authorities: Vec<Vec<u8>>,
}

/// Escapes `${` as `${}{`, so that literal text has a different identity from the placeholder `${env:X}` in a file,
/// where `${}` is invalid.
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

/// The largest number of servers.
pub(super) const MAX_SERVERS: usize = 64;

/// Why a server configuration is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The name is too long, or would make tool names ambiguous.
    #[error(
        "`{0}` cannot name a server; use [A-Za-z0-9_-]{{1,32}} without `__`, without `_` at the start or end, and without the prefix `app_`"
    )]
    Name(String),
    /// There are too many servers.
    #[error("there are more than {MAX_SERVERS} servers")]
    TooMany,
    /// Two servers have the same name.
    #[error("two servers are named `{0}`")]
    Duplicate(String),
    /// The command is empty.
    #[error("the server `{0}` has no command")]
    Command(String),
    /// The URL is not an `http` or `https` URL.
    #[error("the address of the server `{0}` must begin with `https://` or `http://`")]
    Url(String),
    /// The URL is not encrypted and not a loopback address.
    #[error("the server `{0}` is not on this machine, so its address must begin with `https://`")]
    Insecure(String),
    /// TLS is not enabled in this build.
    #[error("the server `{0}` is reached by TLS; build with the feature `tls`")]
    Tls(String),
    /// A certificate is invalid.
    #[error("a certificate for the server `{0}` cannot be read; it must be PEM")]
    Certificate(String),
    /// The redirect URI is insecure.
    #[error("invalid redirect URI `{0}`: it must be on this machine or begin with `https://`")]
    RedirectUri(String),
    /// A client secret has no configured issuer.
    #[error(
        "the host has a secret for the server `{0}`; name the authorization server that may receive it"
    )]
    Issuer(String),
    /// A header is invalid or reserved.
    #[error("the header `{header}` of the server `{server}` cannot be sent")]
    Header {
        /// The server.
        server: String,
        /// The name of the header.
        header: String,
    },
}

impl ServerSpec {
    /// Creates a server that runs as a child process and uses standard input and output.
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

    /// Creates a server that is reached by Streamable HTTP.
    #[must_use]
    pub fn http(name: impl Into<String>, url: impl Into<String>) -> Self {
        let url = url.into();
        let written = escape_placeholders(&url);
        Self::http_as_written(name.into(), url, written)
    }

    /// As [`ServerSpec::http`]; `written` is the address with names in place of secrets.
    pub(super) fn http_as_written(name: String, url: String, written: String) -> Self {
        let config = |url| {
            TransportConfig::Http(HttpConfig {
                url,
                headers: BTreeMap::new(),
                #[cfg(feature = "tls")]
                authorities: Vec::new(),
            })
        };
        Self {
            identity: config(written),
            ..Self::new(name, config(url))
        }
    }

    fn new(name: String, transport: TransportConfig) -> Self {
        Self {
            name,
            identity: transport.clone(),
            transport,
            verbs: BTreeMap::new(),
            approved: BTreeMap::new(),
        }
    }

    /// Where the server runs, for people. A host of which a part is a secret is shown as written.
    pub(super) fn place(&self) -> String {
        let TransportConfig::Http(config) = &self.identity else {
            return "a program on this computer".to_owned();
        };
        let url = address::parse_http_url(&config.url);
        let host = url.as_ref().and_then(|url| url.host_str());
        match (&url, host) {
            (Some(url), Some(host)) if Zone::of_url(url) == Zone::Loopback => {
                format!("a server on this computer ({host})")
            }
            (_, Some(host)) => format!("a server at {host}"),
            (_, None) => "a server on the network".to_owned(),
        }
    }

    /// Adds arguments of the program.
    #[must_use]
    pub fn args<A: Into<String>>(mut self, more: impl IntoIterator<Item = A>) -> Self {
        for arg in more {
            let arg = arg.into();
            let written = escape_placeholders(&arg);
            self.add_arg(arg, written);
        }
        self
    }

    /// Sets an environment variable of the program. The value is part of the server's identity.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let value = value.into();
        let written = escape_placeholders(&value);
        self.set_variable(&name.into(), value, written);
        self
    }

    /// Sets an environment variable of the program to a secret. The value is not part of the server's identity.
    #[must_use]
    pub fn secret(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let name = name.into();
        let written = format!("${{env:{name}}}");
        self.set_variable(&name, value.into(), written);
        self
    }

    /// Sets the working directory of the program; the default is the host's.
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

    /// Adds a header to all requests.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let TransportConfig::Http(config) = &mut self.transport {
            config.headers.insert(name.into(), value.into());
        }
        self
    }

    /// Trusts these certificate authorities in addition to those of the system: PEM, with one or more certificates.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn authority(mut self, pem: impl Into<Vec<u8>>) -> Self {
        if let TransportConfig::Http(config) = &mut self.transport {
            config.authorities.push(pem.into());
        }
        self
    }

    /// Sets the verb of a tool, which overrides the hints of the server.
    #[must_use]
    pub fn tool(mut self, name: impl Into<String>, verb: Verb) -> Self {
        self.verbs.insert(name.into(), verb);
        self
    }

    /// Approves a definition of a tool, from [`Upstreams::tools`](super::Upstreams::tools). Other definitions are
    /// withheld until they are approved.
    #[must_use]
    pub fn approved(mut self, tool: impl Into<String>, fingerprint: Fingerprint) -> Self {
        self.approved.insert(tool.into(), fingerprint);
        self
    }

    /// Adds an argument; `written` is the argument with names in place of secrets.
    pub(super) fn add_arg(&mut self, arg: String, written: String) {
        let configs = [(&mut self.transport, arg), (&mut self.identity, written)];
        for (config, arg) in configs {
            if let TransportConfig::Child { args, .. } = config {
                args.push(arg);
            }
        }
    }

    /// Sets an environment variable; `written` is the value with names in place of secrets.
    pub(super) fn set_variable(&mut self, name: &str, value: String, written: String) {
        let configs = [(&mut self.transport, value), (&mut self.identity, written)];
        for (config, value) in configs {
            if let TransportConfig::Child { env, .. } = config {
                env.insert(name.to_owned(), value);
            }
        }
    }

    /// The name in scopes, with a mark of the server's identity.
    pub(super) fn label(&self) -> String {
        let identity_json = match &self.identity {
            TransportConfig::Child {
                command,
                args,
                env,
                folder,
            } => {
                // Relative paths depend on the working directory.
                let folder = folder.clone().unwrap_or_else(|| ".".into());
                let folder = std::path::absolute(&folder).unwrap_or(folder);
                serde_json::json!(["stdio", command, args, env, folder.to_string_lossy()])
            }
            TransportConfig::Http(config) => serde_json::json!(["http", config.url]),
        };
        let mark = ContentHash::of(identity_json.to_string().as_bytes()).to_string();
        let mark: String = mark.chars().take(MARK_DIGITS).collect();
        format!("{}~{mark}", self.name)
    }

    /// Whether the server is reached by HTTP on a loopback address.
    pub(super) fn is_loopback(&self) -> bool {
        let TransportConfig::Http(config) = &self.transport else {
            return false;
        };
        address::parse_http_url(&config.url).is_some_and(|url| Zone::of_url(&url) == Zone::Loopback)
    }

    /// The provider of the server's tools; `label` is its name in scopes.
    pub(super) fn provider<'a>(&'a self, label: &'a str) -> ToolProvider<'a> {
        ToolProvider {
            name: &self.name,
            label,
            verbs: &self.verbs,
            description_prefix: "",
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
            return Err(SpecError::Name(bailiwick::text::escape(name).into()));
        }
        match &self.transport {
            TransportConfig::Child { command, .. } if command.is_empty() => {
                Err(SpecError::Command(name.clone()))
            }
            TransportConfig::Child { .. } => Ok(()),
            TransportConfig::Http(config) => super::http::check(name, config),
        }
    }
}

/// Validates all specs, and rejects duplicate names.
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
    fn number_of_servers_is_limited() {
        let specs: Vec<_> = (0..=MAX_SERVERS)
            .map(|n| ServerSpec::stdio(format!("s{n}"), "x"))
            .collect();
        assert_eq!(check_all(&specs), Err(SpecError::TooMany));
        assert_eq!(check_all(&specs[1..]), Ok(()));
    }

    #[test]
    fn ambiguous_names_are_rejected() {
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
    fn unreachable_specs_are_rejected_up_front() {
        check(
            ServerSpec::stdio("a", ""),
            Some(SpecError::Command("a".into())),
        );
        let name = || "a".to_owned();
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
            check(ServerSpec::http("a", url), expected);
        }
    }

    #[test]
    fn place_of_a_server_is_this_computer_or_its_host() {
        let place = |spec: ServerSpec| spec.place();
        assert_eq!(
            place(ServerSpec::stdio("a", "x")),
            "a program on this computer"
        );
        for (url, expected) in [
            (
                "https://user:word@api.example.com:8443/mcp?key=1",
                "a server at api.example.com",
            ),
            (
                "http://127.0.0.1:1",
                "a server on this computer (127.0.0.1)",
            ),
            (
                "http://localhost:1",
                "a server on this computer (localhost)",
            ),
            ("no address", "a server on the network"),
        ] {
            assert_eq!(place(ServerSpec::http("a", url)), expected);
        }
    }

    #[test]
    fn identity_excludes_secrets() {
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
    fn debug_shows_only_the_name() {
        let spec = ServerSpec::stdio("a", "command-7")
            .args(["argument-7"])
            .env("X", "value-7");
        assert!(!format!("{spec:?}").contains('7'));
    }
}
