//! Cache of OAuth credentials, backed by the host's token store.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use rmcp::transport::auth::{
    AuthError, CredentialStore, StateStore, StoredAuthorizationState, StoredCredentials,
};
use serde_json::Value;
use tokio::sync::Mutex;

use super::TokenStore;

/// The remaining lifetime that a token needs, the same as in rmcp.
const MIN_VALIDITY: Duration = Duration::from_secs(30);

/// The credentials for one server.
pub(super) struct CredentialCache {
    /// The name of the server with its mark, so that another address has no credentials.
    label: String,
    store: Option<Arc<dyn TokenStore>>,
    /// `None` until the store has been read.
    cached: Mutex<Option<Option<StoredCredentials>>>,
}

impl CredentialCache {
    pub(super) fn new(label: &str, store: Option<Arc<dyn TokenStore>>) -> Self {
        Self {
            label: label.to_owned(),
            store,
            cached: Mutex::default(),
        }
    }

    pub(super) async fn load(&self) -> Option<StoredCredentials> {
        let mut cached = self.cached.lock().await;
        if cached.is_none() {
            let text = match &self.store {
                Some(store) => store.load(self.label.clone()).await,
                None => None,
            };
            // Invalid text counts as none, and a person signs in again.
            *cached = Some(text.and_then(|text| serde_json::from_str(&text).ok()));
        }
        cached.clone().flatten()
    }

    /// The access token, if it does not need a refresh.
    pub(super) async fn token(&self) -> Option<String> {
        let credentials = self.load().await?;
        let answer = serde_json::to_value(credentials.token_response?).ok()?;
        let expires_in = answer.get("expires_in").and_then(Value::as_u64);
        if let (Some(expires_in), Some(since)) = (expires_in, credentials.token_received_at) {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
            let age = now.saturating_sub(Duration::from_secs(since));
            if Duration::from_secs(expires_in).saturating_sub(age) < MIN_VALIDITY {
                return None;
            }
        }
        let token = answer.get("access_token")?.as_str()?;
        Some(token.to_owned())
    }

    pub(super) async fn store(&self, credentials: Option<StoredCredentials>) {
        let mut cached = self.cached.lock().await;
        if let Some(store) = &self.store {
            let text = credentials.as_ref();
            let text = text.and_then(|credentials| serde_json::to_string(credentials).ok());
            store.save(self.label.clone(), text).await;
        }
        *cached = Some(credentials);
    }
}

/// Keeps only the latest authorization state, so the number of entries is bounded.
#[derive(Default)]
pub(super) struct LastState(Mutex<Option<(String, StoredAuthorizationState)>>);

#[async_trait]
impl StateStore for LastState {
    async fn save(&self, state: &str, cached: StoredAuthorizationState) -> Result<(), AuthError> {
        *self.0.lock().await = Some((state.to_owned(), cached));
        Ok(())
    }

    async fn load(&self, state: &str) -> Result<Option<StoredAuthorizationState>, AuthError> {
        let last = self.0.lock().await;
        let last = last.as_ref().filter(|(known, _)| known == state);
        Ok(last.map(|(_, cached)| cached.clone()))
    }

    async fn delete(&self, state: &str) -> Result<(), AuthError> {
        self.0.lock().await.take_if(|(known, _)| known == state);
        Ok(())
    }
}

/// Adapts the cache to rmcp.
pub(super) struct CredentialStoreAdapter(pub(super) Arc<CredentialCache>);

#[async_trait]
impl CredentialStore for CredentialStoreAdapter {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        Ok(self.0.load().await)
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        self.0.store(Some(credentials)).await;
        Ok(())
    }

    async fn clear(&self) -> Result<(), AuthError> {
        self.0.store(None).await;
        Ok(())
    }
}
