//! Describes the members of a JSON Schema in words.

use serde::Serialize;
use serde_json::Value;

/// A member of an object.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) required: bool,
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) default: Option<Value>,
    pub(super) description: String,
    /// Members of the object, or of its items.
    pub(super) members: Vec<Member>,
}

/// Maximum depth of references and arrays to follow.
const MAX_DEPTH: usize = 8;

pub(super) fn members(schema: &Value) -> Vec<Member> {
    members_of(schema, schema, MAX_DEPTH)
}

fn members_of(whole: &Value, schema: &Value, depth: usize) -> Vec<Member> {
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| {
        required.is_some_and(|names| names.iter().any(|other| other.as_str() == Some(name)))
    };
    let properties = schema.get("properties").and_then(Value::as_object);
    let members = properties.into_iter().flatten().filter(|_| depth > 0);
    members
        .map(|(name, member)| Member {
            name: name.clone(),
            required: is_required(name),
            kind: kind(whole, member, depth),
            default: member
                .get("default")
                .filter(|value| !value.is_null())
                .cloned(),
            description: described(member),
            members: inner(whole, member, depth - 1),
        })
        .collect()
}

/// The members of the object that `schema` describes, directly or as items.
fn inner(whole: &Value, schema: &Value, depth: usize) -> Vec<Member> {
    let schema = resolve(whole, schema);
    let items = schema.get("items").map(|items| resolve(whole, items));
    members_of(whole, items.unwrap_or(schema), depth)
}

/// The target of a reference, or the schema itself.
fn resolve<'a>(whole: &'a Value, schema: &'a Value) -> &'a Value {
    let reference = schema.get("$ref").and_then(Value::as_str);
    let found = reference.and_then(|at| whole.pointer(at.trim_start_matches('#')));
    found.unwrap_or(schema)
}

impl Member {
    /// `- `path` (required, string): ...`, followed by a line for each of its own members.
    pub(super) fn line(&self) -> String {
        self.indented("")
    }

    fn indented(&self, indent: &str) -> String {
        let need = if self.required {
            "required"
        } else {
            "optional"
        };
        let default = self.default.as_ref();
        let default = default.map_or_else(String::new, |value| format!(", default `{value}`"));
        let Self {
            name,
            kind,
            description,
            ..
        } = self;
        let inner = format!("{indent}  ");
        let members = self.members.iter().map(|member| member.indented(&inner));
        let members: String = members.collect();
        format!("{indent}- `{name}` ({need}, {kind}{default}): {description}\n{members}")
    }
}

/// The description on one line.
fn described(schema: &Value) -> String {
    let text = schema.get("description").and_then(Value::as_str);
    let words: Vec<&str> = text.unwrap_or_default().split_whitespace().collect();
    words.join(" ")
}

fn kind(whole: &Value, schema: &Value, depth: usize) -> String {
    if depth == 0 {
        return "any".to_owned();
    }
    let referred = resolve(whole, schema);
    if !std::ptr::eq(referred, schema) {
        return kind(whole, referred, depth - 1);
    }
    let values = values(schema);
    if !values.is_empty() {
        return format!("one of {}", values.join(", "));
    }
    let branches = ["anyOf", "oneOf"]
        .iter()
        .find_map(|key| schema.get(key)?.as_array());
    if let Some(branches) = branches {
        let kinds = branches
            .iter()
            .map(|branch| kind(whole, branch, depth - 1))
            .filter(|kind| kind != "null");
        return alternatives(kinds);
    }
    match schema.get("type") {
        Some(Value::String(name)) if name == "array" => {
            let items = schema.get("items").unwrap_or(&Value::Null);
            format!("array of {}", kind(whole, items, depth - 1))
        }
        Some(Value::String(name)) => name.clone(),
        Some(Value::Array(names)) => {
            let names = names.iter().filter_map(Value::as_str);
            alternatives(names.filter(|name| *name != "null").map(str::to_owned))
        }
        _ => "any".to_owned(),
    }
}

/// The enumerated values of a schema.
fn values(schema: &Value) -> Vec<String> {
    let listed = schema.get("enum").and_then(Value::as_array);
    if let Some(listed) = listed {
        return listed.iter().map(code).collect();
    }
    if let Some(only) = schema.get("const") {
        return vec![code(only)];
    }
    let branches = schema.get("oneOf").and_then(Value::as_array);
    let each: Option<Vec<Vec<String>>> = branches.map(|all| all.iter().map(values).collect());
    match each {
        Some(each) if each.iter().all(|values| !values.is_empty()) => each.concat(),
        _ => Vec::new(),
    }
}

fn code(value: &Value) -> String {
    match value.as_str() {
        Some(text) => format!("`{text}`"),
        None => format!("`{value}`"),
    }
}

fn alternatives(kinds: impl Iterator<Item = String>) -> String {
    let mut seen = Vec::new();
    for kind in kinds {
        if !seen.contains(&kind) {
            seen.push(kind);
        }
    }
    if seen.is_empty() {
        return "any".to_owned();
    }
    seen.join(" or ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_are_described_in_words() {
        let schema = json!({
            "required": ["path"],
            "$defs": {"Item": {"properties": {"old": {"type": "string"}}, "required": ["old"], "type": "object"}, "Mode": {"oneOf": [{"const": "a"}, {"enum": ["b", "c"]}]}, "Loop": {"$ref": "#/$defs/Loop"}},
            "properties": {
                "path": {"type": "string", "description": "The file.\nA link is followed."},
                "mode": {"$ref": "#/$defs/Mode", "default": "a", "description": "How."},
                "count": {"type": ["integer", "null"], "default": null},
                "lines": {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
                "loop": {"$ref": "#/$defs/Loop"},
                "edits": {"type": "array", "items": {"$ref": "#/$defs/Item"}},
            },
        });
        let lines: String = members(&schema).iter().map(Member::line).collect();
        assert_eq!(
            lines,
            "- `path` (required, string): The file. A link is followed.\n\
             - `mode` (optional, one of `a`, `b`, `c`, default `\"a\"`): How.\n\
             - `count` (optional, integer): \n\
             - `lines` (optional, array of integer): \n\
             - `loop` (optional, any): \n\
             - `edits` (optional, array of object): \n  - `old` (required, string): \n"
        );
    }
}
