//! JSON Schemas of configuration and policy, generated from the table of keys.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::path::MAX_PATH;
use crate::policy::keys::{EnumKind, KEYS, Key, KeyScope, ValueKind};
use crate::policy::{Access, Limits, MAX_GLOB, MAX_LIST};

/// Returns the JSON Schema (2020-12) of [`Config::parse`](crate::Config::parse), for example to generate forms.
///
/// In addition to type, bounds, default and example, each key has where it is valid (`scope`), who may write it (`audience`)
/// and how layers are merged (`x-restrict`).
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
        let document = Document {
            title: "Configuration",
            about: "What workers may use, and the limits of all workers.",
            here: KeyScope::Configuration,
        };
        document.serialize(serializer)
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
    json!(Document {
        title: "Policy",
        about: "Restrictions on a worker or a call; a policy can only restrict the authority of its issuer.",
        here: KeyScope::Policy,
    })
}

/// The schema of a whole document.
struct Document {
    title: &'static str,
    about: &'static str,
    here: KeyScope,
}

impl Serialize for Document {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let dialect = "https://json-schema.org/draft/2020-12/schema";
        map.serialize_entry("$schema", dialect)?;
        map.serialize_entry("title", self.title)?;
        map.serialize_entry("description", self.about)?;
        let here = self.here;
        Object { parent: None, here }.write(&mut map)?;
        map.end()
    }
}

/// The schema of an object with the keys of `parent`; `None` stands for the whole document.
#[derive(Clone, Copy)]
struct Object {
    parent: Option<&'static str>,
    here: KeyScope,
}

impl Object {
    fn keys(self) -> impl Iterator<Item = &'static Key> {
        let keys = KEYS.iter().filter(move |key| key.parent() == self.parent);
        keys.filter(move |key| key.stands_in(self.here))
    }

    fn write<M: SerializeMap>(self, map: &mut M) -> Result<(), M::Error> {
        map.serialize_entry("type", "object")?;
        map.serialize_entry("properties", &Properties(self))?;
        map.serialize_entry("additionalProperties", &false)?;
        let required = self.keys().filter(|key| key.kind == ValueKind::Path);
        let required: Vec<_> = required.map(Key::name).collect();
        if required.is_empty() {
            return Ok(());
        }
        map.serialize_entry("required", &required)
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.write(&mut map)?;
        map.end()
    }
}

struct Properties(Object);

impl Serialize for Properties {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let here = self.0.here;
        let members = self.0.keys().map(|key| (key.name(), Member { key, here }));
        serializer.collect_map(members)
    }
}

/// The schema of the values of a key, with its description.
struct Member {
    key: &'static Key,
    here: KeyScope,
}

impl Serialize for Member {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let key = self.key;
        let mut map = serializer.serialize_map(None)?;
        self.write_values(&mut map)?;
        map.serialize_entry("description", key.about)?;
        if let Some(default) = default(key).filter(|_| self.here == KeyScope::Configuration) {
            map.serialize_entry("default", &default)?;
        }
        // An example that is not JSON would be left out, and a test fails.
        if let Ok(example) = serde_json::from_str::<&RawValue>(key.example) {
            map.serialize_entry("examples", &[example])?;
        }
        map.serialize_entry("scope", &key.scope)?;
        map.serialize_entry("audience", &key.audience)?;
        map.serialize_entry("x-restrict", &key.merge)?;
        map.end()
    }
}

impl Member {
    fn write_values<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        let (key, here) = (self.key, self.here);
        match key.kind {
            ValueKind::Flag => map.serialize_entry("type", "boolean"),
            ValueKind::Count => {
                map.serialize_entry("type", "integer")?;
                map.serialize_entry("minimum", &0)?;
                map.serialize_entry("maximum", &u64::MAX)
            }
            ValueKind::Path => {
                map.serialize_entry("type", "string")?;
                map.serialize_entry("pattern", "^/")?;
                map.serialize_entry("maxLength", &MAX_PATH)
            }
            ValueKind::OneOf(words) => {
                map.serialize_entry("type", "string")?;
                map.serialize_entry("enum", &words.all())
            }
            ValueKind::ListOf(words) => {
                write_list(map, &json!({ "type": "string", "enum": words.all() }))?;
                map.serialize_entry("uniqueItems", &true)
            }
            ValueKind::Names => write_list(map, &json!({ "type": "string" })),
            ValueKind::Globs => {
                write_list(
                    map,
                    &json!({ "type": "string", "minLength": 1, "maxLength": MAX_GLOB }),
                )?;
                map.serialize_entry("maxItems", &MAX_LIST)
            }
            ValueKind::Patterns => {
                write_list(map, &json!({ "type": "string", "pattern": pattern() }))
            }
            ValueKind::Object => {
                let parent = Some(key.key);
                Object { parent, here }.write(map)
            }
            // Roots of a restriction have the same members as `roots`, and refer to them.
            ValueKind::Objects if key.parent().is_some() => {
                let items = format!("#/properties/{}/items", key.name());
                write_list(map, &json!({ "$ref": items }))
            }
            ValueKind::Objects => {
                let parent = Some(key.key);
                write_list(map, &Object { parent, here })
            }
            ValueKind::Policy => {
                let (parent, here) = (None, KeyScope::Policy);
                Object { parent, here }.write(map)
            }
        }
    }
}

fn write_list<M: SerializeMap>(map: &mut M, items: &impl Serialize) -> Result<(), M::Error> {
    map.serialize_entry("type", "array")?;
    map.serialize_entry("items", items)
}

/// Regular expression that scope patterns match.
fn pattern() -> String {
    format!(r"^(\*|{})(:.+)?$", EnumKind::Verbs.all().join("|"))
}

/// The default of a key; `None` if the default is not one of its values.
pub(super) fn default(field: &Key) -> Option<Value> {
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
