//! A JSON Schema of an object in, its members in words out.

use serde_json::{Value, json};

/// A member of an object.
#[derive(Debug, PartialEq)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) required: bool,
    pub(super) kind: String,
    pub(super) default: Option<Value>,
    pub(super) description: String,
}

/// The deepest that references and arrays are followed.
const MOST_DEPTH: usize = 8;

pub(super) fn members(schema: &Value) -> Vec<Member> {
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| {
        required.is_some_and(|names| names.iter().any(|other| other.as_str() == Some(name)))
    };
    let properties = schema.get("properties").and_then(Value::as_object);
    let members = properties.into_iter().flatten();
    members
        .map(|(name, member)| Member {
            name: name.clone(),
            required: is_required(name),
            kind: kind(schema, member, MOST_DEPTH),
            default: member
                .get("default")
                .filter(|value| !value.is_null())
                .cloned(),
            description: described(member),
        })
        .collect()
}

impl Member {
    pub(super) fn json(&self) -> Value {
        json!({
            "name": self.name, "required": self.required, "type": self.kind, "default": self.default,
            "description": self.description,
        })
    }

    /// `- `path` (required, string): ...`
    pub(super) fn line(&self) -> String {
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
        format!("- `{name}` ({need}, {kind}{default}): {description}\n")
    }
}

/// The first paragraph of a description, on one line.
fn described(schema: &Value) -> String {
    let text = schema.get("description").and_then(Value::as_str);
    let words: Vec<&str> = text.unwrap_or_default().split_whitespace().collect();
    words.join(" ")
}

fn kind(whole: &Value, schema: &Value, depth: usize) -> String {
    if depth == 0 {
        return "any".to_owned();
    }
    let reference = schema.get("$ref").and_then(Value::as_str);
    let meant = reference.and_then(|at| whole.pointer(at.trim_start_matches('#')));
    if let Some(meant) = meant {
        return kind(whole, meant, depth - 1);
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

/// The values that are all a schema takes.
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
    use super::*;

    #[test]
    fn members_are_told_in_words() {
        let schema = json!({
            "required": ["path"],
            "$defs": {"Mode": {"oneOf": [{"const": "a"}, {"enum": ["b", "c"]}]}, "Loop": {"$ref": "#/$defs/Loop"}},
            "properties": {
                "path": {"type": "string", "description": "The file.\nA link is followed."},
                "mode": {"$ref": "#/$defs/Mode", "default": "a", "description": "How."},
                "count": {"type": ["integer", "null"], "default": null},
                "lines": {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
                "loop": {"$ref": "#/$defs/Loop"},
            },
        });
        let lines: String = members(&schema).iter().map(Member::line).collect();
        assert_eq!(
            lines,
            "- `path` (required, string): The file. A link is followed.\n\
             - `mode` (optional, one of `a`, `b`, `c`, default `\"a\"`): How.\n\
             - `count` (optional, integer): \n\
             - `lines` (optional, array of integer): \n\
             - `loop` (optional, any): \n"
        );
    }
}
