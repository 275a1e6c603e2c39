//! A loopback listener in, Streamable HTTP for the gateway's worker out: who may speak is checked before what is said.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::Gateway;
use super::decorate::decorate;
use super::token::Token;

/// The longest request a client may send by default, in bytes.
const MAX_BODY: usize = 4 << 20;

/// How long requests under way may take to end once the server is to stop.
const GRACE: Duration = Duration::from_secs(3);

/// Why nothing is served over HTTP.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// The listener can be reached from other machines.
    #[error("{0} is no loopback address; other machines are not served")]
    NotLoopback(SocketAddr),
    /// The listener failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Who may speak to a gateway over HTTP.
#[derive(Clone, Debug)]
pub struct Http {
    token: Option<Token>,
    origins: Vec<String>,
    max_body: usize,
}

impl Default for Http {
    fn default() -> Self {
        Self {
            token: None,
            origins: Vec::new(),
            max_body: MAX_BODY,
        }
    }
}

impl Http {
    /// Serves whoever reaches the address; other origins than the server's own are refused all the same.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Serves only requests that carry `token` as bearer.
    #[must_use]
    pub fn token(mut self, token: Token) -> Self {
        self.token = Some(token);
        self
    }

    /// Lets pages of `origin` speak to the server, too, such as `http://localhost:5173`.
    #[must_use]
    pub fn origin(mut self, origin: impl Into<String>) -> Self {
        self.origins.push(origin.into());
        self
    }

    /// Sets the longest request, in bytes (4 MiB by default).
    #[must_use]
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.max_body = bytes;
        self
    }
}

impl Gateway {
    /// Serves clients over Streamable HTTP at `/mcp` until `stop` is cancelled.
    ///
    /// # Errors
    /// [`HttpError`] if the listener is no loopback address, or fails.
    pub async fn serve_http(
        &self,
        listener: TcpListener,
        http: Http,
        stop: CancellationToken,
    ) -> Result<(), HttpError> {
        self.serve_dressed(listener, http, stop, |gateway| gateway)
            .await
    }

    /// The same for a handler around this gateway, such as one with the fixtures of a conformance suite.
    #[cfg(feature = "conformance")]
    #[doc(hidden)]
    pub async fn serve_http_dressed<S: ServerHandler>(
        &self,
        listener: TcpListener,
        http: Http,
        stop: CancellationToken,
        dress: impl Fn(Self) -> S + Send + Sync + 'static,
    ) -> Result<(), HttpError> {
        self.serve_dressed(listener, http, stop, dress).await
    }

    async fn serve_dressed<S: ServerHandler>(
        &self,
        listener: TcpListener,
        http: Http,
        stop: CancellationToken,
        dress: impl Fn(Self) -> S + Send + Sync + 'static,
    ) -> Result<(), HttpError> {
        let address = listener.local_addr()?;
        if !address.ip().is_loopback() {
            return Err(HttpError::NotLoopback(address));
        }
        let router = self.router(&http, address, &stop, dress);
        let serving = axum::serve(listener, router)
            .with_graceful_shutdown(stop.clone().cancelled_owned())
            .into_future();
        let out_of_patience = async {
            stop.cancelled().await;
            tokio::time::sleep(GRACE).await;
        };
        // A client that never ends its request must not keep the server, nor what is still to be recorded.
        let served = tokio::select! {
            served = serving => served,
            () = out_of_patience => Ok(()),
        };
        self.settle().await;
        Ok(served?)
    }

    fn router<S: ServerHandler>(
        &self,
        http: &Http,
        address: SocketAddr,
        stop: &CancellationToken,
        dress: impl Fn(Self) -> S + Send + Sync + 'static,
    ) -> Router {
        let own = hosts(address);
        let origins = own.iter().map(|host| format!("http://{host}"));
        let config = StreamableHttpServerConfig::default()
            .with_allowed_hosts(own.clone())
            .with_allowed_origins(origins.chain(http.origins.iter().cloned()))
            .enforce_origin_validation()
            .with_max_request_body_bytes(http.max_body)
            .with_cancellation_token(stop.child_token());
        let gateway = self.clone();
        let service = StreamableHttpService::new(
            move || Ok(dress(gateway.request())),
            Arc::new(LocalSessionManager::default()),
            config,
        );
        Router::new()
            .route_service("/mcp", service)
            .layer(middleware::map_response(decorated))
            .layer(middleware::from_fn_with_state(
                Arc::new(http.token.clone()),
                authorized,
            ))
    }
}

/// The names by which a client on this machine reaches `address`.
fn hosts(address: SocketAddr) -> Vec<String> {
    let port = address.port();
    let literal = match address.ip() {
        IpAddr::V4(ip) => format!("{ip}:{port}"),
        IpAddr::V6(ip) => format!("[{ip}]:{port}"),
    };
    vec![
        literal,
        format!("localhost:{port}"),
        format!("127.0.0.1:{port}"),
        format!("[::1]:{port}"),
    ]
}

/// Lets a request through if it carries the token; without one everybody is let through.
async fn authorized(
    State(token): State<Arc<Option<Token>>>,
    request: Request,
    next: Next,
) -> Response {
    match &*token {
        Some(token) if !carries(request.headers(), token) => (
            StatusCode::UNAUTHORIZED,
            [(header::WWW_AUTHENTICATE, "Bearer")],
            "a bearer token is required",
        )
            .into_response(),
        _ => next.run(request).await,
    }
}

fn carries(headers: &HeaderMap, token: &Token) -> bool {
    let value = headers.get(header::AUTHORIZATION);
    let value = value.and_then(|value| value.to_str().ok());
    let given = value.and_then(|value| {
        let (scheme, given) = value.split_once(' ')?;
        scheme
            .eq_ignore_ascii_case("bearer")
            .then_some(given.trim())
    });
    given.is_some_and(|given| token.is(given))
}

/// Decorates the messages of a response, be it one JSON body or a stream of events.
async fn decorated(response: Response) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.starts_with("text/event-stream") {
        let (parts, body) = response.into_parts();
        let mut events = Events::default();
        let stream = body
            .into_data_stream()
            .map(move |chunk| chunk.map(|bytes| events.push(&bytes)));
        return Response::from_parts(parts, Body::from_stream(stream));
    }
    if !kind.starts_with("application/json") {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    match axum::body::to_bytes(body, usize::MAX).await {
        Ok(bytes) => {
            let body = message(&bytes).map_or(bytes, Bytes::from);
            parts.headers.remove(header::CONTENT_LENGTH);
            Response::from_parts(parts, Body::from(body))
        }
        Err(error) => {
            tracing::warn!(%error, "an answer was cut off");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Whether a message is of a kind that is decorated; what it says is not parsed for that.
fn may_decorate(text: &[u8]) -> bool {
    let says = |marker: &[u8]| text.windows(marker.len()).any(|part| part == marker);
    says(br#""_meta""#)
        && (says(br#""tools""#) || says(br#""resources""#) || says(br#""capabilities""#))
}

/// A message decorated; none if there is nothing to decorate.
fn message(text: &[u8]) -> Option<Vec<u8>> {
    if !may_decorate(text) {
        return None;
    }
    let mut message: Value = serde_json::from_slice(text).ok()?;
    decorate(&mut message);
    serde_json::to_vec(&message).ok()
}

/// A stream of server-sent events, cut into lines.
#[derive(Default)]
struct Events {
    rest: Vec<u8>,
}

impl Events {
    /// What can be passed on now that `chunk` came: whole lines.
    fn push(&mut self, chunk: &[u8]) -> Bytes {
        self.rest.extend_from_slice(chunk);
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else {
            return Bytes::new();
        };
        let tail = self.rest.split_off(end + 1);
        let whole = std::mem::replace(&mut self.rest, tail);
        let mut out = Vec::with_capacity(whole.len());
        for line in whole.split_inclusive(|byte| *byte == b'\n') {
            let data = line.strip_prefix(b"data:").map(<[u8]>::trim_ascii);
            match data.and_then(message) {
                Some(message) => {
                    out.extend_from_slice(b"data: ");
                    out.extend_from_slice(&message);
                    out.push(b'\n');
                }
                None => out.extend_from_slice(line),
            }
        }
        out.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_decorated_wherever_they_are_cut() {
        let event = concat!(
            "id: 1\n",
            r#"data: {"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"t","_meta":{"preview":true}}]}}"#,
            "\n\n: ping\n\n"
        );
        let mut whole = Events::default();
        let expected = whole.push(event.as_bytes());
        let text = std::str::from_utf8(&expected).unwrap();
        assert!(text.starts_with("id: 1\ndata: ") && text.ends_with("\n\n: ping\n\n"));
        assert!(text.contains(r#""annotations":{"preview":true}"#));
        for cut in 0..event.len() {
            let (head, tail) = event.as_bytes().split_at(cut);
            let mut events = Events::default();
            let pieces = [events.push(head), events.push(tail)].concat();
            assert_eq!(pieces, expected, "cut at {cut}");
        }
    }

    #[test]
    fn only_the_very_token_is_carried() {
        let token = Token::random().unwrap();
        let with = |value: String| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            headers
        };
        assert!(carries(&with(format!("Bearer {}", token.reveal())), &token));
        assert!(carries(&with(format!("bearer {}", token.reveal())), &token));
        for wrong in ["Bearer", "Bearer ", "Basic x", "Bearer x"] {
            assert!(!carries(&with(wrong.into()), &token));
        }
        assert!(!carries(&HeaderMap::new(), &token));
    }
}
