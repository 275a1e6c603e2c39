//! A request for the guest's socket in, its messages to and from the view out, until one of the two ends.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use axum::routing::get;
use bailiwick::ViewChannel;
use futures_util::{SinkExt, StreamExt};
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::callers::{same, single};

/// What is spoken; a page asks for it, and for its token as if that were another.
const PROTOCOL: &str = "bailiwick";
/// A little more than a message may have.
const MOST_BYTES: usize = 11 << 20;
/// How long a page may take to take a message in, and to answer that its socket is closed.
const PATIENCE: Duration = Duration::from_secs(30);

/// The place of the one socket that a guest has.
struct Seat {
    token: String,
    /// There until a socket has it; the view ends with that socket.
    link: Mutex<Option<ViewChannel>>,
    over: CancellationToken,
}

/// A socket for the page that knows `token`, which is the guest behind `link`, until that is `over`.
pub(crate) fn routes(link: ViewChannel, token: &str, over: CancellationToken) -> Router {
    let seat = Seat {
        token: token.to_owned(),
        link: Mutex::new(Some(link)),
        over,
    };
    Router::new()
        .route("/api/guest", get(sit))
        .with_state(Arc::new(seat))
}

impl Seat {
    /// Turns away who is no page, or does not know the token. A script can set no header of a socket but the protocols.
    fn admit(&self, headers: &HeaderMap) -> Result<(), (StatusCode, &'static str)> {
        // Whose page it is was looked at before; what is no page does not say.
        if !headers.contains_key(header::ORIGIN) {
            return Err((StatusCode::FORBIDDEN, "only a page has this socket"));
        }
        let asked = single(headers, &header::SEC_WEBSOCKET_PROTOCOL);
        let given = asked
            .and_then(|asked| asked.strip_prefix(PROTOCOL.as_bytes())?.strip_prefix(b","))
            .unwrap_or_default();
        if !same(given.trim_ascii(), self.token.as_bytes()) {
            let reason = "the token of this page is required";
            return Err((StatusCode::UNAUTHORIZED, reason));
        }
        Ok(())
    }
}

async fn sit(
    State(seat): State<Arc<Seat>>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> axum::response::Result<Response> {
    seat.admit(&headers)?;
    let upgrade = upgrade?
        .protocols([PROTOCOL])
        .max_message_size(MOST_BYTES)
        .max_frame_size(MOST_BYTES);
    let link = seat.link.lock().await.take();
    let link = link.ok_or((StatusCode::CONFLICT, "this page has its socket"))?;
    let over = seat.over.clone();
    Ok(upgrade.on_upgrade(async move |socket| {
        over.run_until_cancelled(carry(socket, link)).await;
    }))
}

/// Carries the messages, on each way in order and only as fast as they are taken in at its end.
async fn carry(socket: WebSocket, mut link: ViewChannel) {
    let sender = link.sender();
    let (mut to, mut from) = socket.split();
    let said = async {
        while let Some(Ok(message)) = from.next().await {
            match message {
                // Once the view is closed nobody hears it, and the other way comes to its end.
                Message::Text(text) => drop(sender.send(text.as_str()).await),
                Message::Ping(_) | Message::Pong(_) => {}
                Message::Binary(_) | Message::Close(_) => break,
            }
        }
    };
    // True once the view is closed, false if the page takes nothing in.
    let told = async {
        while let Some(text) = link.next().await {
            let sent = timeout(PATIENCE, to.send(Message::Text(text.into()))).await;
            if !matches!(sent, Ok(Ok(()))) {
                return false;
            }
        }
        true
    };
    tokio::pin!(said);
    let closed = tokio::select! {
        () = &mut said => false,
        closed = told => closed,
    };
    if closed {
        // What the page still says is taken in until it answers, so that it reads all that it was told; if it is there.
        let parting = async {
            let _ = to.close().await;
            said.await;
        };
        let _ = timeout(PATIENCE, parting).await;
    }
}
