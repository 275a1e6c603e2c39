//! Lints of intent templates against the JSON Schema of the arguments.

use std::fmt;

use serde_json::Value;

use super::{Key, Segment};

/// Maximum number of subschemas to visit for one name; references may be cyclic.
const MAX_PARTS: usize = 256;

/// A discouraged part of a template. The template can still be rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lint {
    /// A group contains several arrays. While it is repeated for one of them, the others are missing.
    MixedArrays {
        /// The arguments that are arrays.
        names: Vec<String>,
    },
    /// A placeholder names an object, or an array that no group repeats.
    NotPrimitive {
        /// The key.
        key: String,
    },
    /// A placeholder outside groups may be left as `{key}`, since the argument is optional.
    NotRequired {
        /// The key.
        key: String,
    },
    /// The arguments do not contain the name.
    UnknownKey {
        /// The key.
        key: String,
    },
}

impl fmt::Display for Lint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MixedArrays { names } => {
                write!(
                    f,
                    "one group repeats for several arrays: {}",
                    names.join(", ")
                )
            }
            Self::NotPrimitive { key } => write!(f, "{{{key}}} is an object or array"),
            Self::NotRequired { key } => {
                write!(f, "{{{key}}} is not required and stands outside brackets")
            }
            Self::UnknownKey { key } => write!(f, "{{{key}}} is not in the schema"),
        }
    }
}

pub(super) fn lints(segments: &[Segment], schema: &Value) -> Vec<Lint> {
    let schema = Schema { whole: schema };
    let mut found = Vec::new();
    for segment in segments {
        match segment {
            Segment::Text(_) => {}
            Segment::Placeholder(key) => found.extend(schema.lint(key, false)),
            Segment::Group(group) => {
                let mut keys = Vec::new();
                keys_of(group, &mut keys);
                found.extend(schema.mixed(&keys));
                found.extend(keys.iter().flat_map(|key| schema.lint(key, true)));
            }
        }
    }
    found
}

/// The arguments that placeholders name and that the schema does not have; none if the schema does not list all arguments.
pub(super) fn unknown_arguments(segments: &[Segment], schema: &Value) -> Vec<String> {
    let parts = Schema { whole: schema }.parts(vec![schema]);
    if !lists_all(&parts) {
        return Vec::new();
    }
    let mut keys = Vec::new();
    keys_of(segments, &mut keys);
    let names = keys.into_iter().map(|key| &key.name);
    let unknown = names.filter(|name| members(&parts, name).is_empty());
    unknown.cloned().collect()
}

/// Whether these parts of a schema have all properties of the object.
fn lists_all(parts: &[&Value]) -> bool {
    let open = |part: &&Value| {
        let further = part.get("additionalProperties");
        let elsewhere = part.get("$ref").and_then(Value::as_str);
        further.is_some_and(|further| *further != false)
            || part.get("patternProperties").is_some()
            || elsewhere.is_some_and(|target| !target.starts_with('#'))
    };
    parts.iter().any(|part| part.get("properties").is_some()) && !parts.iter().any(open)
}

fn keys_of<'a>(segments: &'a [Segment], keys: &mut Vec<&'a Key>) {
    for segment in segments {
        match segment {
            Segment::Text(_) => {}
            Segment::Placeholder(key) => keys.push(key),
            Segment::Group(inner) => keys_of(inner, keys),
        }
    }
}

#[derive(Clone, Copy)]
struct Schema<'s> {
    whole: &'s Value,
}

impl<'s> Schema<'s> {
    fn lint(self, key: &Key, grouped: bool) -> Vec<Lint> {
        let name = || key.to_string();
        let mut found = Vec::new();
        let mut required = true;
        let mut repeated = false;
        let mut parts = self.parts(vec![self.whole]);
        for (depth, member) in std::iter::once(&key.name).chain(&key.fields).enumerate() {
            required &= parts.iter().any(|part| requires(part, member));
            parts = self.parts(members(&parts, member));
            if parts.is_empty() {
                return vec![Lint::UnknownKey { key: name() }];
            }
            let items = self.parts(items(&parts));
            if parts.iter().any(|part| is(part, "array")) {
                repeated |= !(grouped && depth == 0);
                parts = items;
            }
        }
        if !grouped && !required {
            found.push(Lint::NotRequired { key: name() });
        }
        let composite = |part: &&Value| is(part, "object") || is(part, "array");
        if repeated || parts.iter().any(composite) {
            found.push(Lint::NotPrimitive { key: name() });
        }
        found
    }

    fn mixed(self, keys: &[&Key]) -> Option<Lint> {
        let top = self.parts(vec![self.whole]);
        let mut names: Vec<String> = Vec::new();
        for key in keys.iter().filter(|key| {
            let parts = self.parts(members(&top, &key.name));
            parts.iter().any(|part| is(part, "array"))
        }) {
            if !names.contains(&key.name) {
                names.push(key.name.clone());
            }
        }
        (names.len() > 1).then_some(Lint::MixedArrays { names })
    }

    /// The schemas, and the schemas that they refer to or are composed of.
    fn parts(self, mut schemas: Vec<&'s Value>) -> Vec<&'s Value> {
        let mut index = 0;
        while let Some(&schema) = schemas.get(index).filter(|_| index < MAX_PARTS) {
            let target = schema.get("$ref").and_then(Value::as_str);
            let target = target.and_then(|target| target.strip_prefix('#'));
            schemas.extend(target.and_then(|target| self.whole.pointer(target)));
            let of = ["anyOf", "oneOf", "allOf"].into_iter();
            let of = of.filter_map(|word| schema.get(word)?.as_array()).flatten();
            schemas.extend(of);
            index += 1;
        }
        schemas
    }
}

fn members<'s>(parts: &[&'s Value], name: &str) -> Vec<&'s Value> {
    let member = |part: &&'s Value| part.get("properties")?.get(name);
    parts.iter().filter_map(member).collect()
}

fn items<'s>(parts: &[&'s Value]) -> Vec<&'s Value> {
    parts.iter().filter_map(|part| part.get("items")).collect()
}

fn requires(part: &Value, name: &str) -> bool {
    let required = part.get("required").and_then(Value::as_array);
    required.is_some_and(|names| names.iter().any(|required| required == name))
}

fn is(part: &Value, kind: &str) -> bool {
    match part.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(|one| one == kind),
        Some(one) => one == kind,
        None => false,
    }
}
