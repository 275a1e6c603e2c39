//! A configuration in, the worker that a connection speaks to out.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use rmcp::ErrorData;
use rmcp::model::ClientCapabilities;
use serde_json::{Map, Value};
use tokio::sync::OnceCell;

use super::client_roots::reject_widening_keys;
use super::{Gateway, GatewayState, Trust};
use crate::audit::AuditFileError;
use crate::call::Origin;
use crate::host::{BuildError, Runtime};
use crate::permission::{GrantAuthority, GrantStoreError};
use crate::policy::{Policy, PolicyError};
use crate::supervisor::SpawnError;
use crate::worker::{OF_CLIENTS, Worker, WorkerSpec};

/// Why there is nothing to serve a connection with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// What the client configures cannot be used.
    #[error(transparent)]
    Configuration(#[from] PolicyError),
    /// The audit cannot be written.
    #[error("the audit cannot be written")]
    Audit(#[source] AuditFileError),
    /// The grants cannot be kept. Whoever connects is not told why: that names a file of the host.
    #[error("the grants cannot be kept")]
    Grants(GrantStoreError),
    /// The runtime was not built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The worker was not started.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// The server stopped while the files of the runtime were opened.
    #[error("the server stops")]
    Stopped,
}

/// What ends along with a connection, since nobody else has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ownership {
    Nothing,
    Worker,
    Runtime,
}

/// What a connection is served with; it lives as long as the connection.
#[derive(Debug)]
pub struct Backend {
    /// Ends its workers when it goes.
    runtime: Option<Runtime>,
    worker: Worker,
    grants: Option<Arc<GrantAuthority>>,
    ownership: Ownership,
    /// Names the worker among those of all runtimes of this process.
    name: String,
}

impl Backend {
    /// Serves `worker` of `runtime`; `grants` carries out calls that a trusted client says people allowed.
    #[must_use]
    pub fn new(runtime: Runtime, worker: &Worker, grants: Option<GrantAuthority>) -> Self {
        let mut backend = Self::borrowed(worker);
        backend.runtime = Some(runtime);
        backend.grants = grants.map(Arc::new);
        backend
    }

    /// The same, where a person may also answer elsewhere, such as at a `Console`.
    #[must_use]
    pub fn shared_grants(mut self, grants: Arc<GrantAuthority>) -> Self {
        self.grants = Some(grants);
        self
    }

    /// A worker that somebody else owns.
    fn borrowed(worker: &Worker) -> Self {
        Self {
            runtime: None,
            worker: worker.clone(),
            grants: None,
            ownership: Ownership::Nothing,
            name: worker.name_in_process(),
        }
    }

    pub(super) fn worker(&self) -> &Worker {
        &self.worker
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn grants(&self) -> Option<&Arc<GrantAuthority>> {
        self.grants.as_ref()
    }

    /// Another worker under the same runtime, for one connection alone.
    fn with_worker(&self, worker: Worker, grants: Option<Arc<GrantAuthority>>) -> Self {
        Self {
            runtime: self.runtime.clone(),
            name: worker.name_in_process(),
            worker,
            grants,
            ownership: Ownership::Worker,
        }
    }

    pub(super) fn is_owned(&self) -> bool {
        self.ownership != Ownership::Nothing
    }

    /// Ends what is this connection's own, and waits until all it did is recorded.
    pub(super) async fn end(&self) {
        match (self.ownership, &self.runtime) {
            (Ownership::Runtime, Some(runtime)) => {
                runtime.shutdown().await;
            }
            (Ownership::Worker, _) => {
                self.worker.revoke().await;
            }
            (Ownership::Runtime, None) | (Ownership::Nothing, _) => {}
        }
        if let Some(runtime) = &self.runtime {
            // A log that cannot be written has told every caller so already.
            let _ = runtime.flush_audit().await;
        }
    }
}

/// Opens what connections are served with.
pub trait BackendFactory: Send + Sync + 'static {
    /// Opens what a client that sends `configuration` is served with; without one, what clients that send none share.
    fn create(
        &self,
        configuration: Option<Value>,
    ) -> Pin<Box<dyn Future<Output = Result<Backend, BackendError>> + Send + '_>>;
}

/// Who connections speak to.
pub(super) enum BackendSource {
    /// One worker that somebody else owns.
    Worker(Arc<Backend>),
    /// What is opened when it is needed.
    Factory {
        factory: Box<dyn BackendFactory>,
        shared: OnceCell<Arc<Backend>>,
    },
}

impl BackendSource {
    pub(super) fn worker(worker: &Worker) -> Self {
        Self::Worker(Arc::new(Backend::borrowed(worker)))
    }

    pub(super) fn factory(factory: impl BackendFactory) -> Self {
        Self::Factory {
            factory: Box::new(factory),
            shared: OnceCell::new(),
        }
    }
}

impl fmt::Debug for BackendSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Worker(backend) => f.debug_tuple("Worker").field(backend).finish(),
            Self::Factory { shared, .. } => f.debug_tuple("Factory").field(shared).finish(),
        }
    }
}

impl GatewayState {
    /// A runtime of its own for one connection.
    pub(super) async fn create_backend(
        &self,
        configuration: Map<String, Value>,
    ) -> Result<Backend, ErrorData> {
        let BackendSource::Factory { factory, .. } = &self.backends else {
            return Err(internal_error(&BackendError::Stopped));
        };
        let created = factory.create(Some(Value::Object(configuration))).await;
        let mut backend = created.map_err(|error| configuration_error(&error))?;
        backend.ownership = Ownership::Runtime;
        Ok(backend)
    }

    /// What clients share that configure nothing, and so are told of none of its faults.
    async fn shared_backend(&self) -> Result<Arc<Backend>, ErrorData> {
        match &self.backends {
            BackendSource::Worker(backend) => Ok(Arc::clone(backend)),
            BackendSource::Factory { factory, shared } => {
                let create = || async { factory.create(None).await.map(Arc::new) };
                let backend = shared.get_or_try_init(create).await.cloned();
                backend.map_err(|error| internal_error(&error))
            }
        }
    }
}

impl Gateway {
    /// What this connection is served with.
    pub(super) async fn backend(&self) -> Result<Arc<Backend>, ErrorData> {
        self.session.roots.wait().await?;
        match self.session.backend.load_full() {
            Some(backend) => Ok(backend),
            None => self.state.shared_backend().await,
        }
    }

    /// Begins a connection with a handshake: it gets a worker of its own, and its own runtime if it configures one.
    pub(super) async fn begin_session(
        &self,
        client: &str,
        configuration: Option<Map<String, Value>>,
        capabilities: &ClientCapabilities,
    ) -> Result<(), ErrorData> {
        let names_roots = self.state.client_roots
            && (configuration.as_ref()).is_some_and(|keys| keys.contains_key("roots"));
        if !names_roots && self.needs_client_roots(capabilities) {
            let configuration = configuration.unwrap_or_default();
            reject_widening_keys(&configuration, self.state.trust)?;
            self.session.roots.expect(configuration);
            return Ok(());
        }
        let backend = match (&self.state.backends, self.state.trust, configuration) {
            (BackendSource::Factory { .. }, trust, Some(configuration))
                if names_roots || trust == Trust::Host =>
            {
                reject_widening_keys(&configuration, trust)?;
                self.state.create_backend(configuration).await?
            }
            // Whoever is not trusted can only restrict, by configuration as by anything else.
            (_, trust, Some(configuration)) => {
                let configuration = Value::Object(configuration);
                let parsing = tokio::task::spawn_blocking(move || Policy::parse(&configuration));
                let policy = parsing
                    .await
                    .map_err(|_| internal_error(&BackendError::Stopped))?;
                let policy = policy.map_err(|error| configuration_error(&error.into()))?;
                let spec = WorkerSpec::of_client(worker_name(client)).policy(policy);
                let shared = self.state.shared_backend().await?;
                let grants = shared.grants.clone().filter(|_| trust != Trust::Agent);
                let backend = spawn_narrowed(&shared, spec, grants).await;
                backend.map_err(|error| configuration_error(&error.into()))?
            }
            (BackendSource::Worker(backend), _, None) => {
                // A second handshake on one connection is refused before it comes here.
                self.session.backend.store(Some(Arc::clone(backend)));
                return Ok(());
            }
            (BackendSource::Factory { .. }, _, None) => {
                let backend = spawn_worker(&*self.state.shared_backend().await?, client).await;
                backend.map_err(|error| internal_error(&error.into()))?
            }
        };
        // A second handshake on one connection is refused before it comes here.
        self.session.backend.store(Some(Arc::new(backend)));
        Ok(())
    }

    /// Serves this connection with `backend` from now on; what it was served with alone before ends.
    pub(super) fn replace_backend(&self, backend: Option<Arc<Backend>>) {
        let before = self.session.backend.swap(backend);
        if let Some(before) = before.filter(|before| before.is_owned()) {
            tokio::spawn(async move { before.end().await });
        }
    }

    /// What this connection is served with, if that is open already.
    pub(super) fn open_backend(&self) -> Option<Arc<Backend>> {
        match (self.session.backend.load_full(), &self.state.backends) {
            (Some(backend), _) => Some(backend),
            (None, BackendSource::Worker(backend)) => Some(Arc::clone(backend)),
            (None, BackendSource::Factory { shared, .. }) => shared.get().cloned(),
        }
    }

    /// Ends what is this connection's own, and waits until all it did is recorded.
    pub(super) async fn end_session(&self) {
        if let Some(backend) = self.open_backend() {
            backend.end().await;
        }
    }

    /// Ends the runtime that clients share which configure nothing, if one was opened, and waits until all it did is
    /// recorded; no such client is served afterwards. What one connection has alone ends with that, and a worker that
    /// somebody else owns is left to them.
    pub async fn shutdown(&self) {
        if let BackendSource::Factory { shared, .. } = &self.state.backends
            && let Some(runtime) = shared.get().and_then(|backend| backend.runtime.as_ref())
        {
            runtime.shutdown().await;
        }
    }

    /// Waits until every connection that came of this one is gone, and what was its own has ended.
    #[cfg(feature = "http")]
    pub(super) async fn wait_for_children(&self) {
        self.session.wait_for_children().await;
    }

    /// Whether this connection had its handshake.
    pub(super) fn has_begun(&self) -> bool {
        self.session.backend.load().is_some() || self.session.roots.are_expected()
    }
}

/// A worker beneath the one that is shared.
async fn spawn_narrowed(
    shared: &Backend,
    spec: WorkerSpec,
    grants: Option<Arc<GrantAuthority>>,
) -> Result<Backend, SpawnError> {
    let worker = shared.worker.spawn(spec.written_by(Origin::Model)).await?;
    Ok(shared.with_worker(worker, grants))
}

/// A worker for one connection, under the configuration that is shared.
async fn spawn_worker(shared: &Backend, client: &str) -> Result<Backend, SpawnError> {
    let spec = WorkerSpec::of_client(worker_name(client)).policy(Policy::new());
    let worker = match &shared.runtime {
        Some(runtime) => runtime.spawn(spec).await?,
        None => shared.worker.spawn(spec).await?,
    };
    Ok(shared.with_worker(worker, shared.grants.clone()))
}

/// A name for a worker out of what a client calls itself. It begins with a mark that no host's own workers have, so that
/// a client gets nothing by taking the name of one of them.
pub(super) fn worker_name(client: &str) -> String {
    let name: String = crate::escape(client)
        .chars()
        .map(|c| {
            if c == '/' || c.is_whitespace() {
                '-'
            } else {
                c
            }
        })
        .take(63)
        .collect();
    let name = if name.is_empty() { "client" } else { &name };
    format!("{OF_CLIENTS}{name}")
}

/// Why a connection gets nothing, as an error of the protocol: a client is told which member of what it configured is to
/// blame, and of nothing else.
fn configuration_error(error: &BackendError) -> ErrorData {
    const LAYER: &str = "initialize";
    let data = match error {
        BackendError::Configuration(error) | BackendError::Spawn(SpawnError::Policy(error)) => {
            Some(error.data(LAYER))
        }
        BackendError::Build(error) => error.data(LAYER),
        BackendError::Spawn(_)
        | BackendError::Audit(_)
        | BackendError::Grants(_)
        | BackendError::Stopped => None,
    };
    match data {
        Some(data) => {
            ErrorData::invalid_params(crate::escape(&error_chain(error)).into_owned(), Some(data))
        }
        None => internal_error(error),
    }
}

/// What a client is told whatever it is that the host did wrong; the log has it.
fn internal_error(error: &BackendError) -> ErrorData {
    tracing::error!(error = error_chain(error), "a client cannot be served");
    let reason = "the server could not be opened; its operator can see why in its log";
    ErrorData::internal_error(reason, None)
}

/// An error with its causes.
fn error_chain(error: &BackendError) -> String {
    let causes = std::iter::successors(Some(error as &dyn Error), |error| (*error).source());
    let messages: Vec<String> = causes.map(ToString::to_string).collect();
    messages.join(": ")
}
