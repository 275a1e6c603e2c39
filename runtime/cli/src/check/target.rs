//! How to reach a server: a command or a URL.

use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;

use reqwest::Url;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::client::{Inbox, ServerError};
use super::{child, http};

/// A server to connect to.
#[derive(Clone)]
pub struct Target(Kind);

#[derive(Clone)]
enum Kind {
    Command {
        program: OsString,
        arguments: Vec<OsString>,
    },
    Url {
        url: Url,
        bearer: Option<String>,
    },
}

/// Why a URL is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// It is not an `http://` or `https://` URL.
    #[error("`{0}` is not an http:// or https:// URL")]
    Invalid(String),
    /// It has a user name or password, which would be displayed.
    #[error("the URL has a user name or password: give the server a bearer token instead")]
    Credentials,
    /// This program was built without the feature `tls`.
    #[error("`{0}` needs TLS, which this program was built without (feature `tls`)")]
    Tls(String),
    /// The token would be sent over a network unencrypted.
    #[error(
        "the bearer token would be sent to `{0}` unencrypted: use https://, or a server on this machine"
    )]
    Unencrypted(String),
    /// The token has characters that are not allowed in a header.
    #[error("the bearer token must have visible ASCII characters only")]
    Bearer,
}

impl Target {
    /// A program that serves MCP over its standard streams. It inherits the environment.
    pub fn command<A: Into<OsString>>(
        program: impl Into<OsString>,
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        Self(Kind::Command {
            program: program.into(),
            arguments: arguments.into_iter().map(Into::into).collect(),
        })
    }

    /// A Streamable HTTP server. `bearer` is sent with every request. Redirects are not followed, and no proxy is used.
    ///
    /// # Errors
    /// [`UrlError`] if the URL is invalid, or the token would be sent unencrypted.
    pub fn url(text: &str, bearer: Option<String>) -> Result<Self, UrlError> {
        let url = Url::parse(text).ok();
        let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let url = url.ok_or_else(|| UrlError::Invalid(text.to_owned()))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(UrlError::Credentials);
        }
        let encrypted = url.scheme() == "https";
        if encrypted && cfg!(not(feature = "tls")) {
            return Err(UrlError::Tls(text.to_owned()));
        }
        if let Some(bearer) = &bearer {
            if bearer.is_empty() || !bearer.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(UrlError::Bearer);
            }
            if !encrypted && !is_local(&url) {
                return Err(UrlError::Unencrypted(text.to_owned()));
            }
        }
        Ok(Self(Kind::Url { url, bearer }))
    }

    /// Opens a connection.
    pub(super) fn open(
        &self,
        to_send: mpsc::Receiver<Value>,
        inbox: Arc<Inbox>,
    ) -> Result<JoinSet<()>, ServerError> {
        match &self.0 {
            Kind::Command { program, arguments } => {
                child::start(program, arguments, to_send, inbox)
            }
            Kind::Url { url, bearer } => http::open(url, bearer.as_deref(), to_send, inbox),
        }
    }
}

/// Whether a URL refers to this machine.
fn is_local(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let literal = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    match literal.unwrap_or(host).parse::<std::net::IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => host.trim_end_matches('.') == "localhost",
    }
}

/// Formats the command with its arguments, or the URL.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Command { program, arguments } => {
                write!(f, "{}", program.display())?;
                arguments
                    .iter()
                    .try_for_each(|argument| write!(f, " {}", argument.display()))
            }
            Kind::Url { url, .. } => f.write_str(url.as_str()),
        }
    }
}

/// Formats the target without the token.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(url: &str, bearer: Option<&str>, expected: Option<&UrlError>) {
        let target = Target::url(url, bearer.map(str::to_owned));
        assert_eq!(target.err().as_ref(), expected, "{url}");
    }

    #[test]
    fn url_is_http_or_https_without_credentials() {
        for url in [
            "http://127.0.0.1:1/mcp",
            "http://example.com/",
            "http://[::1]:1/",
        ] {
            check(url, None, None);
        }
        let without_tls = cfg!(not(feature = "tls"));
        let https = "https://example.com/mcp";
        check(
            https,
            None,
            without_tls
                .then(|| UrlError::Tls(https.to_owned()))
                .as_ref(),
        );
        for url in ["", "x", "ftp://x/", "file:///x", "http://", "node"] {
            check(url, None, Some(&UrlError::Invalid(url.to_owned())));
        }
        for url in ["http://me@127.0.0.1/", "http://:secret@127.0.0.1/"] {
            check(url, None, Some(&UrlError::Credentials));
        }
    }

    #[test]
    fn token_is_sent_encrypted_or_to_this_machine() {
        for url in [
            "http://127.0.0.1:1/",
            "http://[::1]/",
            "http://localhost/",
            "http://localhost./",
        ] {
            check(url, Some("secret"), None);
        }
        for url in [
            "http://example.com/",
            "http://10.0.0.1/",
            "http://localhost.example.com/",
            "http://127.0.0.1.example.com/",
        ] {
            let refused = UrlError::Unencrypted(url.to_owned());
            check(url, Some("secret"), Some(&refused));
            check(url, None, None);
        }
        for bearer in ["", "two words", "a\nb", "\u{e9}"] {
            check("http://127.0.0.1/", Some(bearer), Some(&UrlError::Bearer));
        }
    }

    #[test]
    fn token_is_not_shown() {
        let target = Target::url("http://127.0.0.1/", Some("secret".to_owned())).unwrap();
        assert_eq!(format!("{target:?}"), "Target(http://127.0.0.1/)");
    }
}
