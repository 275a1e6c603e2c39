//! The WebSocket that relays messages between the page and the view.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use axum::routing::get;
use bailiwick_mcp::view::ViewChannel;
use futures_util::{SinkExt, StreamExt};
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::request_guard::{constant_time_eq, single_header};

/// The WebSocket subprotocol. The page requests it together with its token.
const PROTOCOL: &str = "bailiwick";
/// Slightly more than the largest message of a view.
const MAX_BYTES: usize = 11 << 20;
/// The timeout for sending a message to the page, and for closing the socket.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The state of the only socket of a view.
struct SocketState {
    token: String,
    /// Taken by the first socket. The view ends with that socket.
    link: Mutex<Option<ViewChannel>>,
    stop: CancellationToken,
}

/// The route of the socket for `link`. Requires `token`; `stop` closes the socket.
pub(crate) fn routes(link: ViewChannel, token: &str, stop: CancellationToken) -> Router {
    let state = SocketState {
        token: token.to_owned(),
        link: Mutex::new(Some(link)),
        stop,
    };
    Router::new()
        .route("/api/guest", get(upgrade_socket))
        .with_state(Arc::new(state))
}

impl SocketState {
    /// Rejects requests that are not from a page or lack the token. Scripts can set only the subprotocol header of a WebSocket.
    fn authorize(&self, headers: &HeaderMap) -> Result<(), (StatusCode, &'static str)> {
        // The value was checked before. Requests that are not from a page do not have this header.
        if !headers.contains_key(header::ORIGIN) {
            return Err((StatusCode::FORBIDDEN, "only pages can open this socket"));
        }
        let protocols = single_header(headers, &header::SEC_WEBSOCKET_PROTOCOL);
        let token = protocols
            .and_then(|protocols| {
                protocols
                    .strip_prefix(PROTOCOL.as_bytes())?
                    .strip_prefix(b",")
            })
            .unwrap_or_default();
        if !constant_time_eq(token.trim_ascii(), self.token.as_bytes()) {
            let reason = "the token of the page is required";
            return Err((StatusCode::UNAUTHORIZED, reason));
        }
        Ok(())
    }
}

async fn upgrade_socket(
    State(state): State<Arc<SocketState>>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> axum::response::Result<Response> {
    state.authorize(&headers)?;
    let upgrade = upgrade?
        .protocols([PROTOCOL])
        .max_message_size(MAX_BYTES)
        .max_frame_size(MAX_BYTES);
    let link = state.link.lock().await.take();
    let link = link.ok_or((StatusCode::CONFLICT, "the page already has a socket"))?;
    let stop = state.stop.clone();
    Ok(upgrade.on_upgrade(async move |socket| {
        stop.run_until_cancelled(relay(socket, link)).await;
    }))
}

/// Forwards messages in both directions, in order and with backpressure.
async fn relay(socket: WebSocket, mut link: ViewChannel) {
    let sender = link.sender();
    let (mut sink, mut stream) = socket.split();
    let from_page = async {
        while let Some(Ok(message)) = stream.next().await {
            match message {
                // This fails once the view is closed, and then the other direction ends, too.
                Message::Text(text) => drop(sender.send(text.as_str()).await),
                Message::Ping(_) | Message::Pong(_) => {}
                Message::Binary(_) | Message::Close(_) => break,
            }
        }
    };
    // True if the view is closed, false if the page does not read.
    let to_page = async {
        while let Some(text) = link.next().await {
            let sent = timeout(TIMEOUT, sink.send(Message::Text(text.into()))).await;
            if !matches!(sent, Ok(Ok(()))) {
                return false;
            }
        }
        true
    };
    tokio::pin!(from_page);
    let closed = tokio::select! {
        () = &mut from_page => false,
        closed = to_page => closed,
    };
    if closed {
        // Reads until the page closes its side, so that it receives all messages.
        let closing = async {
            let _ = sink.close().await;
            from_page.await;
        };
        let _ = timeout(TIMEOUT, closing).await;
    }
}
