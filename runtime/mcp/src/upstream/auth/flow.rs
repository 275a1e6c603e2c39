//! OAuth flow of one server: a bounded wrapper of rmcp's state machine.

use std::future::Future;
use std::sync::Arc;

use reqwest::Url;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, OAuthClientConfig,
};
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

use super::super::address::{self, AddressPolicy, Zone};
use super::super::spec::HttpConfig;
use super::account::Challenge;
use super::credentials::{CredentialCache, CredentialStoreAdapter, LastState};
use super::fetch::BoundedHttpClient;
use super::{OAuth, SignInError};

/// The OAuth state for one server.
pub(super) struct OAuthFlow {
    server: String,
    oauth: OAuth,
    policy: AddressPolicy,
    fetch: Arc<BoundedHttpClient>,
    credentials: Arc<CredentialCache>,
    manager: AuthorizationManager,
    registration: Option<Registration>,
}

/// The authorization server, and the client registered there.
struct Registration {
    metadata: AuthorizationMetadata,
    client: OAuthClientConfig,
}

/// An authorization URL with its issuer and scopes.
pub(super) struct AuthorizationRequest {
    pub(super) url: Url,
    pub(super) issuer: String,
    pub(super) scopes: Vec<String>,
}

/// The longest URL, in bytes.
const MAX_URL_BYTES: usize = 16 << 10;

/// The parameters of a successful authorization response.
pub(super) struct AuthorizationResponse {
    pub(super) code: String,
    pub(super) issuer: Option<String>,
}

impl AuthorizationResponse {
    /// Parses the redirected URL and compares its state with `state`.
    pub(super) fn read(address: &str, state: &str) -> Result<Self, SignInError> {
        let url = Url::parse(address).map_err(|_| SignInError::State)?;
        if address.len() > MAX_URL_BYTES || single_param(&url, "state")?.as_deref() != Some(state) {
            return Err(SignInError::State);
        }
        match single_param(&url, "error")?.as_deref() {
            None => {}
            Some("access_denied") => return Err(SignInError::Declined),
            Some(_) => return Err(SignInError::Rejected),
        }
        Ok(Self {
            code: single_param(&url, "code")?.ok_or(SignInError::State)?,
            issuer: single_param(&url, "iss")?,
        })
    }
}

/// A query parameter, which must not occur twice.
pub(super) fn single_param(url: &Url, key: &str) -> Result<Option<String>, SignInError> {
    let mut values = url.query_pairs().filter(|(name, _)| name == key);
    let first = values.next();
    if values.next().is_some() {
        return Err(SignInError::State);
    }
    Ok(first.map(|(_, value)| value.into_owned()))
}

/// Query parameters of an authorization request, which the authorization endpoint must not contain already.
const RESERVED_PARAMS: &[&str] = &[
    "authorization_details",
    "client_id",
    "code_challenge",
    "code_challenge_method",
    "redirect_uri",
    "request",
    "request_uri",
    "resource",
    "response_mode",
    "response_type",
    "scope",
    "state",
];

/// The endpoints of an authorization server; an invalid one is `None`.
fn endpoints(metadata: &AuthorizationMetadata) -> impl Iterator<Item = Option<Url>> {
    let required = [&metadata.authorization_endpoint, &metadata.token_endpoint];
    let all = required.into_iter().chain(&metadata.registration_endpoint);
    all.map(|endpoint| address::parse_http_url(endpoint))
}

/// Whether all endpoints have the origin of the issuer, unless the host configured the issuer (`named`). Otherwise a
/// server could send people to the page of another authorization server and receive the code.
fn endpoints_match_issuer(metadata: &AuthorizationMetadata, named: bool) -> bool {
    let issuer = metadata.issuer.as_deref().and_then(address::parse_http_url);
    let (Some(issuer), Some(page)) = (
        issuer,
        address::parse_http_url(&metadata.authorization_endpoint),
    ) else {
        return false;
    };
    let same_origin = |url: Option<Url>| url.is_some_and(|url| url.origin() == issuer.origin());
    let mut params = page.query_pairs();
    (named || endpoints(metadata).all(same_origin))
        && !params.any(|(key, _)| RESERVED_PARAMS.contains(&key.to_ascii_lowercase().as_str()))
}

/// Runs a future without tracing, because rmcp logs codes.
fn untraced<F: Future>(it: F) -> impl Future<Output = F::Output> {
    it.with_subscriber(NoSubscriber::default())
}

impl OAuthFlow {
    pub(super) async fn open(
        (server, label): (&str, &str),
        url: &Url,
        config: &HttpConfig,
        oauth: &OAuth,
    ) -> Option<Self> {
        let policy = AddressPolicy::Discovered {
            server: Zone::of_url(url),
            private: oauth.allow_private,
        };
        let client = super::super::http::client(config, policy)?;
        let fetch = Arc::new(BoundedHttpClient::new(client, policy));
        let credentials = Arc::new(CredentialCache::new(label, oauth.store.clone()));
        let manager =
            AuthorizationManager::new_with_oauth_http_client(url.clone(), Arc::clone(&fetch) as _);
        let mut manager = manager.await.ok()?;
        manager.set_credential_store(CredentialStoreAdapter(Arc::clone(&credentials)));
        manager.set_state_store(LastState::default());
        Some(Self {
            server: server.to_owned(),
            oauth: oauth.clone(),
            policy,
            fetch,
            credentials,
            manager,
            registration: None,
        })
    }

    pub(super) fn credentials(&self) -> Arc<CredentialCache> {
        Arc::clone(&self.credentials)
    }

    /// The access token, refreshed if it expired.
    pub(super) async fn token(&self) -> Option<String> {
        self.fetch.reset_budget();
        untraced(self.manager.get_access_token()).await.ok()
    }

    /// A new access token after the server rejected `refused`.
    pub(super) async fn refresh(&self, refused: &str) -> Option<String> {
        self.fetch.reset_budget();
        let now = untraced(self.manager.get_access_token()).await.ok();
        if now.as_deref().is_some_and(|now| now != refused) {
            return now;
        }
        untraced(self.manager.refresh_token()).await.ok()?;
        untraced(self.manager.get_access_token()).await.ok()
    }

    /// Exchanges an authorization code for a token.
    pub(super) async fn exchange(
        &self,
        response: &AuthorizationResponse,
        state: &str,
    ) -> Result<(), SignInError> {
        self.fetch.reset_budget();
        let issuer = response.issuer.as_deref();
        let manager = &self.manager;
        let token = manager.exchange_code_for_token_with_issuer(&response.code, state, issuer);
        untraced(token).await.map_err(|error| match error {
            AuthError::AuthorizationServerMismatch { .. }
            | AuthError::AuthorizationServerMissingIssuer { .. } => SignInError::Issuer,
            _ => SignInError::Token,
        })?;
        Ok(())
    }

    /// Starts an authorization request; `None` if stored credentials suffice.
    pub(super) async fn authorization_request(
        &mut self,
        challenge: &Challenge,
    ) -> Result<Option<AuthorizationRequest>, SignInError> {
        self.fetch.reset_budget();
        let unknown = self.registration.is_none();
        if unknown || challenge.additional_scope.is_none() {
            let metadata = self.discover(&challenge.header).await?;
            self.manager.set_metadata(metadata.clone());
            if unknown && challenge.additional_scope.is_none() && self.resume(&metadata).await {
                return Ok(None);
            }
            if let Err(error) = self.register(metadata).await {
                self.restore();
                return Err(error);
            }
        }
        let registration = self.registration.as_ref().ok_or(SignInError::Discovery)?;
        let issuer = registration.metadata.issuer.clone().unwrap_or_default();
        let scopes = self.scopes(challenge).await;
        let scope_refs: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let url = untraced(self.manager.get_authorization_url(&scope_refs)).await;
        let url = url.map_err(|_| SignInError::Discovery)?;
        let url = address::parse_http_url(&url).ok_or(SignInError::Discovery)?;
        Ok(Some(AuthorizationRequest {
            url,
            issuer,
            scopes,
        }))
    }

    /// Registers this host at the authorization server.
    async fn register(&mut self, metadata: AuthorizationMetadata) -> Result<(), SignInError> {
        let client = self.client(&metadata).await?;
        let configured = self.manager.configure_client(client.clone());
        configured.map_err(|_| SignInError::Discovery)?;
        self.registration = Some(Registration { metadata, client });
        Ok(())
    }

    /// Restores the previous registration in rmcp's state machine.
    fn restore(&mut self) {
        if let Some(registration) = &self.registration {
            self.manager.set_metadata(registration.metadata.clone());
            // This client was configured before.
            let _ = self.manager.configure_client(registration.client.clone());
        }
    }

    /// The requested scopes, added to the granted ones for a step-up.
    async fn scopes(&self, challenge: &Challenge) -> Vec<String> {
        let Some(more) = &challenge.additional_scope else {
            return self.manager.select_initial_scopes(&[]).await;
        };
        let stored = self.credentials.load().await;
        let mut scopes = stored
            .map(|stored| stored.granted_scopes)
            .unwrap_or_default();
        for scope in more.split_whitespace() {
            if !scopes.iter().any(|known| known == scope) {
                scopes.push(scope.to_owned());
            }
        }
        scopes
    }

    /// Discovers the authorization server, and rejects disallowed endpoints.
    async fn discover(&self, header: &str) -> Result<AuthorizationMetadata, SignInError> {
        let found = untraced(self.manager.resolve_metadata_from_challenge(Some(header))).await;
        let found = found.map_err(|_| SignInError::Discovery)?;
        let metadata = found.metadata;
        let is_allowed = |url: Option<Url>| url.is_some_and(|url| self.policy.allows_url(&url));
        let allowed = endpoints(&metadata).all(is_allowed);
        if !found.source.is_discovered() || metadata.issuer.is_none() || !allowed {
            return Err(SignInError::Discovery);
        }
        let methods = metadata.code_challenge_methods_supported.as_ref();
        if !methods.is_some_and(|methods| methods.iter().any(|method| method == "S256")) {
            return Err(SignInError::Pkce);
        }
        let pinned = self.oauth.issuers.get(&self.server);
        if pinned.is_some_and(|pinned| metadata.issuer.as_ref() != Some(pinned))
            || !endpoints_match_issuer(&metadata, pinned.is_some())
        {
            return Err(SignInError::Discovery);
        }
        let stored = self.credentials.load().await;
        if stored.is_some_and(|stored| stored.issuer != metadata.issuer) {
            self.credentials.store(None).await;
        }
        Ok(metadata)
    }

    /// Whether stored credentials can be refreshed.
    async fn resume(&mut self, metadata: &AuthorizationMetadata) -> bool {
        let Some(stored) = self.credentials.load().await else {
            return false;
        };
        let preregistered = self.oauth.preregistered.get(&self.server);
        let preregistered = preregistered.filter(|(id, _)| *id == stored.client_id);
        let mut client = OAuthClientConfig::new(stored.client_id, &self.oauth.redirect_uri);
        client.client_secret = preregistered.and_then(|(_, secret)| secret.clone());
        if self.manager.configure_client(client.clone()).is_err() {
            return false;
        }
        let refreshed = untraced(self.manager.refresh_token()).await.is_ok();
        if refreshed {
            let metadata = metadata.clone();
            self.registration = Some(Registration { metadata, client });
        }
        refreshed
    }

    /// The client for an authorization server: pre-registered, by its metadata URL, or registered dynamically.
    async fn client(
        &mut self,
        metadata: &AuthorizationMetadata,
    ) -> Result<OAuthClientConfig, SignInError> {
        let redirect_uri = self.oauth.redirect_uri.as_str();
        if let Some((id, secret)) = self.oauth.preregistered.get(&self.server) {
            let mut client = OAuthClientConfig::new(id, redirect_uri);
            client.client_secret.clone_from(secret);
            return Ok(client);
        }
        if let Some(registration) = &self.registration
            && registration.metadata.issuer == metadata.issuer
        {
            return Ok(registration.client.clone());
        }
        let supports_metadata_url = metadata
            .additional_fields
            .get("client_id_metadata_document_supported");
        let supports_metadata_url = supports_metadata_url.and_then(serde_json::Value::as_bool);
        if let (Some(metadata_url), Some(true)) =
            (&self.oauth.client_id_metadata_url, supports_metadata_url)
        {
            return Ok(OAuthClientConfig::new(metadata_url, redirect_uri));
        }
        let scopes = self.manager.select_initial_scopes(&[]).await;
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let name = self.oauth.name.as_str();
        let registering = self.manager.register_client(name, redirect_uri, &scopes);
        untraced(registering)
            .await
            .map_err(|_| SignInError::NotRegistered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(query: &str, expected: Result<(&str, Option<&str>), SignInError>) {
        let read = AuthorizationResponse::read(&format!("http://127.0.0.1:1/x?{query}"), "s1");
        let read = read.map(|back| (back.code, back.issuer));
        let expected = expected.map(|(code, issuer)| (code.into(), issuer.map(Into::into)));
        assert_eq!(read, expected, "{query}");
    }

    #[test]
    fn code_requires_the_requested_state() {
        check("code=c%201&state=s1", Ok(("c 1", None)));
        check(
            "iss=https%3A%2F%2Fa&state=s1&code=c",
            Ok(("c", Some("https://a"))),
        );
        for query in [
            "",
            "code=c",
            "state=s1",
            "code=c&state=s2",
            "code=c&state=",
            "code=c&state=s1&state=s1",
            "code=c&code=d&state=s1",
            "error=access_denied&state=s2",
        ] {
            check(query, Err(SignInError::State));
        }
        check("error=access_denied&state=s1", Err(SignInError::Declined));
        check("error=x&code=c&state=s1", Err(SignInError::Rejected));
        assert!(AuthorizationResponse::read("?code=c&state=s1", "s1").is_err());
    }
}
