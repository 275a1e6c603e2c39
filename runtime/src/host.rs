//! The runtime: the public entry point, which spawns workers.

mod builder;
mod roots;

use std::sync::Arc;

use crate::artifact::{Artifact, Reader};
use crate::error::CallError;
use crate::supervisor::{Core, Revoked, SpawnError};
#[cfg(feature = "mcp")]
use crate::upstream::Upstreams;
use crate::worker::{Worker, WorkerSpec};

pub use builder::{BuildError, RuntimeBuilder};

/// What the handles on one runtime share; the last one to go takes all authority along.
#[derive(Debug)]
struct RuntimeInner {
    core: Arc<Core>,
    /// The servers are there for as long as somebody may call them.
    #[cfg(feature = "mcp")]
    _upstreams: Option<Upstreams>,
}

impl Drop for RuntimeInner {
    fn drop(&mut self) {
        self.core.close();
    }
}

/// The one door: it spawns workers, and reads what they made.
///
/// Cloning it is cheap. When the last clone is dropped every worker loses its authority.
#[derive(Clone, Debug)]
pub struct Runtime {
    inner: Arc<RuntimeInner>,
}

impl Runtime {
    /// Begins to put a runtime together.
    #[must_use]
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::new()
    }

    /// Starts a worker beneath the configuration.
    ///
    /// # Errors
    /// [`SpawnError::Policy`] if it asks for more than is configured, and the other reasons of [`SpawnError`].
    pub async fn spawn(&self, spec: WorkerSpec) -> Result<Worker, SpawnError> {
        self.inner.core.spawn(None, spec).await.map(Worker::new)
    }

    /// Reads any artifact, for people.
    ///
    /// # Errors
    /// `NOT_FOUND` if it does not exist, or no longer.
    pub fn artifact(&self, uri: &str) -> Result<Artifact, CallError> {
        self.inner.core.artifacts.get(uri, Reader::Host)
    }

    /// Waits until every audit event so far is written.
    ///
    /// # Errors
    /// The log's, if it cannot be written.
    pub async fn flush_audit(&self) -> Result<(), crate::audit::AuditError> {
        self.inner.core.audit.flush().await
    }

    /// Takes all authority from every worker, ends them, waits until the audit is written, their ends included, and lets
    /// go of the grant store. No worker is started afterwards: that is [`SpawnError::Closed`].
    pub async fn shutdown(&self) -> Revoked {
        let all = self.inner.core.revoke_all().await;
        self.inner.core.broker.close_store().await;
        // A log that cannot be written has told every caller so already.
        let _ = self.flush_audit().await;
        all
    }
}
