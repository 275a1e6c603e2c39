//! Bounds the cost of validating values against an untrusted JSON Schema, before it is compiled.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value};

/// The largest schema, in bytes of JSON, the deepest, and the largest number of subschemas.
const MAX_BYTES: usize = 64 << 10;
const MAX_DEPTH: usize = 32;
const MAX_SUBSCHEMAS: usize = 2048;
/// The longest pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 1024;
/// The largest number of steps per value. A step takes about as long as a comparison.
const MAX_STEPS: u64 = 1 << 28;
/// The deepest recursion, which uses stack space.
const MAX_LEVELS: usize = 1024;
/// The steps of a pattern per size unit of the value, and the bytes per size unit.
const PATTERN_STEPS: u64 = 1024;
const UNIT: usize = 16;
/// The steps of `uniqueItems` per item.
const UNIQUE_STEPS: u64 = 64;
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

/// The subschemas of a schema and their cost.
#[derive(Debug)]
pub(super) struct SchemaCost {
    subschemas: Vec<Subschema>,
    patterns: usize,
}

#[derive(Debug, Default)]
struct Subschema {
    /// The steps of the subschema itself.
    steps: u64,
    /// The subschemas that apply to the same value.
    same_value: Vec<usize>,
    /// The subschemas that apply to the members of the value.
    inner_values: Vec<usize>,
}

/// The cost of validation: steps per size unit of the value, and recursion depth.
#[derive(Clone, Copy, Debug)]
struct Cost {
    steps: u64,
    levels: usize,
}

impl SchemaCost {
    pub(super) fn of(schema: &Value) -> Result<Self, SchemaFault> {
        if depth(schema) > MAX_DEPTH || schema.to_string().len() > MAX_BYTES {
            return Err(SchemaFault::TooLarge);
        }
        let revision = schema.get("$schema");
        let known = |text: &str| REVISIONS.contains(&text.trim_end_matches('#'));
        if !revision.is_none_or(|text| text.as_str().is_some_and(known))
            || changes_references(schema, true)
        {
            return Err(SchemaFault::Unsupported);
        }
        let mut walker = SubschemaWalker {
            root: schema,
            found: Vec::new(),
            indices: HashMap::new(),
            patterns: 0,
        };
        walker.index(schema);
        let mut all = Vec::new();
        while let Some(next) = walker.found.get(all.len()).copied() {
            if all.len() >= MAX_SUBSCHEMAS {
                return Err(SchemaFault::TooLarge);
            }
            all.push(walker.read(next)?);
        }
        let schema_cost = Self {
            subschemas: all,
            patterns: walker.patterns,
        };
        let mut memo = BTreeMap::new();
        let bounded = |subschema| {
            let cost = schema_cost.cost(subschema, 0, 0, &mut memo);
            cost.is_some_and(|cost| cost.steps <= MAX_STEPS && cost.levels <= MAX_LEVELS)
        };
        let bounded = (0..schema_cost.subschemas.len()).all(bounded);
        bounded.then_some(schema_cost).ok_or(SchemaFault::Costly)
    }

    /// The number of patterns.
    pub(super) fn patterns(&self) -> usize {
        self.patterns
    }

    /// Whether `value` can be validated in bounded time and stack space.
    pub(super) fn is_affordable(&self, value: &Value) -> bool {
        let cost = self.cost(0, depth(value), 0, &mut BTreeMap::new());
        cost.is_some_and(|cost| {
            cost.levels <= MAX_LEVELS && cost.steps.saturating_mul(size_units(value)) <= MAX_STEPS
        })
    }

    /// The cost of `subschema` for a value of `depth` levels; `None` if it is infinite.
    fn cost(
        &self,
        subschema: usize,
        depth: usize,
        level: usize,
        memo: &mut BTreeMap<(usize, usize), Option<Cost>>,
    ) -> Option<Cost> {
        if let Some(known) = memo.get(&(subschema, depth)) {
            return *known;
        }
        if level > MAX_LEVELS {
            return None;
        }
        // A recursion that reaches this entry again is infinite.
        memo.insert((subschema, depth), None);
        let Subschema {
            steps,
            same_value,
            inner_values,
        } = self.subschemas.get(subschema)?;
        let mut cost = Cost {
            steps: *steps,
            levels: 0,
        };
        let same_value = same_value.iter().map(|next| (next, Some(depth)));
        let inner_values = inner_values.iter().map(|next| (next, depth.checked_sub(1)));
        for (next, depth) in same_value.chain(inner_values) {
            let Some(depth) = depth else { continue };
            let next = self.cost(*next, depth, level + 1, memo)?;
            cost.steps = cost.steps.saturating_add(next.steps);
            cost.levels = cost.levels.max(next.levels);
        }
        cost.levels += 1;
        memo.insert((subschema, depth), Some(cost));
        Some(cost)
    }
}

/// The subschemas found so far; some are not read yet.
struct SubschemaWalker<'s> {
    root: &'s Value,
    found: Vec<&'s Value>,
    indices: HashMap<*const Value, usize>,
    patterns: usize,
}

impl<'s> SubschemaWalker<'s> {
    fn index(&mut self, at: &'s Value) -> usize {
        let found = &mut self.found;
        *self
            .indices
            .entry(std::ptr::from_ref(at))
            .or_insert_with(|| {
                found.push(at);
                found.len() - 1
            })
    }

    fn all(&mut self, at: impl IntoIterator<Item = &'s Value>) -> Vec<usize> {
        at.into_iter().map(|at| self.index(at)).collect()
    }

    fn read(&mut self, schema: &'s Value) -> Result<Subschema, SchemaFault> {
        let mut subschema = Subschema {
            steps: 1,
            ..Subschema::default()
        };
        match schema {
            Value::Bool(_) => {}
            Value::Object(map) => {
                for (keyword, value) in map {
                    self.keyword(keyword, value, &mut subschema)?;
                }
            }
            _ => return Err(SchemaFault::Invalid),
        }
        Ok(subschema)
    }

    fn keyword(
        &mut self,
        keyword: &str,
        value: &'s Value,
        subschema: &mut Subschema,
    ) -> Result<(), SchemaFault> {
        match keyword {
            "$ref" => {
                let target = self.target(value)?;
                subschema.same_value.push(self.index(target));
            }
            "allOf" | "anyOf" | "oneOf" => {
                let list = value.as_array().ok_or(SchemaFault::Invalid)?;
                subschema.same_value.extend(self.all(list));
            }
            "not" | "if" | "then" | "else" => subschema.same_value.push(self.index(value)),
            "dependentSchemas" | "dependencies" => {
                let map = value.as_object().ok_or(SchemaFault::Invalid)?;
                subschema.steps += count_values(value);
                let schemas = map.values().filter(|it| !it.is_array());
                subschema.same_value.extend(self.all(schemas));
            }
            "properties" | "patternProperties" => {
                let map = value.as_object().ok_or(SchemaFault::Invalid)?;
                subschema.steps += map.len() as u64;
                if keyword == "patternProperties" {
                    map.keys()
                        .try_for_each(|key| self.pattern(key, subschema))?;
                }
                subschema.inner_values.extend(self.all(map.values()));
            }
            "items" | "prefixItems" if value.is_array() => {
                subschema
                    .inner_values
                    .extend(self.all(value.as_array().into_iter().flatten()));
            }
            "items" | "additionalItems" | "additionalProperties" | "contains" | "propertyNames" => {
                subschema.inner_values.push(self.index(value));
            }
            "pattern" => {
                let pattern = value.as_str().ok_or(SchemaFault::Invalid)?;
                self.pattern(pattern, subschema)?;
            }
            "uniqueItems" => subschema.steps += UNIQUE_STEPS,
            "unevaluatedProperties" | "unevaluatedItems" => return Err(SchemaFault::Unsupported),
            "$defs" | "definitions" | "title" | "description" | "examples" | "default" => {}
            _ => subschema.steps += count_values(value),
        }
        Ok(())
    }

    fn pattern(&mut self, pattern: &str, subschema: &mut Subschema) -> Result<(), SchemaFault> {
        self.patterns += 1;
        subschema.steps += PATTERN_STEPS;
        let fits = pattern.len() <= MAX_PATTERN_BYTES;
        fits.then_some(()).ok_or(SchemaFault::Pattern)
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

/// Whether `value` contains keywords that change how references are resolved.
fn changes_references(value: &Value, top: bool) -> bool {
    const NAMES: &[&str] = &["$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef"];
    let names = |map: &Map<String, Value>| {
        let set = |key: &str| map.get(key).is_some_and(Value::is_string);
        NAMES.iter().any(|key| set(key)) || (!top && (set("$id") || set("$schema")))
    };
    match value {
        Value::Object(map) => names(map) || map.values().any(|it| changes_references(it, false)),
        Value::Array(items) => items.iter().any(|it| changes_references(it, false)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The nesting depth of `value`.
pub(super) fn depth(value: &Value) -> usize {
    match value {
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// The number of JSON values in `value`, including itself.
fn count_values(value: &Value) -> u64 {
    match value {
        Value::Object(map) => 1 + map.values().map(count_values).sum::<u64>(),
        Value::Array(items) => 1 + items.iter().map(count_values).sum::<u64>(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}

/// The size of `value` in size units.
fn size_units(value: &Value) -> u64 {
    let text = |text: &str| 1 + (text.len() / UNIT) as u64;
    match value {
        Value::Object(map) => {
            let each = map.iter().map(|(key, value)| text(key) + size_units(value));
            1 + each.sum::<u64>()
        }
        Value::Array(items) => 1 + items.iter().map(size_units).sum::<u64>(),
        Value::String(it) => text(it),
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(schema: &Value, expected: Result<usize, SchemaFault>) {
        assert_eq!(
            SchemaCost::of(schema).map(|it| it.subschemas.len()),
            expected
        );
    }

    /// Returns `links` definitions, each of which refers to the next `times` times, followed by `end`.
    pub(in super::super) fn chain(links: usize, times: usize, end: Value) -> Value {
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
        check(&json!({"type": "object"}), Ok(1));
        check(&json!(true), Ok(1));
        let usual = json!({
            "$schema": "http://json-schema.org/draft-07/schema#", "$id": "https://example.org/x",
            "type": "object", "required": ["a"], "additionalProperties": false,
            "properties": {"a": {"$ref": "#/definitions/a"}, "$id": {"type": "string", "pattern": "^a"}},
            "definitions": {"a": {"type": "array", "items": {"$ref": "#/definitions/a"}}},
        });
        check(&usual, Ok(6));
        assert_eq!(SchemaCost::of(&usual).unwrap().patterns(), 1);
    }

    #[test]
    fn invalid_and_remote_schemas_are_rejected() {
        for (schema, why) in [
            (json!(7), SchemaFault::Invalid),
            (json!({"properties": []}), SchemaFault::Invalid),
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
        check(&deep(31), Ok(32));
        check(&deep(33), Err(SchemaFault::TooLarge));
        let any_of = |count: usize| json!({"anyOf": vec![json!({}); count]});
        check(&any_of(2000), Ok(2001));
        check(&any_of(2048), Err(SchemaFault::TooLarge));
        check(
            &json!({"description": "x".repeat(65_536)}),
            Err(SchemaFault::TooLarge),
        );
    }

    #[test]
    fn exponential_and_infinite_schemas_are_rejected() {
        check(&chain(12, 2, json!({"type": "string"})), Ok(1 + 12 * 3 + 1));
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
        assert!(SchemaCost::of(&tree).unwrap().is_affordable(&nested(60)));
        let twice = json!({"properties": {"x": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}});
        let twice = SchemaCost::of(&twice).unwrap();
        assert!(twice.is_affordable(&nested(10)));
        assert!(!twice.is_affordable(&nested(40)));
        let round = chain(100, 1, json!({"properties": {"x": {"$ref": "#"}}}));
        let round = SchemaCost::of(&round).unwrap();
        assert!(round.is_affordable(&nested(3)));
        assert!(!round.is_affordable(&nested(60)));
    }

    #[test]
    fn long_values_are_validated_against_few_patterns() {
        let of = |patterns: usize| {
            let each = vec![json!({"pattern": "a"}); patterns];
            SchemaCost::of(&json!({ "allOf": each })).unwrap()
        };
        let long = json!("x".repeat(1 << 20));
        assert!(of(2).is_affordable(&long));
        assert!(!of(10).is_affordable(&long));
        assert!(of(10).is_affordable(&json!("x".repeat(1 << 16))));
    }
}
