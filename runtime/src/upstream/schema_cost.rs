//! A stranger's schema in, what holding a value to it costs at most out; nothing is compiled and nothing is fetched.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value};

/// The largest schema, in bytes of JSON, the deepest, and the one of the most places.
const MAX_BYTES: usize = 64 << 10;
const MAX_DEPTH: usize = 32;
const MAX_SUBSCHEMAS: usize = 2048;
/// The longest pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 1024;
/// The most steps that one value may take. A step is as long as a comparison.
const MAX_STEPS: u64 = 1 << 28;
/// How many steps may lie within each other: each takes room on the stack.
const MAX_LEVELS: usize = 1024;
/// What a pattern costs for as many bytes as are one unit of a value's weight.
const PATTERN_STEPS: u64 = 1024;
const UNIT: usize = 16;
/// What `uniqueItems` costs for each item.
const UNIQUE_STEPS: u64 = 64;
/// The revisions in which the keywords below mean what they are taken for.
const REVISIONS: &[&str] = &[
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
];

/// Why a schema cannot be held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaFault {
    /// It is none.
    #[error("it is no JSON Schema")]
    Invalid,
    /// It is too large, or nests too deeply.
    #[error("it is too large or nests too deeply")]
    TooLarge,
    /// It refers to what is not in it. Nothing is fetched.
    #[error("it refers to another document")]
    Remote,
    /// It uses what is not supported: anchors, identifiers within it, `unevaluated…`, or an old revision.
    #[error(
        "it uses what is not supported: anchors, inner identifiers, `unevaluated…` or a revision before draft 7"
    )]
    Unsupported,
    /// One of its patterns is too large, none for this engine, or there are too many.
    #[error("its patterns are too large, too many, or use what takes more than linear time")]
    Pattern,
    /// It could take longer than anybody waits.
    #[error("holding a value to it could take too long")]
    Costly,
}

/// The places of a schema at which a value is looked at.
#[derive(Debug)]
pub(super) struct SchemaCost {
    subschemas: Vec<Subschema>,
    patterns: usize,
}

#[derive(Debug, Default)]
struct Subschema {
    /// Its own steps.
    steps: u64,
    /// The places that look at the same value.
    same_value: Vec<usize>,
    /// The places that look at what is in the value.
    inner_values: Vec<usize>,
}

/// What looking at a value takes: steps for each unit of its weight, and how deep they lie in each other.
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
        let mut walk = SubschemaWalker {
            root: schema,
            found: Vec::new(),
            indices: HashMap::new(),
            patterns: 0,
        };
        walk.index(schema);
        let mut all = Vec::new();
        while let Some(next) = walk.found.get(all.len()).copied() {
            if all.len() >= MAX_SUBSCHEMAS {
                return Err(SchemaFault::TooLarge);
            }
            all.push(walk.read(next)?);
        }
        let schema_cost = Self {
            subschemas: all,
            patterns: walk.patterns,
        };
        let mut seen = BTreeMap::new();
        let bounded = |subschema| {
            let cost = schema_cost.cost(subschema, 0, 0, &mut seen);
            cost.is_some_and(|cost| cost.steps <= MAX_STEPS && cost.levels <= MAX_LEVELS)
        };
        let bounded = (0..schema_cost.subschemas.len()).all(bounded);
        bounded.then_some(schema_cost).ok_or(SchemaFault::Costly)
    }

    /// How many patterns it has.
    pub(super) fn patterns(&self) -> usize {
        self.patterns
    }

    /// Whether `value` can be held to the schema in bounded time and on a bounded stack.
    pub(super) fn is_affordable(&self, value: &Value) -> bool {
        let cost = self.cost(0, depth(value), 0, &mut BTreeMap::new());
        cost.is_some_and(|cost| {
            cost.levels <= MAX_LEVELS && cost.steps.saturating_mul(size_units(value)) <= MAX_STEPS
        })
    }

    /// What `subschema` costs for a value of `depth` levels; none if there is no end of it.
    fn cost(
        &self,
        subschema: usize,
        depth: usize,
        level: usize,
        seen: &mut BTreeMap<(usize, usize), Option<Cost>>,
    ) -> Option<Cost> {
        if let Some(known) = seen.get(&(subschema, depth)) {
            return *known;
        }
        if level > MAX_LEVELS {
            return None;
        }
        // Whoever comes by here again on the way asks for what it is to answer.
        seen.insert((subschema, depth), None);
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
            let next = self.cost(*next, depth, level + 1, seen)?;
            cost.steps = cost.steps.saturating_add(next.steps);
            cost.levels = cost.levels.max(next.levels);
        }
        cost.levels += 1;
        seen.insert((subschema, depth), Some(cost));
        Some(cost)
    }
}

/// The places found so far, some of them not read yet.
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

    /// What a reference stands for: something of the same document, named by its way from the top.
    fn target(&self, reference: &Value) -> Result<&'s Value, SchemaFault> {
        let reference = reference.as_str().ok_or(SchemaFault::Invalid)?;
        let pointer = reference.strip_prefix('#').ok_or(SchemaFault::Remote)?;
        if pointer.contains('%') || !(pointer.is_empty() || pointer.starts_with('/')) {
            return Err(SchemaFault::Unsupported);
        }
        self.root.pointer(pointer).ok_or(SchemaFault::Invalid)
    }
}

/// Whether something in `value` makes references mean something else than the way from the top.
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

/// How deep `value` nests.
pub(super) fn depth(value: &Value) -> usize {
    match value {
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// How many values `value` holds, itself among them.
fn count_values(value: &Value) -> u64 {
    match value {
        Value::Object(map) => 1 + map.values().map(count_values).sum::<u64>(),
        Value::Array(items) => 1 + items.iter().map(count_values).sum::<u64>(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}

/// How much there is of `value` to look at.
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

    /// `links` definitions, each of which refers to the next `times` times, and `end`.
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
    fn what_servers_write_is_taken() {
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
    fn what_is_none_or_not_all_there_is_refused() {
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
    fn what_is_too_large_is_refused() {
        let deep = |levels: usize| (0..levels).fold(json!({}), |inner, _| json!({"not": inner}));
        check(&deep(31), Ok(32));
        check(&deep(33), Err(SchemaFault::TooLarge));
        let wide = |schema_cost: usize| json!({"anyOf": vec![json!({}); schema_cost]});
        check(&wide(2000), Ok(2001));
        check(&wide(2048), Err(SchemaFault::TooLarge));
        check(
            &json!({"description": "x".repeat(65_536)}),
            Err(SchemaFault::TooLarge),
        );
    }

    #[test]
    fn what_doubles_with_each_reference_or_has_no_end_is_refused() {
        check(&chain(12, 2, json!({"type": "string"})), Ok(1 + 12 * 3 + 1));
        check(
            &chain(40, 2, json!({"type": "string"})),
            Err(SchemaFault::Costly),
        );
        check(&json!({"allOf": [{"$ref": "#"}]}), Err(SchemaFault::Costly));
        check(&chain(600, 1, json!({})), Err(SchemaFault::Costly));
    }

    #[test]
    fn a_tree_is_held_to_its_schema_and_what_grows_with_its_depth_is_not() {
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
    fn what_is_long_is_held_to_a_few_patterns_and_not_to_many() {
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
