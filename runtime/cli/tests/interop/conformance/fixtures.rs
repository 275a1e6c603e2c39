//! The fixtures that the suite expects.

use rmcp::model::{
    CallToolResult, GetPromptResult, Prompt, ReadResourceResult, Resource, ResourceTemplate, Tool,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A red point.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
/// No sound at all.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA=";

const TOOLS: &[&str] = &[
    "test_simple_text",
    "test_image_content",
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_error_handling",
    "test_tool_with_progress",
    "test_tool_with_logging",
    "test_logging_tool",
    "test_sampling",
    "test_elicitation",
    "test_elicitation_sep1034_defaults",
    "test_elicitation_sep1330_enums",
    "test_streaming_elicitation",
    "test_missing_capability",
    "test_reconnection",
    "test_trigger_tool_change",
    "test_trigger_prompt_change",
    "test_input_required_result_elicitation",
    "test_input_required_result_sampling",
    "test_input_required_result_list_roots",
    "test_input_required_result_capabilities",
    "test_input_required_result_request_state",
    "test_input_required_result_tampered_state",
    "test_input_required_result_multiple_inputs",
    "test_input_required_result_multi_round",
];

fn typed<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

pub(super) fn tools() -> Vec<Tool> {
    let plain = TOOLS.iter().map(|name| {
        let schema = json!({"type": "object", "properties": {}});
        json!({"name": name, "description": "A fixture", "inputSchema": schema})
    });
    let own = [
        json!({
            "name": "json_schema_2020_12_tool", "description": "A schema that uses much of its dialect",
            "inputSchema": {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "type": "object",
                "$defs": {"address": {
                    "$anchor": "addressDef", "type": "object",
                    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
                }},
                "properties": {
                    "name": {"type": "string"}, "address": {"$ref": "#/$defs/address"},
                    "contactMethod": {"type": "string", "enum": ["phone", "email"]},
                    "phone": {"type": "string"}, "email": {"type": "string"},
                },
                "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
                "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
                "then": {"required": ["phone"]}, "else": {"required": ["email"]},
                "additionalProperties": false,
            },
        }),
        json!({
            "name": "test_custom_header", "description": "An argument that travels as a header, too",
            "inputSchema": {"type": "object", "properties": {
                "region": {"type": "string", "x-mcp-header": "Region"},
            }},
        }),
    ];
    plain.chain(own).map(typed).collect()
}

fn embedded(uri: &str, mime: &str, text: &str) -> Value {
    json!({"type": "resource", "resource": {"uri": uri, "mimeType": mime, "text": text}})
}

fn image() -> Value {
    json!({"type": "image", "data": PNG, "mimeType": "image/png"})
}

pub(super) fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// A tool's result; clients of older revisions are spared its type.
pub(super) fn result(content: impl Into<Value>, is_error: bool) -> CallToolResult {
    let content = content.into();
    typed(json!({"resultType": "complete", "content": content, "isError": is_error}))
}

/// What a tool answers that does nothing but answer.
pub(super) fn answer(tool: &str) -> Option<CallToolResult> {
    let content = match tool {
        "test_simple_text" => json!([text("This is a simple text response for testing.")]),
        "test_image_content" => json!([image()]),
        "test_audio_content" => json!([{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]),
        "test_embedded_resource" => json!([embedded(
            "test://embedded-resource",
            "text/plain",
            "This is an embedded resource content."
        )]),
        "test_multiple_content_types" => json!([
            text("Multiple content types test:"),
            image(),
            embedded(
                "test://mixed-content-resource",
                "application/json",
                r#"{"test":"data","value":123}"#
            ),
        ]),
        "test_error_handling" => {
            let content = [text("This tool intentionally returns an error for testing")];
            return Some(result(json!(content), true));
        }
        "test_reconnection" | "json_schema_2020_12_tool" | "test_custom_header" => {
            json!([text("Done")])
        }
        _ => return None,
    };
    Some(result(content, false))
}

pub(super) fn prompts() -> Vec<Prompt> {
    let argument = |name: &str| json!({"name": name, "description": "A text", "required": true});
    let prompt = |name: &str, arguments: Vec<Value>| {
        typed(json!({"name": name, "description": "A fixture", "arguments": arguments}))
    };
    vec![
        prompt("test_simple_prompt", vec![]),
        prompt(
            "test_prompt_with_arguments",
            vec![argument("arg1"), argument("arg2")],
        ),
        prompt(
            "test_prompt_with_embedded_resource",
            vec![argument("resourceUri")],
        ),
        prompt("test_prompt_with_image", vec![]),
        prompt("test_input_required_result_prompt", vec![]),
    ]
}

/// A prompt with its arguments filled in.
pub(super) fn prompt(name: &str, arguments: &Value) -> Option<GetPromptResult> {
    let argument = |key: &str| arguments[key].as_str().unwrap_or_default().to_owned();
    let contents = match name {
        "test_simple_prompt" | "test_input_required_result_prompt" => {
            vec![text("This is a simple prompt for testing.")]
        }
        "test_prompt_with_arguments" => {
            let (one, two) = (argument("arg1"), argument("arg2"));
            vec![text(&format!(
                "Prompt with arguments: arg1='{one}', arg2='{two}'"
            ))]
        }
        "test_prompt_with_embedded_resource" => vec![
            embedded(
                &argument("resourceUri"),
                "text/plain",
                "Embedded resource content for testing.",
            ),
            text("Please process the embedded resource above."),
        ],
        "test_prompt_with_image" => vec![image(), text("Please analyze the image above.")],
        _ => return None,
    };
    let messages = contents
        .into_iter()
        .map(|content| json!({"role": "user", "content": content}));
    let messages: Vec<_> = messages.collect();
    Some(typed(
        json!({"resultType": "complete", "messages": messages}),
    ))
}

pub(super) fn resources() -> Vec<Resource> {
    let resource = |uri: &str, mime: &str| {
        typed(json!({"uri": uri, "name": uri, "description": "A fixture", "mimeType": mime}))
    };
    vec![
        resource("test://static-text", "text/plain"),
        resource("test://static-binary", "image/png"),
        resource("test://watched-resource", "text/plain"),
    ]
}

pub(super) fn template() -> ResourceTemplate {
    typed(json!({
        "uriTemplate": "test://template/{id}/data", "name": "template",
        "description": "A fixture", "mimeType": "application/json",
    }))
}

pub(super) fn resource(uri: &str) -> Option<ReadResourceResult> {
    let content = match uri {
        "test://static-text" | "test://watched-resource" => json!({
            "uri": uri, "mimeType": "text/plain",
            "text": "This is the content of the static text resource.",
        }),
        "test://static-binary" => json!({"uri": uri, "mimeType": "image/png", "blob": PNG}),
        _ => {
            let id = uri
                .strip_prefix("test://template/")?
                .strip_suffix("/data")?;
            let data =
                json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")});
            json!({"uri": uri, "mimeType": "application/json", "text": data.to_string()})
        }
    };
    Some(typed(
        json!({"resultType": "complete", "contents": [content]}),
    ))
}

/// The form that a tool of this name has its client fill in.
pub(super) fn form(tool: &str) -> Option<Value> {
    let titled = |names: [&str; 3]| -> Vec<Value> {
        let titled = names.iter().enumerate();
        titled
            .map(|(n, title)| json!({"const": format!("value{}", n + 1), "title": title}))
            .collect()
    };
    let options = json!(["option1", "option2", "option3"]);
    let properties = match tool {
        "test_elicitation" => json!({
            "username": {"type": "string", "description": "User's response"},
            "email": {"type": "string", "description": "User's email address"},
        }),
        "test_elicitation_sep1034_defaults" => json!({
            "name": {"type": "string", "default": "John Doe"},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
            "verified": {"type": "boolean", "default": true},
        }),
        "test_elicitation_sep1330_enums" => json!({
            "untitledSingle": {"type": "string", "enum": options},
            "titledSingle": {
                "type": "string", "oneOf": titled(["First Option", "Second Option", "Third Option"]),
            },
            "legacyEnum": {
                "type": "string", "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
            "titledMulti": {
                "type": "array",
                "items": {"anyOf": titled(["First Choice", "Second Choice", "Third Choice"])},
            },
        }),
        _ => return None,
    };
    Some(json!({
        "mode": "form", "message": "Please provide your information",
        "requestedSchema": {"type": "object", "properties": properties},
    }))
}
