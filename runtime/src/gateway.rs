//! A worker in, an MCP server for it out: requests of both eras become calls, and answers become MCP's own forms.
//!
//! One [`Gateway`] serves every protocol revision from 2024-11-05 on: those with an `initialize` handshake, and the
//! stateless 2026-07-28 with `server/discover`. It holds no permission state: grants come with the call they are for.

mod apps;
mod ask;
#[cfg(feature = "ui")]
mod browse;
mod call;
mod convert;
mod decorate;
mod describe;
mod door;
#[cfg(feature = "http")]
mod endpoint;
mod form;
mod handler;
#[cfg(feature = "http")]
mod http;
mod inotify;
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

use std::sync::Arc;

use rmcp::ServiceExt;
use rmcp::model::RequestStateCodec;
use rmcp::service::ServerInitializeError;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::call::Asks;
use crate::describe::Manual;
use crate::rate::{Bucket, Rate};
use crate::worker::Worker;

pub use apps::AppPage;
pub(crate) use convert::{failure, outcome};
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
    /// The other end is the agent framework: it may configure, narrow, and bring what people granted.
    Host,
    /// The other end is the agent itself: it may narrow, and whatever it says of grants is passed over.
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

/// The tools by which a gateway serves files as resources. Both take `path`; the reader takes `binary`, `limit` and
/// `known_hash`, too, and says of a file with that hash that it is `unchanged`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileTools {
    /// Reads a file.
    pub read: &'static str,
    /// Lists a directory.
    pub list: &'static str,
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
    tasks: tasks::Tasks,
    watching: watch::Watching,
    /// JSON Schema of what a client may configure.
    schema: Option<Value>,
    manual: Option<Manual>,
    /// The host's own, for clients that show views.
    pages: Vec<AppPage>,
}

/// What becomes of a call that a person must allow.
#[derive(Debug)]
enum Asking {
    /// The client is told what to ask for, and sends the call again with what was granted.
    Replay,
    /// The person behind the client is asked.
    Client(ask::Asker),
}

impl Asking {
    /// What becomes of a read of a resource that a person must allow: forms are for calls of tools.
    fn of_reads(&self) -> Asks {
        match self {
            Self::Replay => Asks::Wait,
            Self::Client(_) => Asks::Refuse,
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
            session: Arc::new(self.session.heir(Arc::new(Bucket::new(&self.desk.rate)))),
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
        let never = CancellationToken::new();
        self.serve_until(reader, writer, never).await
    }

    /// The same until `stop` is cancelled. Then nothing more is read, open requests are withdrawn and answered, and what
    /// they did is recorded.
    ///
    /// # Errors
    /// [`ServeError`] if the connection never began.
    pub async fn serve_until<R, W>(
        &self,
        reader: R,
        writer: W,
        stop: CancellationToken,
    ) -> Result<(), ServeError>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        self.session().serve_lines(reader, writer, stop).await
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
        let served = match requests::Answering(self.clone()).serve(lines).await {
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
                tasks: tasks::Tasks::default(),
                watching: watch::Watching::default(),
                schema: None,
                manual: None,
                pages: Vec::new(),
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
    pub fn manual(mut self, manual: Manual) -> Self {
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

    /// Puts questions to the person behind a client that can elicit, in place of naming the scopes that the call lacks.
    /// It concerns connections of trust [`Trust::Host`] alone, over runtimes that leave answers to others
    /// ([`Deferred`](crate::Deferred)).
    ///
    /// # Errors
    /// The system's, if it gives no random bits to seal questions with.
    pub fn ask_client(mut self) -> Result<Self, getrandom::Error> {
        let mut key = [0; RequestStateCodec::MIN_KEY_LENGTH];
        getrandom::fill(&mut key)?;
        self.desk.asking = Asking::Client(ask::Asker::new(RequestStateCodec::new_unchecked(key)));
        Ok(self)
    }

    /// The gateway.
    #[must_use]
    pub fn build(self) -> Gateway {
        let bucket = Arc::new(Bucket::new(&self.desk.rate));
        Gateway {
            desk: Arc::new(self.desk),
            session: Arc::new(Session::new(bucket)),
        }
    }
}
