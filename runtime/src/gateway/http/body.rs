//! Bodies of requests: read whole, within bounds of length and time, and checked as lines are.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use futures_util::StreamExt;
use rmcp::model::JsonRpcError;

use crate::gateway::lines::LONG;
use crate::gateway::message::{self, Rejected};

/// How much a client may send, and how long that may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) bytes: usize,
    pub(super) time: Duration,
}

/// Hands a request on with its whole body; a client that trickles it, sends too much or no message is refused.
pub(super) async fn read(State(bounds): State<Bounds>, request: Request, next: Next) -> Response {
    let (mut head, body) = request.into_parts();
    let reading = tokio::time::timeout(bounds.time, whole(body, bounds.bytes));
    let refusal = match reading.await {
        Ok(Ok(bytes)) => {
            // Only a POST has a message.
            let checked = match head.method {
                Method::POST => checked(bytes).await,
                _ => Ok((bytes, false)),
            };
            return match checked {
                Ok((bytes, changed)) => {
                    if changed {
                        head.headers.remove(header::CONTENT_LENGTH);
                    }
                    next.run(Request::from_parts(head, Body::from(bytes))).await
                }
                Err(rejected) => refused(rejected),
            };
        }
        Ok(Err(refusal)) => refusal,
        Err(_) => (
            StatusCode::REQUEST_TIMEOUT,
            "the body did not come in time".to_owned(),
        ),
    };
    // The rest of the body is not read, so nothing else can follow on this connection.
    (refusal.0, [(header::CONNECTION, "close")], refusal.1).into_response()
}

/// A body that may be a message, and whether it is another than was sent.
async fn checked(bytes: Bytes) -> Result<(Bytes, bool), Rejected> {
    let repaired = if bytes.len() < LONG {
        message::repaired(&bytes)?
    } else {
        let long = bytes.clone();
        let checking = tokio::task::spawn_blocking(move || message::repaired(&long));
        // It neither panics nor is aborted but with the whole process.
        checking.await.unwrap_or(Ok(None))?
    };
    let changed = repaired.is_some();
    Ok((repaired.map_or(bytes, Bytes::from), changed))
}

/// The whole body, if it has no more than `most` bytes.
pub(crate) async fn whole(body: Body, most: usize) -> Result<Bytes, (StatusCode, String)> {
    let mut chunks = body.into_data_stream();
    let mut all = BytesMut::new();
    while let Some(chunk) = chunks.next().await {
        let Ok(chunk) = chunk else {
            return Err((StatusCode::BAD_REQUEST, "the body was cut off".to_owned()));
        };
        if chunk.len() > most.saturating_sub(all.len()) {
            let reason = format!("the body has more than {most} bytes");
            return Err((StatusCode::PAYLOAD_TOO_LARGE, reason));
        }
        all.extend_from_slice(&chunk);
    }
    Ok(all.freeze())
}

/// The answer to a body that is not a message.
fn refused(Rejected { id, error }: Rejected) -> Response {
    match serde_json::to_vec(&JsonRpcError::new(id, *error)) {
        Ok(text) => {
            let kind = [(header::CONTENT_TYPE, "application/json")];
            (StatusCode::BAD_REQUEST, kind, text).into_response()
        }
        Err(_) => StatusCode::BAD_REQUEST.into_response(),
    }
}
