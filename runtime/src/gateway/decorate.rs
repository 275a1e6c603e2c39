//! Puts extension data of outgoing messages where its proposals name it, besides where MCP's types keep it.
//!
//! Typed SDKs drop members they do not know, so everything travels in `_meta`, `capabilities.extensions` and
//! `capabilities.experimental`, where they keep it. Clients that read raw JSON find the values where the proposals name
//! them: `capabilities.configSchema`, `annotations.intentTemplate`, `dashdash` and so on. This is the one place that
//! puts them there, for stdio, in-process streams and HTTP alike. The list of tools goes to models' clients whole, so
//! of a tool only what the proposals name is copied, and its `dashdash` is moved.

use serde_json::{Map, Value};

/// What of a tool's `_meta` is copied into its `annotations`, and its name there. Some clients send the `_meta` of a tool
/// with each call of it, where `preview` would make the call a preview.
const TOOL_ANNOTATIONS: &[(&str, &str)] = &[
    ("previews", "preview"),
    ("intentTemplate", "intentTemplate"),
];
/// What of a handshake's `_meta` is copied to the top level of the result.
const HANDSHAKE: &[(&str, &str)] = &[("configSchema", "configSchema"), DASHDASH];
const DASHDASH: (&str, &str) = ("dashdash", "dashdash");

/// Copies what stands in `_meta` of a handshake, a tool or a resource to where raw clients look for it.
///
/// Anything else is left as it is; doing it twice is doing it once.
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
    // A client that speaks the proposals' own dialect is told so by the handler; it expects a plain `true`.
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
    fn a_handshake_shows_its_schema_and_dashdash_where_the_proposals_put_them() {
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
    fn a_policy_capability_stays_an_object_for_typed_clients() {
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
    fn a_tool_shows_its_extensions_among_its_annotations() {
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
    fn what_is_no_handshake_or_list_is_left_alone() {
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
