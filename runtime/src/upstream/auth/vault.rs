//! Tokens in, what the host keeps of them out; without a host that keeps them they are gone with the process.

use std::sync::Arc;

use async_trait::async_trait;
use rmcp::transport::auth::{AuthError, CredentialStore, StoredCredentials};
use tokio::sync::Mutex;

use super::TokenStore;

/// What one server lets this host in with.
pub(super) struct Vault {
    /// The server's name with its mark, so that another address of the same name is let in with nothing.
    label: String,
    store: Option<Arc<dyn TokenStore>>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
enum Kept {
    /// The host was not asked yet.
    #[default]
    Unknown,
    Nothing,
    Credentials(Box<StoredCredentials>),
}

impl Vault {
    pub(super) fn new(label: &str, store: Option<Arc<dyn TokenStore>>) -> Self {
        Self {
            label: label.to_owned(),
            store,
            kept: Mutex::default(),
        }
    }

    pub(super) async fn credentials(&self) -> Option<StoredCredentials> {
        let mut kept = self.kept.lock().await;
        if let Kept::Unknown = *kept {
            let text = match &self.store {
                Some(store) => store.load(self.label.clone()).await,
                None => None,
            };
            // What cannot be read is nothing: a person signs in again.
            let read = text.and_then(|text| serde_json::from_str(&text).ok());
            *kept = read.map_or(Kept::Nothing, |read| Kept::Credentials(Box::new(read)));
        }
        match &*kept {
            Kept::Credentials(credentials) => Some((**credentials).clone()),
            Kept::Unknown | Kept::Nothing => None,
        }
    }

    pub(super) async fn keep(&self, credentials: Option<StoredCredentials>) {
        let mut kept = self.kept.lock().await;
        if let Some(store) = &self.store {
            let text = credentials.as_ref();
            let text = text.and_then(|credentials| serde_json::to_string(credentials).ok());
            store.save(self.label.clone(), text).await;
        }
        *kept = credentials.map_or(Kept::Nothing, |credentials| {
            Kept::Credentials(Box::new(credentials))
        });
    }
}

/// The vault as rmcp asks for it.
pub(super) struct Door(pub(super) Arc<Vault>);

#[async_trait]
impl CredentialStore for Door {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        Ok(self.0.credentials().await)
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        self.0.keep(Some(credentials)).await;
        Ok(())
    }

    async fn clear(&self) -> Result<(), AuthError> {
        self.0.keep(None).await;
        Ok(())
    }
}
