//! A message of either side in, how it differs from what MCP says out. The forms are those of rmcp's types.

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

/// Requests that were not answered yet; by whether this host sent them, and by id.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    open: HashMap<(bool, String), String>,
}

impl Judge {
    /// What is wrong with the next message; `sent` by this host, or received.
    pub(crate) fn fault(&mut self, sent: bool, message: &Value) -> Option<String> {
        let Some(members) = message.as_object() else {
            return Some("a message must be an object".to_owned());
        };
        if members.get("jsonrpc") != Some(&Value::from("2.0")) {
            return Some("`jsonrpc` must be \"2.0\"".to_owned());
        }
        let id = members.get("id");
        if id.is_some_and(|id| !(id.is_string() || id.is_i64() || id.is_u64())) {
            let lost = members.contains_key("error") && id == Some(&Value::Null);
            return (!lost).then(|| "`id` must be a string or an integer".to_owned());
        }
        match members.get("method") {
            Some(Value::String(method)) => {
                if let Some(id) = id {
                    self.open.insert((sent, id.to_string()), method.clone());
                }
                let params = members.get("params");
                if params.is_some_and(|params| !params.is_object()) {
                    return Some("`params` must be an object".to_owned());
                }
                asked(method, params.unwrap_or(&Value::Null))
            }
            Some(_) => Some("`method` must be a string".to_owned()),
            None => self.answered(sent, members.get("result"), members.get("error"), id),
        }
    }

    fn answered(
        &mut self,
        sent: bool,
        result: Option<&Value>,
        error: Option<&Value>,
        id: Option<&Value>,
    ) -> Option<String> {
        let Some(id) = id else {
            return error
                .is_none()
                .then(|| "it has neither `method` nor `id`".to_owned());
        };
        let Some(method) = self.open.remove(&(!sent, id.to_string())) else {
            return Some(format!("nothing was asked with the id {id}"));
        };
        match (result, error) {
            (Some(result), None) if result.is_object() => {
                answer(&method, result).map(|fault| format!("result of {method}: {fault}"))
            }
            (Some(_), None) => Some("`result` must be an object".to_owned()),
            (None, Some(error)) => {
                let code = error.get("code").is_some_and(Value::is_i64);
                let words = error.get("message").is_some_and(Value::is_string);
                let whole = code && words;
                (!whole).then(|| "an error needs an integer `code` and a `message`".to_owned())
            }
            _ => Some("it must have either `result` or `error`".to_owned()),
        }
    }
}

fn asked(method: &str, params: &Value) -> Option<String> {
    let fault = match method {
        "initialize" => of::<InitializeRequestParams>(params),
        "tools/call" => of::<CallToolRequestParams>(params),
        "resources/read" => of::<ReadResourceRequestParams>(params),
        "prompts/get" => of::<GetPromptRequestParams>(params),
        "completion/complete" => of::<CompleteRequestParams>(params),
        "elicitation/create" => of::<ElicitRequestParams>(params),
        "notifications/progress" => of::<ProgressNotificationParam>(params),
        "notifications/message"
            if params.get("level").is_none() || params.get("data").is_none() =>
        {
            Some("`level` and `data` must be there".to_owned())
        }
        "notifications/resources/updated" => of::<ResourceUpdatedNotificationParam>(params),
        _ => None,
    };
    fault.map(|fault| format!("params of {method}: {fault}"))
}

fn answer(method: &str, result: &Value) -> Option<String> {
    match result.get("resultType").and_then(Value::as_str) {
        Some("input_required") => return of::<InputRequiredResult>(result),
        Some("task") => return None,
        _ => {}
    }
    match method {
        "initialize" => of::<InitializeResult>(&literal(result)),
        "server/discover" => of::<DiscoverResult>(&literal(result)),
        "tools/list" => of::<ListToolsResult>(result),
        "tools/call" if !result.get("content").is_some_and(Value::is_array) => {
            Some("`content` must be an array".to_owned())
        }
        "tools/call" => of::<CallToolResult>(result),
        "resources/list" => of::<ListResourcesResult>(result),
        "resources/templates/list" => of::<ListResourceTemplatesResult>(result),
        "resources/read" => of::<ReadResourceResult>(result),
        "prompts/list" => of::<ListPromptsResult>(result),
        "prompts/get" => of::<GetPromptResult>(result),
        "completion/complete" => of::<CompleteResult>(result),
        "elicitation/create" => of::<ElicitResult>(result),
        _ => None,
    }
}

/// Servers say `experimental.policy: true`, which is how policies are advertised; a type that wants objects there is no measure.
fn literal(result: &Value) -> Value {
    let mut result = result.clone();
    if let Some(Value::Object(experimental)) = result.pointer_mut("/capabilities/experimental") {
        experimental.retain(|_, value| !value.is_boolean());
    }
    result
}

fn of<T: DeserializeOwned>(value: &Value) -> Option<String> {
    let fault = serde_json::from_value::<T>(value.clone()).err();
    fault.map(|fault| fault.to_string())
}
