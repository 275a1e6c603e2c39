//! A worker in, an MCP server for it out: requests of both eras become calls, and answers become MCP's own forms.
//!
//! One [`Gateway`] serves every protocol revision from 2024-11-05 on: those with an `initialize` handshake, and the
//! stateless 2026-07-28 with `server/discover`. It holds no permission state: grants come with the call they are for.

mod apps;
mod ask;
#[cfg(feature = "ui")]
mod browse;
mod call;
mod client_roots;
mod convert;
mod decorate;
mod describe;
mod door;
#[cfg(feature = "http")]
mod endpoint;
mod form;
mod forward;
mod handler;
#[cfg(feature = "http")]
mod http;
mod lines;
mod log;
mod message;
mod meta;
mod outgoing;
mod pages;
mod prompts;
mod requests;
mod resources;
mod session;
mod tasks;
#[cfg(feature = "http")]
mod token;
mod uri;
#[cfg(feature = "ui")]
mod views;
mod watch;

use std::borrow::Cow;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;

use rmcp::ServiceExt;
use rmcp::service::ServerInitializeError;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::call::Asks;
use crate::describe::ServerDoc;
use crate::rate::{Rate, RateLimiter};
use crate::worker::Worker;

pub use apps::AppPage;
pub(crate) use convert::{Links, failure, outcome};
use door::Door;
pub use door::{OpenError, Opener, Served};
#[cfg(feature = "http")]
pub use endpoint::Endpoint;
#[cfg(all(feature = "ui", feature = "http"))]
pub(crate) use http::{Bounds, Callers, Connection, body, connections, hosts};
#[cfg(feature = "http")]
pub use http::{Http, HttpError};
use session::Session;
#[cfg(feature = "http")]
pub use token::Token;

/// What the other end of a connection may send along with its calls.
///
/// It is chosen by whoever opens the connection and never read from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trust {
    /// The agent framework: it may configure, narrow, and bring what people granted.
    Host,
    /// A person's program, such as an editor that started the server: it may narrow, and its person may be asked
    /// ([`GatewayBuilder::ask_client`]). Grants that it sends are ignored, and audited.
    Client,
    /// The agent itself: it may narrow. Grants that it sends are ignored, and audited, and nobody behind it is asked.
    Agent,
}

impl Trust {
    /// Whether the other end speaks for people.
    fn is_host(self) -> bool {
        self == Self::Host
    }
}

/// Who a server is, as it introduces itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Its name, for programs.
    pub name: String,
    /// Its name, for people.
    pub title: String,
    /// Its version.
    pub version: String,
    /// What a model should know before it uses the tools.
    pub instructions: String,
}

/// The tools by which a gateway serves files as resources. Both take `path`; the reader takes `binary`, `limit`,
/// `max_bytes` and `known_hash`, too, and says of a file with that hash that it is `unchanged`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileTools {
    /// Reads a file.
    pub read: &'static str,
    /// Lists a directory.
    pub list: &'static str,
}

/// What a person can do about a refusal, one sentence each, for a model to tell them. It is added to the text of the refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// Where a person must allow the call, and cannot be asked here.
    pub ask: Cow<'static, str>,
    /// Where the call names a path outside the folders that are open to the worker.
    pub outside: Cow<'static, str>,
}

/// Why a connection ended before it began.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The handshake was refused; the client was told why, and more of it.
    #[error("the handshake was refused: {0}")]
    Refused(String),
    /// The connection broke, or what came first was no message of MCP.
    #[error("the handshake failed")]
    Handshake(#[from] Box<ServerInitializeError>),
}

/// Serves workers over MCP. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Gateway {
    desk: Arc<Desk>,
    session: Arc<Session>,
}

/// What all connections of one gateway share.
#[derive(Debug)]
struct Desk {
    about: About,
    trust: Trust,
    door: Door,
    rate: Rate,
    files: Option<FileTools>,
    asking: Asking,
    asker: ask::Asker,
    tasks: tasks::Tasks,
    watching: watch::Watching,
    /// JSON Schema of what a client may configure.
    schema: Option<Value>,
    manual: Option<ServerDoc>,
    /// The host's own, for clients that show views.
    pages: Vec<AppPage>,
    advice: Option<Advice>,
    /// The client says which directories are served.
    client_roots: bool,
    /// Reviews are linked in the content for every client.
    links: bool,
}

/// What becomes of a call that a person must allow.
#[derive(Debug)]
enum Asking {
    /// The client is told what to ask for, and sends the call again with what was granted.
    Replay,
    /// The person behind the client is asked.
    Client {
        /// What becomes of calls of a client whose person cannot be asked.
        otherwise: Asks,
    },
}

impl Asking {
    /// What becomes of a read of a resource that a person must allow: forms are for calls of tools.
    fn of_reads(&self) -> Asks {
        match self {
            Self::Replay => Asks::Wait,
            Self::Client { otherwise } => *otherwise,
        }
    }
}

/// Puts a gateway together.
#[derive(Debug)]
pub struct GatewayBuilder {
    desk: Desk,
}

impl Gateway {
    /// Serves one worker to an agent: every connection speaks to it, and none can widen or configure it.
    #[must_use]
    pub fn worker(worker: &Worker, about: About) -> GatewayBuilder {
        GatewayBuilder::new(Door::worker(worker), Trust::Agent, about)
    }

    /// Serves whatever `opener` opens: one runtime for clients that configure nothing, and one for each that does.
    #[must_use]
    pub fn opening(opener: impl Opener, trust: Trust, about: About) -> GatewayBuilder {
        GatewayBuilder::new(Door::opening(opener), trust, about)
    }

    /// The same gateway for one more connection.
    fn session(&self) -> Self {
        Self {
            desk: Arc::clone(&self.desk),
            session: Arc::new(
                self.session
                    .heir(Arc::new(RateLimiter::new(&self.desk.rate))),
            ),
        }
    }

    /// The same gateway for one more session or request; they share one rate, as whoever opened them is one client.
    #[cfg(feature = "http")]
    fn request(&self) -> Self {
        Self {
            desk: Arc::clone(&self.desk),
            session: Arc::new(self.session.heir(Arc::clone(&self.session.bucket))),
        }
    }

    /// Serves one client over a pair of byte streams, one message a line, until it goes.
    ///
    /// # Errors
    /// [`ServeError`] if the connection never began.
    pub async fn serve<R, W>(&self, reader: R, writer: W) -> Result<(), ServeError>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        self.serve_until(reader, writer, pending()).await
    }

    /// Serves one client like [`Gateway::serve`] until `stop` completes. Then nothing more is read, open requests are
    /// withdrawn and answered, and what they did is recorded.
    ///
    /// # Errors
    /// [`ServeError`] if the connection never began.
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

    /// Serves the one client that this is the session of.
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
        let (outgoing, writing) = outgoing::Outgoing::new(writer);
        let speaks = self.session.speaks();
        let lines = lines::Lines::new(reader, outgoing, lines::MAX_LINE, speaks, stop);
        let subscribing = watch::Subscribing {
            gateway: self.clone(),
            service: self.clone(),
        };
        let served = match requests::Answering(subscribing).serve(lines).await {
            Ok(running) => {
                // How a connection that had begun ended is the client's affair.
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
        writing.finished().await;
        self.settle().await;
        served
    }
}

/// Runs `serving` to its end, and cancels `stopped` once `stop` completes.
async fn cancelling<T>(
    stopped: &CancellationToken,
    stop: impl Future<Output = ()>,
    serving: impl Future<Output = T>,
) -> T {
    let mut serving = pin!(serving);
    tokio::select! {
        biased;
        served = serving.as_mut() => return served,
        () = stop => stopped.cancel(),
    }
    serving.await
}

impl GatewayBuilder {
    fn new(door: Door, trust: Trust, about: About) -> Self {
        Self {
            desk: Desk {
                about,
                trust,
                door,
                rate: Rate::default(),
                files: None,
                asking: Asking::Replay,
                asker: ask::Asker::default(),
                tasks: tasks::Tasks::default(),
                watching: watch::Watching::default(),
                schema: None,
                manual: None,
                pages: Vec::new(),
                advice: None,
                client_roots: false,
                links: false,
            },
        }
    }

    /// Sets how many tool calls one connection may make. All clients of one HTTP server share one rate, as do all of one
    /// [`Endpoint`].
    #[must_use]
    pub fn rate(mut self, rate: Rate) -> Self {
        self.desk.rate = rate;
        self
    }

    /// Serves files as `file://` resources, by these tools.
    #[must_use]
    pub fn files(mut self, tools: FileTools) -> Self {
        self.desk.files = Some(tools);
        self
    }

    /// Publishes the schema of what a client may configure.
    #[must_use]
    pub fn config_schema(mut self, schema: Value) -> Self {
        self.desk.schema = Some(schema);
        self
    }

    /// Describes the server: in the handshake, by the method `ai_help`, and by the resource `bailiwick://help`.
    #[must_use]
    pub fn manual(mut self, manual: ServerDoc) -> Self {
        self.desk.manual = Some(manual);
        self
    }

    /// Serves a page of one's own to clients that show views, in place of an earlier one of its address. A tool names it by
    /// [`ToolSpec::page`](crate::ToolSpec::page).
    #[must_use]
    pub fn page(mut self, page: AppPage) -> Self {
        self.desk.pages.retain(|earlier| earlier.uri != page.uri);
        self.desk.pages.push(page);
        self
    }

    /// Links the review page in the content of every call that changes something. Without it, only clients that declare
    /// MCP Apps get the link, since some clients cannot put links into a model's request; all others find the addresses in
    /// the result's `_meta.artifacts`.
    #[must_use]
    pub fn artifact_links(mut self) -> Self {
        self.desk.links = true;
        self
    }

    /// Puts questions to the person behind a client that can elicit, in place of naming the scopes that the call lacks.
    /// Calls of other clients are refused with the scopes that they lack. Clients of trust [`Trust::Agent`] are never asked.
    /// The runtime must leave answers to others ([`Deferred`](crate::Deferred)).
    ///
    /// # Errors
    /// The system's, if it gives no random bits to seal questions with.
    pub fn ask_client(mut self) -> Result<Self, getrandom::Error> {
        self.desk.asker.codec()?;
        self.desk.asking = Asking::Client {
            otherwise: Asks::Refuse,
        };
        Ok(self)
    }

    /// After [`GatewayBuilder::ask_client`]: calls of clients that cannot be asked wait for whoever else answers, such as
    /// a person at a `Console`.
    #[must_use]
    pub fn or_wait(mut self) -> Self {
        if let Asking::Client { otherwise } = &mut self.desk.asking {
            *otherwise = Asks::Wait;
        }
        self
    }

    /// Lets the client say which directories are served: by the `roots` of its `experimental.configuration`, else by its MCP
    /// roots, which it is asked for again when it says that they changed. The opener gets them as `roots` of a configuration.
    ///
    /// It is for a connection to the program that started the server, where nobody else named a directory. A client of trust
    /// [`Trust::Agent`] names none.
    #[must_use]
    pub fn client_roots(mut self) -> Self {
        self.desk.client_roots = self.desk.trust != Trust::Agent;
        self
    }

    /// Sets what refusals add for the model to tell its person.
    #[must_use]
    pub fn advice(mut self, advice: Advice) -> Self {
        self.desk.advice = Some(advice);
        self
    }

    /// The gateway.
    #[must_use]
    pub fn build(self) -> Gateway {
        let bucket = Arc::new(RateLimiter::new(&self.desk.rate));
        Gateway {
            desk: Arc::new(self.desk),
            session: Arc::new(Session::new(bucket)),
        }
    }
}
