//! A guest's end of a view in, a page on loopback that puts the guest into a frame and carries its messages out.
//!
//! It carries them by requests, and not by a socket: those can show the token in a header, where no log and no other page
//! has it, and need no further crate.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bailiwick::{GuestEar, GuestLink};
use bailiwick_examples::Failure;
use bailiwick_ui::{SANDBOX, SANDBOX_POLICY};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::callers::{self, Callers};

const POLICY: &str = "default-src 'none'; script-src 'self'; connect-src 'self'; frame-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";
/// A little more than a message may have.
const MOST_BYTES: usize = 11 << 20;
/// How long a request for messages waits for one.
const POLL: Duration = Duration::from_secs(20);
/// How many messages one answer holds.
const MOST_AT_ONCE: usize = 64;

struct Guest {
    html: String,
    ear: GuestEar,
    link: Mutex<GuestLink>,
}

/// A page that is served.
pub(crate) struct Door {
    pub(crate) url: String,
    serving: JoinHandle<()>,
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
pub(crate) async fn open(link: GuestLink, html: String) -> Result<Door, Failure> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let token = bailiwick::Token::random()?.reveal().to_owned();
    let callers = Callers::new(address, &token);
    let guest = Guest {
        html,
        ear: link.ear(),
        link: Mutex::new(link),
    };
    let api = Router::new()
        .route("/api/page", post(page))
        .route("/api/said", post(said))
        .route("/api/heard", post(heard));
    let api = callers.trusted(api.with_state(Arc::new(guest)));
    let relay = || async { callers::page(include_str!("relay.html"), POLICY) };
    let script = || async { callers::script(include_str!("relay.js")) };
    let sandbox = || async { callers::page(SANDBOX, SANDBOX_POLICY) };
    let all = Router::new()
        .route("/", get(relay))
        .route("/relay.js", get(script))
        .route("/sandbox", get(sandbox))
        .merge(api)
        .layer(DefaultBodyLimit::max(MOST_BYTES));
    let all = callers.local(all);
    let serving = tokio::spawn(async move {
        // The listener is ours, and accepting never ends in an error.
        let _ = axum::serve(listener, all).await;
    });
    let url = format!("http://{address}/#{token}");
    Ok(Door { url, serving })
}

async fn page(State(guest): State<Arc<Guest>>) -> String {
    guest.html.clone()
}

/// Passes a message of the guest on, as it stands.
async fn said(State(guest): State<Arc<Guest>>, message: String) -> StatusCode {
    if guest.ear.hear(message).await {
        StatusCode::NO_CONTENT
    } else {
        StatusCode::GONE
    }
}

/// The next messages for the guest, and whether there may be more.
async fn heard(State(guest): State<Arc<Guest>>) -> Response {
    let mut link = guest.link.lock().await;
    let mut messages = Vec::new();
    let mut open = true;
    let mut patience = POLL;
    while let Ok(next) = timeout(patience, link.next()).await {
        let Some(message) = next else {
            open = false;
            break;
        };
        messages.push(message);
        if messages.len() >= MOST_AT_ONCE {
            break;
        }
        patience = Duration::ZERO;
    }
    let kind = [(header::CONTENT_TYPE, "application/json")];
    let answer = json!({"messages": messages, "open": open});
    (kind, answer.to_string()).into_response()
}
