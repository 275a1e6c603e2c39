//! Converts tool results of servers, within limits and validated against the tool's schema.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{Annotations, CallToolResult, ContentBlock, ResourceContents, Role};
use serde_json::{Value, json};

use super::classify::{OfferedTool, truncate};
use super::schema_cost::is_within_depth;
use bailiwick::effect::{Content, Reply, Utf8};
use bailiwick::{CallError, Code};

/// The deepest structured output.
const MAX_DEPTH: usize = 64;
/// The accepted media types; content of other types is replaced by a note.
const IMAGE_TYPES: &[&str] = &["image/png", "image/jpeg", "image/gif", "image/webp"];
const AUDIO_TYPES: &[&str] = &[
    "audio/wav",
    "audio/mpeg",
    "audio/ogg",
    "audio/flac",
    "audio/webm",
];

fn fault(why: &str) -> CallError {
    CallError::new(Code::ServerFault, format!("the server's result {why}"))
}

/// Converts the result of a successful call. `_meta` and unknown fields are dropped.
pub(crate) async fn reply(
    result: &CallToolResult,
    offer: &OfferedTool,
    limit: usize,
) -> Result<Reply, CallError> {
    let structured = result.structured_content.as_ref();
    check_size(result, limit)?;
    if structured.is_some_and(|value| !is_within_depth(value, MAX_DEPTH)) {
        return Err(fault("nests too deeply"));
    }
    if let Some(schema) = &offer.output {
        let value = structured.ok_or_else(|| fault("lacks what the tool's schema promises"))?;
        match schema.is_valid(value.clone()).await {
            Ok(true) => {}
            Ok(false) => return Err(fault("does not fit the tool's own schema")),
            Err(_) => return Err(fault("takes too long to hold to the tool's own schema")),
        }
    }
    let (for_model, for_people): (Vec<_>, Vec<_>) =
        result.content.iter().partition(|block| is_for_model(block));
    let server = offer.provider();
    let content = for_model.into_iter().map(|it| block(it, server));
    let mut content = content.collect::<Result<Vec<_>, _>>()?;
    let output = structured.and_then(|value| match value {
        // Clients that show only `structuredContent` to the model would hide the other content.
        Value::Object(map) if map.is_empty() && offer.output.is_none() && !content.is_empty() => {
            None
        }
        Value::Object(_) => Some(value.clone()),
        other => Some(json!({ "value": other })),
    });
    if let (true, Some(output)) = (content.is_empty(), &output) {
        content.push(text(&output.to_string()));
    }
    if !for_people.is_empty() {
        let count = for_people.len();
        content.push(text(&format!("[for the user alone, left out: {count}]")));
    }
    Ok(Reply {
        content,
        output: Arc::new(output),
    })
}

/// Whether a block is for models. Blocks for the user alone may be unsuitable for models.
fn is_for_model(block: &ContentBlock) -> bool {
    let annotations: Option<&Annotations> = match block {
        ContentBlock::Text(block) => block.annotations.as_ref(),
        ContentBlock::Image(block) => block.annotations.as_ref(),
        ContentBlock::Audio(block) => block.annotations.as_ref(),
        ContentBlock::Resource(block) => block.annotations.as_ref(),
        ContentBlock::ResourceLink(block) => block.annotations.as_ref(),
        _ => None,
    };
    let audience = annotations.and_then(|it| it.audience.as_deref());
    audience.is_none_or(|audience| audience.is_empty() || audience.contains(&Role::Assistant))
}

/// Converts the result of a failed call.
pub(crate) fn failure(result: &CallToolResult) -> CallError {
    let blocks = result.content.iter().filter(|block| is_for_model(block));
    let texts = blocks.filter_map(|block| match block {
        ContentBlock::Text(text) => Some(text.text.as_str()),
        _ => None,
    });
    let text = texts.collect::<Vec<_>>().join("\n");
    failed(&text)
}

/// An error with the message of the server.
pub(super) fn failed(text: &str) -> CallError {
    let text = truncate(text.trim(), 2048);
    let message = if text.is_empty() {
        "the server says that the call failed".to_owned()
    } else {
        format!("the server says that the call failed: {text}")
    };
    CallError::new(Code::ServerFailed, message)
}

fn check_size(result: &CallToolResult, limit: usize) -> Result<(), CallError> {
    let blocks = result.content.iter().map(|block| match block {
        ContentBlock::Text(text) => text.text.len(),
        ContentBlock::Image(image) => image.data.len(),
        ContentBlock::Audio(audio) => audio.data.len(),
        ContentBlock::Resource(resource) => match &resource.resource {
            ResourceContents::TextResourceContents { text, .. } => text.len(),
            ResourceContents::BlobResourceContents { blob, .. } => blob.len(),
            _ => 0,
        },
        _ => 0,
    });
    let structured = result.structured_content.as_ref();
    let structured = structured.map_or(0, |value| value.to_string().len());
    let blocks: usize = blocks.sum();
    // Each block has a minimum cost.
    if blocks + structured + 64 * result.content.len() > limit {
        let message = format!("the server answered more than {limit} bytes; ask it for less");
        return Err(CallError::new(Code::TooLarge, message));
    }
    Ok(())
}

fn text(text: &str) -> Content {
    Content::Text(Utf8::from(bailiwick::text::escape_lines(text).into_owned()))
}

/// Converts a block for the model.
fn block(block: &ContentBlock, server: &str) -> Result<Content, CallError> {
    let data = |data: &str| {
        let bytes = STANDARD.decode(data);
        bytes.map_err(|_| fault("contains data that is not base64"))
    };
    let known =
        |types: &[&'static str], mime: &str| types.iter().find(|known| **known == mime).copied();
    Ok(match block {
        ContentBlock::Text(block) => text(&block.text),
        ContentBlock::Image(image) => match known(IMAGE_TYPES, &image.mime_type) {
            Some(mime) => Content::Image {
                bytes: data(&image.data)?.into(),
                mime,
            },
            None => omitted("an image", &image.mime_type),
        },
        ContentBlock::Audio(audio) => match known(AUDIO_TYPES, &audio.mime_type) {
            Some(mime) => Content::Audio {
                bytes: data(&audio.data)?.into(),
                mime,
            },
            None => omitted("a sound", &audio.mime_type),
        },
        ContentBlock::Resource(resource) => match &resource.resource {
            ResourceContents::TextResourceContents {
                uri, text: inside, ..
            } => text(&format!(
                "[{}]\n{inside}",
                bailiwick::text::escape(&truncate(uri, 1024))
            )),
            ResourceContents::BlobResourceContents { uri, .. } => omitted("data", uri),
            _ => omitted("something", "unknown"),
        },
        ContentBlock::ResourceLink(link) => {
            let plain =
                |text: &str, limit| bailiwick::text::escape(&truncate(text, limit)).into_owned();
            Content::Link {
                server: server.into(),
                uri: plain(&link.uri, 1024),
                name: plain(&link.name, 256),
                mime: link.mime_type.as_deref().map(|mime| plain(mime, 256)),
            }
        }
        _ => omitted("something", "unknown"),
    })
}

fn omitted(what: &str, which: &str) -> Content {
    text(&format!(
        "[{what} is left out: {}]",
        bailiwick::text::escape(&truncate(which, 1024))
    ))
}

#[cfg(test)]
mod tests {
    use rmcp::model::{MetaObject, Tool};
    use serde_json::Map;

    use super::super::classify::classify;
    use super::super::spec::ServerSpec;
    use super::*;

    fn offer(schema: Option<Value>) -> Arc<OfferedTool> {
        let mut tool = Tool::new("t", "", Map::new());
        tool.output_schema = schema
            .and_then(|schema| schema.as_object().cloned())
            .map(Into::into);
        let spec = ServerSpec::stdio("s", "x");
        let listed = classify(&[tool], spec.provider("s~1"), 1).pop().unwrap();
        listed.usable.unwrap()
    }

    #[tokio::main(flavor = "current_thread")]
    async fn read(result: Value, schema: Option<Value>) -> Result<Reply, CallError> {
        let result: CallToolResult = serde_json::from_value(result).unwrap();
        reply(&result, &offer(schema), 10_000).await
    }

    #[track_caller]
    fn assert_text(result: Value, expected: &str) {
        let reply = read(result, None).unwrap();
        let texts = reply.content.iter().map(|content| match content {
            Content::Text(text) => text.as_str().to_owned(),
            Content::Link { uri, name, .. } => format!("[{name}: {uri}]"),
            other => format!("{other:?}"),
        });
        assert_eq!(texts.collect::<Vec<_>>().join("|"), expected);
    }

    #[track_caller]
    fn refused(result: Value, schema: Option<Value>, code: Code) {
        assert_eq!(read(result, schema).unwrap_err().code(), code);
    }

    #[test]
    fn server_content_stays_text() {
        assert_text(
            json!({"content": [{"type": "text", "text": "a\u{1b}[2J\u{202e}\nb\t"}]}),
            "a\\u{1b}[2J\\u{202e}\nb\t",
        );
        assert_text(
            json!({"content": [{"type": "resource_link", "uri": "ui://evil/page", "name": "x]\n"}]}),
            "[x]\\u{a}: ui://evil/page]",
        );
        assert_text(
            json!({"content": [{"type": "resource", "resource": {"uri": "ui://evil", "mimeType": "text/html", "text": "<script>"}}]}),
            "[ui://evil]\n<script>",
        );
        assert_text(
            json!({"content": [{"type": "image", "mimeType": "image/svg+xml", "data": "AA=="}]}),
            "[an image is left out: image/svg+xml]",
        );
    }

    #[test]
    fn user_only_blocks_are_hidden_from_the_model() {
        let block = |text: &str, audience: Value| json!({"type": "text", "text": text, "annotations": {"audience": audience}});
        assert_text(
            json!({"content": [
                block("secret", json!(["user"])), block("both", json!(["user", "assistant"])),
                block("model", json!(["assistant"])), block("nobody", json!([])), {"type": "text", "text": "all"},
                {"type": "image", "mimeType": "image/png", "data": "AAEC", "annotations": {"audience": ["user"]}},
            ]}),
            "both|model|nobody|all|[for the user alone, left out: 2]",
        );
        let failed = json!({"isError": true, "content": [block("secret", json!(["user"])), {"type": "text", "text": "no"}]});
        let error = failure(&serde_json::from_value(failed).unwrap());
        assert!(error.message().ends_with("failed: no"), "{error}");
    }

    #[test]
    fn results_without_structured_content_have_none() {
        let text = |more: Value| {
            let mut result = json!({"content": [{"type": "text", "text": "a"}]});
            result
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            read(result, None).unwrap().structured().unwrap()
        };
        assert_eq!(text(json!({})), Value::Null);
        assert_eq!(text(json!({"structuredContent": {}})), Value::Null);
        assert_eq!(
            text(json!({"structuredContent": {"a": 1}})),
            json!({"a": 1})
        );
        assert_eq!(
            text(json!({"structuredContent": [1]})),
            json!({"value": [1]})
        );
        let any = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
        let with = json!({"content": [{"type": "text", "text": "a"}], "structuredContent": {}});
        let declared = read(with, Some(any)).unwrap();
        assert_eq!(declared.structured().unwrap(), json!({}));
    }

    #[test]
    fn structured_content_alone_is_also_text() {
        assert_text(
            json!({"content": [], "structuredContent": {"b": 1, "a": "x"}}),
            r#"{"b":1,"a":"x"}"#,
        );
        assert_text(json!({"content": [], "structuredContent": {}}), "{}");
        assert_text(json!({"content": []}), "");
        assert_text(
            json!({"content": [{"type": "text", "text": "told"}], "structuredContent": {"a": 1}}),
            "told",
        );
        let for_user =
            json!({"type": "text", "text": "secret", "annotations": {"audience": ["user"]}});
        assert_text(
            json!({"content": [for_user], "structuredContent": {"a": 1}}),
            r#"{"a":1}|[for the user alone, left out: 1]"#,
        );
    }

    #[test]
    fn images_of_known_types_are_kept() {
        let image = |data: &str| json!({"content": [{"type": "image", "mimeType": "image/png", "data": data}]});
        let reply = read(image("AAEC"), None).unwrap();
        let expected = Content::Image {
            bytes: vec![0, 1, 2].into(),
            mime: "image/png",
        };
        assert_eq!(reply.content, [expected]);
        refused(image("no base64"), None, Code::ServerFault);
    }

    #[test]
    fn results_that_violate_their_schema_are_rejected() {
        let schema = || {
            Some(
                json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}),
            )
        };
        let with = |structured: Value| json!({"content": [], "structuredContent": structured});
        assert!(read(with(json!({"n": 1})), schema()).is_ok());
        refused(with(json!({"n": "1"})), schema(), Code::ServerFault);
        refused(with(json!({})), schema(), Code::ServerFault);
        refused(json!({"content": []}), schema(), Code::ServerFault);
    }

    #[test]
    fn results_that_take_too_long_to_validate_are_rejected() {
        let twice = json!({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]});
        let schema = json!({"type": "object", "properties": {"x": twice}});
        let nested = |levels| (0..levels).fold(json!({}), |inner, _| json!({ "x": inner }));
        let with = |levels| json!({"content": [], "structuredContent": nested(levels)});
        assert!(read(with(5), Some(schema.clone())).is_ok());
        refused(with(50), Some(schema), Code::ServerFault);
    }

    #[test]
    fn too_large_and_too_deep_results_are_rejected() {
        let long = |bytes: usize| json!({"content": [{"type": "text", "text": "x".repeat(bytes)}]});
        assert!(read(long(9_000), None).is_ok());
        refused(long(10_000), None, Code::TooLarge);
        let empty = vec![json!({"type": "text", "text": ""}); 1000];
        refused(json!({ "content": empty }), None, Code::TooLarge);
        let deep = |levels: usize| (0..levels).fold(json!({}), |inner, _| json!({"a": inner}));
        assert!(read(json!({"content": [], "structuredContent": deep(60)}), None).is_ok());
        refused(
            json!({"content": [], "structuredContent": deep(70)}),
            None,
            Code::ServerFault,
        );
    }

    #[test]
    fn result_metadata_is_dropped() {
        let meta = json!({"granted_scopes": ["write"], "ui": {"resourceUri": "ui://x"}});
        let result = json!({"content": [], "structuredContent": {"a": 1}, "_meta": meta});
        let typed: CallToolResult = serde_json::from_value(result.clone()).unwrap();
        assert_ne!(typed.meta, Some(MetaObject::default()));
        let reply = read(result, None).unwrap();
        assert_eq!(reply.output.to_json().unwrap(), json!({"a": 1}));
    }

    #[test]
    fn failures_quote_the_server() {
        let result =
            json!({"isError": true, "content": [{"type": "text", "text": "no\u{1b} such\nday"}]});
        let error = failure(&serde_json::from_value(result).unwrap());
        assert_eq!(error.code(), Code::ServerFailed);
        assert!(error.message().ends_with("failed: no\\u{1b} such\nday"));
    }
}
