//! Adds extension data to outgoing messages at the locations that the extension proposals specify.
//!
//! Typed SDKs drop unknown members, so extension data is sent in `_meta`, `capabilities.extensions` and
//! `capabilities.experimental`. Clients that read raw JSON expect it in the locations of the proposals:
//! `capabilities.configSchema`, `annotations.intentTemplate`, `dashdash` and so on. Only this module does that, for
//! stdio, in-process streams and HTTP. Models receive the whole list of tools, so for tools only the
//! members that the proposals define are copied, and `dashdash` is moved.
//!
//! The schema of the configuration is large and is in three members of a handshake, so it is kept as text.

use std::sync::Arc;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Members of a tool's `_meta` that are copied into its `annotations`, with their name there. Some clients send the
/// `_meta` of a tool with each call, where `preview` would make the call a preview.
const TOOL_ANNOTATIONS: &[(&str, &str)] = &[
    ("previews", "preview"),
    ("intentTemplate", "intentTemplate"),
];
const DASHDASH: (&str, &str) = ("dashdash", "dashdash");

/// Adds extension data to messages.
#[derive(Clone, Debug, Default)]
pub(super) struct Decorator {
    /// JSON Schema of the configuration that clients may send.
    schema: Option<Arc<RawValue>>,
}

impl Decorator {
    /// Publishes a schema in handshakes.
    pub(super) fn with_schema(schema: &impl Serialize) -> Self {
        match on_one_line(schema) {
            Ok(schema) => Self {
                schema: Some(Arc::from(schema)),
            },
            Err(error) => {
                tracing::error!(%error, "the schema of the configuration cannot be serialized and is not published");
                Self::default()
            }
        }
    }

    pub(super) fn has_schema(&self) -> bool {
        self.schema.is_some()
    }

    /// Serializes a message with the extension data of a handshake, tools or resources. Other messages are unchanged.
    pub(super) fn encode(&self, mut message: Value) -> serde_json::Result<Vec<u8>> {
        let handshake = decorate(&mut message);
        let Some((result, schema)) = handshake.zip(self.schema.as_deref()) else {
            return serde_json::to_vec(&message);
        };
        result
            .entry("_meta")
            .or_insert_with(|| Value::Object(Map::new()));
        serde_json::to_vec(&WithSchema {
            value: &message,
            schema,
            part: Part::Message,
        })
    }
}

/// The JSON text of `schema`. Line breaks end messages, and JSON texts within `schema` may contain some.
fn on_one_line(schema: &impl Serialize) -> serde_json::Result<Box<RawValue>> {
    let text = serde_json::value::to_raw_value(schema)?;
    if !text.get().contains(['\n', '\r']) {
        return Ok(text);
    }
    let value: Value = serde_json::from_str(text.get())?;
    serde_json::value::to_raw_value(&value)
}

/// A part of a handshake that is serialized with the schema.
struct WithSchema<'m> {
    value: &'m Value,
    schema: &'m RawValue,
    part: Part,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The message; its result has the schema.
    Message,
    /// The result; the schema is one of its members, and in two of them.
    Result,
    /// The schema is one of its members.
    Member,
}

impl Serialize for WithSchema<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(members) = self.value.as_object() else {
            return self.value.serialize(serializer);
        };
        let mut map = serializer.serialize_map(None)?;
        for (key, value) in members {
            let part = match (self.part, key.as_str()) {
                (Part::Message, "result") => Part::Result,
                (Part::Result, "capabilities" | "_meta") => Part::Member,
                _ => {
                    map.serialize_entry(key, value)?;
                    continue;
                }
            };
            map.serialize_entry(
                key,
                &Self {
                    value,
                    part,
                    ..*self
                },
            )?;
        }
        if self.part != Part::Message {
            map.serialize_entry("configSchema", self.schema)?;
        }
        map.end()
    }
}

/// Copies extension data to the locations of the proposals. Returns the result of a handshake.
fn decorate(message: &mut Value) -> Option<&mut Map<String, Value>> {
    let result = message.get_mut("result")?.as_object_mut()?;
    if result.contains_key("capabilities") {
        handshake(result);
        return Some(result);
    }
    for tool in items(result, "tools") {
        copy_meta(tool, TOOL_ANNOTATIONS, Some("annotations"));
        copy_meta(tool, &[DASHDASH], None);
        if let Some(Value::Object(meta)) = tool.get_mut("_meta") {
            meta.shift_remove("dashdash");
        }
    }
    for resource in items(result, "resources") {
        copy_meta(resource, &[("type", "type")], Some("annotations"));
        copy_meta(resource, &[DASHDASH], None);
    }
    None
}

fn handshake(result: &mut Map<String, Value>) {
    copy_meta(result, &[DASHDASH], None);
    // The handler marks the dialect of the proposals, whose clients expect a plain `true`.
    let policy = result
        .get_mut("capabilities")
        .and_then(|capabilities| capabilities.get_mut("experimental"))
        .and_then(|experimental| experimental.get_mut("policy"));
    if let Some(policy) = policy
        && policy.get("literal") == Some(&Value::Bool(true))
    {
        *policy = Value::Bool(true);
    }
}

fn items<'a>(
    result: &'a mut Map<String, Value>,
    key: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    let items = result.get_mut(key).and_then(Value::as_array_mut);
    items.into_iter().flatten().filter_map(Value::as_object_mut)
}

fn copy_meta(object: &mut Map<String, Value>, keys: &[(&str, &str)], into: Option<&str>) {
    let Some(Value::Object(meta)) = object.get("_meta") else {
        return;
    };
    let found: Vec<(String, Value)> = keys
        .iter()
        .filter_map(|(key, name)| Some(((*name).to_owned(), meta.get(*key)?.clone())))
        .collect();
    if found.is_empty() {
        return;
    }
    match into {
        None => object.extend(found),
        Some(inner) => {
            let inner = object
                .entry(inner)
                .or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(inner) = inner {
                inner.extend(found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn decorated(message: Value) -> Value {
        decorated_by(&Decorator::default(), message)
    }

    fn decorated_by(decorator: &Decorator, message: Value) -> Value {
        let once = decorator.encode(message).unwrap();
        serde_json::from_slice(&once).unwrap()
    }

    #[test]
    fn handshake_has_schema_and_dashdash_at_the_top_level() {
        let message = json!({"jsonrpc": "2.0", "id": 1, "result": {
            "capabilities": {"experimental": {"policy": {"enabled": true, "literal": true}}},
            "_meta": {"dashdash": {"specVersion": "0.2.0"}},
        }});
        let schema = json!({"type": "object"});
        let decorator = Decorator::with_schema(&schema);
        let result = &decorated_by(&decorator, message)["result"];
        assert_eq!(result["configSchema"], schema);
        assert_eq!(result["capabilities"]["configSchema"], schema);
        assert_eq!(
            result["_meta"],
            json!({"dashdash": {"specVersion": "0.2.0"}, "configSchema": schema})
        );
        assert_eq!(result["dashdash"]["specVersion"], "0.2.0");
        assert_eq!(
            result["capabilities"]["experimental"]["policy"],
            json!(true)
        );
    }

    #[test]
    fn schema_with_line_breaks_is_sent_on_one_line() {
        let pretty = "{\n  \"type\":\r\n \"object\"\n}".to_owned();
        let decorator = Decorator::with_schema(&RawValue::from_string(pretty).unwrap());
        let sent = decorator.encode(json!({"id": 1, "result": {"capabilities": {}}}));
        let sent = String::from_utf8(sent.unwrap()).unwrap();
        assert!(!sent.contains(['\n', '\r']), "{sent}");
        let sent: Value = serde_json::from_str(&sent).unwrap();
        assert_eq!(sent["result"]["configSchema"], json!({"type": "object"}));
    }

    #[test]
    fn schema_that_cannot_be_serialized_is_not_published() {
        let without_text = std::collections::BTreeMap::from([((1, 2), 3)]);
        assert!(!Decorator::with_schema(&without_text).has_schema());
    }

    #[test]
    fn policy_capability_is_an_object_for_typed_clients() {
        let message = json!({"id": 1, "result": {
            "capabilities": {"experimental": {"policy": {"enabled": true}}}, "_meta": {},
        }});
        let result = &decorated(message)["result"];
        assert_eq!(
            result["capabilities"]["experimental"]["policy"],
            json!({"enabled": true})
        );
    }

    #[test]
    fn tool_extensions_are_copied_to_annotations() {
        let message = json!({"id": 1, "result": {"tools": [{
            "name": "t", "annotations": {"readOnlyHint": false},
            "_meta": {"previews": true, "intentTemplate": "Edit {path}", "scopes": [], "dashdash": {}},
        }, {"name": "bare"}]}});
        let result = &decorated(message)["result"];
        assert_eq!(
            result["tools"][0]["annotations"],
            json!({"readOnlyHint": false, "preview": true, "intentTemplate": "Edit {path}"})
        );
        assert_eq!(result["tools"][0]["dashdash"], json!({}));
        assert_eq!(
            result["tools"][0]["_meta"],
            json!({"previews": true, "intentTemplate": "Edit {path}", "scopes": []})
        );
        assert_eq!(result["tools"][1], json!({"name": "bare"}));
    }

    #[test]
    fn other_messages_are_unchanged() {
        let decorator = Decorator::with_schema(&json!({}));
        for message in [
            json!({"id": 1, "result": {"content": [{"type": "text", "text": "\"tools\" \"_meta\""}]}}),
            json!({"method": "notifications/message", "params": {"tools": [], "_meta": {}}}),
            json!({"id": 1, "error": {"code": -32602, "message": "x"}}),
        ] {
            assert_eq!(decorated_by(&decorator, message.clone()), message);
        }
    }
}
