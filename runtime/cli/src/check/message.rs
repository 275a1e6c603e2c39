//! Validates JSON-RPC and MCP messages with the types of rmcp.

use std::collections::HashMap;

use rmcp::model::{
    CallToolRequestParams, CallToolResult, CompleteRequestParams, CompleteResult, DiscoverResult,
    ElicitRequestParams, ElicitResult, GetPromptRequestParams, GetPromptResult,
    InitializeRequestParams, InitializeResult, InputRequiredResult, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, ProgressNotificationParam,
    ReadResourceRequestParams, ReadResourceResult, ResourceUpdatedNotificationParam,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The maximum number of pending requests that are tracked for each side.
const MAX_REQUESTS: usize = 1_000;
/// The maximum length of an id, in bytes.
const MAX_ID: usize = 1_000;

/// Validates the messages of a connection in order.
#[derive(Debug, Default)]
pub(super) struct Validator {
    /// The methods of pending requests, by id.
    sent: HashMap<String, String>,
    received: HashMap<String, String>,
}

/// Whether this is a valid request id.
pub(super) fn is_id(id: &Value) -> bool {
    match id {
        Value::String(id) => id.len() <= MAX_ID,
        Value::Number(id) => id.is_i64() || id.is_u64(),
        _ => false,
    }
}

impl Validator {
    /// The fault of the next message, if any.
    pub(super) fn fault(&mut self, sent: bool, message: &Value) -> Option<String> {
        let Some(members) = message.as_object() else {
            return Some("a message must be an object".to_owned());
        };
        if members.get("jsonrpc") != Some(&Value::from("2.0")) {
            return Some("`jsonrpc` must be \"2.0\"".to_owned());
        }
        let id = members.get("id");
        if id.is_some_and(|id| !is_id(id)) {
            // Errors about messages with an unreadable id have the id null.
            let unknown = members.contains_key("error") && id == Some(&Value::Null);
            let expected = format!("`id` must be an integer or a string of at most {MAX_ID} bytes");
            return (!unknown).then_some(expected);
        }
        match members.get("method") {
            Some(Value::String(method)) => {
                let requests = if sent {
                    &mut self.sent
                } else {
                    &mut self.received
                };
                if let (Some(id), true) = (id, requests.len() < MAX_REQUESTS) {
                    requests.insert(id.to_string(), method.clone());
                }
                let params = members.get("params");
                if params.is_some_and(|params| !params.is_object()) {
                    return Some("`params` must be an object".to_owned());
                }
                request_fault(method, params.unwrap_or(&Value::Null))
            }
            Some(_) => Some("`method` must be a string".to_owned()),
            None => self.response_fault(sent, members.get("result"), members.get("error"), id),
        }
    }

    fn response_fault(
        &mut self,
        sent: bool,
        result: Option<&Value>,
        error: Option<&Value>,
        id: Option<&Value>,
    ) -> Option<String> {
        let Some(id) = id else {
            let expected = "a message must have a `method` or an `id`".to_owned();
            return error.is_none().then_some(expected);
        };
        let requests = if sent {
            &mut self.received
        } else {
            &mut self.sent
        };
        let Some(method) = requests.remove(&id.to_string()) else {
            return Some(format!("no request with the id {id} is open"));
        };
        match (result, error) {
            (Some(result), None) if result.is_object() => {
                let fault = result_fault(&method, result);
                fault.map(|fault| format!("result of {method}: {fault}"))
            }
            (Some(_), None) => Some("`result` must be an object".to_owned()),
            (None, Some(error)) => {
                let code = error.get("code").is_some_and(Value::is_i64);
                let message = error.get("message").is_some_and(Value::is_string);
                let expected = "`error` must have an integer `code` and a string `message`";
                (!(code && message)).then(|| expected.to_owned())
            }
            _ => Some("a response must have either `result` or `error`".to_owned()),
        }
    }
}

fn request_fault(method: &str, params: &Value) -> Option<String> {
    let fault = match method {
        "initialize" => deserialize_fault::<InitializeRequestParams>(params),
        "tools/call" => deserialize_fault::<CallToolRequestParams>(params),
        "resources/read" => deserialize_fault::<ReadResourceRequestParams>(params),
        "prompts/get" => deserialize_fault::<GetPromptRequestParams>(params),
        "completion/complete" => deserialize_fault::<CompleteRequestParams>(params),
        "elicitation/create" => deserialize_fault::<ElicitRequestParams>(params),
        "notifications/progress" => deserialize_fault::<ProgressNotificationParam>(params),
        "notifications/message"
            if params.get("level").is_none() || params.get("data").is_none() =>
        {
            Some("`level` and `data` are required".to_owned())
        }
        "notifications/resources/updated" => {
            deserialize_fault::<ResourceUpdatedNotificationParam>(params)
        }
        _ => None,
    };
    fault.map(|fault| format!("params of {method}: {fault}"))
}

fn result_fault(method: &str, result: &Value) -> Option<String> {
    match result.get("resultType").and_then(Value::as_str) {
        Some("input_required") => return deserialize_fault::<InputRequiredResult>(result),
        Some("task") => return None,
        _ => {}
    }
    match method {
        "initialize" => deserialize_fault::<InitializeResult>(&without_booleans(result)),
        "server/discover" => deserialize_fault::<DiscoverResult>(&without_booleans(result)),
        "tools/list" => deserialize_fault::<ListToolsResult>(result),
        "tools/call" if !result.get("content").is_some_and(Value::is_array) => {
            Some("`content` must be an array".to_owned())
        }
        "tools/call" => deserialize_fault::<CallToolResult>(result),
        "resources/list" => deserialize_fault::<ListResourcesResult>(result),
        "resources/templates/list" => deserialize_fault::<ListResourceTemplatesResult>(result),
        "resources/read" => deserialize_fault::<ReadResourceResult>(result),
        "prompts/list" => deserialize_fault::<ListPromptsResult>(result),
        "prompts/get" => deserialize_fault::<GetPromptResult>(result),
        "completion/complete" => deserialize_fault::<CompleteResult>(result),
        "elicitation/create" => deserialize_fault::<ElicitResult>(result),
        _ => None,
    }
}

/// Removes `experimental.policy: true`, since rmcp's type requires objects.
fn without_booleans(result: &Value) -> Value {
    let mut result = result.clone();
    if let Some(Value::Object(experimental)) = result.pointer_mut("/capabilities/experimental") {
        experimental.retain(|_, value| !value.is_boolean());
    }
    result
}

/// Why `value` is not a `T`.
fn deserialize_fault<T: DeserializeOwned>(value: &Value) -> Option<String> {
    let fault = serde_json::from_value::<T>(value.clone()).err();
    fault.map(|fault| fault.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(before: &[(bool, Value)], message: &Value, expected: Option<&str>) {
        let mut validator = Validator::default();
        for (sent, message) in before {
            assert_eq!(validator.fault(*sent, message), None, "{message}");
        }
        let fault = validator.fault(false, message);
        match expected {
            None => assert_eq!(fault, None, "{message}"),
            Some(part) => assert!(
                fault.as_ref().is_some_and(|fault| fault.contains(part)),
                "{message}: {fault:?}"
            ),
        }
    }

    #[test]
    fn messages_must_be_valid_json_rpc() {
        let long = "x".repeat(MAX_ID + 1);
        for (message, expected) in [
            (json!({"jsonrpc": "2.0", "method": "notifications/x"}), None),
            (json!({"jsonrpc": "2.0", "id": "a", "method": "ping"}), None),
            (
                json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": "?"}}),
                None,
            ),
            (json!([]), Some("must be an object")),
            (json!({"method": "ping"}), Some("`jsonrpc` must be")),
            (
                json!({"jsonrpc": "2.0", "id": 1.5, "method": "ping"}),
                Some("`id` must be"),
            ),
            (
                json!({"jsonrpc": "2.0", "id": long, "method": "ping"}),
                Some("`id` must be"),
            ),
            (
                json!({"jsonrpc": "2.0", "id": null, "result": {}}),
                Some("`id` must be"),
            ),
            (
                json!({"jsonrpc": "2.0", "method": 7}),
                Some("`method` must be"),
            ),
            (
                json!({"jsonrpc": "2.0", "method": "x", "params": []}),
                Some("`params` must be"),
            ),
            (
                json!({"jsonrpc": "2.0", "id": 9, "result": {}}),
                Some("no request with the id 9"),
            ),
        ] {
            check(&[], &message, expected);
        }
    }

    #[test]
    fn responses_must_match_their_request() {
        let request = [(
            true,
            json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
        )];
        for (members, expected) in [
            (json!({"result": {"tools": []}}), None),
            (json!({"error": {"code": 1, "message": "no"}}), None),
            (
                json!({"result": {}}),
                Some("result of tools/list: missing field `tools`"),
            ),
            (json!({"result": []}), Some("`result` must be an object")),
            (
                json!({"error": {"code": "1", "message": "no"}}),
                Some("integer `code`"),
            ),
            (
                json!({"error": {}, "result": {}}),
                Some("either `result` or `error`"),
            ),
        ] {
            let mut message = json!({"jsonrpc": "2.0", "id": 1});
            message
                .as_object_mut()
                .unwrap()
                .extend(members.as_object().unwrap().clone());
            check(&request, &message, expected);
        }
    }
}
