//! JSON-RPC messages of MCP Apps.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub(super) const INVALID_REQUEST: i64 = -32600;
pub(super) const METHOD_NOT_FOUND: i64 = -32601;
pub(super) const INVALID_PARAMS: i64 = -32602;
pub(super) const INTERNAL: i64 = -32603;
/// The state of the view or of its host does not allow the request.
pub(super) const REFUSED: i64 = -32000;

/// The longest id of a request, in bytes.
const MAX_ID_BYTES: usize = 128;

pub(super) type Fields = Map<String, Value>;

/// The id of a request of the page.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(untagged)]
pub(super) enum Id {
    Number(i64),
    Text(Box<str>),
}

impl Id {
    pub(super) fn read(value: &Value) -> Option<Self> {
        match value {
            Value::Number(number) => number.as_i64().map(Self::Number),
            Value::String(text) if text.len() <= MAX_ID_BYTES => {
                Some(Self::Text(text.as_str().into()))
            }
            _ => None,
        }
    }
}

/// A JSON-RPC error.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct RpcError {
    pub(super) code: i64,
    pub(super) message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) data: Option<Value>,
}

impl RpcError {
    pub(super) fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }
}

/// A message of the page.
#[derive(Debug, PartialEq)]
pub(super) enum Message {
    Request {
        id: Id,
        method: String,
        params: Fields,
    },
    /// An invalid request, which is answered with this error.
    Invalid {
        id: Id,
        error: RpcError,
    },
    Notification {
        method: String,
        params: Fields,
    },
    /// The response to one of our requests.
    Response {
        id: u64,
        result: Result<Fields, RpcError>,
    },
}

/// The fields that identify a message; the others are ignored.
#[derive(Deserialize)]
struct Envelope {
    #[serde(default)]
    jsonrpc: Value,
    id: Option<Value>,
    #[serde(default)]
    method: Value,
}

/// Parses a message of at most `limit` bytes; `None` if it is not JSON-RPC 2.0. A longer request or response is
/// converted into an error with its id.
pub(super) fn read(text: &str, limit: usize) -> Option<Message> {
    if text.len() <= limit {
        return parse_value(serde_json::from_str(text).ok()?);
    }
    let envelope: Envelope = serde_json::from_str(text).ok()?;
    if envelope.jsonrpc != "2.0" {
        return None;
    }
    let error = RpcError::new(
        INVALID_REQUEST,
        format!("a message has at most {limit} bytes"),
    );
    let id = envelope.id?;
    if envelope.method.is_string() {
        let id = Id::read(&id)?;
        return Some(Message::Invalid { id, error });
    }
    let id = id.as_u64()?;
    let result = Err(error);
    Some(Message::Response { id, result })
}

fn parse_value(message: Value) -> Option<Message> {
    let Value::Object(mut message) = message else {
        return None;
    };
    if message.get("jsonrpc")? != "2.0" {
        return None;
    }
    let id = message.remove("id");
    let Some(method) = message.remove("method") else {
        let id = id?.as_u64()?;
        let result = match (message.remove("result"), message.remove("error")) {
            (Some(Value::Object(result)), None) => Ok(result),
            (None, Some(error)) => Err(rpc_error(&error)),
            _ => return None,
        };
        return Some(Message::Response { id, result });
    };
    let Value::String(method) = method else {
        return None;
    };
    let params = match message.remove("params") {
        None | Some(Value::Null) => Ok(Fields::new()),
        Some(Value::Object(params)) => Ok(params),
        Some(_) => Err(RpcError::new(INVALID_PARAMS, "`params` must be an object")),
    };
    let Some(id) = id else {
        let params = params.ok()?;
        return Some(Message::Notification { method, params });
    };
    let id = Id::read(&id)?;
    Some(match params {
        Ok(params) => Message::Request { id, method, params },
        Err(error) => Message::Invalid { id, error },
    })
}

fn rpc_error(error: &Value) -> RpcError {
    let code = error.get("code").and_then(Value::as_i64);
    let message = error.get("message").and_then(Value::as_str);
    RpcError::new(code.unwrap_or(INTERNAL), message.unwrap_or_default())
}

fn message(rest: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    let version = ("jsonrpc", Value::from("2.0"));
    let fields = std::iter::once(version).chain(rest);
    Value::from_iter(fields)
}

pub(super) fn request(id: u64, method: &str, params: Value) -> Value {
    message([
        ("id", id.into()),
        ("method", method.into()),
        ("params", params),
    ])
}

pub(super) fn notification(method: &str, params: Value) -> Value {
    message([("method", method.into()), ("params", params)])
}

pub(super) fn response(id: &Id, result: Result<Value, RpcError>) -> Value {
    let answer = match result {
        Ok(result) => ("result", result),
        Err(error) => ("error", json!(error)),
    };
    message([("id", json!(id)), answer])
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 200;

    #[track_caller]
    fn check(text: &Value, expected: Option<Message>) {
        let read = read(&text.to_string(), LIMIT);
        assert_eq!((read, text), (expected, text));
    }

    #[test]
    fn requests_notifications_and_responses_are_parsed() {
        check(
            &json!({"jsonrpc": "2.0", "id": "a", "method": "ping"}),
            Some(Message::Request {
                id: Id::Text("a".into()),
                method: "ping".into(),
                params: Fields::new(),
            }),
        );
        check(
            &json!({"jsonrpc": "2.0", "method": "x", "params": {}}),
            Some(Message::Notification {
                method: "x".into(),
                params: Fields::new(),
            }),
        );
        check(
            &json!({"jsonrpc": "2.0", "id": 1, "result": {}}),
            Some(Message::Response {
                id: 1,
                result: Ok(Fields::new()),
            }),
        );
        check(
            &json!({"jsonrpc": "2.0", "id": 1, "error": {"code": 7, "message": "no"}}),
            Some(Message::Response {
                id: 1,
                result: Err(RpcError::new(7, "no")),
            }),
        );
    }

    #[test]
    fn invalid_messages_are_ignored() {
        for noise in [
            json!([]),
            json!("x"),
            json!({"id": 1, "method": "ping"}),
            json!({"jsonrpc": "1.0", "id": 1, "method": "ping"}),
            json!({"jsonrpc": "2.0", "id": {}, "method": "ping"}),
            json!({"jsonrpc": "2.0", "id": 1.5, "method": "ping"}),
            json!({"jsonrpc": "2.0", "id": "x".repeat(MAX_ID_BYTES + 1), "method": "ping"}),
            json!({"jsonrpc": "2.0", "id": 1, "method": 2}),
            json!({"jsonrpc": "2.0", "id": 1}),
            json!({"jsonrpc": "2.0", "id": 1, "result": 7}),
            json!({"jsonrpc": "2.0", "id": 1, "result": {}, "error": {}}),
            json!({"jsonrpc": "2.0", "id": "1", "result": {}}),
        ] {
            check(&noise, None);
        }
        assert_eq!(read("{", LIMIT), None);
    }

    #[test]
    fn too_long_messages_are_answered_by_id() {
        let long = "x".repeat(LIMIT);
        let text = json!({"jsonrpc": "2.0", "id": 3, "method": "ping", "params": {"x": long}});
        let read = |text: &Value| read(&text.to_string(), LIMIT);
        assert!(matches!(
            read(&text),
            Some(Message::Invalid {
                id: Id::Number(3),
                ..
            })
        ));
        let text = json!({"jsonrpc": "2.0", "id": 3, "result": {"x": long}});
        assert!(matches!(
            read(&text),
            Some(Message::Response {
                id: 3,
                result: Err(_)
            })
        ));
        check(
            &json!({"jsonrpc": "2.0", "method": "x", "params": {"x": long}}),
            None,
        );
    }

    #[test]
    fn params_that_are_not_an_object_are_rejected() {
        let text = json!({"jsonrpc": "2.0", "id": 3, "method": "ping", "params": [1]});
        let read = read(&text.to_string(), LIMIT);
        assert!(
            matches!(read, Some(Message::Invalid { error, .. }) if error.code == INVALID_PARAMS)
        );
    }
}
