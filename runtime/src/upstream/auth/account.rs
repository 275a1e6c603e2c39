//! What one server wants a person for in, whether it has it now out. A person is asked one thing at a time, and no thing
//! over and over.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::Url;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, OAuthClientConfig,
};
use rmcp::transport::streamable_http_client::{InsufficientScopeError, StreamableHttpError};
use tokio::time::{Instant, timeout};
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

use super::super::address::{self, Place, Reachable};
use super::super::classify::cut;
use super::super::requests::ServerRequests;
use super::super::spec::HttpReach;
use super::fetch::Fetch;
use super::sent::{SentBack, one};
use super::vault::{Door, Vault};
use super::{OAuth, SignIn, SignInError};

/// How long everything between two words of a person may take.
const NETWORK: Duration = Duration::from_secs(60);
/// How long a person may take.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long a person is not asked the same thing again.
const QUIET: Duration = Duration::from_secs(300);
/// How many things a person is asked for one server in that time.
const MOST_ASKED: usize = 4;
/// The longest word of a server that is read, in bytes.
const LONGEST: usize = 8 << 10;
/// The most scopes that a person is shown, and the longest.
const MOST_SCOPES: (usize, usize) = (64, 128);

/// A server that refused a request for want of a person.
#[derive(Clone)]
pub(super) struct Challenge {
    header: String,
    /// What it wants in addition, where it let somebody in.
    more: Option<String>,
}

impl Challenge {
    pub(super) fn more(error: &InsufficientScopeError) -> Self {
        Self {
            header: error.www_authenticate_header.clone(),
            more: Some(error.required_scope.clone().unwrap_or_default()),
        }
    }

    /// What is asked of a person, for knowing it again.
    fn key(&self) -> Option<String> {
        self.more.clone()
    }
}

/// What came of what a server wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::upstream) enum Settled {
    /// It wanted nothing, or nobody could be asked yet.
    Nothing,
    /// It has what it wanted.
    Done,
    /// It will not get it.
    Refused,
}

/// What this host is to one server.
pub(in crate::upstream) struct Account {
    server: String,
    address: String,
    oauth: OAuth,
    host: Arc<dyn ServerRequests>,
    reachable: Reachable,
    fetch: Arc<Fetch>,
    vault: Arc<Vault>,
    desk: tokio::sync::Mutex<Desk>,
    asking: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

struct Desk {
    manager: AuthorizationManager,
    known: Option<Known>,
}

/// The authorisation server, and who this host is to it.
#[derive(Clone)]
struct Known {
    metadata: AuthorizationMetadata,
    client: OAuthClientConfig,
}

#[derive(Default)]
struct State {
    challenge: Option<Challenge>,
    /// When a person was asked for what, and what came of it.
    asked: BTreeMap<Option<String>, (Instant, Result<(), SignInError>)>,
    live: bool,
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").finish_non_exhaustive()
    }
}

/// Runs it without a log: what it would write holds codes.
fn unheard<F: Future>(it: F) -> impl Future<Output = F::Output> {
    it.with_subscriber(NoSubscriber::default())
}

async fn in_time<T>(it: impl Future<Output = Result<T, SignInError>>) -> Result<T, SignInError> {
    timeout(NETWORK, it).await.unwrap_or(Err(SignInError::Late))
}

/// An address as people are shown it.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // Neither fails where there is a host.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    crate::escape(url.as_str()).into_owned()
}

impl Account {
    /// None where the host signs in by a header of its own.
    pub(in crate::upstream) async fn open(
        (server, label): (&str, &str),
        reach: &HttpReach,
        oauth: &OAuth,
        host: &Arc<dyn ServerRequests>,
    ) -> Option<Arc<Self>> {
        let mut headers = reach.headers.keys();
        if headers.any(|header| header.eq_ignore_ascii_case("authorization")) {
            return None;
        }
        let url = address::read(&reach.url)?;
        let reachable = Reachable::Named {
            server: Place::said(&url),
            private: oauth.private,
        };
        let client = super::super::http::client(reach, reachable)?;
        let fetch = Arc::new(Fetch::new(client, reachable));
        let vault = Arc::new(Vault::new(label, oauth.store.clone()));
        let made =
            AuthorizationManager::new_with_oauth_http_client(url.clone(), Arc::clone(&fetch) as _);
        let mut manager = made.await.ok()?;
        manager.set_credential_store(Door(Arc::clone(&vault)));
        Some(Arc::new(Self {
            server: server.to_owned(),
            address: shown(&url),
            oauth: oauth.clone(),
            host: Arc::clone(host),
            reachable,
            fetch,
            vault,
            desk: tokio::sync::Mutex::new(Desk {
                manager,
                known: None,
            }),
            asking: tokio::sync::Mutex::default(),
            state: Mutex::default(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether calls may wait for a person: a connection that is still made may not.
    pub(super) fn is_live(&self) -> bool {
        self.state().live
    }

    pub(in crate::upstream) fn set_live(&self, live: bool) {
        self.state().live = live;
    }

    /// A person wants it tried again: what they were asked they may be asked once more.
    pub(in crate::upstream) fn afresh(&self) {
        self.state().asked.clear();
    }

    /// The token, renewed if its time is over; none if the server is to be asked without.
    pub(super) async fn token(&self) -> Option<String> {
        let desk = self.desk.lock().await;
        self.fetch.renew();
        unheard(desk.manager.get_access_token()).await.ok()
    }

    /// Another token than the one that the server refused.
    pub(super) async fn renewed(&self, refused: &str) -> Option<String> {
        let desk = self.desk.lock().await;
        self.fetch.renew();
        let now = unheard(desk.manager.get_access_token()).await.ok();
        if now.as_deref().is_some_and(|now| now != refused) {
            return now;
        }
        unheard(desk.manager.refresh_token()).await.ok()?;
        unheard(desk.manager.get_access_token()).await.ok()
    }

    /// Notes what the server wants, for when the connection has ended.
    pub(super) fn noted(&self, error: &StreamableHttpError<reqwest::Error>) {
        let challenge = match error {
            StreamableHttpError::AuthRequired(error) => Challenge {
                header: error.www_authenticate_header.clone(),
                more: None,
            },
            StreamableHttpError::InsufficientScope(error) => Challenge::more(error),
            _ => return,
        };
        if challenge.header.len() <= LONGEST {
            self.state().challenge = Some(challenge);
        }
    }

    /// Whether a person now allows a server in use what it wants in addition.
    pub(super) async fn allowed(&self, wanted: Challenge) -> bool {
        let asked = self.ask_once(&wanted).await;
        if let Err(error) = asked {
            tracing::warn!(server = %self.server, %error, "a server wants more than it has");
        }
        asked.is_ok()
    }

    /// Whether a server that did not let this host in wants a person.
    pub(in crate::upstream) fn wants(&self) -> bool {
        self.state().challenge.is_some()
    }

    /// Sees to what a server wanted that did not let this host in.
    pub(in crate::upstream) async fn settle(&self) -> Settled {
        let Some(challenge) = self.state().challenge.take() else {
            return Settled::Nothing;
        };
        let Err(error) = self.ask_once(&challenge).await else {
            return Settled::Done;
        };
        tracing::warn!(server = %self.server, %error, "nobody is signed in at a server");
        match error {
            SignInError::Discovery | SignInError::Late | SignInError::Token => Settled::Nothing,
            _ => Settled::Refused,
        }
    }

    async fn ask_once(&self, challenge: &Challenge) -> Result<(), SignInError> {
        let began = Instant::now();
        let _one = self.asking.lock().await;
        let key = challenge.key();
        {
            let mut state = self.state();
            state.asked.retain(|_, (at, _)| at.elapsed() < QUIET);
            match state.asked.get(&key) {
                // Another call asked while this one waited.
                Some((at, answer)) if *at >= began => return *answer,
                Some(_) => return Err(SignInError::Again),
                None if state.asked.len() >= MOST_ASKED => return Err(SignInError::Again),
                None => {}
            }
        }
        let Some(question) = in_time(self.question(challenge)).await? else {
            return Ok(());
        };
        let answer = self.ask(question).await;
        self.state().asked.insert(key, (Instant::now(), answer));
        answer
    }

    async fn ask(&self, (request, state): (SignIn, String)) -> Result<(), SignInError> {
        let said = timeout(PATIENCE, self.host.sign_in(request)).await;
        let address = said.ok().flatten().ok_or(SignInError::Refused)?;
        let back = SentBack::read(&address, &state)?;
        in_time(async {
            let desk = self.desk.lock().await;
            self.fetch.renew();
            let issuer = back.issuer.as_deref();
            let manager = &desk.manager;
            let token = manager.exchange_code_for_token_with_issuer(&back.code, &state, issuer);
            unheard(token).await.map_err(|error| match error {
                AuthError::AuthorizationServerMismatch { .. }
                | AuthError::AuthorizationServerMissingIssuer { .. } => SignInError::Issuer,
                _ => SignInError::Token,
            })?;
            Ok(())
        })
        .await
    }

    /// What a person is asked, and the state that the answer must have; nothing if the server has what it wants without.
    async fn question(
        &self,
        challenge: &Challenge,
    ) -> Result<Option<(SignIn, String)>, SignInError> {
        let mut desk = self.desk.lock().await;
        self.fetch.renew();
        let unknown = desk.known.is_none();
        if unknown || challenge.more.is_none() {
            let metadata = self.discovered(&desk.manager, &challenge.header).await?;
            desk.manager.set_metadata(metadata.clone());
            if unknown && challenge.more.is_none() && self.remembered(&mut desk, &metadata).await {
                return Ok(None);
            }
            let client = self.client(&mut desk, &metadata).await?;
            let configured = desk.manager.configure_client(client.clone());
            configured.map_err(|_| SignInError::Discovery)?;
            desk.known = Some(Known { metadata, client });
        }
        let known = desk.known.as_ref().ok_or(SignInError::Discovery)?;
        let issuer = known.metadata.issuer.clone().unwrap_or_default();
        let scopes = self.scopes(&desk.manager, challenge).await;
        let wanted: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let url = unheard(desk.manager.get_authorization_url(&wanted)).await;
        let url = url.map_err(|_| SignInError::Discovery)?;
        let url = address::read(&url).ok_or(SignInError::Discovery)?;
        let state = one(&url, "state")?.ok_or(SignInError::State)?;
        let (most, longest) = MOST_SCOPES;
        let scopes = scopes.iter().take(most);
        let request = SignIn {
            server: self.server.clone(),
            address: self.address.clone(),
            issuer: cut(&crate::escape(&issuer), LONGEST),
            scopes: scopes
                .map(|scope| cut(&crate::escape(scope), longest))
                .collect(),
            more: challenge.more.is_some(),
            url: crate::escape(url.as_str()).into_owned(),
        };
        Ok(Some((request, state)))
    }

    /// What the server wants, or all that it has and more.
    async fn scopes(&self, manager: &AuthorizationManager, challenge: &Challenge) -> Vec<String> {
        let Some(more) = &challenge.more else {
            return manager.select_initial_scopes(&[]).await;
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
    async fn discovered(
        &self,
        manager: &AuthorizationManager,
        header: &str,
    ) -> Result<AuthorizationMetadata, SignInError> {
        let found = unheard(manager.resolve_metadata_from_challenge(Some(header))).await;
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
        let kept = self.vault.credentials().await;
        if kept.is_some_and(|kept| kept.issuer != metadata.issuer) {
            self.vault.keep(None).await;
        }
        Ok(metadata)
    }

    /// Whether what was kept when the process ended last is still good for a token.
    async fn remembered(&self, desk: &mut Desk, metadata: &AuthorizationMetadata) -> bool {
        let Some(kept) = self.vault.credentials().await else {
            return false;
        };
        let own = self.oauth.registered.get(&self.server);
        let own = own.filter(|(id, _)| *id == kept.client_id);
        let mut client = OAuthClientConfig::new(kept.client_id, &self.oauth.landing);
        client.client_secret = own.and_then(|(_, secret)| secret.clone());
        if desk.manager.configure_client(client.clone()).is_err() {
            return false;
        }
        let renewed = unheard(desk.manager.refresh_token()).await.is_ok();
        if renewed {
            let metadata = metadata.clone();
            desk.known = Some(Known { metadata, client });
        }
        renewed
    }

    /// Who this host is to an authorisation server: as whom it was registered, what its document says, or whom it is
    /// registered as now.
    async fn client(
        &self,
        desk: &mut Desk,
        metadata: &AuthorizationMetadata,
    ) -> Result<OAuthClientConfig, SignInError> {
        let landing = self.oauth.landing.as_str();
        if let Some((id, secret)) = self.oauth.registered.get(&self.server) {
            let mut client = OAuthClientConfig::new(id, landing);
            client.client_secret.clone_from(secret);
            return Ok(client);
        }
        if let Some(known) = &desk.known
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
        let scopes = desk.manager.select_initial_scopes(&[]).await;
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let name = self.oauth.name.as_str();
        let registered = desk.manager.register_client(name, landing, &scopes);
        unheard(registered).await.map_err(|_| SignInError::Unknown)
    }
}
