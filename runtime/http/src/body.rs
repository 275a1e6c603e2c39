//! Reads request bodies within a limit.

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use bytes::BytesMut;
use futures_util::StreamExt;

/// Reads a body of at most `max` bytes.
///
/// # Errors
/// The status of the response, and the reason.
pub async fn read_all(body: Body, max: usize) -> Result<Bytes, (StatusCode, String)> {
    let mut chunks = body.into_data_stream();
    let mut all = BytesMut::new();
    while let Some(chunk) = chunks.next().await {
        let Ok(chunk) = chunk else {
            return Err((StatusCode::BAD_REQUEST, "the body was cut off".to_owned()));
        };
        if chunk.len() > max.saturating_sub(all.len()) {
            let reason = format!("the body has more than {max} bytes");
            return Err((StatusCode::PAYLOAD_TOO_LARGE, reason));
        }
        all.extend_from_slice(&chunk);
    }
    Ok(all.freeze())
}
