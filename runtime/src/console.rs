//! A person's authority and a loopback listener in, a page of the host's own on which questions are answered out.
//!
//! The page is part of the host, as a terminal would be: it is served to whoever has its address, which carries a secret
//! that no worker is ever told. Nothing here decides: what a person says goes to the [`GrantAuthority`], which checks it.

mod audit;
mod error;
mod history;
mod page;
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

use crate::gateway::{ConnectionLimits, Token, connections, host_names};
use crate::permission::{GrantAuthority, ServerCard, Template};
pub use audit::ConsoleAudit;
use state::ConsoleState;

/// How many connections there may be: a page has at most six, and a person few pages.
const MAX_CONNECTIONS: usize = 64;
/// How long a client may take to send the head of a request, and again to send its body.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may stay without one request that carries the secret.
const AUTHORIZATION_TIMEOUT: Duration = Duration::from_secs(5);
/// How long requests under way may take to end once the console is to stop.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// Why there is no console.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConsoleError {
    /// The listener can be reached from other machines.
    #[error("{0} is no loopback address; a console is for this machine alone")]
    NotLoopback(SocketAddr),
    /// The listener failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The system gives no random bits for the secret of the address.
    #[error("no random bits")]
    Random(#[from] getrandom::Error),
}

/// A runtime's part of a console: who speaks for people there, and what people are told of it.
#[derive(Debug)]
pub struct ConsoleSource {
    grants: Arc<GrantAuthority>,
    audit: Option<ConsoleAudit>,
    server: ServerCard,
    known_servers: Vec<ServerCard>,
    templates: Vec<Template>,
}

impl ConsoleSource {
    /// Puts the questions and grants of `grants` on a console.
    #[must_use]
    pub fn new(grants: impl Into<Arc<GrantAuthority>>) -> Self {
        Self {
            grants: grants.into(),
            audit: None,
            server: ServerCard::default(),
            known_servers: Vec::new(),
            templates: Template::built_in(),
        }
    }

    /// Shows the history that this record tells.
    #[must_use]
    pub fn audit(mut self, audit: ConsoleAudit) -> Self {
        self.audit = Some(audit);
        self
    }

    /// Sets who offers this runtime's own tools.
    #[must_use]
    pub fn server(mut self, server: ServerCard) -> Self {
        self.server = server;
        self
    }

    /// Says that the host knows the MCP server of this name; people are warned of one that it does not know.
    #[must_use]
    pub fn known_server(mut self, server: ServerCard) -> Self {
        self.known_servers.push(server);
        self
    }

    /// Offers a template beside those that are always there.
    #[must_use]
    pub fn template(mut self, template: Template) -> Self {
        self.templates.push(template);
        self
    }
}

/// A page of the host's own, on a port of this machine, where a person answers questions, looks at grants and takes them
/// back, and sees what was decided. It ends when it is dropped.
///
/// ```no_run
/// use bailiwick::{Console, ConsoleSource, Deferred, Runtime};
///
/// # async fn served() -> Result<(), Box<dyn std::error::Error>> {
/// let (runtime, people) = Runtime::builder().approver(Deferred).build().await?;
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// let console = Console::serve(listener)?;
/// console.add_source(ConsoleSource::new(people));
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
    /// Serves a console on `listener`. It shows nothing until there is a source to [`add_source`](Self::add_source) to.
    ///
    /// # Errors
    /// [`ConsoleError`] if the listener is no loopback address, or there are no random bits for a secret.
    pub fn serve(listener: TcpListener) -> Result<Self, ConsoleError> {
        let address = listener.local_addr()?;
        if !address.ip().is_loopback() {
            return Err(ConsoleError::NotLoopback(address));
        }
        let token = Token::random()?;
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
                () = connections::serve(listener, router, limits, &stopped) => {}
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

    /// Shows the questions and grants of a runtime until that is gone, with all of its workers.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn add_source(&self, source: ConsoleSource) {
        self.state.add_source(source);
    }

    /// The address of the page. It carries the secret by which a person is known: whoever has it answers questions.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Ends the console; questions stay as they are.
    pub async fn shutdown(mut self) {
        self.stop.cancel();
        // A console whose task panicked serves nothing either.
        let _ = (&mut self.serving).await;
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
