//! Serves the page, or prints the checks.

mod api;
mod builtin;
mod cli;
mod request_guard;
mod session;

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bailiwick_cli::check::{self, Outcome};
use bailiwick_examples::BoxError;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;

use cli::Mode;
pub(crate) use cli::Options;
use session::Session;

/// The timeout for connecting to a server and listing its tools, and for all checks together.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);

/// Runs the command line; returns `false` if a check failed.
///
/// # Errors
/// If the arguments are invalid or the page cannot be served.
pub(crate) async fn run(
    arguments: Vec<String>,
    at_terminal: bool,
    out: &mut impl Write,
) -> Result<bool, BoxError> {
    let options = Options::parse(arguments, at_terminal)?;
    match options.mode {
        Mode::Check { json } => check(options, json, out).await,
        Mode::Serve { .. } => {
            let host = serve(options).await?;
            writeln!(out, "{}", host.url())?;
            out.flush()?;
            let mut terminated = signal(SignalKind::terminate())?;
            tokio::select! {
                interrupted = tokio::signal::ctrl_c() => interrupted?,
                _ = terminated.recv() => {}
            }
            host.shutdown().await;
            Ok(true)
        }
    }
}

async fn check(options: Options, json: bool, out: &mut impl Write) -> Result<bool, BoxError> {
    let never = std::future::pending();
    let report = check::run(options.target, options.connection, TIMEOUT, never).await;
    let report = report.ok_or("the checks were interrupted")?;
    if json {
        writeln!(out, "{}", report.to_json())?;
    } else {
        writeln!(out, "{report}")?;
    }
    Ok(report.count(Outcome::Fail) == 0)
}

/// A running test host.
pub(crate) struct TestHost {
    address: SocketAddr,
    token: String,
    session: Arc<Session>,
    server: JoinHandle<()>,
}

/// Connects to the server and serves the page.
///
/// # Errors
/// If the port is not available, or the system has no random numbers.
pub(crate) async fn serve(options: Options) -> Result<TestHost, BoxError> {
    let port = match options.mode {
        Mode::Serve { port } => port,
        Mode::Check { .. } => 0,
    };
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let address = listener.local_addr()?;
    let token = bailiwick_mcp::gateway::Token::random()?.reveal().to_owned();
    let session = Arc::new(Session::new(options.target));
    let router = api::router(Arc::clone(&session), address, &token);
    let server = tokio::spawn(async move {
        // Accepting connections does not return errors.
        let _ = axum::serve(listener, router).await;
    });
    session.connect(options.connection, TIMEOUT).await;
    Ok(TestHost {
        address,
        token,
        session,
        server,
    })
}

impl TestHost {
    /// The URL of the page, with the token in its fragment, which requests do not contain.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/#{}", self.address, self.token)
    }

    /// Stops the page and ends the server.
    pub(crate) async fn shutdown(self) {
        self.server.abort();
        self.session.close().await;
    }
}
