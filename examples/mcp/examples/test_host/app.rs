//! Serves the page, or prints the checks.

mod builtin;
mod callers;
mod cli;
mod door;

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bailiwick_cli::check::{self, Outcome, Session};
use bailiwick_examples::BoxError;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;

use cli::Mode;
pub(crate) use cli::Options;

/// How long a server may take to list what it has, and all checks together.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Does what the arguments say; whether all checks passed.
///
/// # Errors
/// What stands in the way of trying the server at all.
pub(crate) async fn run(
    arguments: Vec<String>,
    at_terminal: bool,
    out: &mut impl Write,
) -> Result<bool, BoxError> {
    let options = Options::read(arguments, at_terminal)?;
    match options.mode {
        Mode::Check { json } => check(options, json, out).await,
        Mode::Serve { .. } => {
            let serving = serve(options).await?;
            writeln!(out, "{}", serving.url())?;
            out.flush()?;
            let mut terminated = signal(SignalKind::terminate())?;
            tokio::select! {
                interrupted = tokio::signal::ctrl_c() => interrupted?,
                _ = terminated.recv() => {}
            }
            serving.shutdown().await;
            Ok(true)
        }
    }
}

async fn check(options: Options, json: bool, out: &mut impl Write) -> Result<bool, BoxError> {
    let endless = std::future::pending();
    let report = check::run(options.target, options.connection, PATIENCE, endless).await;
    let report = report.ok_or("the checks were interrupted")?;
    if json {
        writeln!(out, "{}", report.to_json())?;
    } else {
        writeln!(out, "{report}")?;
    }
    Ok(report.count(Outcome::Fail) == 0)
}

/// A page that is served.
pub(crate) struct Serving {
    address: SocketAddr,
    token: String,
    session: Arc<Session>,
    serving: JoinHandle<()>,
}

/// Serves the page for a server, which is connected to at once.
///
/// # Errors
/// If there is no such port, or the system gives no random bits.
pub(crate) async fn serve(options: Options) -> Result<Serving, BoxError> {
    let port = match options.mode {
        Mode::Serve { port } => port,
        Mode::Check { .. } => 0,
    };
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let address = listener.local_addr()?;
    let token = bailiwick::Token::random()?.reveal().to_owned();
    let session = Arc::new(Session::new(options.target).interactive());
    let router = door::router(Arc::clone(&session), address, &token);
    let serving = tokio::spawn(async move {
        // The listener is ours, and accepting never ends in an error.
        let _ = axum::serve(listener, router).await;
    });
    session.connect(options.connection, PATIENCE).await;
    Ok(Serving {
        address,
        token,
        session,
        serving,
    })
}

impl Serving {
    /// Where the page is. Whoever knows it may do what the page does: the token is in the fragment, which no request carries.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/#{}", self.address, self.token)
    }

    /// Ends the page and the server.
    pub(crate) async fn shutdown(self) {
        self.serving.abort();
        self.session.close().await;
    }
}
