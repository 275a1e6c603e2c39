//! A server's word that it wants a person to sign in in, the token that it takes out: OAuth 2.1 as MCP has it.
//!
//! A server names its authorisation server, and that one names its own addresses; none of them is the host's choice, so
//! `fetch` bounds where they lead and what comes back. A person opens one address, in their browser, and the host
//! brings back where it led them. Everything that rmcp writes to the log meanwhile is dropped: codes are among it.

mod account;
mod authenticated_client;
mod authorization_response;
mod credentials;
mod fetch;
mod flow;
mod loopback;
mod sign_in_audit;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::requests::BoxFuture;
use super::spec::{ServerSpec, SpecError};

pub(super) use account::{Account, SignInOutcome};
pub(super) use authenticated_client::AuthenticatedClient;
pub use loopback::LoopbackRedirect;
pub(super) use sign_in_audit::SignInAudit;

/// How people sign in at servers that ask for it. Without it, and without [`ServerRequests::sign_in`], nobody does, and
/// such a server is given up. Nobody is asked the same thing twice in five minutes, unless by [`retry`].
///
/// [`ServerRequests::sign_in`]: super::ServerRequests::sign_in
/// [`retry`]: super::Upstreams::retry
#[derive(Clone)]
pub struct OAuth {
    redirect_uri: String,
    name: String,
    client_id_metadata_url: Option<String>,
    preregistered: BTreeMap<String, (String, Option<String>)>,
    issuers: BTreeMap<String, String>,
    store: Option<Arc<dyn TokenStore>>,
    allow_private: bool,
}

impl fmt::Debug for OAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuth").finish_non_exhaustive()
    }
}

impl OAuth {
    /// `redirect_uri` is where browsers are led back to: on this machine ([`LoopbackRedirect::address`]), by HTTPS, or an address that
    /// the system opens with the host's own application.
    #[must_use]
    pub fn new(redirect_uri: impl Into<String>) -> Self {
        Self {
            redirect_uri: redirect_uri.into(),
            name: "bailiwick".to_owned(),
            client_id_metadata_url: None,
            preregistered: BTreeMap::new(),
            issuers: BTreeMap::new(),
            store: None,
            allow_private: false,
        }
    }

    /// What authorisation servers call the host before people.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The `https://` address of the host's own client metadata, by which authorisation servers know it that take such.
    #[must_use]
    pub fn client_id_metadata_url(mut self, url: impl Into<String>) -> Self {
        self.client_id_metadata_url = Some(url.into());
        self
    }

    /// The authorisation server that people sign in at for a server, as it calls itself; without, whichever the server
    /// names. One that is said here may have its addresses on other hosts than its own.
    #[must_use]
    pub fn issuer(mut self, server: impl Into<String>, issuer: impl Into<String>) -> Self {
        self.issuers.insert(server.into(), issuer.into());
        self
    }

    /// The client that the host was registered as for a server, and its secret if it has one. A secret for a server
    /// that is not on this machine goes to its [`issuer`], which must be said.
    ///
    /// [`issuer`]: Self::issuer
    #[must_use]
    pub fn preregistered_client(
        mut self,
        server: impl Into<String>,
        client: impl Into<String>,
        secret: Option<String>,
    ) -> Self {
        let client = (client.into(), secret);
        self.preregistered.insert(server.into(), client);
        self
    }

    /// Keeps what is needed for not signing in again. Without, it is forgotten with the process.
    #[must_use]
    pub fn store(mut self, store: impl TokenStore) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// Lets servers on the public network name authorisation servers on private ones.
    #[must_use]
    pub fn private_networks(mut self) -> Self {
        self.allow_private = true;
        self
    }

    /// Refuses a landing that a code would not be safe on, and a secret for whichever authorisation server is named by a
    /// server elsewhere.
    pub(super) fn check(&self, specs: &[ServerSpec]) -> Result<(), SpecError> {
        let insecure = specs.iter().find(|spec| {
            let secret = self.preregistered.get(&spec.name);
            let secret = secret.is_some_and(|(_, secret)| secret.is_some());
            secret && !self.issuers.contains_key(&spec.name) && !spec.is_loopback()
        });
        if let Some(spec) = insecure {
            return Err(SpecError::Issuer(spec.name.clone()));
        }
        let redirect_uri = reqwest::Url::parse(&self.redirect_uri);
        let safe = redirect_uri.is_ok_and(|url| {
            let web = matches!(url.scheme(), "http" | "https");
            url.fragment().is_none() && !(web && super::address::is_insecure(&url))
        });
        if safe {
            Ok(())
        } else {
            Err(SpecError::RedirectUri(
                crate::escape(&self.redirect_uri).into(),
            ))
        }
    }
}

/// Where the host keeps what servers let it in with, a keychain for one. It is secret, and means nothing to the host.
pub trait TokenStore: Send + Sync + 'static {
    /// What was kept of a server last; `server` is its [`label`](super::Upstreams::label), which another address would
    /// change.
    fn load(&self, server: String) -> BoxFuture<'_, Option<String>>;

    /// Keeps this of a server in place of what was kept before; none is nothing.
    fn save(&self, server: String, kept: Option<String>) -> BoxFuture<'_, ()>;
}

/// A server wants a person to sign in, or to allow it more. What they say is recorded in the audit before it counts, and it
/// counts for every worker that has the server's tools.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SignIn {
    /// Which server; show it.
    pub server: String,
    /// Where the server is, as it was configured; show it.
    pub address: String,
    /// Who is to ask the person for their name: the authorisation server; show it.
    pub issuer: String,
    /// What the server would be allowed, in its own words.
    pub scopes: Vec<String>,
    /// Whether the person is signed in, and the server wants more.
    pub more: bool,
    /// The tool whose call wants more, as the server calls it; none where the server lets nobody in. Show it.
    pub tool: Option<String>,
    /// The host that `url` opens; show it.
    pub opens: String,
    /// What the person opens in their browser. It is by HTTPS, or of this machine as the server is.
    pub url: String,
}

impl fmt::Debug for SignIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What is left out belongs to the person's browser alone.
        f.debug_struct("SignIn")
            .field("server", &self.server)
            .field("issuer", &self.issuer)
            .field("opens", &self.opens)
            .finish_non_exhaustive()
    }
}

/// What came of asking a person to sign in ([`ServerRequests::sign_in`]). The audit records who decided: a declined sign-in
/// is a person's answer, an unavailable one is nobody's.
///
/// [`ServerRequests::sign_in`]: super::ServerRequests::sign_in
#[derive(Clone, PartialEq, Eq)]
pub enum SignInAnswer {
    /// The person followed [`SignIn::url`]; this is the whole address that their browser was redirected to in the end.
    Completed(String),
    /// The person declined.
    Declined,
    /// Nobody could be asked, or nobody answered.
    Unavailable,
}

impl fmt::Debug for SignInAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address holds a code that is as good as a password.
        f.write_str(match self {
            Self::Completed(_) => "Completed(..)",
            Self::Declined => "Declined",
            Self::Unavailable => "Unavailable",
        })
    }
}

/// Why nobody is signed in. What servers say stays out of it: it may hold what they were told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum SignInError {
    #[error("the person declined to sign in")]
    Declined,
    #[error("no person could be asked to sign in, or none answered")]
    Unavailable,
    #[error("the authorisation server refused the request to sign in")]
    Rejected,
    #[error("what the person said cannot be recorded, so it does not count")]
    Unrecorded,
    #[error("a sign-in was asked for already, and the server is not content with it")]
    AlreadyAsked,
    #[error("the authorisation server of this server is not found, or cannot be trusted")]
    Discovery,
    #[error("the authorisation server does not know this host and lets it not register")]
    NotRegistered,
    #[error("the server wants more than a person can be shown")]
    TooManyScopes,
    #[error("the authorisation server does not protect codes by S256")]
    Pkce,
    #[error("what the browser was led back with is not the answer to what was asked")]
    State,
    #[error("the answer is by another authorisation server than was asked")]
    Issuer,
    #[error("the authorisation server gives no token")]
    Token,
    #[error("the authorisation server did not answer in time")]
    TimedOut,
}
