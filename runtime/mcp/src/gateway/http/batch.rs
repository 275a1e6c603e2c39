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
use crate::gateway::requests::{CollectedAnswers, MAX_COLLECTED_BYTES, too_many_bytes};

/// The text of a message, with its id if it is a request, or why it is rejected.
type BatchMessage = Result<(Option<NumberOrString>, Bytes), RejectedMessage>;

/// Handles a batch if the session accepts batches.
pub(super) async fn answer(sessions: &Sessions, head: Parts, body: Bytes, next: Next) -> Response {
    let session = head.headers.get("mcp-session-id");
    let session = session.and_then(|name| name.to_str().ok());
    let open = session.map(|name| sessions.open(&name.into()));
    let open = match open {
        Some(Some(open)) if open.batches() => open,
        Some(Some(_)) | None => {
            return json_error(StatusCode::BAD_REQUEST, RejectedMessage::batch());
        }
        Some(None) => {
            let error = ErrorData::invalid_request("there is no such session", None);
            return json_error(StatusCode::NOT_FOUND, RejectedMessage::new(None, error));
        }
    };
    let mut answers = open.collect();
    // A session whose client ends it must not be kept.
    drop(open);
    let messages = match blocking(body.len(), move || messages(&body)).await {
        Some(Ok(messages)) => messages,
        Some(Err(rejected)) => return json_error(StatusCode::BAD_REQUEST, rejected),
        None => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    };
    let mut tasks = JoinSet::new();
    for message in messages {
        match message {
            Ok((id, text)) => {
                let (mut head, next) = (head.clone(), next.clone());
                head.headers.remove(header::CONTENT_LENGTH);
                tasks.spawn(async move {
                    let response = forward(head, text, next).await;
                    let answer = answer_of(id.clone(), response).await;
                    (id, answer)
                });
            }
            Err(rejected) => answers.add(rejected.id.clone(), rejected.encode()),
        }
    }
    while let Some(answered) = tasks.join_next().await {
        if let Ok((id, Some(answer))) = answered {
            answers.add(id, answer);
        }
    }
    let Some(text) = answers.take_array() else {
        return StatusCode::ACCEPTED.into_response();
    };
    let body = Bytes::from_owner(SentAnswers {
        text,
        _answers: answers,
    });
    ([(header::CONTENT_TYPE, JSON)], body).into_response()
}

/// The text of a response, which counts toward the limits of the session until it is written.
struct SentAnswers {
    text: Vec<u8>,
    _answers: CollectedAnswers,
}

impl AsRef<[u8]> for SentAnswers {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

fn messages(body: &Bytes) -> Result<Vec<BatchMessage>, RejectedMessage> {
    let mut values = 0;
    let texts = message::split(body)?.into_iter();
    let messages = texts.map(|text| {
        let repaired = message::check(text, &mut values)?;
        let repaired = repaired.map_or_else(|| body.slice_ref(text), Bytes::from);
        Ok((message::request_id(text), repaired))
    });
    Ok(messages.collect())
}

/// The answer in a response to the request `id`; `None` for cancelled requests and for other messages.
async fn answer_of(id: Option<NumberOrString>, response: Response) -> Option<Vec<u8>> {
    let kind = media_type(response.headers()).to_owned();
    let Ok(body) = axum::body::to_bytes(response.into_body(), MAX_COLLECTED_BYTES).await else {
        return Some(too_many_bytes(Some(id?)).encode());
    };
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
