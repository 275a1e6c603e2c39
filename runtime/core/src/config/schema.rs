//! JSON Schemas of configuration and policy, generated from the table of keys.

use serde::ser::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::path::MAX_PATH;
use crate::policy::keys::{EnumKind, KEYS, Key, KeyScope, ValueKind};
use crate::policy::{Access, Limits, MAX_GLOB, MAX_LIST};

/// Returns the JSON Schema (2020-12) of [`Config::parse`](crate::Config::parse), for example to generate forms.
///
/// In addition to type, bounds, default and example, each key has its scope (`scope`), who may write it (`audience`) and
/// how layers are merged (`x-restrict`).
///
/// ```
/// let schema = bailiwick::config::config_schema();
/// assert_eq!(schema["properties"]["read_max_bytes"]["x-restrict"], "min");
/// ```
#[must_use]
pub fn config_schema() -> Value {
    json!(ConfigSchema)
}

/// With `serde_json`, serializes as [`config_schema`], without building that value first.
#[derive(Clone, Copy, Debug)]
pub struct ConfigSchema;

impl Serialize for ConfigSchema {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let about = "What people open to workers, and the limits of all of them.";
        document("Configuration", about, KeyScope::Configuration).serialize(serializer)
    }
}

/// Returns the JSON Schema (2020-12) of [`Policy::parse`](crate::Policy::parse), for example for `_meta.policy` of a call.
///
/// ```
/// let schema = bailiwick::config::policy_schema();
/// assert!(schema["properties"].get("grantable").is_none());
/// ```
#[must_use]
pub fn policy_schema() -> Value {
    let about = "What a worker or a call is kept to: it can only restrict what its issuer holds.";
    json!(document("Policy", about, KeyScope::Policy))
}

/// A part of a schema.
enum Part {
    Text(&'static str),
    Texts(Vec<&'static str>),
    Value(Value),
    /// A list with one value, given as JSON.
    Example(&'static RawValue),
    Object(Object),
}

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Texts(texts) => texts.serialize(serializer),
            Self::Value(value) => value.serialize(serializer),
            Self::Example(text) => [text].serialize(serializer),
            Self::Object(object) => object.serialize(serializer),
        }
    }
}

impl<V: Into<Value>> From<V> for Part {
    fn from(value: V) -> Self {
        Self::Value(value.into())
    }
}

/// A JSON object whose members keep their order.
struct Object(Vec<(&'static str, Part)>);

impl Object {
    /// A schema of values of type `name`.
    fn typed(name: &'static str) -> Self {
        Self(vec![("type", Part::Text(name))])
    }

    fn with(mut self, name: &'static str, part: impl Into<Part>) -> Self {
        self.0.push((name, part.into()));
        self
    }
}

impl From<Object> for Part {
    fn from(object: Object) -> Self {
        Self::Object(object)
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, part)| (name, part)))
    }
}

fn document(title: &'static str, about: &'static str, here: KeyScope) -> Object {
    let mut schema = Object(vec![
        (
            "$schema",
            Part::Text("https://json-schema.org/draft/2020-12/schema"),
        ),
        ("title", Part::Text(title)),
        ("description", Part::Text(about)),
    ]);
    schema.0.extend(object(None, here).0);
    schema
}

/// An object of the keys of `parent`.
fn object(parent: Option<&str>, here: KeyScope) -> Object {
    let keys = KEYS.iter().filter(|field| field.parent() == parent);
    let keys = keys.filter(|field| field.stands_in(here));
    let required = keys.clone().filter(|field| field.kind == ValueKind::Path);
    let required: Vec<_> = required.map(Key::name).collect();
    let properties = keys.map(|field| (field.name(), Part::Object(member(field, here))));
    let object = Object::typed("object")
        .with("properties", Object(properties.collect()))
        .with("additionalProperties", false);
    if required.is_empty() {
        object
    } else {
        object.with("required", Part::Texts(required))
    }
}

fn member(field: &Key, here: KeyScope) -> Object {
    let mut schema = values(field, here).with("description", Part::Text(field.about));
    if let Some(default) = default(field).filter(|_| here == KeyScope::Configuration) {
        schema = schema.with("default", default);
    }
    // An example that is not JSON would be left out, and a test fails.
    if let Ok(example) = serde_json::from_str(field.example) {
        schema = schema.with("examples", Part::Example(example));
    }
    schema
        .with("scope", json!(field.scope))
        .with("audience", json!(field.audience))
        .with("x-restrict", json!(field.merge))
}

/// The schema of the values of a key.
fn values(field: &Key, here: KeyScope) -> Object {
    match field.kind {
        ValueKind::Flag => Object::typed("boolean"),
        ValueKind::Count => Object::typed("integer")
            .with("minimum", 0)
            .with("maximum", u64::MAX),
        ValueKind::Path => Object::typed("string")
            .with("pattern", Part::Text("^/"))
            .with("maxLength", MAX_PATH),
        ValueKind::OneOf(words) => word(words),
        ValueKind::ListOf(words) => list(word(words)).with("uniqueItems", true),
        ValueKind::Names => list(Object::typed("string")),
        ValueKind::Globs => {
            let glob = Object::typed("string")
                .with("minLength", 1)
                .with("maxLength", MAX_GLOB);
            list(glob).with("maxItems", MAX_LIST)
        }
        ValueKind::Patterns => list(Object::typed("string").with("pattern", pattern())),
        ValueKind::Object => object(Some(field.key), here),
        // Roots of a restriction have the same members as roots.
        ValueKind::Objects => list(object(Some(field.name()), here)),
        ValueKind::Policy => object(None, KeyScope::Policy),
    }
}

fn list(items: Object) -> Object {
    Object::typed("array").with("items", items)
}

fn word(words: EnumKind) -> Object {
    Object::typed("string").with("enum", Part::Texts(words.all()))
}

/// Regular expression that scope patterns match.
fn pattern() -> String {
    format!(r"^(\*|{})(:.+)?$", EnumKind::Verbs.all().join("|"))
}

/// The default of a key; `None` if the default is not one of its values.
fn default(field: &Key) -> Option<Value> {
    let limits = Limits::default();
    match field.key {
        "roots/access" | "access" => Some(json!(Access::default())),
        "follow_symlinks" => Some(json!(true)),
        "read_max_bytes" => Some(json!(limits.read_max_bytes)),
        "write_max_bytes" => Some(json!(limits.write_max_bytes)),
        "max_results" => Some(json!(limits.max_results)),
        "budget" => Some(json!({})),
        // For these keys, an absent value has a different meaning from every value.
        "allow_escape" | "allow_scopes" | "ask_scopes" | "tools" => None,
        _ => match field.kind {
            ValueKind::Flag => Some(json!(false)),
            ValueKind::Count if field.parent().is_none() => Some(json!(0)),
            ValueKind::ListOf(words) => Some(json!(words.all())),
            ValueKind::Globs | ValueKind::Patterns | ValueKind::Objects => Some(json!([])),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;
    use crate::config::Config;
    use crate::policy::{Authority, Policy};

    fn validator(schema: &Value) -> jsonschema::Validator {
        assert!(jsonschema::meta::is_valid(schema));
        jsonschema::draft202012::new(schema).unwrap()
    }

    /// A document in which `field` alone stands, with `value`.
    fn alone(field: &Key, value: &Value) -> Value {
        match field.parent() {
            None => json!({ field.name(): value }),
            Some("roots") if field.name() == "path" => json!({ "roots": [{ "path": value }] }),
            Some("roots") => json!({ "roots": [{ "path": "/r", field.name(): value }] }),
            Some("restrictions") => json!({ "restrictions": [{ field.name(): value }] }),
            Some(parent) => json!({ parent: { field.name(): value } }),
        }
    }

    fn example(field: &Key) -> Value {
        serde_json::from_str(field.example).unwrap()
    }

    /// One value that the kind takes, and some that it does not.
    fn values_of(kind: ValueKind) -> (Value, Vec<Value>) {
        let texts = json!(["a"]);
        match kind {
            ValueKind::Flag => (json!(true), vec![json!(1), json!("true"), texts]),
            ValueKind::Count => (
                json!(u64::MAX),
                vec![json!(-1), json!(1.5), json!("1"), texts],
            ),
            ValueKind::Path => (json!("/x"), vec![json!("x"), json!(""), texts]),
            ValueKind::OneOf(words) => (json!(words.all()[0]), vec![json!("else"), texts]),
            ValueKind::ListOf(words) => (json!(words.all()), vec![json!("else"), texts]),
            ValueKind::Names => (texts, vec![json!("a"), json!([1])]),
            ValueKind::Globs => (texts, vec![json!("a"), json!([1]), json!([""])]),
            ValueKind::Patterns => (
                json!(["*", "read", "read:*", "write:file:/x"]),
                vec![json!("read"), json!(["fly"]), json!(["reader"]), texts],
            ),
            ValueKind::Object => (json!({}), vec![texts, json!({ "else": 1 })]),
            ValueKind::Objects => (json!([]), vec![texts, json!([{ "else": 1 }]), json!({})]),
            ValueKind::Policy => (
                json!({ "max_calls": 1 }),
                vec![texts, json!({ "else": 1 }), json!({ "grantable": [] })],
            ),
        }
    }

    #[track_caller]
    fn agree(schema: &jsonschema::Validator, document: &Value, parses: bool, expected: bool) {
        assert_eq!(
            (schema.is_valid(document), parses),
            (expected, expected),
            "{document}"
        );
    }

    #[test]
    fn schema_and_parser_agree_on_every_key_and_kind() {
        let (config, policy) = (validator(&config_schema()), validator(&policy_schema()));
        for field in KEYS {
            let (good, bad) = values_of(field.kind);
            let all = bad.into_iter().map(|value| (value, false));
            for (value, right) in all.chain([(good, true), (example(field), true)]) {
                let document = alone(field, &value);
                let here = field.stands_in(KeyScope::Configuration) && right;
                agree(&config, &document, Config::parse(&document).is_ok(), here);
                let here = field.stands_in(KeyScope::Policy) && right;
                agree(&policy, &document, Policy::parse(&document).is_ok(), here);
            }
        }
    }

    #[test]
    fn serialized_schema_is_one_line_and_equals_the_value() {
        let text = serde_json::to_string(&ConfigSchema).unwrap();
        assert!(!text.contains(['\n', '\r']));
        assert_eq!(
            serde_json::from_str::<Value>(&text).unwrap(),
            config_schema()
        );
    }

    #[test]
    fn unknown_keys_are_rejected_by_schema_and_parser() {
        let (config, policy) = (validator(&config_schema()), validator(&policy_schema()));
        for document in [
            json!({ "root": [] }),
            json!({ "roots": [{ "path": "/r", "host": "/x" }] }),
            json!({ "budget": { "depth": 1 } }),
        ] {
            agree(&config, &document, Config::parse(&document).is_ok(), false);
            agree(&policy, &document, Policy::parse(&document).is_ok(), false);
        }
    }

    #[test]
    fn schema_describes_each_key() {
        let schema = config_schema();
        for field in KEYS {
            let at = match field.parent() {
                None => format!("/properties/{}", field.name()),
                Some(parent @ ("roots" | "restrictions")) => {
                    format!("/properties/{parent}/items/properties/{}", field.name())
                }
                Some(parent) => format!("/properties/{parent}/properties/{}", field.name()),
            };
            let member = schema.pointer(&at).unwrap();
            assert_eq!(
                [
                    &member["scope"],
                    &member["audience"],
                    &member["x-restrict"],
                    &member["description"]
                ],
                [
                    &json!(field.scope),
                    &json!(field.audience),
                    &json!(field.merge),
                    &json!(field.about)
                ],
                "{at}"
            );
            assert_eq!(member["examples"], json!([example(field)]), "{at}");
        }
    }

    #[test]
    fn explicit_defaults_change_nothing() {
        let silent = Authority::configured(&Config::new()).unwrap();
        let mut all = Map::new();
        for field in KEYS.iter().filter(|field| field.parent().is_none()) {
            all.extend(default(field).map(|value| (field.key.to_owned(), value)));
        }
        let config = Config::parse(&Value::Object(all)).unwrap();
        let written = Authority::configured(&config).unwrap();
        assert_eq!(
            (written.limits(), written.flags(), written.access()),
            (silent.limits(), silent.flags(), silent.access())
        );
        for need in ["read:file:/x", "write:mcp:x", "execute:cli:x"] {
            let need = need.parse().unwrap();
            assert_eq!(written.explain(&need, &[]), silent.explain(&need, &[]));
        }
        assert_eq!(default(Key::find("max_calls").unwrap()), Some(json!(0)));
        assert_eq!(
            default(Key::find("read_max_bytes").unwrap()),
            Some(json!(1 << 20))
        );
    }

    #[test]
    fn configuration_round_trips_and_fits_its_schema() {
        let mut document = Map::new();
        for field in KEYS.iter().filter(|field| field.parent().is_none()) {
            document.insert(field.key.to_owned(), example(field));
        }
        let full = json!([{
            "path": "/r", "default": true, "optional": true, "access": "read", "blocked": false,
            "allow": ["a"], "deny": ["b"], "immutable": ["c"],
        }]);
        let restrictions = json!([{ "roots": full, "policy": { "deny": ["d"], "max_calls": 1 } }]);
        document.insert("restrictions".to_owned(), restrictions);
        document.insert("roots".to_owned(), full);
        let document = Value::Object(document);
        let config = Config::parse(&document).unwrap();
        assert_eq!(config.to_json(), document);
        for config in [config, Config::new()] {
            let written = config.to_json();
            assert!(validator(&config_schema()).is_valid(&written), "{written}");
            assert_eq!(Config::parse(&written).unwrap(), config);
        }
    }
}
