//! Serves a web page for trying an MCP server by hand.
//!
//! The page calls and previews tools, asks before it grants the scopes that a call lacks, shows the server's MCP Apps views in a
//! sandbox, runs the checks of [`check`](crate::check), and lists all messages. `bailiwick test-host` serves it.
//!
//! ```no_run
//! use bailiwick_cli::check::{Connection, Target};
//! use bailiwick_cli::test_host::TestHost;
//!
//! # async fn example() -> Result<(), bailiwick_cli::test_host::TestHostError> {
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! let host = TestHost::serve(listener, Target::command("node", ["server.js"]))?;
//! println!("{}", host.url());
//! host.connect(Connection::default()).await;
//! # host.shutdown().await;
//! # Ok(())
//! # }
//! ```

mod api;
mod session;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bailiwick_http::{ConnectionLimits, Token, host_names};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::check::{Connection, Target};
use session::Session;

/// The timeout for connecting to the server and listing its tools, and for all checks together.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The limits of connections to the page; a browser opens at most six per page.
const LIMITS: ConnectionLimits = ConnectionLimits {
    max_connections: 64,
    head_timeout: Duration::from_secs(10),
    authorization_timeout: Duration::from_secs(5),
};

/// Error of [`TestHost::serve`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TestHostError {
    /// The listener is reachable from other machines.
    #[error("`{0}` is not a loopback address")]
    NotLoopback(SocketAddr),
    /// The listener failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The operating system has no random bytes for the secret in the URL.
    #[error("cannot get random bytes from the operating system")]
    Random(#[source] io::Error),
}

/// A local web page for trying an MCP server. Dropping it stops the page and ends the server, if it was started.
#[derive(Debug)]
pub struct TestHost {
    session: Arc<Session>,
    url: String,
    serving: JoinHandle<()>,
}

impl TestHost {
    /// Serves the page on `listener`. It has no server until [`connect`](Self::connect) starts it or connects to it.
    ///
    /// # Errors
    /// [`TestHostError`] if the listener is not on a loopback address, or the operating system has no random bytes for the secret.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn serve(listener: TcpListener, target: Target) -> Result<Self, TestHostError> {
        let address = listener.local_addr()?;
        if !address.ip().is_loopback() {
            return Err(TestHostError::NotLoopback(address));
        }
        let token = Token::random().map_err(TestHostError::Random)?;
        let url = format!("http://{address}/#{}", token.reveal());
        let session = Arc::new(Session::new(target));
        let router = api::router(Arc::clone(&session), &host_names(address), token);
        let serving = tokio::spawn(async move {
            bailiwick_http::serve(listener, router, LIMITS, &CancellationToken::new()).await;
        });
        Ok(Self {
            session,
            url,
            serving,
        })
    }

    /// Connects to the server, which is started if it is a command. The page shows why this failed, and can try again.
    pub async fn connect(&self, connection: Connection) {
        self.session.connect(connection, TIMEOUT).await;
    }

    /// The URL of the page. The secret in its fragment is never part of a request.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Stops the page, closes the connection, and ends the server if it was started.
    pub async fn shutdown(self) {
        self.serving.abort();
        self.session.close().await;
    }
}

impl Drop for TestHost {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
