//! Tool definitions in the formats of model providers.

use serde_json::{Map, Value, json};

use super::ToolInfo;

impl ToolInfo {
    /// Returns the tool in the format of OpenAI's Chat Completions and compatible APIs.
    ///
    /// With `strict` the model must follow the schema: every argument is required, and optional ones may be null, which
    /// counts as absent. If the schema cannot be expressed that way, for example with arbitrary member names, `strict` is
    /// false in the result.
    ///
    /// ```
    /// # use bailiwick::tool::ToolInfo;
    /// fn request(tools: &[ToolInfo]) -> serde_json::Value {
    ///     serde_json::json!({"tools": tools.iter().map(|tool| tool.openai(true)).collect::<Vec<_>>()})
    /// }
    /// ```
    #[must_use]
    pub fn openai(&self, strict: bool) -> Value {
        let held = strict.then(|| strict_form(&self.input_schema)).flatten();
        let strict = held.is_some();
        json!({
            "type": "function",
            "function": {
                "name": self.spec.name,
                "description": self.spec.description,
                "parameters": held.unwrap_or_else(|| Value::clone(&self.input_schema)),
                "strict": strict,
            },
        })
    }

    /// Returns the tool in the format of Anthropic's Messages API.
    #[must_use]
    pub fn anthropic(&self) -> Value {
        json!({
            "name": self.spec.name,
            "description": self.spec.description,
            "input_schema": self.input_schema,
        })
    }

    /// Returns the tool as a function declaration of Gemini. A schema that its dialect cannot express, such as a recursive
    /// one, is in `parametersJsonSchema`.
    #[must_use]
    pub fn gemini(&self) -> Value {
        let mut declaration = Map::new();
        declaration.insert("name".into(), json!(self.spec.name));
        declaration.insert("description".into(), json!(self.spec.description));
        let properties = self
            .input_schema
            .get("properties")
            .and_then(Value::as_object);
        // Gemini rejects an object without members.
        if properties.is_some_and(|properties| !properties.is_empty()) {
            match gemini_form(&self.input_schema) {
                Some(parameters) => declaration.insert("parameters".into(), parameters),
                None => declaration.insert(
                    "parametersJsonSchema".into(),
                    Value::clone(&self.input_schema),
                ),
            };
        }
        Value::Object(declaration)
    }
}

/// The schema with all members required and the optional ones nullable; `None` if it contains a keyword that OpenAI
/// rejects.
fn strict_form(schema: &Value) -> Option<Value> {
    let mut node = schema.as_object()?.clone();
    for key in [
        "default",
        "examples",
        "minLength",
        "maxLength",
        "uniqueItems",
    ] {
        node.shift_remove(key);
    }
    let refused = [
        "oneOf",
        "allOf",
        "not",
        "patternProperties",
        "prefixItems",
        "if",
    ];
    if refused.iter().any(|key| node.contains_key(*key)) {
        return None;
    }
    for key in ["anyOf", "$defs"] {
        match node.get_mut(key) {
            Some(Value::Array(branches)) => {
                for branch in branches {
                    *branch = strict_form(branch)?;
                }
            }
            Some(Value::Object(definitions)) => {
                for definition in definitions.values_mut() {
                    *definition = strict_form(definition)?;
                }
            }
            _ => {}
        }
    }
    let known = ["type", "enum", "anyOf", "$ref"];
    if !known.iter().any(|key| node.contains_key(*key)) {
        return None;
    }
    match node.get("type").and_then(Value::as_str) {
        Some("object") => strict_members(&mut node)?,
        Some("array") => {
            let items = strict_form(node.get("items")?)?;
            node.insert("items".into(), items);
        }
        _ => {}
    }
    Some(Value::Object(node))
}

fn strict_members(node: &mut Map<String, Value>) -> Option<()> {
    if node
        .get("additionalProperties")
        .is_some_and(|more| *more != Value::Bool(false))
    {
        return None;
    }
    let required = node.get("required").cloned().unwrap_or_default();
    let is_required = |name: &str| {
        let names = required.as_array();
        names.is_some_and(|names| names.iter().any(|other| other == name))
    };
    let mut properties = Map::new();
    for (name, schema) in node
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let strict = strict_form(schema)?;
        let strict = if is_required(name) {
            strict
        } else {
            nullable(strict)
        };
        properties.insert(name.clone(), strict);
    }
    let names: Value = properties.keys().cloned().collect();
    node.insert("properties".into(), Value::Object(properties));
    node.insert("required".into(), names);
    node.insert("additionalProperties".into(), false.into());
    Some(())
}

/// The schema, extended to accept null.
fn nullable(mut schema: Value) -> Value {
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.push(Value::Null);
    }
    let one = schema
        .get("type")
        .and_then(Value::as_str)
        .map(str::to_owned);
    match (one, &mut schema) {
        (Some(kind), Value::Object(node)) => {
            node.insert("type".into(), json!([kind, "null"]));
            schema
        }
        _ => json!({"anyOf": [schema, {"type": "null"}]}),
    }
}

/// The schema in the OpenAPI dialect of Gemini; `None` if it cannot be expressed in it.
fn gemini_form(schema: &Value) -> Option<Value> {
    let node = schema.as_object()?;
    let mut out = Map::new();
    match node.get("type") {
        Some(Value::String(kind)) => {
            out.insert("type".into(), kind.to_uppercase().into());
        }
        Some(Value::Array(kinds)) => {
            let mut others = kinds
                .iter()
                .filter_map(Value::as_str)
                .filter(|kind| *kind != "null");
            let (only, None) = (others.next()?, others.next()) else {
                return None;
            };
            out.insert("type".into(), only.to_uppercase().into());
            out.insert("nullable".into(), true.into());
        }
        _ if node.contains_key("anyOf") || node.contains_key("oneOf") => {}
        _ => return None,
    }
    for key in ["description", "minimum", "maximum", "required"] {
        if let Some(value) = node.get(key) {
            out.insert(key.into(), value.clone());
        }
    }
    if let Some(values) = node.get("enum").and_then(Value::as_array) {
        if !values.iter().all(Value::is_string) {
            return None;
        }
        out.insert("enum".into(), values.clone().into());
    }
    if let Some(items) = node.get("items") {
        out.insert("items".into(), gemini_form(items)?);
    }
    if let Some(members) = node.get("properties").and_then(Value::as_object) {
        let members = members.iter();
        let members = members.map(|(name, member)| Some((name.clone(), gemini_form(member)?)));
        out.insert(
            "properties".into(),
            Value::Object(members.collect::<Option<_>>()?),
        );
    }
    if let Some(branches) = node.get("anyOf").or_else(|| node.get("oneOf")) {
        let branches = branches.as_array()?.iter().map(gemini_form);
        out.insert(
            "anyOf".into(),
            Value::Array(branches.collect::<Option<_>>()?),
        );
    }
    Some(Value::Object(out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::ToolSpec;

    fn info(input_schema: Value) -> ToolInfo {
        ToolInfo {
            spec: ToolSpec::new("search", "Search", "Searches."),
            input_schema: input_schema.into(),
            output_schema: json!({}).into(),
            mutates: false,
            previews: false,
            provider: None,
        }
    }

    fn schema() -> Value {
        json!({
            "type": "object", "additionalProperties": false, "required": ["pattern"],
            "properties": {
                "pattern": {"type": "string", "description": "What."},
                "mode": {"type": "string", "enum": ["lines", "files"], "default": "lines"},
                "limit": {"type": "integer", "minimum": 1},
                "edits": {"type": "array", "items": {
                    "type": "object", "additionalProperties": false, "required": ["old"],
                    "properties": {"old": {"type": "string"}, "all": {"type": "boolean"}},
                }},
            },
        })
    }

    #[test]
    fn openai_strict_makes_all_arguments_required_and_optional_ones_nullable() {
        let expected = json!({"type": "function", "function": {
            "name": "search", "description": "Searches.", "strict": true,
            "parameters": {
                "type": "object", "additionalProperties": false,
                "required": ["pattern", "mode", "limit", "edits"],
                "properties": {
                    "pattern": {"type": "string", "description": "What."},
                    "mode": {"type": ["string", "null"], "enum": ["lines", "files", null]},
                    "limit": {"type": ["integer", "null"], "minimum": 1},
                    "edits": {"type": ["array", "null"], "items": {
                        "type": "object", "additionalProperties": false, "required": ["old", "all"],
                        "properties": {"old": {"type": "string"}, "all": {"type": ["boolean", "null"]}},
                    }},
                },
            },
        }});
        assert_eq!(info(schema()).openai(true), expected);
        let plain = info(schema()).openai(false);
        assert_eq!(plain["function"]["parameters"], schema());
        assert_eq!(plain["function"]["strict"], false);
    }

    #[test]
    fn schema_unsupported_by_openai_strict_mode_is_not_strict() {
        for member in [
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            json!({"oneOf": [{"type": "string"}]}),
            json!({"type": "array"}),
            json!({}),
            json!(true),
        ] {
            let schema = json!({"type": "object", "properties": {"any": member}});
            let tool = info(schema.clone()).openai(true);
            assert_eq!(tool["function"]["strict"], false, "{schema}");
            assert_eq!(tool["function"]["parameters"], schema);
        }
    }

    #[test]
    fn anthropic_gets_the_schema_unchanged() {
        let expected =
            json!({"name": "search", "description": "Searches.", "input_schema": schema()});
        assert_eq!(info(schema()).anthropic(), expected);
    }

    #[test]
    fn gemini_gets_its_own_schema_dialect() {
        let expected = json!({
            "name": "search", "description": "Searches.",
            "parameters": {
                "type": "OBJECT", "required": ["pattern"],
                "properties": {
                    "pattern": {"type": "STRING", "description": "What."},
                    "mode": {"type": "STRING", "enum": ["lines", "files"]},
                    "limit": {"type": "INTEGER", "minimum": 1},
                    "edits": {"type": "ARRAY", "items": {
                        "type": "OBJECT", "required": ["old"],
                        "properties": {"old": {"type": "STRING"}, "all": {"type": "BOOLEAN"}},
                    }},
                },
            },
        });
        assert_eq!(info(schema()).gemini(), expected);
        let none = json!({"type": "object", "properties": {}});
        assert_eq!(info(none).gemini().get("parameters"), None);
        let recursive = json!({"type": "object", "properties": {"inner": {"$ref": "#"}}});
        let tool = info(recursive.clone()).gemini();
        assert_eq!(tool["parametersJsonSchema"], recursive);
    }
}
