//! Local web page on which a person answers permission questions and manages grants.
//!
//! The page is part of the host, like a terminal prompt: it is served to anyone who has its URL, which contains a
//! secret that no worker learns. The console makes no decisions: every request of the page goes to the
//! [`GrantAuthority`], which checks it.

mod activity;
mod audit;
mod error;
mod history;
mod page;
mod permissions;
mod request;
mod response;
mod routes;
mod state;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use audit::ConsoleAudit;
use bailiwick::permission::{GrantAuthority, ServerCard, Template};
use bailiwick::{Runtime, WeakRuntime};
use bailiwick_http::{ConnectionLimits, Token, host_names};
use state::ConsoleState;

/// Maximum number of connections; a browser opens at most six per page.
const MAX_CONNECTIONS: usize = 64;
/// Timeout for reading the head of a request, and again for its body.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for the first request of a connection that carries the secret.
const AUTHORIZATION_TIMEOUT: Duration = Duration::from_secs(5);
/// Time that running requests have to finish on shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// Error of [`Console::serve`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConsoleError {
    /// The listener is reachable from other machines.
    #[error("`{0}` is not a loopback address")]
    NotLoopback(SocketAddr),
    /// The listener failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The operating system has no random bytes for the secret in the URL.
    #[error("cannot get random bytes from the operating system")]
    Random(#[source] std::io::Error),
}

/// A runtime that a console shows: its grant authority, audit log and description.
#[derive(Debug)]
pub struct ConsoleSource {
    grants: Arc<GrantAuthority>,
    runtime: Option<WeakRuntime>,
    audit: Option<ConsoleAudit>,
    server: ServerCard,
    known_servers: Vec<ServerCard>,
    templates: Vec<Template>,
}

impl ConsoleSource {
    /// Shows the questions and grants of `grants`.
    #[must_use]
    pub fn new(grants: impl Into<Arc<GrantAuthority>>) -> Self {
        Self {
            grants: grants.into(),
            runtime: None,
            audit: None,
            server: ServerCard::default(),
            known_servers: Vec::new(),
            templates: Template::built_in(),
        }
    }

    /// Shows the agents of `runtime`, to which the grants belong, and what they do, and lets people pause and stop them. Their calls and ended
    /// questions are shown only if the runtime keeps recent calls
    /// ([`RuntimeBuilder::keep_calls`](bailiwick::RuntimeBuilder::keep_calls)). The console does not keep the runtime
    /// alive.
    #[must_use]
    pub fn runtime(mut self, runtime: &Runtime) -> Self {
        self.runtime = Some(runtime.downgrade());
        self
    }

    /// Shows the history that is in this audit log.
    #[must_use]
    pub fn audit(mut self, audit: ConsoleAudit) -> Self {
        self.audit = Some(audit);
        self
    }

    /// Sets the description of the server that provides this runtime's own tools.
    #[must_use]
    pub fn server(mut self, server: ServerCard) -> Self {
        self.server = server;
        self
    }

    /// Adds an MCP server that the host knows. The console warns about servers that it does not know.
    #[must_use]
    pub fn known_server(mut self, server: ServerCard) -> Self {
        self.known_servers.push(server);
        self
    }

    /// Adds a template to the built-in ones.
    #[must_use]
    pub fn template(mut self, template: Template) -> Self {
        self.templates.push(template);
        self
    }
}

/// A local web page of the host where a person answers questions, sees and revokes grants, and reads the history.
/// Dropping the console stops it.
///
/// ```no_run
/// use bailiwick_console::{Console, ConsoleSource};
/// use bailiwick::activity::KeepCalls;
/// use bailiwick::{Deferred, Runtime};
///
/// # async fn served() -> Result<(), Box<dyn std::error::Error>> {
/// let builder = Runtime::builder().approver(Deferred).keep_calls(KeepCalls::default());
/// let (runtime, people) = builder.build().await?;
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// let console = Console::serve(listener)?;
/// console.add_source(ConsoleSource::new(people).runtime(&runtime));
/// eprintln!("answer questions at {}", console.url());
/// # runtime.shutdown().await;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Console {
    state: Arc<ConsoleState>,
    url: String,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

impl Console {
    /// Serves a console on `listener`. It shows nothing until [`add_source`](Self::add_source) adds a source.
    ///
    /// # Errors
    /// [`ConsoleError`] if the listener is not on a loopback address, or the operating system has no random bytes for the secret.
    pub fn serve(listener: TcpListener) -> Result<Self, ConsoleError> {
        let address = listener.local_addr()?;
        if !address.ip().is_loopback() {
            return Err(ConsoleError::NotLoopback(address));
        }
        let token = Token::random().map_err(ConsoleError::Random)?;
        let url = format!("http://{address}/#{}", token.reveal());
        let stop = CancellationToken::new();
        let state = Arc::new(ConsoleState::new(stop.clone()));
        let router = routes::router(Arc::clone(&state), &host_names(address), token);
        let limits = ConnectionLimits {
            max_connections: MAX_CONNECTIONS,
            head_timeout: READ_TIMEOUT,
            authorization_timeout: AUTHORIZATION_TIMEOUT,
        };
        let stopped = stop.clone();
        let serving = tokio::spawn(async move {
            let shutdown_timeout = async {
                stopped.cancelled().await;
                tokio::time::sleep(SHUTDOWN_TIMEOUT).await;
            };
            tokio::select! {
                () = bailiwick_http::serve(listener, router, limits, &stopped) => {}
                () = shutdown_timeout => {}
            }
        });
        Ok(Self {
            state,
            url,
            stop,
            serving,
        })
    }

    /// Shows the questions and grants of a runtime until that runtime has shut down.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn add_source(&self, source: ConsoleSource) {
        self.state.add_source(source);
    }

    /// The URL of the page. It contains the secret: anyone who has it can answer questions.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Stops the console. Open questions stay open.
    pub async fn shutdown(mut self) {
        self.stop.cancel();
        // The result only says whether the task panicked.
        let _ = (&mut self.serving).await;
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
