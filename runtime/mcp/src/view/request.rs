//! Parses requests of pages by method and parameters.

use serde_json::Value;

use super::host::{DisplayMode, ModelContext, ViewRequest};
use super::wire::{Fields, INVALID_PARAMS, METHOD_NOT_FOUND, RpcError};
use crate::upstream::check_url;

/// A parsed request of a page.
#[derive(Debug, PartialEq)]
pub(super) enum ParsedRequest {
    /// New context for the model. It is stored at once, so that updates stay in order.
    Context(ModelContext),
    /// A request that is served asynchronously.
    Serve(AppRequest),
}

/// A request that is served asynchronously.
#[derive(Debug, PartialEq)]
pub(super) enum AppRequest {
    /// Call a tool of the page's server.
    Tool { name: String, arguments: Fields },
    /// Read a resource of the page's server.
    Resource(String),
    /// Change the display mode; `None` is an unknown mode.
    Mode(Option<DisplayMode>),
    /// Any other request to the host.
    Host(ViewRequest),
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

/// Validates a URL that people may be asked to open.
fn link(url: String) -> Result<String, RpcError> {
    let plain = || invalid("only plain http and https addresses without a user are opened");
    check_url(&url).map_err(|_| plain())?;
    Ok(url)
}

/// Parses a request.
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
        "ui/open-link" => AppRequest::Host(ViewRequest::Link(link(text(params, "url")?)?)),
        "ui/message" => AppRequest::Host(ViewRequest::Message(list(params, "content")?)),
        "ui/download-file" => AppRequest::Host(ViewRequest::Download(list(params, "contents")?)),
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
        "dev.bailiwick/request-pin" => AppRequest::Host(ViewRequest::Pin),
        _ => {
            let method = bailiwick::text::escape(method);
            let message = format!("unknown method `{method}`");
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
    fn only_http_links_are_requested() {
        for url in ["https://example.org/a?b#c", "HTTP://example.org"] {
            check(
                "ui/open-link",
                json!({ "url": url }),
                Ok(AppRequest::Host(ViewRequest::Link(url.to_owned()))),
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
    fn unknown_methods_and_invalid_params_have_different_codes() {
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
