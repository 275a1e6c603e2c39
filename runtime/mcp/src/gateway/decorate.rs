//! Copies extension data of outgoing messages to the locations that the extension proposals specify.
//!
//! Typed SDKs drop unknown members, so extension data is sent in `_meta`, `capabilities.extensions` and
//! `capabilities.experimental`. Clients that read raw JSON expect it in the locations of the proposals:
//! `capabilities.configSchema`, `annotations.intentTemplate`, `dashdash` and so on. Only this module does that, for
//! stdio, in-process streams and HTTP. Models receive the whole list of tools, so for tools only the
//! members that the proposals define are copied, and `dashdash` is moved.

use serde_json::{Map, Value};

/// Members of a tool's `_meta` that are copied into its `annotations`, with their name there. Some clients send the
/// `_meta` of a tool with each call, where `preview` would make the call a preview.
const TOOL_ANNOTATIONS: &[(&str, &str)] = &[
    ("previews", "preview"),
    ("intentTemplate", "intentTemplate"),
];
/// Members of a handshake's `_meta` that are copied to the top level of the result.
const HANDSHAKE: &[(&str, &str)] = &[("configSchema", "configSchema"), DASHDASH];
const DASHDASH: (&str, &str) = ("dashdash", "dashdash");

/// Copies extension data of a handshake, tools or resources to the locations of the proposals.
///
/// Other messages are unchanged. Idempotent.
pub(super) fn decorate(message: &mut Value) {
    let Some(Value::Object(result)) = message.get_mut("result") else {
        return;
    };
    if result.contains_key("capabilities") {
        handshake(result);
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
}

fn handshake(result: &mut Map<String, Value>) {
    copy_meta(result, HANDSHAKE, None);
    let schema = result.get("configSchema").cloned();
    let Some(Value::Object(capabilities)) = result.get_mut("capabilities") else {
        return;
    };
    if let Some(schema) = schema {
        capabilities.insert("configSchema".into(), schema);
    }
    // The handler marks the dialect of the proposals, whose clients expect a plain `true`.
    let policy = capabilities
        .get_mut("experimental")
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

    fn decorated(mut message: Value) -> Value {
        decorate(&mut message);
        let once = message.clone();
        decorate(&mut message);
        assert_eq!(once, message);
        once
    }

    #[test]
    fn handshake_has_schema_and_dashdash_at_the_top_level() {
        let message = json!({"jsonrpc": "2.0", "id": 1, "result": {
            "capabilities": {"experimental": {"policy": {"enabled": true, "literal": true}}},
            "_meta": {"configSchema": {"type": "object"}, "dashdash": {"specVersion": "0.2.0"}},
        }});
        let result = &decorated(message)["result"];
        assert_eq!(result["configSchema"], json!({"type": "object"}));
        assert_eq!(
            result["capabilities"]["configSchema"],
            result["configSchema"]
        );
        assert_eq!(result["dashdash"]["specVersion"], "0.2.0");
        assert_eq!(
            result["capabilities"]["experimental"]["policy"],
            json!(true)
        );
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
        for mut message in [
            json!({"id": 1, "result": {"content": [{"type": "text", "text": "\"tools\" \"_meta\""}]}}),
            json!({"method": "notifications/message", "params": {"tools": [], "_meta": {}}}),
            json!({"id": 1, "error": {"code": -32602, "message": "x"}}),
        ] {
            let before = message.clone();
            decorate(&mut message);
            assert_eq!(message, before);
        }
    }
}
