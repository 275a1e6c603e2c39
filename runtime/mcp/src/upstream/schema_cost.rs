//! Bounds the cost of validating values against an untrusted JSON Schema.
//!
//! A dry run follows the keywords that apply subschemas, without a decision, and counts its steps. Validation never
//! visits more, so a value is validated only if its dry run ends within the limits.

use serde_json::{Map, Value};

use super::pagination::SizeCounter;

/// The largest schema, in bytes of JSON, the deepest, and the largest number of objects in it.
pub(super) const MAX_BYTES: usize = 64 << 10;
pub(super) const MAX_DEPTH: usize = 32;
const MAX_OBJECTS: usize = 2048;
/// The longest pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 1024;
/// The largest number of steps to check a schema, and to validate a value. A step takes about as long as a comparison.
const MAX_SCHEMA_STEPS: u64 = 1 << 18;
const MAX_VALUE_STEPS: u64 = 1 << 24;
/// The deepest recursion, which uses stack space.
const MAX_LEVELS: usize = 1024;
/// The steps of a pattern per byte of a text, and of `uniqueItems` per size unit of a value.
const PATTERN_STEPS: u64 = 4;
const UNIQUE_STEPS: u64 = 4;
/// The bytes of a text per size unit.
const UNIT: usize = 16;
/// The supported versions of JSON Schema.
const REVISIONS: &[&str] = &[
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
];

/// Why a schema is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaFault {
    /// The value is not a JSON Schema.
    #[error("it is not a JSON Schema")]
    Invalid,
    /// The schema is too large or too deep.
    #[error("it is too large or nests too deeply")]
    TooLarge,
    /// The schema refers to another document. Nothing is fetched.
    #[error("it refers to another document")]
    Remote,
    /// The schema uses anchors, inner identifiers, `unevaluated…` or an unsupported version.
    #[error(
        "it uses unsupported features: anchors, inner identifiers, `unevaluated…` or a revision before draft 7"
    )]
    Unsupported,
    /// The patterns are too large, too many, or not supported in linear time.
    #[error("its patterns are too large, too many, or use what takes more than linear time")]
    Pattern,
    /// Validation could take too long.
    #[error("validating a value could take too long")]
    Costly,
}

/// Rejects a schema that is too large or nests too deeply.
pub(super) fn check_size(schema: &Value) -> Result<(), SchemaFault> {
    let fits = is_within_depth(schema, MAX_DEPTH) && SizeCounter::with_limit(MAX_BYTES).add(schema);
    fits.then_some(()).ok_or(SchemaFault::TooLarge)
}

/// Rejects a schema that is too large, is not supported, or could take too long for every value. Returns the number of
/// its patterns.
pub(super) fn check_schema(schema: &Value) -> Result<usize, SchemaFault> {
    check_size(schema)?;
    let known = |text: &str| REVISIONS.contains(&text.trim_end_matches('#'));
    let revision = schema.get("$schema");
    if !revision.is_none_or(|text| text.as_str().is_some_and(known)) {
        return Err(SchemaFault::Unsupported);
    }
    let mut check = SchemaCheck {
        root: schema,
        run: DryRun::new(schema, MAX_SCHEMA_STEPS),
        objects: 0,
        patterns: 0,
    };
    check.visit(schema, false)?;
    Ok(check.patterns)
}

/// Whether `value` can be validated against a checked schema in bounded time and stack space.
pub(super) fn is_affordable(schema: &Value, value: &Value) -> bool {
    let mut run = DryRun::new(schema, MAX_VALUE_STEPS);
    run.apply(schema, value, MAX_LEVELS).is_ok()
}

/// Checks all objects of a schema.
struct SchemaCheck<'s> {
    root: &'s Value,
    run: DryRun<'s>,
    objects: usize,
    patterns: usize,
}

impl<'s> SchemaCheck<'s> {
    /// Checks `value`. If `named`, it is a map from names to subschemas, otherwise a subschema or any other value.
    fn visit(&mut self, value: &'s Value, named: bool) -> Result<(), SchemaFault> {
        match value {
            Value::Array(items) => items.iter().try_for_each(|it| self.visit(it, false)),
            Value::Object(map) => {
                self.objects += 1;
                if self.objects > MAX_OBJECTS {
                    return Err(SchemaFault::TooLarge);
                }
                self.check_references(map, std::ptr::eq(value, self.root))?;
                self.check_patterns(map)?;
                if !named {
                    // Whatever the value is, the subschemas that apply to it must end.
                    self.run.apply(value, &Value::Null, MAX_LEVELS)?;
                }
                let is_map = |key: &str| {
                    let keys = ["properties", "patternProperties", "dependentSchemas"];
                    keys.contains(&key) || is_definitions(key)
                };
                map.iter()
                    .try_for_each(|(key, value)| self.visit(value, !named && is_map(key)))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        }
    }

    /// Rejects references to other documents, and keywords that change how references are resolved.
    fn check_references(&self, map: &Map<String, Value>, is_root: bool) -> Result<(), SchemaFault> {
        const ANCHORS: &[&str] = &["$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef"];
        let text = |key: &str| map.get(key).and_then(Value::as_str);
        if text("$ref").is_some_and(|reference| !reference.starts_with('#')) {
            return Err(SchemaFault::Remote);
        }
        let inner = !is_root && (text("$id").is_some() || text("$schema").is_some());
        if inner || ANCHORS.iter().any(|key| text(key).is_some()) {
            return Err(SchemaFault::Unsupported);
        }
        Ok(())
    }

    fn check_patterns(&mut self, map: &Map<String, Value>) -> Result<(), SchemaFault> {
        let pattern = map.get("pattern").and_then(Value::as_str);
        let keyed = map.get("patternProperties").and_then(Value::as_object);
        let keys = keyed.into_iter().flat_map(Map::keys).map(String::as_str);
        for pattern in pattern.into_iter().chain(keys) {
            self.patterns += 1;
            if pattern.len() > MAX_PATTERN_BYTES {
                return Err(SchemaFault::Pattern);
            }
        }
        Ok(())
    }
}

/// Counts the steps of applying subschemas to values.
struct DryRun<'s> {
    root: &'s Value,
    remaining: u64,
}

impl<'s> DryRun<'s> {
    fn new(root: &'s Value, remaining: u64) -> Self {
        Self { root, remaining }
    }

    fn count(&mut self, steps: u64) -> Result<(), SchemaFault> {
        let remaining = self.remaining.checked_sub(steps);
        self.remaining = remaining.ok_or(SchemaFault::Costly)?;
        Ok(())
    }

    /// Applies `schema` to `value`, with at most `levels` levels of recursion.
    fn apply(
        &mut self,
        schema: &'s Value,
        value: &Value,
        levels: usize,
    ) -> Result<(), SchemaFault> {
        let levels = levels.checked_sub(1).ok_or(SchemaFault::Costly)?;
        let Some(keywords) = schema.as_object() else {
            return self.count(size(schema));
        };
        let text = value.as_str().map_or(0, |text| text.len() / UNIT) as u64;
        self.count(1)?;
        for (keyword, argument) in keywords {
            match keyword.as_str() {
                "$ref" => {
                    // Resolving a pointer copies its text.
                    self.count(size(argument))?;
                    self.apply(self.target(argument)?, value, levels)?;
                }
                "not" | "if" | "then" | "else" => self.apply(argument, value, levels)?,
                "allOf" | "anyOf" | "oneOf" | "dependentSchemas" | "dependencies" => {
                    self.count_names(argument)?;
                    for subschema in members(argument) {
                        self.apply(subschema, value, levels)?;
                    }
                }
                "properties" => {
                    self.count_names(argument)?;
                    for (name, subschema) in argument.as_object().into_iter().flatten() {
                        if let Some(member) = value.get(name) {
                            self.apply(subschema, member, levels)?;
                        }
                    }
                }
                "patternProperties" => {
                    for (name, member) in value.as_object().into_iter().flatten() {
                        for subschema in members(argument) {
                            self.count(PATTERN_STEPS * (1 + name.len() as u64))?;
                            self.apply(subschema, member, levels)?;
                        }
                    }
                }
                "items" | "prefixItems" if argument.is_array() => {
                    for subschema in members(argument) {
                        self.apply_to_members(subschema, value, levels)?;
                    }
                }
                "items" | "additionalItems" | "additionalProperties" | "contains" => {
                    self.count_names(value)?;
                    self.apply_to_members(argument, value, levels)?;
                }
                "propertyNames" => {
                    self.count_names(value)?;
                    for name in value.as_object().into_iter().flat_map(Map::keys) {
                        self.apply(argument, &Value::String(name.clone()), levels)?;
                    }
                }
                "pattern" => {
                    let bytes = value.as_str().map_or(0, str::len);
                    self.count(PATTERN_STEPS * bytes as u64)?;
                }
                "uniqueItems" => self.count(UNIQUE_STEPS * size(value))?,
                "const" | "enum" => self.count(size(argument) + size(value))?,
                "unevaluatedProperties" | "unevaluatedItems" => {
                    return Err(SchemaFault::Unsupported);
                }
                "title" | "description" | "default" | "examples" => {}
                keyword if is_definitions(keyword) => {}
                // Keywords such as `maxLength` read the whole text.
                _ => self.count(size(argument) + text)?,
            }
        }
        Ok(())
    }

    /// Counts the names in `value`, if it is an object. They are copied or compared.
    fn count_names(&mut self, value: &Value) -> Result<(), SchemaFault> {
        let mut names = value.as_object().into_iter().flat_map(Map::keys);
        names.try_for_each(|name| self.count(text_size(name)))
    }

    fn apply_to_members(
        &mut self,
        schema: &'s Value,
        value: &Value,
        levels: usize,
    ) -> Result<(), SchemaFault> {
        members(value).try_for_each(|member| self.apply(schema, member, levels))
    }

    /// Resolves a reference, which must be a JSON pointer within the document.
    fn target(&self, reference: &Value) -> Result<&'s Value, SchemaFault> {
        let reference = reference.as_str().ok_or(SchemaFault::Invalid)?;
        let pointer = reference.strip_prefix('#').ok_or(SchemaFault::Remote)?;
        if pointer.contains('%') || !(pointer.is_empty() || pointer.starts_with('/')) {
            return Err(SchemaFault::Unsupported);
        }
        self.root.pointer(pointer).ok_or(SchemaFault::Invalid)
    }
}

/// Whether a keyword has subschemas that apply only where they are referenced.
fn is_definitions(keyword: &str) -> bool {
    matches!(keyword, "$defs" | "definitions")
}

/// The members of an array or object.
fn members(value: &Value) -> impl Iterator<Item = &Value> {
    let items = value.as_array().into_iter().flatten();
    items.chain(value.as_object().into_iter().flat_map(Map::values))
}

/// Whether `value` has at most `levels` levels of arrays and objects.
pub(super) fn is_within_depth(value: &Value, levels: usize) -> bool {
    let is_nested = value.is_array() || value.is_object();
    !is_nested || (levels > 0 && members(value).all(|it| is_within_depth(it, levels - 1)))
}

/// The size of a text in size units.
fn text_size(text: &str) -> u64 {
    1 + (text.len() / UNIT) as u64
}

/// The size of `value` in size units.
fn size(value: &Value) -> u64 {
    match value {
        Value::Object(map) => {
            let each = map.iter().map(|(key, value)| text_size(key) + size(value));
            1 + each.sum::<u64>()
        }
        Value::Array(items) => 1 + items.iter().map(size).sum::<u64>(),
        Value::String(it) => text_size(it),
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::schema::SchemaValidator;
    use super::*;

    #[track_caller]
    fn check(schema: &Value, expected: Result<(), SchemaFault>) {
        assert_eq!(check_schema(schema).map(|_| ()), expected, "{schema}");
    }

    /// Returns `links` definitions, each of which refers to the next `times` times, followed by `end`.
    fn chain(links: usize, times: usize, end: Value) -> Value {
        let link = |next: usize| {
            let next = json!({"$ref": format!("#/$defs/{next}")});
            json!({"allOf": vec![next; times]})
        };
        let mut all: Map<String, Value> = (0..links)
            .map(|it| (it.to_string(), link(it + 1)))
            .collect();
        all.insert(links.to_string(), end);
        json!({"$ref": "#/$defs/0", "$defs": all})
    }

    fn nested(levels: usize) -> Value {
        (0..levels).fold(json!({}), |inner, _| json!({ "x": inner }))
    }

    #[test]
    fn common_schemas_are_accepted() {
        check(&json!({"type": "object"}), Ok(()));
        check(&json!(true), Ok(()));
        let usual = json!({
            "$schema": "http://json-schema.org/draft-07/schema#", "$id": "https://example.org/x",
            "type": "object", "required": ["a"], "additionalProperties": false,
            "properties": {"a": {"$ref": "#/definitions/a"}, "$id": {"type": "string", "pattern": "^a"}},
            "definitions": {"a": {"type": "array", "items": {"$ref": "#/definitions/a"}}},
        });
        check(&usual, Ok(()));
        assert_eq!(check_schema(&usual), Ok(1));
    }

    #[test]
    fn invalid_and_remote_schemas_are_rejected() {
        for (schema, why) in [
            (json!({"$ref": "#/nowhere"}), SchemaFault::Invalid),
            (
                json!({"$ref": "https://example.org/schema.json"}),
                SchemaFault::Remote,
            ),
            (
                json!({"not": {"$ref": "other.json#/a"}}),
                SchemaFault::Remote,
            ),
            (json!({"$ref": "file:///etc/passwd"}), SchemaFault::Remote),
            (
                json!({"$ref": "#name", "$defs": {"a": {"$anchor": "name"}}}),
                SchemaFault::Unsupported,
            ),
            (
                json!({"$defs": {"a": {"$id": "https://example.org"}}}),
                SchemaFault::Unsupported,
            ),
            (
                json!({"$schema": "https://example.org/mine"}),
                SchemaFault::Unsupported,
            ),
            (
                json!({"$schema": "http://json-schema.org/draft-04/schema#"}),
                SchemaFault::Unsupported,
            ),
            (
                json!({"unevaluatedProperties": false}),
                SchemaFault::Unsupported,
            ),
            (json!({"pattern": "x".repeat(2000)}), SchemaFault::Pattern),
        ] {
            check(&schema, Err(why));
        }
    }

    #[test]
    fn too_large_schemas_are_rejected() {
        let deep = |levels: usize| (0..levels).fold(json!({}), |inner, _| json!({"not": inner}));
        check(&deep(31), Ok(()));
        check(&deep(33), Err(SchemaFault::TooLarge));
        let any_of = |count: usize| json!({"anyOf": vec![json!({}); count]});
        check(&any_of(2000), Ok(()));
        check(&any_of(2048), Err(SchemaFault::TooLarge));
        check(
            &json!({"description": "x".repeat(65_536)}),
            Err(SchemaFault::TooLarge),
        );
    }

    #[test]
    fn exponential_and_infinite_schemas_are_rejected() {
        check(&chain(12, 2, json!({"type": "string"})), Ok(()));
        check(
            &chain(40, 2, json!({"type": "string"})),
            Err(SchemaFault::Costly),
        );
        check(&json!({"allOf": [{"$ref": "#"}]}), Err(SchemaFault::Costly));
        check(&chain(600, 1, json!({})), Err(SchemaFault::Costly));
    }

    #[test]
    fn recursive_schemas_are_bounded_by_depth() {
        let tree = json!({"properties": {"x": {"$ref": "#"}}});
        check(&tree, Ok(()));
        assert!(is_affordable(&tree, &nested(60)));
        let twice = json!({"properties": {"x": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}});
        check(&twice, Ok(()));
        assert!(is_affordable(&twice, &nested(10)));
        assert!(!is_affordable(&twice, &nested(40)));
        let round = chain(100, 1, json!({"properties": {"x": {"$ref": "#"}}}));
        check(&round, Ok(()));
        assert!(is_affordable(&round, &nested(3)));
        assert!(!is_affordable(&round, &nested(60)));
    }

    #[test]
    fn long_values_are_validated_against_few_patterns() {
        let of = |patterns: usize| {
            let each = vec![json!({"pattern": "a"}); patterns];
            json!({ "allOf": each })
        };
        let long = json!("x".repeat(1 << 20));
        assert!(is_affordable(&of(2), &long));
        assert!(!is_affordable(&of(10), &long));
        assert!(is_affordable(&of(10), &json!("x".repeat(1 << 16))));
        let often = chain(12, 2, json!({"maxLength": 1}));
        assert!(is_affordable(&often, &json!("x")));
        assert!(!is_affordable(&often, &long));
    }

    #[test]
    fn long_names_are_charged_by_length() {
        let name = "n".repeat(30_000);
        let value = json!({ &name: 1 });
        let pointer = format!("#/$defs/{name}");
        for end in [
            json!({"propertyNames": true}),
            json!({"properties": { &name: true }}),
            json!({"additionalProperties": true}),
            json!({"dependentSchemas": { &name: true }}),
            json!({ "$ref": pointer }),
        ] {
            let mut often = chain(14, 2, end.clone());
            often["$defs"][&name] = json!(true);
            let keyword = end.as_object().and_then(|end| end.keys().next()).cloned();
            assert!(!is_affordable(&often, &value), "{keyword:?}");
            let mut once = end;
            once["$defs"] = json!({ &name: true });
            assert!(is_affordable(&once, &value), "{keyword:?}");
        }
    }

    #[tokio::test]
    async fn deepest_accepted_value_fits_a_pool_thread_stack() {
        let round = chain(15, 1, json!({"properties": {"x": {"$ref": "#"}}}));
        let deepest = (0..64).take_while(|levels| is_affordable(&round, &nested(*levels)));
        let deepest = deepest.last().unwrap();
        assert!((20..40).contains(&deepest), "{deepest}");
        let validator = SchemaValidator::new(round).await.unwrap();
        assert_eq!(validator.is_valid(nested(deepest)).await, Ok(true));
    }
}
