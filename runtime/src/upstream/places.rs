//! A stranger's schema in, what holding a value to it costs at most out; nothing is compiled and nothing is fetched.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value};

/// The largest schema, in bytes of JSON, the deepest, and the one of the most places.
const MOST_BYTES: usize = 64 << 10;
const DEEPEST: usize = 32;
const MOST_PLACES: usize = 2048;
/// The longest pattern, in bytes.
const LONGEST_PATTERN: usize = 1024;
/// The most steps that one value may take. A step is as long as a comparison.
const MOST_STEPS: u64 = 1 << 28;
/// How many steps may lie within each other: each takes room on the stack.
const MOST_LEVELS: usize = 1024;
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
pub(super) struct Places {
    all: Vec<Place>,
    patterns: usize,
}

#[derive(Debug, Default)]
struct Place {
    /// Its own steps.
    steps: u64,
    /// The places that look at the same value.
    here: Vec<usize>,
    /// The places that look at what is in the value.
    within: Vec<usize>,
}

/// What looking at a value takes: steps for each unit of its weight, and how deep they lie in each other.
#[derive(Clone, Copy, Debug)]
struct Cost {
    steps: u64,
    levels: usize,
}

impl Places {
    pub(super) fn of(schema: &Value) -> Result<Self, SchemaFault> {
        if depth(schema) > DEEPEST || schema.to_string().len() > MOST_BYTES {
            return Err(SchemaFault::TooLarge);
        }
        let revision = schema.get("$schema");
        let known = |text: &str| REVISIONS.contains(&text.trim_end_matches('#'));
        if !revision.is_none_or(|text| text.as_str().is_some_and(known)) || renames(schema, true) {
            return Err(SchemaFault::Unsupported);
        }
        let mut walk = Walk {
            root: schema,
            found: Vec::new(),
            indices: HashMap::new(),
            patterns: 0,
        };
        walk.index(schema);
        let mut all = Vec::new();
        while let Some(next) = walk.found.get(all.len()).copied() {
            if all.len() >= MOST_PLACES {
                return Err(SchemaFault::TooLarge);
            }
            all.push(walk.read(next)?);
        }
        let places = Self {
            all,
            patterns: walk.patterns,
        };
        let mut seen = BTreeMap::new();
        let bounded = |place| {
            let cost = places.cost(place, 0, 0, &mut seen);
            cost.is_some_and(|cost| cost.steps <= MOST_STEPS && cost.levels <= MOST_LEVELS)
        };
        let bounded = (0..places.all.len()).all(bounded);
        bounded.then_some(places).ok_or(SchemaFault::Costly)
    }

    /// How many patterns it has.
    pub(super) fn patterns(&self) -> usize {
        self.patterns
    }

    /// Whether `value` can be held to the schema in bounded time and on a bounded stack.
    pub(super) fn affords(&self, value: &Value) -> bool {
        let cost = self.cost(0, depth(value), 0, &mut BTreeMap::new());
        cost.is_some_and(|cost| {
            cost.levels <= MOST_LEVELS && cost.steps.saturating_mul(weight(value)) <= MOST_STEPS
        })
    }

    /// What `place` costs for a value of `depth` levels; none if there is no end of it.
    fn cost(
        &self,
        place: usize,
        depth: usize,
        level: usize,
        seen: &mut BTreeMap<(usize, usize), Option<Cost>>,
    ) -> Option<Cost> {
        if let Some(known) = seen.get(&(place, depth)) {
            return *known;
        }
        if level > MOST_LEVELS {
            return None;
        }
        // Whoever comes by here again on the way asks for what it is to answer.
        seen.insert((place, depth), None);
        let Place {
            steps,
            here,
            within,
        } = self.all.get(place)?;
        let mut cost = Cost {
            steps: *steps,
            levels: 0,
        };
        let here = here.iter().map(|next| (next, Some(depth)));
        let within = within.iter().map(|next| (next, depth.checked_sub(1)));
        for (next, depth) in here.chain(within) {
            let Some(depth) = depth else { continue };
            let next = self.cost(*next, depth, level + 1, seen)?;
            cost.steps = cost.steps.saturating_add(next.steps);
            cost.levels = cost.levels.max(next.levels);
        }
        cost.levels += 1;
        seen.insert((place, depth), Some(cost));
        Some(cost)
    }
}

/// The places found so far, some of them not read yet.
struct Walk<'s> {
    root: &'s Value,
    found: Vec<&'s Value>,
    indices: HashMap<*const Value, usize>,
    patterns: usize,
}

impl<'s> Walk<'s> {
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

    fn read(&mut self, schema: &'s Value) -> Result<Place, SchemaFault> {
        let mut place = Place {
            steps: 1,
            ..Place::default()
        };
        match schema {
            Value::Bool(_) => {}
            Value::Object(map) => {
                for (keyword, value) in map {
                    self.keyword(keyword, value, &mut place)?;
                }
            }
            _ => return Err(SchemaFault::Invalid),
        }
        Ok(place)
    }

    fn keyword(
        &mut self,
        keyword: &str,
        value: &'s Value,
        place: &mut Place,
    ) -> Result<(), SchemaFault> {
        match keyword {
            "$ref" => {
                let target = self.target(value)?;
                place.here.push(self.index(target));
            }
            "allOf" | "anyOf" | "oneOf" => {
                let list = value.as_array().ok_or(SchemaFault::Invalid)?;
                place.here.extend(self.all(list));
            }
            "not" | "if" | "then" | "else" => place.here.push(self.index(value)),
            "dependentSchemas" | "dependencies" => {
                let map = value.as_object().ok_or(SchemaFault::Invalid)?;
                place.steps += count(value);
                let schemas = map.values().filter(|it| !it.is_array());
                place.here.extend(self.all(schemas));
            }
            "properties" | "patternProperties" => {
                let map = value.as_object().ok_or(SchemaFault::Invalid)?;
                place.steps += map.len() as u64;
                if keyword == "patternProperties" {
                    map.keys().try_for_each(|key| self.pattern(key, place))?;
                }
                place.within.extend(self.all(map.values()));
            }
            "items" | "prefixItems" if value.is_array() => {
                place
                    .within
                    .extend(self.all(value.as_array().into_iter().flatten()));
            }
            "items" | "additionalItems" | "additionalProperties" | "contains" | "propertyNames" => {
                place.within.push(self.index(value));
            }
            "pattern" => {
                let pattern = value.as_str().ok_or(SchemaFault::Invalid)?;
                self.pattern(pattern, place)?;
            }
            "uniqueItems" => place.steps += UNIQUE_STEPS,
            "unevaluatedProperties" | "unevaluatedItems" => return Err(SchemaFault::Unsupported),
            "$defs" | "definitions" | "title" | "description" | "examples" | "default" => {}
            _ => place.steps += count(value),
        }
        Ok(())
    }

    fn pattern(&mut self, pattern: &str, place: &mut Place) -> Result<(), SchemaFault> {
        self.patterns += 1;
        place.steps += PATTERN_STEPS;
        let fits = pattern.len() <= LONGEST_PATTERN;
        fits.then_some(()).ok_or(SchemaFault::Pattern)
    }

    /// What a reference stands for: something of the same document, named by its way from the top.
    fn target(&self, reference: &Value) -> Result<&'s Value, SchemaFault> {
        let reference = reference.as_str().ok_or(SchemaFault::Invalid)?;
        let way = reference.strip_prefix('#').ok_or(SchemaFault::Remote)?;
        if way.contains('%') || !(way.is_empty() || way.starts_with('/')) {
            return Err(SchemaFault::Unsupported);
        }
        self.root.pointer(way).ok_or(SchemaFault::Invalid)
    }
}

/// Whether something in `value` makes references mean something else than the way from the top.
fn renames(value: &Value, top: bool) -> bool {
    const NAMES: &[&str] = &["$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef"];
    let names = |map: &Map<String, Value>| {
        let set = |key: &str| map.get(key).is_some_and(Value::is_string);
        NAMES.iter().any(|key| set(key)) || (!top && (set("$id") || set("$schema")))
    };
    match value {
        Value::Object(map) => names(map) || map.values().any(|it| renames(it, false)),
        Value::Array(items) => items.iter().any(|it| renames(it, false)),
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
fn count(value: &Value) -> u64 {
    match value {
        Value::Object(map) => 1 + map.values().map(count).sum::<u64>(),
        Value::Array(items) => 1 + items.iter().map(count).sum::<u64>(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}

/// How much there is of `value` to look at.
fn weight(value: &Value) -> u64 {
    let text = |text: &str| 1 + (text.len() / UNIT) as u64;
    match value {
        Value::Object(map) => {
            let each = map.iter().map(|(key, value)| text(key) + weight(value));
            1 + each.sum::<u64>()
        }
        Value::Array(items) => 1 + items.iter().map(weight).sum::<u64>(),
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
        assert_eq!(Places::of(schema).map(|it| it.all.len()), expected);
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
        assert_eq!(Places::of(&usual).unwrap().patterns(), 1);
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
        let wide = |places: usize| json!({"anyOf": vec![json!({}); places]});
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
        assert!(Places::of(&tree).unwrap().affords(&nested(60)));
        let twice = json!({"properties": {"x": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}});
        let twice = Places::of(&twice).unwrap();
        assert!(twice.affords(&nested(10)));
        assert!(!twice.affords(&nested(40)));
        let round = chain(100, 1, json!({"properties": {"x": {"$ref": "#"}}}));
        let round = Places::of(&round).unwrap();
        assert!(round.affords(&nested(3)));
        assert!(!round.affords(&nested(60)));
    }

    #[test]
    fn what_is_long_is_held_to_a_few_patterns_and_not_to_many() {
        let of = |patterns: usize| {
            let each = vec![json!({"pattern": "a"}); patterns];
            Places::of(&json!({ "allOf": each })).unwrap()
        };
        let long = json!("x".repeat(1 << 20));
        assert!(of(2).affords(&long));
        assert!(!of(10).affords(&long));
        assert!(of(10).affords(&json!("x".repeat(1 << 16))));
    }
}
