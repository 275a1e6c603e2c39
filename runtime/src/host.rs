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

pub use builder::{BuildError, BuildFault, RuntimeBuilder};

/// State shared by the handles of one runtime. Dropping the last handle revokes all authority.
#[derive(Debug)]
struct RuntimeInner {
    core: Arc<Core>,
    /// Keeps the servers connected while the runtime exists.
    #[cfg(feature = "mcp")]
    _upstreams: Option<Upstreams>,
}

impl Drop for RuntimeInner {
    fn drop(&mut self) {
        self.core.close();
    }
}

/// The entry point: spawns workers and reads their artifacts.
///
/// Cloning it is cheap. When the last clone is dropped, all workers are revoked.
#[derive(Clone, Debug)]
pub struct Runtime {
    inner: Arc<RuntimeInner>,
}

impl Runtime {
    /// Returns a builder.
    #[must_use]
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::new()
    }

    /// Starts a top-level worker.
    ///
    /// # Errors
    /// [`SpawnError::Policy`] if its policy requests more than is configured; see [`SpawnError`] for the others.
    pub async fn spawn(&self, spec: WorkerSpec) -> Result<Worker, SpawnError> {
        self.inner.core.spawn(None, spec).await.map(Worker::new)
    }

    /// Reads an artifact of any worker, for people.
    ///
    /// # Errors
    /// `NOT_FOUND` if it does not exist.
    pub fn artifact(&self, uri: &str) -> Result<Artifact, CallError> {
        self.inner.core.artifacts.get(uri, Reader::Host)
    }

    /// Waits until all audit events so far are written.
    ///
    /// # Errors
    /// [`AuditError`](crate::audit::AuditError) if the audit cannot be written.
    pub async fn flush_audit(&self) -> Result<(), crate::audit::AuditError> {
        self.inner.core.audit.flush().await
    }

    /// Revokes and ends all workers, waits until the audit is written, and closes the grant store. Spawning a worker
    /// afterwards fails with [`SpawnError::Closed`].
    pub async fn shutdown(&self) -> Revoked {
        let all = self.inner.core.revoke_all().await;
        self.inner.core.broker.close_store().await;
        // If the audit cannot be written, every caller was told so already.
        let _ = self.flush_audit().await;
        all
    }
}
