//! Reads and checks request bodies, within limits of size and time.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bailiwick_http::read_all;
use rmcp::model::ErrorData;
use tokio_util::sync::CancellationToken;

use super::batch;
use super::sessions::Sessions;
use crate::gateway::line_transport::LONG_MESSAGE;
use crate::gateway::message::{self, RejectedMessage};

/// Media types of Streamable HTTP.
pub(super) const JSON: &str = "application/json";
pub(super) const EVENT_STREAM: &str = "text/event-stream";

/// Limits of request bodies.
#[derive(Clone, Debug)]
pub(super) struct BodyLimits {
    pub(super) max_bytes: usize,
    pub(super) timeout: Duration,
    /// The sessions, which know whether a client may send batches.
    pub(super) sessions: Arc<Sessions>,
    /// Cancelled when the server shuts down.
    pub(super) stop: CancellationToken,
}

/// Reads the body and forwards the request; rejects bodies that are too slow, too large or not a message.
pub(super) async fn read(
    State(limits): State<BodyLimits>,
    request: Request,
    next: Next,
) -> Response {
    let (mut head, body) = request.into_parts();
    // Only POST requests have a message.
    let is_message = head.method == Method::POST;
    if is_message && !media_type(&head.headers).eq_ignore_ascii_case(JSON) {
        let reason = "Content-Type must be application/json".to_owned();
        return reject(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason);
    }
    let reading = tokio::time::timeout(limits.timeout, read_all(body, limits.max_bytes));
    let mut bytes = match reading.await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err((status, reason))) => return reject(status, reason),
        Err(_) => {
            let reason = "the body did not come in time".to_owned();
            return reject(StatusCode::REQUEST_TIMEOUT, reason);
        }
    };
    if is_message && message::is_batch(&bytes) {
        return batch::answer(&limits.sessions, head, bytes, next).await;
    }
    if is_message {
        match check(&bytes).await {
            Ok(None) => {}
            Ok(Some(repaired)) => {
                head.headers.remove(header::CONTENT_LENGTH);
                bytes = repaired.into();
            }
            Err(rejected) => return json_error(StatusCode::BAD_REQUEST, rejected),
        }
    }
    let message = bytes.clone();
    let response = forward(head, bytes, next).await;
    // The SDK ends requests on shutdown with an error in plain text.
    if response.status() == StatusCode::INTERNAL_SERVER_ERROR
        && limits.stop.is_cancelled()
        && let Some(id) = message::request_id(&message)
    {
        let reason = "the server is shutting down, so the request was cancelled";
        let error = ErrorData::internal_error(reason, None);
        let rejected = RejectedMessage::new(Some(id), error);
        return json_error(StatusCode::SERVICE_UNAVAILABLE, rejected);
    }
    response
}

/// Passes a message on to the SDK.
pub(super) async fn forward(head: Parts, bytes: Bytes, next: Next) -> Response {
    let is_long = bytes.len() >= LONG_MESSAGE;
    let response = next.run(Request::from_parts(head, Body::from(bytes)));
    if !is_long {
        return response.await;
    }
    // The SDK parses the body in the first poll, which takes about 100 ms for 4 MiB.
    let mut response = Box::pin(response);
    let waker = poll_fn(|context| Poll::Ready(context.waker().clone())).await;
    let polled_task = tokio::task::spawn_blocking(move || {
        let polled = response.as_mut().poll(&mut Context::from_waker(&waker));
        (response, polled)
    });
    match polled_task.await {
        Ok((_, Poll::Ready(response))) => response,
        Ok((response, Poll::Pending)) => response.await,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// The media type of a body without its parameters; empty if there is none.
pub(super) fn media_type(headers: &HeaderMap) -> &str {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim()
}

/// Rejects a request with an unread body, and closes the connection.
fn reject(status: StatusCode, reason: String) -> Response {
    let error = ErrorData::invalid_request(reason, None);
    let mut response = json_error(status, RejectedMessage::new(None, error));
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(header::CONNECTION, close);
    response
}

/// Checks a body. Returns replacement text if the body needs to be normalized.
async fn check(bytes: &Bytes) -> Result<Option<Vec<u8>>, RejectedMessage> {
    let text = bytes.clone();
    let checked = blocking(bytes.len(), move || message::check(&text, &mut 0)).await;
    checked.unwrap_or(Ok(None))
}

/// Runs `work` on a blocking thread if there are many `bytes`; `None` on shutdown.
pub(super) async fn blocking<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    if bytes < LONG_MESSAGE {
        return Some(work());
    }
    tokio::task::spawn_blocking(work).await.ok()
}

/// A JSON-RPC error response.
pub(super) fn json_error(status: StatusCode, rejected: RejectedMessage) -> Response {
    let kind = [(header::CONTENT_TYPE, JSON)];
    (status, kind, rejected.encode()).into_response()
}
