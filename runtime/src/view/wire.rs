//! The text of a guest in, one JSON-RPC message out; and the messages that go back.

use serde::Deserialize;
use serde_json::{Map, Value};

pub(super) const INVALID_REQUEST: i64 = -32600;
pub(super) const METHOD_NOT_FOUND: i64 = -32601;
pub(super) const INVALID_PARAMS: i64 = -32602;
pub(super) const INTERNAL: i64 = -32603;
/// What stands in the way is the state of the view, or of its host.
pub(super) const REFUSED: i64 = -32000;

/// The longest id of a request, in bytes.
const LONGEST_ID: usize = 128;

pub(super) type Fields = Map<String, Value>;

/// What a guest calls one of its requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Id {
    Number(i64),
    Text(Box<str>),
}

impl Id {
    pub(super) fn read(value: &Value) -> Option<Self> {
        match value {
            Value::Number(number) => number.as_i64().map(Self::Number),
            Value::String(text) if text.len() <= LONGEST_ID => {
                Some(Self::Text(text.as_str().into()))
            }
            _ => None,
        }
    }

    fn write(&self) -> Value {
        match self {
            Self::Number(number) => (*number).into(),
            Self::Text(text) => (**text).into(),
        }
    }
}

/// Why a request is answered with an error.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fault {
    pub(super) code: i64,
    pub(super) message: String,
    pub(super) data: Option<Value>,
}

impl Fault {
    pub(super) fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }
}

/// What a guest sent.
#[derive(Debug, PartialEq)]
pub(super) enum Message {
    Request {
        id: Id,
        method: String,
        params: Fields,
    },
    /// A request that is answered with an error, whatever it asks.
    Unfit {
        id: Id,
        fault: Fault,
    },
    Notice {
        method: String,
        params: Fields,
    },
    /// To one of our requests.
    Answer {
        id: u64,
        result: Result<Fields, Fault>,
    },
}

/// The part of a message that says whom it is for; the rest is passed over.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    jsonrpc: Value,
    id: Option<Value>,
    #[serde(default)]
    method: Value,
}

/// Reads a message of no more than `most` bytes; none if it is no JSON-RPC 2.0. Of a longer one is read whom it would
/// keep waiting.
pub(super) fn read(text: &str, most: usize) -> Option<Message> {
    if text.len() <= most {
        return whole(serde_json::from_str(text).ok()?);
    }
    let head: Head = serde_json::from_str(text).ok()?;
    if head.jsonrpc != "2.0" {
        return None;
    }
    let fault = Fault::new(
        INVALID_REQUEST,
        format!("a message has at most {most} bytes"),
    );
    let id = head.id?;
    if head.method.is_string() {
        let id = Id::read(&id)?;
        return Some(Message::Unfit { id, fault });
    }
    let id = id.as_u64()?;
    let result = Err(fault);
    Some(Message::Answer { id, result })
}

fn whole(message: Value) -> Option<Message> {
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
            (None, Some(error)) => Err(fault(&error)),
            _ => return None,
        };
        return Some(Message::Answer { id, result });
    };
    let Value::String(method) = method else {
        return None;
    };
    let params = match message.remove("params") {
        None | Some(Value::Null) => Ok(Fields::new()),
        Some(Value::Object(params)) => Ok(params),
        Some(_) => Err(Fault::new(INVALID_PARAMS, "`params` must be an object")),
    };
    let Some(id) = id else {
        let params = params.ok()?;
        return Some(Message::Notice { method, params });
    };
    let id = Id::read(&id)?;
    Some(match params {
        Ok(params) => Message::Request { id, method, params },
        Err(fault) => Message::Unfit { id, fault },
    })
}

fn fault(error: &Value) -> Fault {
    let code = error.get("code").and_then(Value::as_i64);
    let message = error.get("message").and_then(Value::as_str);
    Fault::new(code.unwrap_or(INTERNAL), message.unwrap_or_default())
}

fn message(rest: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    let version = ("jsonrpc", Value::from("2.0"));
    let fields = std::iter::once(version).chain(rest);
    let fields = fields.map(|(key, value)| (key.to_owned(), value));
    Value::Object(fields.collect())
}

pub(super) fn request(id: u64, method: &str, params: Value) -> Value {
    message([
        ("id", id.into()),
        ("method", method.into()),
        ("params", params),
    ])
}

pub(super) fn notice(method: &str, params: Value) -> Value {
    message([("method", method.into()), ("params", params)])
}

pub(super) fn answer(id: &Id, result: Result<Value, Fault>) -> Value {
    let answer = result.map_or_else(
        |fault| {
            let mut error = Fields::new();
            error.insert("code".into(), fault.code.into());
            error.insert("message".into(), fault.message.into());
            error.extend(fault.data.map(|data| ("data".to_owned(), data)));
            ("error", error.into())
        },
        |result| ("result", result),
    );
    message([("id", id.write()), answer])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const MOST: usize = 200;

    #[track_caller]
    fn check(text: &Value, expected: Option<Message>) {
        let read = read(&text.to_string(), MOST);
        assert_eq!((read, text), (expected, text));
    }

    #[test]
    fn a_message_is_one_of_three() {
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
            Some(Message::Notice {
                method: "x".into(),
                params: Fields::new(),
            }),
        );
        check(
            &json!({"jsonrpc": "2.0", "id": 1, "result": {}}),
            Some(Message::Answer {
                id: 1,
                result: Ok(Fields::new()),
            }),
        );
        check(
            &json!({"jsonrpc": "2.0", "id": 1, "error": {"code": 7, "message": "no"}}),
            Some(Message::Answer {
                id: 1,
                result: Err(Fault::new(7, "no")),
            }),
        );
    }

    #[test]
    fn what_is_none_is_passed_over() {
        for noise in [
            json!([]),
            json!("x"),
            json!({"id": 1, "method": "ping"}),
            json!({"jsonrpc": "1.0", "id": 1, "method": "ping"}),
            json!({"jsonrpc": "2.0", "id": {}, "method": "ping"}),
            json!({"jsonrpc": "2.0", "id": 1.5, "method": "ping"}),
            json!({"jsonrpc": "2.0", "id": "x".repeat(LONGEST_ID + 1), "method": "ping"}),
            json!({"jsonrpc": "2.0", "id": 1, "method": 2}),
            json!({"jsonrpc": "2.0", "id": 1}),
            json!({"jsonrpc": "2.0", "id": 1, "result": 7}),
            json!({"jsonrpc": "2.0", "id": 1, "result": {}, "error": {}}),
            json!({"jsonrpc": "2.0", "id": "1", "result": {}}),
        ] {
            check(&noise, None);
        }
        assert_eq!(read("{", MOST), None);
    }

    #[test]
    fn of_a_message_that_is_too_long_only_who_waits_is_read() {
        let long = "x".repeat(MOST);
        let text = json!({"jsonrpc": "2.0", "id": 3, "method": "ping", "params": {"x": long}});
        let read = |text: &Value| read(&text.to_string(), MOST);
        assert!(matches!(
            read(&text),
            Some(Message::Unfit {
                id: Id::Number(3),
                ..
            })
        ));
        let text = json!({"jsonrpc": "2.0", "id": 3, "result": {"x": long}});
        assert!(matches!(
            read(&text),
            Some(Message::Answer {
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
    fn parameters_that_are_no_object_are_answered() {
        let text = json!({"jsonrpc": "2.0", "id": 3, "method": "ping", "params": [1]});
        let read = read(&text.to_string(), MOST);
        assert!(matches!(read, Some(Message::Unfit { fault, .. }) if fault.code == INVALID_PARAMS));
    }
}
