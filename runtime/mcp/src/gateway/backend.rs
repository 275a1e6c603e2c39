//! Backends: the runtime and worker that serve a connection.

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
use bailiwick::audit::AuditFileError;
use bailiwick::call::Origin;
use bailiwick::permission::{GrantAuthority, GrantStoreError};
use bailiwick::policy::{Policy, PolicyError};
use bailiwick::worker::{OF_CLIENTS, Worker, WorkerSpec};
use bailiwick::{BuildError, Runtime, SpawnError};

/// Error of [`BackendFactory::create`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// The client's configuration is invalid.
    #[error(transparent)]
    Configuration(#[from] PolicyError),
    /// The audit log cannot be written.
    #[error("the audit cannot be written")]
    Audit(#[source] AuditFileError),
    /// The grant store cannot be used. Clients do not get the reason, since it names a file of the host.
    #[error("the grants cannot be stored")]
    Grants(GrantStoreError),
    /// The runtime could not be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The worker could not be spawned.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// The server is shutting down.
    #[error("the server is shutting down")]
    Stopped,
}

/// The part of a backend that one connection owns and that ends with the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ownership {
    Nothing,
    Worker,
    Runtime,
}

/// The runtime, worker and grant authority that serve a connection.
#[derive(Debug)]
pub struct Backend {
    /// Dropping it ends its workers.
    runtime: Option<Runtime>,
    worker: Worker,
    pub(super) grants: Option<Arc<GrantAuthority>>,
    ownership: Ownership,
    /// Identifies the worker across all runtimes of this process.
    pub(super) name: String,
}

impl Backend {
    /// Serves `worker` of `runtime`; `grants` applies grants that a trusted client sends.
    #[must_use]
    pub fn new(runtime: Runtime, worker: &Worker, grants: Option<GrantAuthority>) -> Self {
        let mut backend = Self::borrowed(worker);
        backend.runtime = Some(runtime);
        backend.grants = grants.map(Arc::new);
        backend
    }

    /// Uses a shared grant authority, such as one that a `Console` uses, too.
    #[must_use]
    pub fn shared_grants(mut self, grants: Arc<GrantAuthority>) -> Self {
        self.grants = Some(grants);
        self
    }

    /// A backend with a worker that no connection owns.
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

    /// A backend with another worker of the same runtime. One connection owns the worker.
    fn with_worker(&self, worker: &Worker, grants: Option<Arc<GrantAuthority>>) -> Self {
        Self {
            runtime: self.runtime.clone(),
            grants,
            ownership: Ownership::Worker,
            ..Self::borrowed(worker)
        }
    }

    pub(super) fn is_owned(&self) -> bool {
        self.ownership != Ownership::Nothing
    }

    /// Ends what the connection owns, and waits until its effects are recorded.
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
            // Callers already got an error if the audit log cannot be written.
            let _ = runtime.flush_audit().await;
        }
    }
}

/// Creates the backends of connections.
pub trait BackendFactory: Send + Sync + 'static {
    /// Creates the backend of a client that sends `configuration`; if `None`, the backend that clients without one
    /// share.
    ///
    /// A client of trust [`Trust::Client`] may only name the roots and narrow the rest
    /// ([`GatewayBuilder::client_roots`](super::GatewayBuilder::client_roots)), so its configuration is added with
    /// [`ConfigSources::with_narrowing`](bailiwick::config::ConfigSources::with_narrowing).
    fn create(
        &self,
        configuration: Option<Value>,
    ) -> Pin<Box<dyn Future<Output = Result<Backend, BackendError>> + Send + '_>>;
}

/// Where connections get their backend.
pub(super) struct BackendSource {
    /// Creates backends on demand; `None` if all connections use the shared one.
    factory: Option<Box<dyn BackendFactory>>,
    /// The backend that clients without a configuration share.
    shared: OnceCell<Arc<Backend>>,
}

impl BackendSource {
    /// One worker that no connection owns.
    pub(super) fn worker(worker: &Worker) -> Self {
        Self {
            factory: None,
            shared: OnceCell::new_with(Some(Arc::new(Backend::borrowed(worker)))),
        }
    }

    pub(super) fn factory(factory: impl BackendFactory) -> Self {
        Self {
            factory: Some(Box::new(factory)),
            shared: OnceCell::new(),
        }
    }

    fn get_factory(&self) -> Result<&dyn BackendFactory, BackendError> {
        self.factory.as_deref().ok_or(BackendError::Stopped)
    }
}

impl fmt::Debug for BackendSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("BackendSource");
        shown.field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl GatewayState {
    /// Creates a backend that one connection owns.
    pub(super) async fn create_backend(
        &self,
        configuration: Map<String, Value>,
    ) -> Result<Backend, ErrorData> {
        let created = async {
            let factory = self.backends.get_factory()?;
            factory.create(Some(Value::Object(configuration))).await
        };
        let mut backend = created.await.map_err(|error| configuration_error(&error))?;
        backend.ownership = Ownership::Runtime;
        Ok(backend)
    }

    /// The backend that clients without a configuration share. Its errors are internal errors to them.
    async fn shared_backend(&self) -> Result<Arc<Backend>, ErrorData> {
        let create = || async {
            self.backends
                .get_factory()?
                .create(None)
                .await
                .map(Arc::new)
        };
        let backend = self.backends.shared.get_or_try_init(create).await;
        backend.cloned().map_err(|error| internal_error(&error))
    }
}

impl Gateway {
    /// The backend of this connection.
    pub(super) async fn backend(&self) -> Result<Arc<Backend>, ErrorData> {
        self.session.roots.wait().await?;
        match self.session.backend.load_full() {
            Some(backend) => Ok(backend),
            None => self.state.shared_backend().await,
        }
    }

    /// Begins a session: it gets its own worker, and its own runtime if the client configures one.
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
        let trust = self.state.trust;
        let has_factory = self.state.backends.factory.is_some();
        let backend = match configuration {
            Some(configuration) if has_factory && (names_roots || trust == Trust::Host) => {
                reject_widening_keys(&configuration, trust)?;
                self.state.create_backend(configuration).await?
            }
            Some(configuration) => {
                let policy = parse_policy(configuration).await;
                let policy = policy.map_err(|error| configuration_error(&error))?;
                let shared = self.state.shared_backend().await?;
                let backend = spawn_narrowed(&shared, client, policy, trust).await;
                backend.map_err(|error| configuration_error(&error.into()))?
            }
            None if has_factory => {
                let backend = spawn_worker(&*self.state.shared_backend().await?, client).await;
                backend.map_err(|error| internal_error(&error.into()))?
            }
            None => {
                // The handler rejects a second handshake.
                let shared = self.state.shared_backend().await?;
                self.session.backend.store(Some(shared));
                return Ok(());
            }
        };
        self.session.backend.store(Some(Arc::new(backend)));
        Ok(())
    }

    /// Uses `backend` for this connection from now on, and ends the previous one if the connection owns it.
    pub(super) fn replace_backend(&self, backend: Option<Arc<Backend>>) {
        let before = self.session.backend.swap(backend);
        if let Some(before) = before.filter(|before| before.is_owned()) {
            tokio::spawn(async move { before.end().await });
        }
    }

    /// The backend of this connection if it exists already.
    pub(super) fn open_backend(&self) -> Option<Arc<Backend>> {
        let own = self.session.backend.load_full();
        own.or_else(|| self.state.backends.shared.get().cloned())
    }

    /// Ends what this connection owns, and waits until its effects are recorded.
    pub(super) async fn end_session(&self) {
        if let Some(backend) = self.open_backend() {
            backend.end().await;
        }
    }

    /// Shuts down the runtime that clients without a configuration share, if it exists, and waits until its effects are
    /// recorded; such clients are not served afterwards. Backends that connections own end with them, and workers with
    /// another owner keep running.
    pub async fn shutdown(&self) {
        let shared = self.state.backends.shared.get();
        if let Some(runtime) = shared.and_then(|backend| backend.runtime.as_ref()) {
            runtime.shutdown().await;
        }
    }

    /// Whether the handshake has happened.
    pub(super) fn has_begun(&self) -> bool {
        self.session.backend.load().is_some() || self.session.roots.are_expected()
    }
}

async fn parse_policy(configuration: Map<String, Value>) -> Result<Policy, BackendError> {
    let configuration = Value::Object(configuration);
    let parsing = tokio::task::spawn_blocking(move || Policy::parse(&configuration));
    Ok(parsing.await.map_err(|_| BackendError::Stopped)??)
}

/// Spawns a child of the shared worker. The policy of an untrusted client can only restrict it.
async fn spawn_narrowed(
    shared: &Backend,
    client: &str,
    policy: Policy,
    trust: Trust,
) -> Result<Backend, SpawnError> {
    let spec = WorkerSpec::of_client(worker_name(client)).policy(policy);
    let worker = shared.worker.spawn(spec.written_by(Origin::Model)).await?;
    let grants = shared.grants.clone().filter(|_| trust != Trust::Agent);
    Ok(shared.with_worker(&worker, grants))
}

/// Spawns a worker for one connection under the shared configuration.
async fn spawn_worker(shared: &Backend, client: &str) -> Result<Backend, SpawnError> {
    let spec = WorkerSpec::of_client(worker_name(client)).policy(Policy::new());
    let worker = match &shared.runtime {
        Some(runtime) => runtime.spawn(spec).await?,
        None => shared.worker.spawn(spec).await?,
    };
    Ok(shared.with_worker(&worker, shared.grants.clone()))
}

/// A worker name made from the client's name. Its prefix keeps it distinct from names that the host gives, so a client
/// cannot take such a name.
pub(super) fn worker_name(client: &str) -> String {
    let name =
        bailiwick::text::escape(client).replace(|c: char| c == '/' || c.is_whitespace(), "-");
    let name: String = name.chars().take(63).collect();
    let name = if name.is_empty() { "client" } else { &name };
    format!("{OF_CLIENTS}{name}")
}

/// Converts the error to a protocol error. Errors in the client's configuration say which member is invalid; all others
/// are internal errors.
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
        Some(data) => ErrorData::invalid_params(
            bailiwick::text::escape_lines(&error_chain(error)).into_owned(),
            Some(data),
        ),
        None => internal_error(error),
    }
}

/// Logs the error and returns an internal error without details.
fn internal_error(error: &BackendError) -> ErrorData {
    tracing::error!(error = error_chain(error), "a client cannot be served");
    let reason = "the server could not be opened; its operator can see why in its log";
    ErrorData::internal_error(reason, None)
}

/// The error and its causes.
fn error_chain(error: &BackendError) -> String {
    let causes = std::iter::successors(Some(error as &dyn Error), |error| (*error).source());
    let messages: Vec<String> = causes.map(ToString::to_string).collect();
    messages.join(": ")
}
