//! What a server wants in, a token or the address at which a person gets one out: rmcp's state machine, within bounds.

use std::future::Future;
use std::sync::Arc;

use reqwest::Url;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, OAuthClientConfig,
};
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

use super::super::address::{self, Place, Reachable};
use super::super::spec::HttpReach;
use super::account::Challenge;
use super::fetch::Fetch;
use super::sent::SentBack;
use super::vault::{Door, Last, Vault};
use super::{OAuth, SignInError};

/// What this host knows of the authorisation server of one server.
pub(super) struct Desk {
    server: String,
    oauth: OAuth,
    reachable: Reachable,
    fetch: Arc<Fetch>,
    vault: Arc<Vault>,
    manager: AuthorizationManager,
    known: Option<Known>,
}

/// The authorisation server, and who this host is to it.
struct Known {
    metadata: AuthorizationMetadata,
    client: OAuthClientConfig,
}

/// Where a person is asked for what.
pub(super) struct Asked {
    pub(super) url: Url,
    pub(super) issuer: String,
    pub(super) scopes: Vec<String>,
}

/// What an authorisation request says by its query, and the address that it is made to may therefore not.
const OAUTH: &[&str] = &[
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
fn is_own(metadata: &AuthorizationMetadata, named: bool) -> bool {
    let issuer = metadata.issuer.as_deref().and_then(address::read);
    let (Some(issuer), Some(page)) = (issuer, address::read(&metadata.authorization_endpoint))
    else {
        return false;
    };
    let own = |endpoint: &String| {
        named || address::read(endpoint).is_some_and(|url| url.origin() == issuer.origin())
    };
    let mut asked = page.query_pairs();
    own(&metadata.authorization_endpoint)
        && own(&metadata.token_endpoint)
        && metadata.registration_endpoint.as_ref().is_none_or(own)
        && !asked.any(|(key, _)| OAUTH.contains(&key.to_ascii_lowercase().as_str()))
}

/// Runs it without a log: what it would write holds codes.
fn unheard<F: Future>(it: F) -> impl Future<Output = F::Output> {
    it.with_subscriber(NoSubscriber::default())
}

impl Desk {
    pub(super) async fn open(
        (server, label): (&str, &str),
        url: &Url,
        reach: &HttpReach,
        oauth: &OAuth,
    ) -> Option<Self> {
        let reachable = Reachable::Named {
            server: Place::said(url),
            private: oauth.private,
        };
        let client = super::super::http::client(reach, reachable)?;
        let fetch = Arc::new(Fetch::new(client, reachable));
        let vault = Arc::new(Vault::new(label, oauth.store.clone()));
        let made =
            AuthorizationManager::new_with_oauth_http_client(url.clone(), Arc::clone(&fetch) as _);
        let mut manager = made.await.ok()?;
        manager.set_credential_store(Door(Arc::clone(&vault)));
        manager.set_state_store(Last::default());
        Some(Self {
            server: server.to_owned(),
            oauth: oauth.clone(),
            reachable,
            fetch,
            vault,
            manager,
            known: None,
        })
    }

    /// What the server lets this host in with.
    pub(super) fn vault(&self) -> Arc<Vault> {
        Arc::clone(&self.vault)
    }

    /// The token, renewed if its time is over; none if the server is to be asked without.
    pub(super) async fn token(&self) -> Option<String> {
        self.fetch.renew();
        unheard(self.manager.get_access_token()).await.ok()
    }

    /// Another token than the one that the server refused.
    pub(super) async fn renewed(&self, refused: &str) -> Option<String> {
        self.fetch.renew();
        let now = unheard(self.manager.get_access_token()).await.ok();
        if now.as_deref().is_some_and(|now| now != refused) {
            return now;
        }
        unheard(self.manager.refresh_token()).await.ok()?;
        unheard(self.manager.get_access_token()).await.ok()
    }

    /// Has a code made a token.
    pub(super) async fn exchange(&self, back: &SentBack, state: &str) -> Result<(), SignInError> {
        self.fetch.renew();
        let issuer = back.issuer.as_deref();
        let manager = &self.manager;
        let token = manager.exchange_code_for_token_with_issuer(&back.code, state, issuer);
        unheard(token).await.map_err(|error| match error {
            AuthError::AuthorizationServerMismatch { .. }
            | AuthError::AuthorizationServerMissingIssuer { .. } => SignInError::Issuer,
            _ => SignInError::Token,
        })?;
        Ok(())
    }

    /// What a person is asked; nothing if the server has what it wants without.
    pub(super) async fn asked(
        &mut self,
        challenge: &Challenge,
    ) -> Result<Option<Asked>, SignInError> {
        self.fetch.renew();
        let unknown = self.known.is_none();
        if unknown || challenge.more.is_none() {
            let metadata = self.discovered(&challenge.header).await?;
            self.manager.set_metadata(metadata.clone());
            if unknown && challenge.more.is_none() && self.remembered(&metadata).await {
                return Ok(None);
            }
            if let Err(error) = self.known_as(metadata).await {
                self.restore();
                return Err(error);
            }
        }
        let known = self.known.as_ref().ok_or(SignInError::Discovery)?;
        let issuer = known.metadata.issuer.clone().unwrap_or_default();
        let scopes = self.scopes(challenge).await;
        let wanted: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let url = unheard(self.manager.get_authorization_url(&wanted)).await;
        let url = url.map_err(|_| SignInError::Discovery)?;
        let url = address::read(&url).ok_or(SignInError::Discovery)?;
        Ok(Some(Asked {
            url,
            issuer,
            scopes,
        }))
    }

    /// Makes this host known to the authorisation server that has this metadata.
    async fn known_as(&mut self, metadata: AuthorizationMetadata) -> Result<(), SignInError> {
        let client = self.client(&metadata).await?;
        let configured = self.manager.configure_client(client.clone());
        configured.map_err(|_| SignInError::Discovery)?;
        self.known = Some(Known { metadata, client });
        Ok(())
    }

    /// Has the state machine know the authorisation server again that this host is known to.
    fn restore(&mut self) {
        if let Some(known) = &self.known {
            self.manager.set_metadata(known.metadata.clone());
            // It was this client before.
            let _ = self.manager.configure_client(known.client.clone());
        }
    }

    /// What the server wants, or all that it has and more.
    async fn scopes(&self, challenge: &Challenge) -> Vec<String> {
        let Some(more) = &challenge.more else {
            return self.manager.select_initial_scopes(&[]).await;
        };
        let kept = self.vault.credentials().await;
        let mut scopes = kept.map(|kept| kept.granted_scopes).unwrap_or_default();
        for scope in more.split_whitespace() {
            if !scopes.iter().any(|known| known == scope) {
                scopes.push(scope.to_owned());
            }
        }
        scopes
    }

    /// The authorisation server that the server names, if it names none but addresses that it may lead to.
    async fn discovered(&self, header: &str) -> Result<AuthorizationMetadata, SignInError> {
        let found = unheard(self.manager.resolve_metadata_from_challenge(Some(header))).await;
        let found = found.map_err(|_| SignInError::Discovery)?;
        let metadata = found.metadata;
        let sound = |endpoint: &String| {
            address::read(endpoint).is_some_and(|url| self.reachable.admits_url(&url))
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
            || !is_own(&metadata, pinned.is_some())
        {
            return Err(SignInError::Discovery);
        }
        let kept = self.vault.credentials().await;
        if kept.is_some_and(|kept| kept.issuer != metadata.issuer) {
            self.vault.keep(None).await;
        }
        Ok(metadata)
    }

    /// Whether what was kept when the process ended last is still good for a token.
    async fn remembered(&mut self, metadata: &AuthorizationMetadata) -> bool {
        let Some(kept) = self.vault.credentials().await else {
            return false;
        };
        let own = self.oauth.registered.get(&self.server);
        let own = own.filter(|(id, _)| *id == kept.client_id);
        let mut client = OAuthClientConfig::new(kept.client_id, &self.oauth.landing);
        client.client_secret = own.and_then(|(_, secret)| secret.clone());
        if self.manager.configure_client(client.clone()).is_err() {
            return false;
        }
        let renewed = unheard(self.manager.refresh_token()).await.is_ok();
        if renewed {
            let metadata = metadata.clone();
            self.known = Some(Known { metadata, client });
        }
        renewed
    }

    /// Who this host is to an authorisation server: as whom it was registered, what its document says, or whom it is
    /// registered as now.
    async fn client(
        &mut self,
        metadata: &AuthorizationMetadata,
    ) -> Result<OAuthClientConfig, SignInError> {
        let landing = self.oauth.landing.as_str();
        if let Some((id, secret)) = self.oauth.registered.get(&self.server) {
            let mut client = OAuthClientConfig::new(id, landing);
            client.client_secret.clone_from(secret);
            return Ok(client);
        }
        if let Some(known) = &self.known
            && known.metadata.issuer == metadata.issuer
        {
            return Ok(known.client.clone());
        }
        let documents = metadata
            .additional_fields
            .get("client_id_metadata_document_supported");
        let documents = documents.and_then(serde_json::Value::as_bool);
        if let (Some(document), Some(true)) = (&self.oauth.document, documents) {
            return Ok(OAuthClientConfig::new(document, landing));
        }
        let scopes = self.manager.select_initial_scopes(&[]).await;
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let name = self.oauth.name.as_str();
        let registered = self.manager.register_client(name, landing, &scopes);
        unheard(registered).await.map_err(|_| SignInError::Unknown)
    }
}
