//! A method and its parameters in, what the guest wants of its host out, or why it makes no sense.

use serde_json::Value;

use super::host::{DisplayMode, ModelContext};
use super::wire::{Fields, INVALID_PARAMS, METHOD_NOT_FOUND, RpcError};
use crate::upstream::check_url;

/// A request of a guest.
#[derive(Debug, PartialEq)]
pub(super) enum ParsedRequest {
    /// What the model is to know of it from now on: taken down at once, so that no later one is overtaken.
    Context(ModelContext),
    /// What takes its time.
    Serve(AppRequest),
}

/// What a guest asks that takes its time.
#[derive(Debug, PartialEq)]
pub(super) enum AppRequest {
    /// A tool of its server.
    Tool { name: String, arguments: Fields },
    /// A resource of its server.
    Resource(String),
    /// A page of the web for the person.
    Link(String),
    /// Something said in the conversation.
    Message(Vec<Value>),
    /// Files for the person to keep.
    Download(Vec<Value>),
    /// Another size on the screen.
    Mode(Option<DisplayMode>),
    /// Not to be put away while it is out of sight.
    Pin,
}

fn invalid(why: &str) -> RpcError {
    RpcError::new(INVALID_PARAMS, why)
}

fn text(params: &mut Fields, key: &str) -> Result<String, RpcError> {
    match params.remove(key) {
        Some(Value::String(text)) => Ok(text),
        _ => Err(invalid(&format!("`{key}` must be a string"))),
    }
}

fn list(params: &mut Fields, key: &str) -> Result<Vec<Value>, RpcError> {
    match params.remove(key) {
        Some(Value::Array(list)) if list.iter().all(Value::is_object) => Ok(list),
        _ => Err(invalid(&format!("`{key}` must be an array of objects"))),
    }
}

/// The link, if it is one that a person may be asked about.
fn link(url: String) -> Result<String, RpcError> {
    let plain = || invalid("only plain http and https addresses without a user are opened");
    check_url(&url).map_err(|_| plain())?;
    Ok(url)
}

/// Reads a request by its method.
pub(super) fn read(method: &str, mut params: Fields) -> Result<ParsedRequest, RpcError> {
    let params = &mut params;
    Ok(ParsedRequest::Serve(match method {
        "tools/call" => AppRequest::Tool {
            name: text(params, "name")?,
            arguments: match params.remove("arguments") {
                Some(Value::Object(arguments)) => arguments,
                None | Some(Value::Null) => Fields::new(),
                Some(_) => return Err(invalid("`arguments` must be an object")),
            },
        },
        "resources/read" => AppRequest::Resource(text(params, "uri")?),
        "ui/open-link" => AppRequest::Link(link(text(params, "url")?)?),
        "ui/message" => AppRequest::Message(list(params, "content")?),
        "ui/download-file" => AppRequest::Download(list(params, "contents")?),
        "ui/request-display-mode" => AppRequest::Mode(DisplayMode::read(&text(params, "mode")?)),
        "ui/update-model-context" => {
            return Ok(ParsedRequest::Context(ModelContext {
                content: match params.contains_key("content") {
                    true => list(params, "content")?,
                    false => Vec::new(),
                },
                structured: params.remove("structuredContent").filter(Value::is_object),
            }));
        }
        "dev.bailiwick/request-pin" => AppRequest::Pin,
        _ => {
            let method = crate::escape(method);
            let message = format!("`{method}` is not known here");
            return Err(RpcError::new(METHOD_NOT_FOUND, message));
        }
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(method: &str, params: Value, expected: Result<AppRequest, i64>) {
        let Value::Object(params) = params else {
            panic!("parameters are an object")
        };
        let read = read(method, params).map_err(|fault| fault.code);
        assert_eq!((read, method), (expected.map(ParsedRequest::Serve), method));
    }

    #[test]
    fn only_links_of_the_web_are_asked_about() {
        for url in ["https://example.org/a?b#c", "HTTP://example.org"] {
            check(
                "ui/open-link",
                json!({ "url": url }),
                Ok(AppRequest::Link(url.to_owned())),
            );
        }
        for url in [
            "javascript:alert(1)",
            "file:///etc/passwd",
            "data:text/html,x",
            " https://x",
            "https://x\u{202e}y",
            "https://x y",
            "https://bank.example@evil.example/",
            "https://evil.example\\@bank.example/",
            "http:/x",
            "",
            &format!("https://{}", "x".repeat(4096)),
        ] {
            check("ui/open-link", json!({ "url": url }), Err(INVALID_PARAMS));
        }
    }

    #[test]
    fn what_is_not_known_and_what_makes_no_sense_are_told_apart() {
        check("sampling/createMessage", json!({}), Err(METHOD_NOT_FOUND));
        check("tools/list", json!({}), Err(METHOD_NOT_FOUND));
        for (method, params) in [
            ("tools/call", json!({})),
            ("tools/call", json!({"name": 1})),
            ("tools/call", json!({"name": "t", "arguments": [1]})),
            ("resources/read", json!({"uri": {}})),
            ("ui/message", json!({"content": "x"})),
            ("ui/message", json!({"content": ["x"]})),
            ("ui/download-file", json!({})),
            ("ui/update-model-context", json!({"content": 7})),
        ] {
            check(method, params, Err(INVALID_PARAMS));
        }
        let call = AppRequest::Tool {
            name: "t".into(),
            arguments: Fields::new(),
        };
        check(
            "tools/call",
            json!({"name": "t", "_meta": {"policy": {}}}),
            Ok(call),
        );
    }
}
