//! A request in, handed on once all of its body is there, within bounds of length and time, and no object in it has a
//! key twice.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use futures_util::StreamExt;
use rmcp::ErrorData;
use rmcp::model::JsonRpcError;

use crate::gateway::unique;

/// How much a client may send, and how long that may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) bytes: usize,
    pub(super) time: Duration,
}

/// Hands a request on with its whole body; a client that trickles it, sends too much or says a key twice is refused.
pub(super) async fn read(State(bounds): State<Bounds>, request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    let reading = tokio::time::timeout(bounds.time, whole(body, bounds.bytes));
    let refusal = match reading.await {
        Ok(Ok(bytes)) => {
            return match unique::refused(&bytes) {
                None => next.run(Request::from_parts(head, Body::from(bytes))).await,
                Some(error) => no_message(error),
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

/// The answer to a body that is no message; it names no request, since that is read from the body, too.
fn no_message(error: ErrorData) -> Response {
    match serde_json::to_vec(&JsonRpcError::new(None, error)) {
        Ok(text) => {
            let kind = [(header::CONTENT_TYPE, "application/json")];
            (StatusCode::BAD_REQUEST, kind, text).into_response()
        }
        Err(_) => StatusCode::BAD_REQUEST.into_response(),
    }
}
