//! A configuration in, the worker that a connection speaks to out.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use rmcp::ErrorData;
use rmcp::model::ClientCapabilities;
use serde_json::{Map, Value};
use tokio::sync::OnceCell;

use super::client_roots::only_restricts;
use super::{Desk, Gateway, Trust};
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
pub enum OpenError {
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
enum Own {
    Nothing,
    Worker,
    Runtime,
}

/// What a connection is served with; it lives as long as the connection.
#[derive(Debug)]
pub struct Served {
    /// Ends its workers when it goes.
    runtime: Option<Runtime>,
    worker: Worker,
    grants: Option<Arc<GrantAuthority>>,
    own: Own,
    /// Names the worker among those of all runtimes of this process.
    name: String,
}

impl Served {
    /// Serves `worker` of `runtime`; `grants` carries out calls that a trusted client says people allowed.
    #[must_use]
    pub fn new(runtime: Runtime, worker: &Worker, grants: Option<GrantAuthority>) -> Self {
        let mut served = Self::of(worker);
        served.runtime = Some(runtime);
        served.grants = grants.map(Arc::new);
        served
    }

    /// The same, where a person may also answer elsewhere, such as at a `Console`.
    #[must_use]
    pub fn shared_grants(mut self, grants: Arc<GrantAuthority>) -> Self {
        self.grants = Some(grants);
        self
    }

    /// A worker that somebody else owns.
    fn of(worker: &Worker) -> Self {
        Self {
            runtime: None,
            worker: worker.clone(),
            grants: None,
            own: Own::Nothing,
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
    fn another(&self, worker: Worker, grants: Option<Arc<GrantAuthority>>) -> Self {
        Self {
            runtime: self.runtime.clone(),
            name: worker.name_in_process(),
            worker,
            grants,
            own: Own::Worker,
        }
    }

    pub(super) fn ends_with_its_connection(&self) -> bool {
        self.own != Own::Nothing
    }

    /// Ends what is this connection's own, and waits until all it did is recorded.
    pub(super) async fn end(&self) {
        match (self.own, &self.runtime) {
            (Own::Runtime, Some(runtime)) => {
                runtime.shutdown().await;
            }
            (Own::Worker, _) => {
                self.worker.revoke().await;
            }
            (Own::Runtime, None) | (Own::Nothing, _) => {}
        }
        if let Some(runtime) = &self.runtime {
            // A log that cannot be written has told every caller so already.
            let _ = runtime.flush_audit().await;
        }
    }
}

/// Opens what connections are served with.
pub trait Opener: Send + Sync + 'static {
    /// Opens what a client that sends `configuration` is served with; without one, what clients that send none share.
    fn open(
        &self,
        configuration: Option<Value>,
    ) -> Pin<Box<dyn Future<Output = Result<Served, OpenError>> + Send + '_>>;
}

/// Who connections speak to.
pub(super) enum Door {
    /// One worker that somebody else owns.
    Worker(Arc<Served>),
    /// What is opened when it is needed.
    Opening {
        opener: Box<dyn Opener>,
        shared: OnceCell<Arc<Served>>,
    },
}

impl Door {
    pub(super) fn worker(worker: &Worker) -> Self {
        Self::Worker(Arc::new(Served::of(worker)))
    }

    pub(super) fn opening(opener: impl Opener) -> Self {
        Self::Opening {
            opener: Box::new(opener),
            shared: OnceCell::new(),
        }
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Worker(served) => f.debug_tuple("Worker").field(served).finish(),
            Self::Opening { shared, .. } => f.debug_tuple("Opening").field(shared).finish(),
        }
    }
}

impl Desk {
    /// A runtime of its own for one connection.
    pub(super) async fn open(
        &self,
        configuration: Map<String, Value>,
    ) -> Result<Served, ErrorData> {
        let Door::Opening { opener, .. } = &self.door else {
            return Err(closed(&OpenError::Stopped));
        };
        let opened = opener.open(Some(Value::Object(configuration))).await;
        let mut served = opened.map_err(|error| not_open(&error))?;
        served.own = Own::Runtime;
        Ok(served)
    }

    /// What clients share that configure nothing, and so are told of none of its faults.
    async fn shared(&self) -> Result<Arc<Served>, ErrorData> {
        match &self.door {
            Door::Worker(served) => Ok(Arc::clone(served)),
            Door::Opening { opener, shared } => {
                let open = || async { opener.open(None).await.map(Arc::new) };
                let served = shared.get_or_try_init(open).await.cloned();
                served.map_err(|error| closed(&error))
            }
        }
    }
}

impl Gateway {
    /// What this connection is served with.
    pub(super) async fn served(&self) -> Result<Arc<Served>, ErrorData> {
        self.session.roots.known().await?;
        match self.session.served.load_full() {
            Some(served) => Ok(served),
            None => self.desk.shared().await,
        }
    }

    /// Begins a connection with a handshake: it gets a worker of its own, and its own runtime if it configures one.
    pub(super) async fn begin(
        &self,
        client: &str,
        configuration: Option<Map<String, Value>>,
        capabilities: &ClientCapabilities,
    ) -> Result<(), ErrorData> {
        let names_roots = self.desk.client_roots
            && (configuration.as_ref()).is_some_and(|said| said.contains_key("roots"));
        if !names_roots && self.asks_for_roots(capabilities) {
            let configuration = configuration.unwrap_or_default();
            only_restricts(&configuration, self.desk.trust)?;
            self.session.roots.expect(configuration);
            return Ok(());
        }
        let served = match (&self.desk.door, self.desk.trust, configuration) {
            (Door::Opening { .. }, trust, Some(configuration))
                if names_roots || trust == Trust::Host =>
            {
                only_restricts(&configuration, trust)?;
                self.desk.open(configuration).await?
            }
            // Whoever is not trusted can only restrict, by configuration as by anything else.
            (_, trust, Some(configuration)) => {
                let configuration = Value::Object(configuration);
                let parsing = tokio::task::spawn_blocking(move || Policy::parse(&configuration));
                let policy = parsing.await.map_err(|_| closed(&OpenError::Stopped))?;
                let policy = policy.map_err(|error| not_open(&error.into()))?;
                let spec = WorkerSpec::of_client(visible(client)).policy(policy);
                let shared = self.desk.shared().await?;
                let grants = shared.grants.clone().filter(|_| trust != Trust::Agent);
                let narrowed = narrowed(&shared, spec, grants).await;
                narrowed.map_err(|error| not_open(&error.into()))?
            }
            (Door::Worker(served), _, None) => {
                // A second handshake on one connection is refused before it comes here.
                self.session.served.store(Some(Arc::clone(served)));
                return Ok(());
            }
            (Door::Opening { .. }, _, None) => {
                let own = own(&*self.desk.shared().await?, client).await;
                own.map_err(|error| closed(&error.into()))?
            }
        };
        // A second handshake on one connection is refused before it comes here.
        self.session.served.store(Some(Arc::new(served)));
        Ok(())
    }

    /// Serves this connection with `served` from now on; what it was served with alone before ends.
    pub(super) fn replace_served(&self, served: Option<Arc<Served>>) {
        let before = self.session.served.swap(served);
        if let Some(before) = before.filter(|before| before.ends_with_its_connection()) {
            tokio::spawn(async move { before.end().await });
        }
    }

    /// What this connection is served with, if that is open already.
    pub(super) fn served_now(&self) -> Option<Arc<Served>> {
        match (self.session.served.load_full(), &self.desk.door) {
            (Some(served), _) => Some(served),
            (None, Door::Worker(served)) => Some(Arc::clone(served)),
            (None, Door::Opening { shared, .. }) => shared.get().cloned(),
        }
    }

    /// Ends what is this connection's own, and waits until all it did is recorded.
    pub(super) async fn settle(&self) {
        if let Some(served) = self.served_now() {
            served.end().await;
        }
    }

    /// Ends the runtime that clients share which configure nothing, if one was opened, and waits until all it did is
    /// recorded; no such client is served afterwards. What one connection has alone ends with that, and a worker that
    /// somebody else owns is left to them.
    pub async fn shutdown(&self) {
        if let Door::Opening { shared, .. } = &self.desk.door
            && let Some(runtime) = shared.get().and_then(|served| served.runtime.as_ref())
        {
            runtime.shutdown().await;
        }
    }

    /// Waits until every connection that came of this one is gone, and what was its own has ended.
    #[cfg(feature = "http")]
    pub(super) async fn all_ended(&self) {
        self.session.heirless().await;
    }

    /// Whether this connection had its handshake.
    pub(super) fn has_begun(&self) -> bool {
        self.session.served.load().is_some() || self.session.roots.are_expected()
    }
}

/// A worker beneath the one that is shared.
async fn narrowed(
    shared: &Served,
    spec: WorkerSpec,
    grants: Option<Arc<GrantAuthority>>,
) -> Result<Served, SpawnError> {
    let worker = shared.worker.spawn(spec.written_by(Origin::Model)).await?;
    Ok(shared.another(worker, grants))
}

/// A worker for one connection, under the configuration that is shared.
async fn own(shared: &Served, client: &str) -> Result<Served, SpawnError> {
    let spec = WorkerSpec::of_client(visible(client)).policy(Policy::new());
    let worker = match &shared.runtime {
        Some(runtime) => runtime.spawn(spec).await?,
        None => shared.worker.spawn(spec).await?,
    };
    Ok(shared.another(worker, shared.grants.clone()))
}

/// A name for a worker out of what a client calls itself. It begins with a mark that no host's own workers have, so that
/// a client gets nothing by taking the name of one of them.
pub(super) fn visible(client: &str) -> String {
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
fn not_open(error: &OpenError) -> ErrorData {
    const LAYER: &str = "initialize";
    let data = match error {
        OpenError::Configuration(error) | OpenError::Spawn(SpawnError::Policy(error)) => {
            Some(error.data(LAYER))
        }
        OpenError::Build(error) => error.data(LAYER),
        OpenError::Spawn(_) | OpenError::Audit(_) | OpenError::Grants(_) | OpenError::Stopped => {
            None
        }
    };
    match data {
        Some(data) => {
            ErrorData::invalid_params(crate::escape(&chain(error)).into_owned(), Some(data))
        }
        None => closed(error),
    }
}

/// What a client is told whatever it is that the host did wrong; the log has it.
fn closed(error: &OpenError) -> ErrorData {
    tracing::error!(error = chain(error), "a client cannot be served");
    let reason = "the server could not be opened; its operator can see why in its log";
    ErrorData::internal_error(reason, None)
}

/// An error with its causes.
fn chain(error: &OpenError) -> String {
    let causes = std::iter::successors(Some(error as &dyn Error), |error| (*error).source());
    let told: Vec<String> = causes.map(ToString::to_string).collect();
    told.join(": ")
}
