//! OAuth 2.1 sign-in at third-party servers.
//!
//! A server names its authorization server, which names its endpoints. The host chooses none of them, so `fetch` limits
//! the addresses, the number of requests and the size of responses. A person opens one URL in their browser, and the
//! host returns the redirected URL. The log output of rmcp is discarded meanwhile, because it contains codes.

mod account;
mod credentials;
mod fetch;
mod flow;
mod loopback;
mod sign_in_audit;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::spec::{ServerSpec, SpecError};
use bailiwick::requests::BoxFuture;

pub(super) use account::{Account, Challenge, SignInOutcome};
pub use loopback::LoopbackRedirect;
pub(super) use sign_in_audit::SignInAudit;

/// OAuth configuration for servers that require a sign-in. Without it, or without [`ServerRequests::sign_in`], such a
/// server is not connected. The same question is asked at most once in five minutes, unless [`retry`] is called.
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
    /// `redirect_uri` is where browsers are redirected: a loopback address ([`LoopbackRedirect::redirect_uri`]), an
    /// `https` URL, or a custom scheme that opens the host's application.
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

    /// Sets the client name that authorization servers show to people.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the `https://` URL of the host's client ID metadata document, for authorization servers that support it.
    #[must_use]
    pub fn client_id_metadata_url(mut self, url: impl Into<String>) -> Self {
        self.client_id_metadata_url = Some(url.into());
        self
    }

    /// Sets the issuer of the authorization server for a server; the default is the one that the server names. The
    /// endpoints of a configured issuer may be on other hosts.
    #[must_use]
    pub fn issuer(mut self, server: impl Into<String>, issuer: impl Into<String>) -> Self {
        self.issuers.insert(server.into(), issuer.into());
        self
    }

    /// Sets the client ID that the host is registered with for a server, and the client secret, if it has one. A secret
    /// for a server that is not on this machine requires an [`issuer`], which receives it.
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

    /// Sets the store for tokens. Without it, tokens are lost when the process ends.
    #[must_use]
    pub fn store(mut self, store: impl TokenStore) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// Lets servers on the public network name authorization servers on private networks.
    #[must_use]
    pub fn private_networks(mut self) -> Self {
        self.allow_private = true;
        self
    }

    /// Rejects an insecure redirect URI, and a client secret for a remote server without a configured issuer.
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
                bailiwick::text::escape(&self.redirect_uri).into(),
            ))
        }
    }
}

/// Storage for OAuth credentials, such as a keychain. The stored text is secret and opaque to the host.
pub trait TokenStore: Send + Sync + 'static {
    /// Loads the text saved for a server. `server` is its [`label`](super::Upstreams::label), which changes with the
    /// address.
    fn load(&self, server: String) -> BoxFuture<'_, Option<String>>;

    /// Replaces the saved text of a server; `None` deletes it.
    fn save(&self, server: String, text: Option<String>) -> BoxFuture<'_, ()>;
}

/// Why a sign-in failed. It contains no text of servers, which may repeat secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum SignInError {
    #[error("the person declined to sign in")]
    Declined,
    #[error("no person could be asked to sign in, or none answered")]
    Unavailable,
    #[error("the authorization server refused the request to sign in")]
    Rejected,
    #[error("the decision cannot be recorded in the audit, so it has no effect")]
    Unrecorded,
    #[error("the server requires another sign-in although a person signed in")]
    AlreadyAsked,
    #[error("the authorization server of this server was not found or cannot be trusted")]
    Discovery,
    #[error("the authorization server does not know this host and does not let it register")]
    NotRegistered,
    #[error("the server requests too many scopes")]
    TooManyScopes,
    #[error("the authorization server does not support PKCE with S256")]
    Pkce,
    #[error("OAuth state mismatch in the redirect")]
    State,
    #[error("issuer mismatch in the redirect")]
    Issuer,
    #[error("the authorization server issued no token")]
    Token,
    #[error("the authorization server did not answer in time")]
    TimedOut,
}
