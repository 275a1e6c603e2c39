//! What a server wants in, a token or the address at which a person gets one out: rmcp's state machine, within bounds.

use std::future::Future;
use std::sync::Arc;

use reqwest::Url;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, OAuthClientConfig,
};
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

use super::super::address::{self, AddressPolicy, NetworkZone};
use super::super::spec::HttpConfig;
use super::account::Challenge;
use super::authorization_response::AuthorizationResponse;
use super::credentials::{CredentialCache, CredentialStoreAdapter, LastState};
use super::fetch::BoundedHttpClient;
use super::{OAuth, SignInError};

/// What this host knows of the authorisation server of one server.
pub(super) struct OAuthFlow {
    server: String,
    oauth: OAuth,
    policy: AddressPolicy,
    fetch: Arc<BoundedHttpClient>,
    credentials_cache: Arc<CredentialCache>,
    manager: AuthorizationManager,
    registration: Option<Registration>,
}

/// The authorisation server, and who this host is to it.
struct Registration {
    metadata: AuthorizationMetadata,
    client: OAuthClientConfig,
}

/// Where a person is asked for what.
pub(super) struct AuthorizationRequest {
    pub(super) url: Url,
    pub(super) issuer: String,
    pub(super) scopes: Vec<String>,
}

/// What an authorisation request says by its query, and the address that it is made to may therefore not.
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

/// Whether all addresses of an authorisation server are its own, where `named` does not say that it may have others: one
/// that leads people to another's page would be told the code that they get there.
fn endpoints_match_issuer(metadata: &AuthorizationMetadata, named: bool) -> bool {
    let issuer = metadata.issuer.as_deref().and_then(address::parse_http_url);
    let (Some(issuer), Some(page)) = (
        issuer,
        address::parse_http_url(&metadata.authorization_endpoint),
    ) else {
        return false;
    };
    let preregistered = |endpoint: &String| {
        named
            || address::parse_http_url(endpoint).is_some_and(|url| url.origin() == issuer.origin())
    };
    let mut asked = page.query_pairs();
    preregistered(&metadata.authorization_endpoint)
        && preregistered(&metadata.token_endpoint)
        && metadata
            .registration_endpoint
            .as_ref()
            .is_none_or(preregistered)
        && !asked.any(|(key, _)| RESERVED_PARAMS.contains(&key.to_ascii_lowercase().as_str()))
}

/// Runs it without a log: what it would write holds codes.
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
            server: NetworkZone::of_url(url),
            private: oauth.allow_private,
        };
        let client = super::super::http::client(config, policy)?;
        let fetch = Arc::new(BoundedHttpClient::new(client, policy));
        let credentials_cache = Arc::new(CredentialCache::new(label, oauth.store.clone()));
        let made =
            AuthorizationManager::new_with_oauth_http_client(url.clone(), Arc::clone(&fetch) as _);
        let mut manager = made.await.ok()?;
        manager.set_credential_store(CredentialStoreAdapter(Arc::clone(&credentials_cache)));
        manager.set_state_store(LastState::default());
        Some(Self {
            server: server.to_owned(),
            oauth: oauth.clone(),
            policy,
            fetch,
            credentials_cache,
            manager,
            registration: None,
        })
    }

    /// What the server lets this host in with.
    pub(super) fn credentials(&self) -> Arc<CredentialCache> {
        Arc::clone(&self.credentials_cache)
    }

    /// The token, renewed if its time is over; none if the server is to be asked without.
    pub(super) async fn token(&self) -> Option<String> {
        self.fetch.reset_budget();
        untraced(self.manager.get_access_token()).await.ok()
    }

    /// Another token than the one that the server refused.
    pub(super) async fn refresh(&self, refused: &str) -> Option<String> {
        self.fetch.reset_budget();
        let now = untraced(self.manager.get_access_token()).await.ok();
        if now.as_deref().is_some_and(|now| now != refused) {
            return now;
        }
        untraced(self.manager.refresh_token()).await.ok()?;
        untraced(self.manager.get_access_token()).await.ok()
    }

    /// Has a code made a token.
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

    /// What a person is asked; nothing if the server has what it wants without.
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
        let wanted: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let url = untraced(self.manager.get_authorization_url(&wanted)).await;
        let url = url.map_err(|_| SignInError::Discovery)?;
        let url = address::parse_http_url(&url).ok_or(SignInError::Discovery)?;
        Ok(Some(AuthorizationRequest {
            url,
            issuer,
            scopes,
        }))
    }

    /// Makes this host known to the authorisation server that has this metadata.
    async fn register(&mut self, metadata: AuthorizationMetadata) -> Result<(), SignInError> {
        let client = self.client(&metadata).await?;
        let configured = self.manager.configure_client(client.clone());
        configured.map_err(|_| SignInError::Discovery)?;
        self.registration = Some(Registration { metadata, client });
        Ok(())
    }

    /// Has the state machine know the authorisation server again that this host is known to.
    fn restore(&mut self) {
        if let Some(registration) = &self.registration {
            self.manager.set_metadata(registration.metadata.clone());
            // It was this client before.
            let _ = self.manager.configure_client(registration.client.clone());
        }
    }

    /// What the server wants, or all that it has and more.
    async fn scopes(&self, challenge: &Challenge) -> Vec<String> {
        let Some(more) = &challenge.additional_scope else {
            return self.manager.select_initial_scopes(&[]).await;
        };
        let stored = self.credentials_cache.credentials().await;
        let mut scopes = stored
            .map(|stored| stored.granted_scopes)
            .unwrap_or_default();
        for scope in more.split_whitespace() {
            if !scopes.iter().any(|registration| registration == scope) {
                scopes.push(scope.to_owned());
            }
        }
        scopes
    }

    /// The authorisation server that the server names, if it names none but addresses that it may lead to.
    async fn discover(&self, header: &str) -> Result<AuthorizationMetadata, SignInError> {
        let found = untraced(self.manager.resolve_metadata_from_challenge(Some(header))).await;
        let found = found.map_err(|_| SignInError::Discovery)?;
        let metadata = found.metadata;
        let sound = |endpoint: &String| {
            address::parse_http_url(endpoint).is_some_and(|url| self.policy.allows_url(&url))
        };
        let sound = sound(&metadata.authorization_endpoint)
            && sound(&metadata.token_endpoint)
            && metadata.registration_endpoint.as_ref().is_none_or(sound);
        if !found.source.is_discovered() || metadata.issuer.is_none() || !sound {
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
        let stored = self.credentials_cache.credentials().await;
        if stored.is_some_and(|stored| stored.issuer != metadata.issuer) {
            self.credentials_cache.store(None).await;
        }
        Ok(metadata)
    }

    /// Whether what was kept when the process ended last is still good for a token.
    async fn resume(&mut self, metadata: &AuthorizationMetadata) -> bool {
        let Some(stored) = self.credentials_cache.credentials().await else {
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

    /// Who this host is to an authorisation server: as whom it was registered, what its document says, or whom it is
    /// registered as now.
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
