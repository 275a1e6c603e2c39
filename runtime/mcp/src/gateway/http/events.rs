//! Decorates the messages in HTTP responses, which are one JSON body or an event stream.

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use serde_json::Value;

use super::body::{EVENT_STREAM, JSON, media_type};
use crate::gateway::decorate::Decorator;

/// Decorates the messages of a response.
pub(super) async fn decorate_response(
    State(decorator): State<Decorator>,
    response: Response,
) -> Response {
    let kind = media_type(response.headers());
    if kind == EVENT_STREAM {
        let (parts, body) = response.into_parts();
        let mut events = EventStreamDecorator::new(decorator);
        let stream = body
            .into_data_stream()
            .map(move |chunk| chunk.map(|bytes| events.push(&bytes)));
        return Response::from_parts(parts, Body::from_stream(stream));
    }
    if kind != JSON {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    match axum::body::to_bytes(body, usize::MAX).await {
        Ok(bytes) => {
            let body = decorate_message(&decorator, &bytes).map_or(bytes, Bytes::from);
            parts.headers.remove(header::CONTENT_LENGTH);
            Response::from_parts(parts, Body::from(body))
        }
        Err(error) => {
            tracing::warn!(%error, "an answer was cut off");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Whether a message may need decoration; it is not parsed for this.
fn may_decorate(decorator: &Decorator, text: &[u8]) -> bool {
    let contains_bytes = |marker: &[u8]| text.windows(marker.len()).any(|part| part == marker);
    let has_meta = contains_bytes(br#""_meta""#);
    (has_meta || decorator.has_schema()) && contains_bytes(br#""capabilities""#)
        || has_meta && (contains_bytes(br#""tools""#) || contains_bytes(br#""resources""#))
}

/// The decorated message; `None` if it needs no decoration.
fn decorate_message(decorator: &Decorator, text: &[u8]) -> Option<Vec<u8>> {
    if !may_decorate(decorator, text) {
        return None;
    }
    let message: Value = serde_json::from_slice(text).ok()?;
    decorator.encode(message).ok()
}

/// Decorates a stream of server-sent events line by line.
struct EventStreamDecorator {
    decorator: Decorator,
    rest: Vec<u8>,
}

impl EventStreamDecorator {
    fn new(decorator: Decorator) -> Self {
        Self {
            decorator,
            rest: Vec::new(),
        }
    }

    /// Returns the complete lines after `chunk`.
    fn push(&mut self, chunk: &[u8]) -> Bytes {
        self.rest.extend_from_slice(chunk);
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else {
            return Bytes::new();
        };
        let tail = self.rest.split_off(end + 1);
        let unsplit = std::mem::replace(&mut self.rest, tail);
        let mut out = Vec::with_capacity(unsplit.len());
        for line in unsplit.split_inclusive(|byte| *byte == b'\n') {
            let data = line.strip_prefix(b"data:").map(<[u8]>::trim_ascii);
            match data.and_then(|data| decorate_message(&self.decorator, data)) {
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
    fn events_are_decorated_in_any_chunks() {
        let event = concat!(
            "id: 1\n",
            r#"data: {"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"t","_meta":{"previews":true}}]}}"#,
            "\n\n: ping\n\n"
        );
        let mut unsplit = EventStreamDecorator::new(Decorator::default());
        let expected = unsplit.push(event.as_bytes());
        let text = std::str::from_utf8(&expected).unwrap();
        assert!(text.starts_with("id: 1\ndata: ") && text.ends_with("\n\n: ping\n\n"));
        assert!(text.contains(r#""annotations":{"preview":true}"#));
        for cut in 0..event.len() {
            let (head, tail) = event.as_bytes().split_at(cut);
            let mut events = EventStreamDecorator::new(Decorator::default());
            let pieces = [events.push(head), events.push(tail)].concat();
            assert_eq!(pieces, expected, "cut at {cut}");
        }
    }
}
