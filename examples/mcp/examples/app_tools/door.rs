//! A guest's end of a view in, a page on loopback that puts the guest into a frame and carries its messages out.
//!
//! It carries them by one socket, and the view ends with it. The token is in no address that is asked for: the page has it
//! from the fragment of its own, shows it in a header to get the guest, and as one of the protocols to get the socket.

use axum::Router;
use axum::routing::{get, post};
use bailiwick::GuestLink;
use bailiwick_examples::BoxError;
use bailiwick_ui::{SANDBOX, SANDBOX_POLICY};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::callers::{self, Callers};
use super::socket;

const POLICY: &str = "default-src 'none'; script-src 'self'; connect-src 'self'; frame-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// A page that is served; its socket ends with it.
pub(crate) struct Door {
    pub(crate) url: String,
    serving: JoinHandle<()>,
    _over: DropGuard,
}

impl Drop for Door {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Serves `html` as the guest behind `link`.
///
/// # Errors
/// If there is no port, or the system gives no random bits.
pub(crate) async fn open(link: GuestLink, html: String) -> Result<Door, BoxError> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let token = bailiwick::Token::random()?.reveal().to_owned();
    let callers = Callers::new(address, &token);
    let over = CancellationToken::new();
    let guest = Router::new().route("/api/page", post(async || html));
    let relay = || async { callers::page(include_str!("relay.html"), POLICY) };
    let script = || async { callers::script(include_str!("relay.js")) };
    let sandbox = || async { callers::page(SANDBOX, SANDBOX_POLICY) };
    let all = Router::new()
        .route("/", get(relay))
        .route("/relay.js", get(script))
        .route("/sandbox", get(sandbox))
        .merge(callers.trusted(guest))
        .merge(socket::routes(link, &token, over.clone()));
    let all = callers.local(all);
    let serving = tokio::spawn(async move {
        // The listener is ours, and accepting never ends in an error.
        let _ = axum::serve(listener, all).await;
    });
    Ok(Door {
        url: format!("http://{address}/#{token}"),
        serving,
        _over: over.drop_guard(),
    })
}
