//! Servers of other people in, their tools under the policy of this runtime's workers out.
//!
//! A tool of a server is offered as `SERVER__TOOL`, and every call of it needs `VERB:mcp:SERVER~MARK:TOOL~MARK`. The marks
//! stand for what the server runs and for the form of the tool. Policies and configurations leave them out and so speak
//! of whatever goes by the name; what people grant has them, so a grant is none for another program or another form.

mod active_calls;
#[cfg(feature = "http")]
mod address;
#[cfg(feature = "oauth")]
mod auth;
mod backoff;
mod cancel_on_drop;
mod catalog;
mod child;
mod classify;
mod client;
mod completion;
mod connect;
mod connection;
mod connection_state;
mod discovery;
mod elicitation;
mod failure;
#[cfg(feature = "http")]
mod http;
mod line_reader;
mod log_limiter;
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
#[cfg(feature = "http")]
mod session;
mod spec;
mod tool_call;
mod tool_result;
mod transport;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

#[cfg(feature = "oauth")]
use crate::audit::{Audit, AuditError};
use crate::scope::Verb;
use crate::tool::RemoteTools;
pub(crate) use catalog::{address, resource_of};
pub(crate) use classify::{OfferedTool, ToolProvider, classify};
pub(crate) use completion::COMPLETE;
pub(crate) use elicitation::check_url;
pub(crate) use pagination::SizeCounter;
use registry::ServerRegistry;
pub(crate) use registry::remote_entry;
use requests::ServerRequestHandler;
use server::Server;
pub(crate) use tool_result::{failure, reply};

#[cfg(feature = "oauth")]
pub use auth::{LoopbackRedirect, OAuth, SignIn, SignInAnswer, TokenStore};
pub use classify::WithheldReason;
pub use failure::ServerFailure;
pub use pin_store::{PinStore, PinStoreError};
pub use pins::Fingerprint;
pub use reading::{PromptArgument, ServerPrompt, ServerReadError, ServerResource, ServerText};
pub use requests::{
    BoxFuture, CallRequests, DenyRequests, Elicitation, ElicitationKind, ElicitationResponse,
    MessageRole, Priorities, RequestCapabilities, Sampling, SamplingResponse, ServerMessage,
    ServerRequests,
};
pub use schema::{SchemaError, SchemaValidator};
pub use schema_cost::SchemaFault;
pub use servers_file::{ServersContext, ServersError, ServersFile};
pub(crate) use spec::APP_PREFIX;
pub use spec::{ServerSpec, SpecError};

/// What one server may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// How long a server may take to start, connect and list its tools.
    pub connect: Duration,
    /// The longest message, in bytes; a longer one ends the connection, and so does a longer list of tools. By HTTP it ends
    /// the request that it answers.
    pub message_bytes: usize,
    /// The largest answer that is passed on, in bytes.
    pub result_bytes: usize,
    /// How many tools; what is beyond is not offered, and a server that lists four times as many is not connected.
    pub tools: usize,
    /// How many calls at one time.
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
    /// The longest list.
    fn max_listed(&self) -> usize {
        self.tools.saturating_mul(4)
    }
}

/// How a server fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerState {
    /// It was not connected yet.
    Starting,
    /// A person is asked to sign in at it.
    SigningIn,
    /// It is connected.
    Ready,
    /// It is gone, and will be tried again; [`Upstreams::failure`] says why.
    Waiting,
    /// It failed too often; [`Upstreams::failure`] says why, and [`Upstreams::retry`] tries it again.
    GivenUp,
    /// It was ended.
    Stopped,
}

/// A tool as its server lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerTool {
    /// What the server calls it; what deceives is escaped in this and in the description.
    pub tool: String,
    /// What the server says of it, as text; what is too long is cut.
    pub description: String,
    /// Its form.
    pub fingerprint: Fingerprint,
    /// What models call it and what it does, or why it is not offered.
    pub offered: Result<(String, Verb), WithheldReason>,
}

/// Servers of other people, connected. Cloning it is cheap; with its last clone, and the last runtime that uses it, the
/// servers end.
///
/// What servers say is logged escaped, cut and rarely, under the target `bailiwick`, at debug. The client beneath, `rmcp`, logs
/// their messages whole at debug and trace, and faults of HTTP in their words at warn: leave that target out of logs that
/// others read.
#[derive(Clone, Debug)]
pub struct Upstreams {
    inner: Arc<UpstreamsInner>,
}

/// When the last handle goes, so do the servers.
#[derive(Debug)]
struct UpstreamsInner {
    registry: Arc<ServerRegistry>,
    stop: watch::Sender<bool>,
    tasks: tokio::sync::Mutex<tokio::task::JoinSet<()>>,
    pin_store: Option<Arc<PinStore>>,
    #[cfg(feature = "oauth")]
    sign_in_audit: Arc<auth::SignInAudit>,
}

/// Puts servers together; [`UpstreamsBuilder::start`] connects them.
pub struct UpstreamsBuilder {
    specs: Vec<ServerSpec>,
    host: Arc<dyn ServerRequests>,
    forwards: bool,
    bounds: Bounds,
    pin_store: Option<PinStore>,
    start_within: Duration,
    #[cfg(feature = "oauth")]
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

    /// Sets who answers what servers ask of their host; without, every answer is no.
    #[must_use]
    pub fn requests(mut self, host: impl ServerRequests) -> Self {
        self.host = Arc::new(host);
        self
    }

    /// Has requests of servers within a call answered by whoever made it: see [`CallMeta::requests`](crate::CallMeta::requests).
    /// A `Gateway` forwards forms and visits to the client whose call it is. Servers are told that these and roots are
    /// supported. Outside of a call, and within one of a client that supports neither, requests are left to
    /// [`UpstreamsBuilder::requests`].
    #[must_use]
    pub fn forward_requests(mut self) -> Self {
        self.forwards = true;
        self
    }

    /// Lets people sign in at servers that ask for it, through [`ServerRequests::sign_in`].
    #[cfg(feature = "oauth")]
    #[must_use]
    pub fn oauth(mut self, oauth: OAuth) -> Self {
        self.oauth = Some(oauth);
        self
    }

    /// Sets what each server may cost.
    #[must_use]
    pub fn bounds(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// Keeps the approved forms of tools over restarts: a tool that changed, and one that a known server added, is withheld
    /// until [`Upstreams::approve`]. Without, what a server lists first after each start counts as approved.
    #[must_use]
    pub fn pin_store(mut self, store: PinStore) -> Self {
        self.pin_store = Some(store);
        self
    }

    /// Sets how long [`UpstreamsBuilder::start`] waits for the servers; those that take longer go on starting. Without, it
    /// waits as long as [`Bounds::connect`] lets it.
    #[must_use]
    pub fn start_within(mut self, most: Duration) -> Self {
        self.start_within = most;
        self
    }

    /// Starts the servers and returns when each was tried once. Those that did not come are tried again: see
    /// [`Upstreams::state`].
    ///
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`SpecError`]; then none was started.
    pub async fn start(self) -> Result<Upstreams, SpecError> {
        spec::check_all(&self.specs)?;
        #[cfg(feature = "oauth")]
        if let Some(oauth) = &self.oauth {
            oauth.check(&self.specs)?;
        }
        let (host, bounds) = (self.host, self.bounds);
        let pin_store = self.pin_store.map(Arc::new);
        let mut servers = Vec::new();
        #[cfg(feature = "oauth")]
        let sign_in_audit = Arc::default();
        for spec in self.specs {
            let handler = ServerRequestHandler::new(&spec.name, Arc::clone(&host), self.forwards);
            #[cfg_attr(not(feature = "oauth"), expect(unused_mut, reason = "nobody signs in"))]
            let mut server = Server::new(spec, bounds, handler, pin_store.clone());
            #[cfg(feature = "oauth")]
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
                // Its keeper has it for as long as the servers are there.
                let _ = state
                    .wait_for(|state| *state != ServerState::Starting)
                    .await;
            }
        };
        // Those that are not there yet say so by their state.
        let _ = tokio::time::timeout(self.start_within, first_attempts).await;
        let tasks = tokio::sync::Mutex::new(tasks);
        Ok(Upstreams {
            inner: Arc::new(UpstreamsInner {
                registry,
                stop,
                tasks,
                pin_store,
                #[cfg(feature = "oauth")]
                sign_in_audit,
            }),
        })
    }
}

impl Upstreams {
    /// Begins to put servers together.
    #[must_use]
    pub fn builder() -> UpstreamsBuilder {
        UpstreamsBuilder {
            specs: Vec::new(),
            host: Arc::new(DenyRequests),
            forwards: false,
            bounds: Bounds::default(),
            pin_store: None,
            start_within: Duration::MAX,
            #[cfg(feature = "oauth")]
            oauth: None,
        }
    }

    /// The names of the servers, as they were configured.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let servers = self.inner.registry.servers.iter();
        servers.map(|server| server.spec.name.as_str())
    }

    fn server(&self, name: &str) -> Option<&Arc<Server>> {
        let mut servers = self.inner.registry.servers.iter();
        servers.find(|server| server.spec.name == name)
    }

    /// How a server fares; none if there is none of that name.
    #[must_use]
    pub fn state(&self, server: &str) -> Option<ServerState> {
        self.server(server).map(|server| *server.state.borrow())
    }

    /// Waits until a server is in that state; false if there is none of that name.
    pub async fn reached(&self, server: &str, state: ServerState) -> bool {
        let Some(server) = self.server(server) else {
            return false;
        };
        let mut now = server.state.subscribe();
        now.wait_for(|now| *now == state).await.is_ok()
    }

    /// The name of a server in the scopes of grants: with a mark of what it runs. Grants of another mark are none for it.
    #[must_use]
    pub fn label(&self, server: &str) -> Option<&str> {
        self.server(server).map(|server| &*server.label)
    }

    /// Every tool that a server lists, those that are withheld included.
    #[must_use]
    pub fn tools(&self, server: &str) -> Vec<ServerTool> {
        self.server(server)
            .map(|server| server.server_tools())
            .unwrap_or_default()
    }

    /// Why the last connection to a server failed or ended; none while it is connected, or if there is none of that name.
    #[must_use]
    pub fn failure(&self, server: &str) -> Option<ServerFailure> {
        self.server(server)?.failure()
    }

    /// A person looked at this form of a tool and approves it: it is offered again, and that is in the pin store if there is
    /// one. False if the server lists another form.
    ///
    /// # Errors
    /// [`PinStoreError`] if it cannot be stored; then it is not approved.
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

    /// Tries a server again at once that was given up, waits, or fails while it is tried; does nothing for one that is
    /// connected.
    pub fn retry(&self, server: &str) {
        if let Some(server) = self.server(server) {
            server.retry();
        }
    }

    /// Ends every server and waits until they have ended.
    pub async fn shutdown(&self) {
        self.inner.stop.send_replace(true);
        let mut tasks = self.inner.tasks.lock().await;
        while tasks.join_next().await.is_some() {}
    }

    /// The files that workers must not reach.
    pub(crate) fn kept_out(&self) -> Vec<std::path::PathBuf> {
        let store = self.inner.pin_store.as_ref();
        store.map_or_else(Vec::new, |store| store.files())
    }

    /// Has the audit of a runtime record what people say where servers want them to sign in.
    #[cfg(feature = "oauth")]
    pub(crate) async fn recorded(&self, audit: &Audit) -> Result<(), AuditError> {
        self.inner.sign_in_audit.attach(audit).await
    }

    /// Is told whenever the tools that servers offer may be others.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.inner.registry.published.subscribe()
    }

    pub(crate) fn table(&self) -> &Arc<RemoteTools> {
        &self.inner.registry.table
    }
}

impl Drop for UpstreamsInner {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        // Each keeper ends its server; they are not ended midway.
        self.tasks.get_mut().detach_all();
    }
}
