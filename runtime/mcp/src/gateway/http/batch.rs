//! JSON-RPC batches over HTTP, in revision 2025-03-26 only.
//!
//! Each message is handled like a separate request, and the answers are sent as one array. Notifications about single
//! requests, such as progress, are dropped.

use axum::body::Bytes;
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use rmcp::model::{ErrorData, NumberOrString};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::task::JoinSet;

use super::body::{EVENT_STREAM, JSON, blocking, forward, json_error, media_type};
use super::sessions::Sessions;
use crate::gateway::message::{self, RejectedMessage};
use crate::gateway::requests::array;

/// The id and text of a message, or why it is rejected.
type BatchMessage = Result<(Option<NumberOrString>, Bytes), RejectedMessage>;

/// Handles a batch if the session accepts batches.
pub(super) async fn answer(sessions: &Sessions, head: Parts, body: Bytes, next: Next) -> Response {
    let session = head.headers.get("mcp-session-id");
    let session = session.and_then(|name| name.to_str().ok());
    let accepted = match session {
        Some(name) => sessions.batches(&name.into()),
        None => Some(false),
    };
    let messages = match accepted {
        Some(true) => blocking(body.len(), move || messages(&body)).await,
        Some(false) => Some(Err(RejectedMessage::batch())),
        None => {
            let error = ErrorData::invalid_request("there is no such session", None);
            return json_error(StatusCode::NOT_FOUND, RejectedMessage::new(None, error));
        }
    };
    let messages = match messages {
        Some(Ok(messages)) => messages,
        Some(Err(rejected)) => return json_error(StatusCode::BAD_REQUEST, rejected),
        None => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    };
    let mut tasks = JoinSet::new();
    let mut answers = Vec::new();
    for message in messages {
        match message {
            Ok((id, text)) => {
                let (mut head, next) = (head.clone(), next.clone());
                head.headers.remove(header::CONTENT_LENGTH);
                tasks.spawn(async move { answer_of(id, forward(head, text, next).await).await });
            }
            Err(rejected) => answers.push(rejected.encode()),
        }
    }
    while let Some(answered) = tasks.join_next().await {
        answers.extend(answered.ok().flatten());
    }
    if answers.is_empty() {
        return StatusCode::ACCEPTED.into_response();
    }
    let kind = [(header::CONTENT_TYPE, JSON)];
    (kind, array(&answers)).into_response()
}

fn messages(body: &Bytes) -> Result<Vec<BatchMessage>, RejectedMessage> {
    let mut values = 0;
    let texts = message::split(body)?.into_iter();
    let messages = texts.map(|text| {
        let repaired = message::check(text, &mut values)?;
        let repaired = repaired.map_or_else(|| body.slice_ref(text), Bytes::from);
        Ok((message::id(text), repaired))
    });
    Ok(messages.collect())
}

/// The answer in a response; `None` for notifications and cancelled requests.
async fn answer_of(id: Option<NumberOrString>, response: Response) -> Option<Vec<u8>> {
    let kind = media_type(response.headers()).to_owned();
    let body = axum::body::to_bytes(response.into_body(), usize::MAX).await;
    let body = body.unwrap_or_default();
    if kind == JSON {
        return Some(body.into());
    }
    if kind == EVENT_STREAM {
        let lines = body.split(|byte| *byte == b'\n');
        let mut texts = lines.filter_map(|line| line.strip_prefix(b"data:"));
        return texts.find(|text| is_answer(text)).map(<[u8]>::to_vec);
    }
    // The SDK rejects some requests in plain text.
    let reason = String::from_utf8_lossy(&body).into_owned();
    let error = ErrorData::invalid_request(reason, None);
    Some(RejectedMessage::new(Some(id?), error).encode())
}

fn is_answer(text: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Head {
        method: Option<IgnoredAny>,
    }
    serde_json::from_slice(text).is_ok_and(|head: Head| head.method.is_none())
}
