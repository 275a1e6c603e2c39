//! Third-party MCP servers, whose tools workers use under their policies.
//!
//! A tool of a server is offered as `SERVER__TOOL`. Every call of it needs `VERB:mcp:SERVER~MARK:TOOL~MARK`. The marks
//! identify what the server runs and the definition of the tool. Policies and configurations leave the marks out and so
//! cover any server or tool of that name. Grants contain them, so a grant does not cover another program or another
//! definition.

mod active_calls;
mod address;
mod auth;
mod catalog;
mod catalog_calls;
mod child;
mod classify;
mod client;
mod connect;
mod connection;
mod connection_state;
mod discovery;
mod elicitation;
mod failure;
mod http;
mod http_client;
mod line_reader;
mod pagination;
mod pin_store;
mod pins;
mod reading;
mod registry;
mod requests;
mod schema;
mod schema_cost;
mod scopes;
mod server;
mod servers_file;
mod session;
mod spec;
mod tool_call;
mod tool_result;
mod transport;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use bailiwick::audit::{Audit, AuditError};
use bailiwick::requests::{BoxFuture, DenyRequests, ServerRequests};
use bailiwick::scope::Verb;
use bailiwick::tool::{RemoteServers, RemoteTools};
pub(crate) use catalog::{address, resource_of};
pub(crate) use catalog_calls::COMPLETE;
pub(crate) use classify::{ListedTool, OfferedTool, ToolProvider, classify};
pub(crate) use elicitation::check_url;
pub(crate) use pagination::SizeCounter;
use registry::ServerRegistry;
pub(crate) use registry::remote_entry;
use requests::ServerRequestHandler;
use server::Server;
pub(crate) use tool_result::{failure, reply};

pub use auth::{LoopbackRedirect, OAuth, TokenStore};
pub use classify::WithheldReason;
pub use failure::ServerFailure;
pub use pin_store::{PinStore, PinStoreError};
pub use pins::Fingerprint;
pub use reading::{PromptArgument, ServerPrompt, ServerReadError, ServerResource, ServerText};
pub use schema::{SchemaError, SchemaValidator};
pub use schema_cost::SchemaFault;
pub use servers_file::{ServersContext, ServersError, ServersFile};
pub(crate) use spec::APP_PREFIX;
pub use spec::{ServerSpec, SpecError};

/// The limits of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// How long a server may take to start, connect and list its tools.
    pub connect: Duration,
    /// The longest message and the longest list of tools, in bytes. A longer one closes the connection; over HTTP, it
    /// fails the request.
    pub message_bytes: usize,
    /// The largest result of a call, in bytes.
    pub result_bytes: usize,
    /// The largest number of tools. Further tools are not offered, and a server that lists four times as many is not
    /// connected.
    pub tools: usize,
    /// The largest number of concurrent calls.
    pub calls: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(60),
            message_bytes: 8 << 20,
            result_bytes: 1 << 20,
            tools: 128,
            calls: 64,
        }
    }
}

impl Bounds {
    /// The longest accepted list of tools.
    fn max_listed(&self) -> usize {
        self.tools.saturating_mul(4)
    }
}

/// The connection state of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerState {
    /// The server has not been connected yet.
    Starting,
    /// A person is asked to sign in.
    SigningIn,
    /// The server is connected.
    Ready,
    /// The server is disconnected and will be retried; [`Upstreams::failure`] says why.
    Waiting,
    /// The server failed too often; [`Upstreams::failure`] says why, and [`Upstreams::retry`] retries it.
    GivenUp,
    /// The server was stopped.
    Stopped,
}

/// A tool in the list of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerTool {
    /// The server's name for the tool. Deceptive characters are escaped, here and in the description.
    pub tool: String,
    /// The server's description, as text; a long one is truncated.
    pub description: String,
    /// The fingerprint of its definition.
    pub fingerprint: Fingerprint,
    /// The name for models and the verb, or why the tool is withheld.
    pub offered: Result<(String, Verb), WithheldReason>,
}

/// Connections to third-party MCP servers. Clones are cheap. The servers are stopped when the last clone and the last
/// runtime that uses them are dropped.
///
/// Log messages of servers are escaped, truncated and rate-limited, under the target `bailiwick`, at level debug. The
/// MCP client `rmcp` logs whole messages at debug and trace, and HTTP errors with the server's text at warn: exclude
/// that target from logs that others read.
#[derive(Clone, Debug)]
pub struct Upstreams {
    inner: Arc<UpstreamsInner>,
}

/// Stops the servers when the last handle is dropped.
#[derive(Debug)]
struct UpstreamsInner {
    registry: Arc<ServerRegistry>,
    stop: watch::Sender<bool>,
    tasks: tokio::sync::Mutex<tokio::task::JoinSet<()>>,
    pin_store: Option<Arc<PinStore>>,
    sign_in_audit: Arc<auth::SignInAudit>,
}

/// Configures servers; [`UpstreamsBuilder::start`] connects them.
pub struct UpstreamsBuilder {
    specs: Vec<ServerSpec>,
    host: Arc<dyn ServerRequests>,
    forwards: bool,
    bounds: Bounds,
    pin_store: Option<PinStore>,
    start_within: Duration,
    oauth: Option<OAuth>,
}

impl fmt::Debug for UpstreamsBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamsBuilder")
            .field("specs", &self.specs)
            .finish_non_exhaustive()
    }
}

impl UpstreamsBuilder {
    /// Adds a server.
    #[must_use]
    pub fn server(mut self, spec: ServerSpec) -> Self {
        self.specs.push(spec);
        self
    }

    /// Adds servers.
    #[must_use]
    pub fn servers(mut self, specs: impl IntoIterator<Item = ServerSpec>) -> Self {
        self.specs.extend(specs);
        self
    }

    /// Sets the handler of requests that servers send to their host. The default declines all requests.
    #[must_use]
    pub fn requests(mut self, host: impl ServerRequests) -> Self {
        self.host = Arc::new(host);
        self
    }

    /// Forwards requests that a server sends within a call to the caller: see
    /// [`CallMeta::requests`](bailiwick::CallMeta::requests). A `Gateway` forwards forms and URLs to the client that made
    /// the call. Servers are told that forms, URLs and roots are supported. Requests outside of a call, and within a
    /// call of a client that supports neither, go to [`UpstreamsBuilder::requests`].
    #[must_use]
    pub fn forward_requests(mut self) -> Self {
        self.forwards = true;
        self
    }

    /// Enables sign-in at servers that require it, through [`ServerRequests::sign_in`].
    #[must_use]
    pub fn oauth(mut self, oauth: OAuth) -> Self {
        self.oauth = Some(oauth);
        self
    }

    /// Sets the limits of each server.
    #[must_use]
    pub fn bounds(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// Keeps the approved tool definitions across restarts: a tool that changed, and one that a known server added, is
    /// withheld until [`Upstreams::approve`]. Without a store, the first list after each start counts as approved.
    #[must_use]
    pub fn pin_store(mut self, store: PinStore) -> Self {
        self.pin_store = Some(store);
        self
    }

    /// Sets how long [`UpstreamsBuilder::start`] waits for the servers; slower servers continue to start. By default,
    /// it waits for the first attempt of each server, which [`Bounds::connect`] limits.
    #[must_use]
    pub fn start_within(mut self, limit: Duration) -> Self {
        self.start_within = limit;
        self
    }

    /// Starts the servers and returns after the first attempt for each. Failed servers are retried: see
    /// [`Upstreams::state`].
    ///
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`SpecError`] if a server is invalid; then no server is started.
    pub async fn start(self) -> Result<Upstreams, SpecError> {
        spec::check_all(&self.specs)?;
        if let Some(oauth) = &self.oauth {
            oauth.check(&self.specs)?;
        }
        let (host, bounds) = (self.host, self.bounds);
        let pin_store = self.pin_store.map(Arc::new);
        let mut servers = Vec::new();
        let sign_in_audit = Arc::default();
        for spec in self.specs {
            let handler = ServerRequestHandler::new(&spec.name, Arc::clone(&host), self.forwards);
            let mut server = Server::new(spec, bounds, handler, pin_store.clone());
            if let (Some(oauth), spec::TransportConfig::Http(config)) =
                (&self.oauth, &server.spec.transport)
            {
                let names = (server.spec.name.as_str(), &*server.label);
                server.account =
                    auth::Account::open(names, config, oauth, (&host, &sign_in_audit)).await;
            }
            servers.push(Arc::new(server));
        }
        let registry = Arc::new(ServerRegistry::new(servers));
        registry.publish();
        let stop = watch::Sender::new(false);
        let mut tasks = tokio::task::JoinSet::new();
        for server in &registry.servers {
            let (registry, server) = (Arc::clone(&registry), Arc::clone(server));
            tasks.spawn(connection::supervise(registry, server, stop.subscribe()));
        }
        if let Some(store) = &pin_store {
            let (registry, store) = (Arc::clone(&registry), Arc::clone(store));
            tasks.spawn(connection::follow_pins(registry, store, stop.subscribe()));
        }
        let first_attempts = async {
            for server in &registry.servers {
                let mut state = server.state.subscribe();
                // The connection task holds the sender until shutdown.
                let _ = state
                    .wait_for(|state| *state != ServerState::Starting)
                    .await;
            }
        };
        // Servers that are still starting report it in their state.
        let _ = tokio::time::timeout(self.start_within, first_attempts).await;
        let tasks = tokio::sync::Mutex::new(tasks);
        Ok(Upstreams {
            inner: Arc::new(UpstreamsInner {
                registry,
                stop,
                tasks,
                pin_store,
                sign_in_audit,
            }),
        })
    }
}

impl Upstreams {
    /// Returns a builder without servers.
    #[must_use]
    pub fn builder() -> UpstreamsBuilder {
        UpstreamsBuilder {
            specs: Vec::new(),
            host: Arc::new(DenyRequests),
            forwards: false,
            bounds: Bounds::default(),
            pin_store: None,
            start_within: Duration::MAX,
            oauth: None,
        }
    }

    /// The configured names of the servers.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let servers = self.inner.registry.servers.iter();
        servers.map(|server| server.spec.name.as_str())
    }

    fn server(&self, name: &str) -> Option<&Arc<Server>> {
        let mut servers = self.inner.registry.servers.iter();
        servers.find(|server| server.spec.name == name)
    }

    /// The state of a server, or `None` if the name is unknown.
    #[must_use]
    pub fn state(&self, server: &str) -> Option<ServerState> {
        self.server(server).map(|server| *server.state.borrow())
    }

    /// Waits until a server is in `state`; returns false if the name is unknown.
    pub async fn reached(&self, server: &str, state: ServerState) -> bool {
        let Some(server) = self.server(server) else {
            return false;
        };
        let mut now = server.state.subscribe();
        now.wait_for(|now| *now == state).await.is_ok()
    }

    /// The name of a server in the scopes of grants, with a mark that identifies what it runs. Grants with another mark
    /// do not apply.
    #[must_use]
    pub fn label(&self, server: &str) -> Option<&str> {
        self.server(server).map(|server| &*server.label)
    }

    /// All tools in the list of a server, including withheld tools.
    #[must_use]
    pub fn tools(&self, server: &str) -> Vec<ServerTool> {
        self.server(server)
            .map(|server| server.server_tools())
            .unwrap_or_default()
    }

    /// Why the last connection to a server failed or ended; `None` while it is connected, or if the name is unknown.
    #[must_use]
    pub fn failure(&self, server: &str) -> Option<ServerFailure> {
        self.server(server)?.failure()
    }

    /// Approves this definition of a tool, which a person reviewed, and offers it again. The approval is saved in the
    /// pin store, if there is one. Returns false if the server lists another definition, or if the tool cannot be offered
    /// for another reason.
    ///
    /// # Errors
    /// [`PinStoreError`] if the approval cannot be saved; then the tool stays withheld.
    pub async fn approve(
        &self,
        server: &str,
        tool: &str,
        fingerprint: Fingerprint,
    ) -> Result<bool, PinStoreError> {
        let approved = match self.server(server) {
            Some(server) => server.approve(tool, fingerprint).await?,
            None => false,
        };
        if approved {
            self.inner.registry.publish();
        }
        Ok(approved)
    }

    /// Retries a server at once; does nothing if it is connected.
    pub fn retry(&self, server: &str) {
        if let Some(server) = self.server(server) {
            server.retry();
        }
    }

    /// Stops all servers and waits until they have ended.
    pub async fn shutdown(&self) {
        self.inner.stop.send_replace(true);
        let mut tasks = self.inner.tasks.lock().await;
        while tasks.join_next().await.is_some() {}
    }
}

impl RemoteServers for Upstreams {
    fn kept_out(&self) -> Vec<PathBuf> {
        let store = self.inner.pin_store.as_ref();
        store.map_or_else(Vec::new, |store| store.files())
    }

    fn attach<'s>(&'s self, audit: &'s Audit) -> BoxFuture<'s, Result<(), AuditError>> {
        Box::pin(self.inner.sign_in_audit.attach(audit))
    }

    fn changes(&self) -> watch::Receiver<()> {
        self.inner.registry.published.subscribe()
    }

    fn table(&self) -> &Arc<RemoteTools> {
        &self.inner.registry.table
    }
}

impl Drop for UpstreamsInner {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        // Each task stops its server; aborting it would leave the server running.
        self.tasks.get_mut().detach_all();
    }
}
