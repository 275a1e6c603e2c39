//! MCP server for workers.
//!
//! One [`Gateway`] serves every protocol revision from 2024-11-05 on: those with an `initialize` handshake, and the
//! stateless 2026-07-28 with `server/discover`. It stores no grants: a trusted client sends them with each call.

mod apps;
mod backend;
mod call;
mod client_roots;
mod convert;
mod decorate;
mod describe;
mod direct;
mod elicit;
mod endpoint;
mod file_browser;
mod form;
mod forward;
mod handler;
mod http;
mod line_transport;
mod log;
mod message;
mod meta;
mod outgoing;
mod pagination;
mod progress;
mod prompts;
mod requests;
mod resources;
mod service;
mod session;
mod subscriptions;
mod tasks;
mod uri;
mod view_tools;
mod worker_request;

use std::borrow::Cow;
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;

use rmcp::ServiceExt;
use rmcp::service::ServerInitializeError;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::rate::RateLimiter;
use bailiwick::call::Asks;
use bailiwick::describe::ServerDoc;
use bailiwick::worker::Worker;

pub use crate::rate::Rate;
pub use apps::AppPage;
pub(crate) use apps::render_artifact;
use backend::BackendSource;
pub use backend::{Backend, BackendError, BackendFactory};
pub use bailiwick_http::Token;
pub(crate) use convert::{ResultLinks, failure, outcome};
use decorate::Decorator;
use direct::DirectRequests;
pub use endpoint::Endpoint;
pub use http::{Http, HttpError};
use session::Session;

/// How much a client is trusted.
///
/// Trust is set by the program that opens the connection, never by the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trust {
    /// The agent framework: it may configure its worker, restrict it, and send grants that people made.
    Host,
    /// A person's program, such as an editor that started the server: it may restrict its worker, and its user may be
    /// asked ([`GatewayBuilder::ask_client`]). Grants that it sends are ignored (and audited).
    Client,
    /// The agent itself: it may restrict its worker. Grants that it sends are ignored (and audited), and its user is
    /// never asked.
    Agent,
}

/// Name, version and instructions of the server, as sent in the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayInfo {
    /// The name for programs.
    pub name: String,
    /// The display name.
    pub title: String,
    /// The version.
    pub version: String,
    /// The instructions for the model.
    pub instructions: String,
}

/// Names of the tools that read `file://` resources. Both take `path`; the reader also takes `binary`, `limit`,
/// `max_bytes` and `known_hash`, and reports a file with that hash as `unchanged`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileTools {
    /// Reads a file.
    pub read: &'static str,
    /// Lists a directory.
    pub list: &'static str,
}

/// Hints that are appended to the errors of denied calls, so that the model can tell its user what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalHints {
    /// Appended if a person must allow the call and cannot be asked.
    pub ask: Cow<'static, str>,
    /// Appended if the call names a path outside the folders that are open to the worker.
    pub outside: Cow<'static, str>,
}

/// Error that ended a connection during the handshake.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The handshake was rejected; the client received the reason.
    #[error("the handshake was refused: {0}")]
    Refused(String),
    /// The connection broke, or the first message was invalid.
    #[error("the handshake failed")]
    Handshake(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Serves workers over MCP. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Gateway {
    state: Arc<GatewayState>,
    session: Arc<Session>,
}

/// State shared by all connections of a gateway.
#[derive(Debug)]
struct GatewayState {
    info: GatewayInfo,
    trust: Trust,
    backends: BackendSource,
    rate: Rate,
    files: Option<FileTools>,
    /// The user of the client is asked by elicitation for what a call lacks.
    ask_client: bool,
    /// How calls that need approval are handled if the user of the client is not asked. Resource reads are such calls:
    /// elicitation is for tool calls only.
    asks_without_elicitation: Asks,
    suspended: elicit::SuspendedCalls,
    tasks: tasks::Tasks,
    watcher: subscriptions::FileWatcher,
    decorator: Decorator,
    manual: Option<ServerDoc>,
    /// Pages of the host, for clients that support views.
    pages: Vec<AppPage>,
    refusal_hints: Option<Arc<RefusalHints>>,
    /// Whether the client names the roots.
    client_roots: bool,
    /// Results link the review page for every client.
    always_link_review: bool,
    /// rmcp handles all requests.
    through_rmcp: bool,
}

/// Builder of a [`Gateway`].
#[derive(Debug)]
pub struct GatewayBuilder {
    state: GatewayState,
}

impl Gateway {
    /// Serves one worker to an agent: all connections use it, and none can widen or configure it.
    #[must_use]
    pub fn worker(worker: &Worker, info: GatewayInfo) -> GatewayBuilder {
        GatewayBuilder::new(BackendSource::worker(worker), Trust::Agent, info)
    }

    /// Serves the backends that `factory` creates: one that clients without a configuration share, and one for each
    /// client that sends one.
    #[must_use]
    pub fn with_factory(
        factory: impl BackendFactory,
        trust: Trust,
        info: GatewayInfo,
    ) -> GatewayBuilder {
        GatewayBuilder::new(BackendSource::factory(factory), trust, info)
    }

    /// A gateway with a new session, for one more connection.
    fn session(&self) -> Self {
        Self {
            state: Arc::clone(&self.state),
            session: Arc::new(
                self.session
                    .child(Arc::new(RateLimiter::new(&self.state.rate))),
            ),
        }
    }

    /// A gateway with a new session that shares the rate limiter of this one.
    fn request(&self) -> Self {
        Self {
            state: Arc::clone(&self.state),
            session: Arc::new(self.session.child(Arc::clone(&self.session.rate_limiter))),
        }
    }

    /// Serves one client over a pair of byte streams, one message per line, until it disconnects.
    ///
    /// # Errors
    /// [`ServeError`] if the handshake failed.
    pub async fn serve<R, W>(&self, reader: R, writer: W) -> Result<(), ServeError>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        self.serve_until(reader, writer, pending()).await
    }

    /// Serves one client like [`Gateway::serve`] until `stop` completes. Then no more input is read, open requests are
    /// cancelled and answered, and their effects are recorded.
    ///
    /// # Errors
    /// [`ServeError`] if the handshake failed.
    pub async fn serve_until<R, W>(
        &self,
        reader: R,
        writer: W,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<(), ServeError>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let stopped = CancellationToken::new();
        let serving = self.session().serve_lines(reader, writer, stopped.clone());
        cancelling(&stopped, stop, serving).await
    }

    /// Serves the client of this session.
    async fn serve_lines<R, W>(
        self,
        reader: R,
        writer: W,
        stop: CancellationToken,
    ) -> Result<(), ServeError>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (outgoing, writer_task) = outgoing::OutgoingQueue::new(writer);
        let input_open = self.session.input_open.clone();
        let service = service::GatewayService(self.clone());
        let direct = (!self.state.through_rmcp).then(|| DirectRequests::new(service.clone()));
        let transport = line_transport::LineTransport::new(
            reader,
            outgoing,
            line_transport::MAX_LINE,
            input_open,
            stop,
            direct,
            self.state.decorator.clone(),
        );
        let served = match service.serve(transport).await {
            Ok(running) => {
                // An error after the handshake concerns only the client.
                let _ = running.waiting().await;
                Ok(())
            }
            Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
            Err(ServerInitializeError::InitializeFailed(error)) => {
                Err(ServeError::Refused(error.message.into_owned()))
            }
            Err(ServerInitializeError::ExpectedInitializeRequest(_)) => {
                Err(ServeError::Refused("`initialize` comes first".to_owned()))
            }
            Err(error) => Err(ServeError::Handshake(Box::new(error))),
        };
        writer_task.wait().await;
        self.end_session().await;
        served
    }
}

/// Runs `serving` to completion, and cancels `stopped` once `stop` completes.
async fn cancelling<T>(
    stopped: &CancellationToken,
    stop: impl Future<Output = ()>,
    serving: impl Future<Output = T>,
) -> T {
    let stopping = async {
        stop.await;
        stopped.cancel();
        pending::<Infallible>().await
    };
    tokio::select! {
        biased;
        served = serving => served,
        never = stopping => match never {},
    }
}

impl GatewayBuilder {
    fn new(backends: BackendSource, trust: Trust, info: GatewayInfo) -> Self {
        Self {
            state: GatewayState {
                info,
                trust,
                backends,
                rate: Rate::default(),
                files: None,
                ask_client: false,
                asks_without_elicitation: Asks::Wait,
                suspended: elicit::SuspendedCalls::default(),
                tasks: tasks::Tasks::default(),
                watcher: subscriptions::FileWatcher::default(),
                decorator: Decorator::default(),
                manual: None,
                pages: Vec::new(),
                refusal_hints: None,
                client_roots: false,
                always_link_review: false,
                through_rmcp: false,
            },
        }
    }

    /// Sets how many tool calls one connection may make. All clients of one HTTP server share one rate, as do all of
    /// one [`Endpoint`].
    #[must_use]
    pub fn rate(mut self, rate: Rate) -> Self {
        self.state.rate = rate;
        self
    }

    /// Serves files as `file://` resources through these tools.
    #[must_use]
    pub fn files(mut self, tools: FileTools) -> Self {
        self.state.files = Some(tools);
        self
    }

    /// Publishes the JSON Schema of the configuration that clients may send. A schema that cannot be serialized is not
    /// published, and logged.
    #[must_use]
    pub fn config_schema(mut self, schema: &impl Serialize) -> Self {
        self.state.decorator = Decorator::with_schema(schema);
        self
    }

    /// Describes the server in the handshake, by the method `ai_help`, and by the resource `bailiwick://help`.
    #[must_use]
    pub fn manual(mut self, manual: ServerDoc) -> Self {
        self.state.manual = Some(manual);
        self
    }

    /// Adds a page for clients that support views, replacing a page with the same URI. Tools refer to it by
    /// [`ToolSpec::page`](bailiwick::ToolSpec::page).
    #[must_use]
    pub fn page(mut self, page: AppPage) -> Self {
        self.state.pages.retain(|earlier| earlier.uri != page.uri);
        self.state.pages.push(page);
        self
    }

    /// Links the review page in the content of every result that changes something. By default only clients that
    /// declare MCP Apps get the link, since some clients cannot put links into a model's request; all others find the
    /// URIs in the result's `_meta.artifacts`.
    #[must_use]
    pub fn artifact_links(mut self) -> Self {
        self.state.always_link_review = true;
        self
    }

    /// Asks the user of a client by elicitation, instead of refusing calls with the scopes that they lack. Calls of
    /// clients that do not support elicitation are still refused. Users of clients with trust [`Trust::Agent`] are
    /// never asked. The runtime needs the [`Deferred`](bailiwick::Deferred) approver.
    ///
    /// # Errors
    /// An I/O error if the system has no random bytes for the key that seals pending questions.
    pub fn ask_client(mut self) -> std::io::Result<Self> {
        self.state.suspended.codec()?;
        self.state.ask_client = true;
        self.state.asks_without_elicitation = Asks::Refuse;
        Ok(self)
    }

    /// After [`GatewayBuilder::ask_client`]: calls of clients without elicitation wait for another approver, such as a
    /// `Console`.
    #[must_use]
    pub fn or_wait(mut self) -> Self {
        self.state.asks_without_elicitation = Asks::Wait;
        self
    }

    /// Lets the client name the roots: by the `roots` of its `experimental.configuration`, else by its MCP roots, which
    /// are requested again when they change. The factory gets them as `roots` of a configuration.
    ///
    /// This is for a connection to the program that started the server, if the command line names no root. Roots of
    /// clients with trust [`Trust::Agent`] are ignored.
    #[must_use]
    pub fn client_roots(mut self) -> Self {
        self.state.client_roots = self.state.trust != Trust::Agent;
        self
    }

    /// Sets the hints that are appended to the errors of denied calls.
    #[must_use]
    pub fn refusal_hints(mut self, hints: RefusalHints) -> Self {
        self.state.refusal_hints = Some(Arc::new(hints));
        self
    }

    /// Lets rmcp handle all requests, for tests that compare its answers with those to requests that are handled
    /// directly.
    #[doc(hidden)]
    #[must_use]
    pub fn through_rmcp(mut self) -> Self {
        self.state.through_rmcp = true;
        self
    }

    /// Builds the gateway.
    #[must_use]
    pub fn build(self) -> Gateway {
        let rate_limiter = Arc::new(RateLimiter::new(&self.state.rate));
        Gateway {
            state: Arc::new(self.state),
            session: Arc::new(Session::new(rate_limiter)),
        }
    }
}
