//! JSON Schemas of Rust types in the plain form that every model provider accepts.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::ToolSpec;

/// JSON Schema of the arguments or the output of a tool. It is made when it is first read, and clones share it.
///
/// ```
/// use bailiwick::tool::ToolSchema;
/// let schema = ToolSchema::from(serde_json::json!({"type": "object"}));
/// assert_eq!(schema["type"], "object");
/// ```
#[derive(Clone)]
pub struct ToolSchema(Arc<LazyLock<Value, Box<dyn FnOnce() -> Value + Send>>>);

impl ToolSchema {
    pub(super) fn new(make: impl FnOnce() -> Value + Send + 'static) -> Self {
        Self(Arc::new(LazyLock::new(Box::new(make))))
    }
}

impl From<Value> for ToolSchema {
    fn from(schema: Value) -> Self {
        Self::new(|| schema)
    }
}

impl Deref for ToolSchema {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0
    }
}

impl fmt::Debug for ToolSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Value::fmt(self, f)
    }
}

impl PartialEq for ToolSchema {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl PartialEq<Value> for ToolSchema {
    fn eq(&self, other: &Value) -> bool {
        **self == *other
    }
}

impl Serialize for ToolSchema {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Value::serialize(self, serializer)
    }
}

/// The schema of the arguments of a tool: its own, or that of their type.
pub(super) fn of_arguments<T: JsonSchema + 'static>(spec: &ToolSpec) -> ToolSchema {
    let own = spec.input_schema.clone().map(ToolSchema::from);
    own.unwrap_or_else(|| ToolSchema::new(input::<T>))
}

/// The schema of the input that `T` is deserialised from.
pub(super) fn input<T: JsonSchema>() -> Value {
    of::<T>(SchemaSettings::draft2020_12())
}

/// The schema of the output that `T` is serialised to. Members that are required in the input may be optional in it.
pub(super) fn output<T: JsonSchema>() -> Value {
    of::<T>(SchemaSettings::draft2020_12().for_serialize())
}

fn of<T: JsonSchema>(settings: SchemaSettings) -> Value {
    let settings = settings.with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let generator: SchemaGenerator = settings.into_generator();
    let mut schema = generator.into_root_schema_for::<T>().to_value();
    if let Value::Object(root) = &mut schema {
        // These are the name and the doc comment of the Rust type; the tool has its own title and description.
        root.shift_remove("title");
        root.shift_remove("description");
    }
    simplify(&mut schema);
    schema
}

/// Removes keywords that converters of model providers drop or reject, without changing the meaning of `schema`:
/// constants become an `enum`, an optional property loses its `null` (null arguments count as absent), and number
/// formats of Rust and redundant defaults are removed.
pub(super) fn simplify(schema: &mut Value) {
    let Value::Object(node) = schema else {
        return;
    };
    for (key, inner) in &mut *node {
        match (key.as_str(), inner) {
            ("properties" | "$defs" | "patternProperties", Value::Object(members)) => {
                members.values_mut().for_each(simplify);
            }
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(branches)) => {
                branches.iter_mut().for_each(simplify);
            }
            ("items" | "additionalProperties" | "not", inner) => simplify(inner),
            _ => {}
        }
    }
    without_formats(node);
    constants_as_enum(node);
    let required: Vec<String> = match node.get("required") {
        Some(Value::Array(names)) => names
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
        _ => Vec::new(),
    };
    if let Some(Value::Object(properties)) = node.get_mut("properties") {
        let optional = properties
            .iter_mut()
            .filter(|(name, _)| !required.contains(name));
        optional.for_each(|(_, property)| without_null(property));
    }
}

fn without_formats(node: &mut Map<String, Value>) {
    let format = node.get("format").and_then(Value::as_str);
    let unsigned = format.is_some_and(|format| format.starts_with("uint"));
    let rust = |format: &str| format.starts_with("int") || format == "double" || format == "float";
    if unsigned || format.is_some_and(rust) {
        node.shift_remove("format");
    }
    // This is the minimum of every unsigned type.
    if unsigned && node.get("minimum") == Some(&Value::from(0)) {
        node.shift_remove("minimum");
    }
    let empty = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    if node.get("default").is_some_and(empty) {
        node.shift_remove("default");
    }
}

/// Turns `const`, and `oneOf` where every branch is one or several constants, into one `enum`.
fn constants_as_enum(node: &mut Map<String, Value>) {
    if let Some(only) = node.shift_remove("const") {
        node.insert("enum".into(), Value::Array(vec![only]));
    }
    let Some(Value::Array(branches)) = node.get("oneOf") else {
        return;
    };
    let constants = |branch: &Value| -> Option<Vec<Value>> {
        let known = ["type", "enum", "description", "title"];
        let branch = branch.as_object()?;
        if !branch.keys().all(|key| known.contains(&key.as_str())) {
            return None;
        }
        branch.get("enum")?.as_array().cloned()
    };
    let Some(values) = branches.iter().map(constants).collect::<Option<Vec<_>>>() else {
        return;
    };
    let values = values.concat();
    let kind = values.iter().all(Value::is_string);
    node.shift_remove("oneOf");
    if kind {
        node.insert("type".into(), "string".into());
    }
    node.insert("enum".into(), values.into());
}

/// Removes `null` from the types of a property.
fn without_null(property: &mut Value) {
    let Value::Object(node) = property else {
        return;
    };
    if let Some(Value::Array(kinds)) = node.get_mut("type") {
        kinds.retain(|kind| kind != "null");
        if let [only] = kinds.as_slice() {
            let only = only.clone();
            node.insert("type".into(), only);
        }
    }
    if let Some(Value::Array(values)) = node.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    let Some(Value::Array(branches)) = node.get_mut("anyOf") else {
        return;
    };
    branches.retain(|branch| branch.get("type") != Some(&Value::from("null")));
    let merged = match branches.as_slice() {
        [Value::Object(only)] => only.clone(),
        _ => return,
    };
    node.shift_remove("anyOf");
    for (key, value) in merged {
        // Keywords of the property take precedence over those of its type.
        node.entry(key).or_insert(value);
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};
    use serde_json::json;

    use super::*;

    /// How letters compare.
    #[derive(Deserialize, Serialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    enum Case {
        /// As they are.
        Exact,
        /// Alike.
        Folded,
    }

    /// One of several.
    #[derive(Deserialize, Serialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Part {
        /// Its name.
        name: String,
    }

    #[expect(dead_code, reason = "only its schema is looked at")]
    #[derive(Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Args {
        /// The file.
        path: String,
        /// How to compare.
        #[serde(default)]
        case: Option<Case>,
        /// Parts.
        #[serde(default)]
        parts: Vec<Part>,
        count: Option<u32>,
        #[serde(default)]
        all: bool,
    }

    #[test]
    fn derived_schema_is_plain() {
        let expected = json!({
            "type": "object", "additionalProperties": false,
            "properties": {
                "path": {"type": "string", "description": "The file."},
                "case": {"type": "string", "enum": ["exact", "folded"], "description": "How to compare."},
                "parts": {"type": "array", "description": "Parts.", "items": {
                    "type": "object", "additionalProperties": false, "description": "One of several.",
                    "properties": {"name": {"type": "string", "description": "Its name."}},
                    "required": ["name"],
                }},
                "count": {"type": "integer"},
                "all": {"type": "boolean"},
            },
            "required": ["path"],
        });
        assert_eq!(input::<Args>(), expected);
    }

    #[derive(Serialize, JsonSchema)]
    struct Tree {
        inner: Vec<Tree>,
    }

    #[derive(Serialize, JsonSchema)]
    #[serde(tag = "kind", rename_all = "snake_case")]
    #[expect(dead_code, reason = "only its schema is looked at")]
    enum Shape {
        Dot,
        Line { length: Option<u32> },
    }

    #[test]
    fn recursive_and_tagged_types_keep_their_keywords() {
        assert!(output::<Tree>().to_string().contains("$ref"));
        let shape = output::<Shape>();
        assert_eq!(shape["oneOf"].as_array().map(Vec::len), Some(2));
        let length = &shape["oneOf"][1]["properties"]["length"];
        assert_eq!(
            length["type"],
            json!(["integer", "null"]),
            "it is always written"
        );
    }
}
