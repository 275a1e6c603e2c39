//! Serves a page on a loopback address that shows a view in a sandboxed frame and relays its messages over a WebSocket.
//!
//! The view ends when the socket closes. The token is in the fragment of the page's URL, which requests do not contain. The page
//! sends it in the `Authorization` header, and as a WebSocket subprotocol.

use axum::Router;
use axum::routing::{get, post};
use bailiwick_examples::BoxError;
use bailiwick_mcp::view::ViewChannel;
use bailiwick_ui::{SANDBOX, SANDBOX_POLICY};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::request_guard::{self, RequestGuard};
use super::socket;

const POLICY: &str = "default-src 'none'; script-src 'self'; connect-src 'self'; frame-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// A running page server. Dropping it closes the socket.
pub(crate) struct PageServer {
    pub(crate) url: String,
    serving: JoinHandle<()>,
    _stop: DropGuard,
}

impl Drop for PageServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Serves `html` as the view connected to `link`.
///
/// # Errors
/// If no port is free, or the system has no random numbers.
pub(crate) async fn serve(link: ViewChannel, html: String) -> Result<PageServer, BoxError> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let token = bailiwick_mcp::gateway::Token::random()?.reveal().to_owned();
    let guard = RequestGuard::new(address, &token);
    let stop = CancellationToken::new();
    let view_content = Router::new().route("/api/page", post(async || html));
    let relay = || async { request_guard::page(include_str!("relay.html"), POLICY) };
    let script = || async { request_guard::script(include_str!("relay.js")) };
    let sandbox = || async { request_guard::page(SANDBOX, SANDBOX_POLICY) };
    let routes = Router::new()
        .route("/", get(relay))
        .route("/relay.js", get(script))
        .route("/sandbox", get(sandbox))
        .merge(guard.require_token(view_content))
        .merge(socket::routes(link, &token, stop.clone()));
    let routes = guard.require_local(routes);
    let serving = tokio::spawn(async move {
        // Accepting connections does not return errors.
        let _ = axum::serve(listener, routes).await;
    });
    Ok(PageServer {
        url: format!("http://{address}/#{token}"),
        serving,
        _stop: stop.drop_guard(),
    })
}
