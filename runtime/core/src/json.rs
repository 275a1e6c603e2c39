//! Parsing JSON without duplicate keys, and its canonical form.

use std::collections::HashSet;
use std::fmt;

use serde::de::{
    Deserialize, DeserializeOwned, Deserializer, Error, MapAccess, SeqAccess, Visitor,
};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

/// Parses JSON and rejects objects with duplicate keys.
///
/// `serde_json` keeps the last of two equal keys of a map, so one of two restrictions would be lost. Use this function
/// for policies, configurations and all other input from people or other programs.
///
/// ```
/// let policy = r#"{"read_only": true, "read_only": false}"#;
/// let error = bailiwick::json::read_json::<serde_json::Value>(policy.as_bytes()).unwrap_err();
/// assert!(error.to_string().starts_with("duplicate key `read_only`"));
/// let policy: serde_json::Value = bailiwick::json::read_json(br#"{"read_only": true}"#)?;
/// assert_eq!(policy["read_only"], true);
/// # Ok::<(), serde_json::Error>(())
/// ```
///
/// # Errors
/// [`serde_json::Error`]; its category is `Data` for a duplicate key.
pub fn read_json<T: DeserializeOwned>(text: &[u8]) -> Result<T, serde_json::Error> {
    let Unique = serde_json::from_slice(text)?;
    serde_json::from_slice(text)
}

/// Returns `value` with the keys of every object sorted, so that equal values have equal bytes.
#[must_use]
pub fn canonical(mut value: Value) -> Value {
    value.sort_all_objects();
    value
}

/// Serialises a value like [`canonical`], without copying it.
pub(crate) struct Canonical<'v>(pub(crate) &'v Value);

impl fmt::Display for Canonical<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl Serialize for Canonical<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                members.sort_unstable_by_key(|(key, _)| *key);
                let members = members.into_iter();
                serializer.collect_map(members.map(|(key, value)| (key, Canonical(value))))
            }
            Value::Array(items) => serializer.collect_seq(items.iter().map(Canonical)),
            value => value.serialize(serializer),
        }
    }
}

/// The members of an object; none of another value.
pub(crate) fn members(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

/// A JSON value without duplicate keys.
struct Unique;

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Unique {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while let Some(Self) = items.next_element()? {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self, A::Error> {
        let mut keys = HashSet::new();
        while let Some(key) = members.next_key::<String>()? {
            if keys.contains(&key) {
                let key = crate::text::escape(&key);
                return Err(A::Error::custom(format_args!("duplicate key `{key}`")));
            }
            keys.insert(key);
            let Self = members.next_value()?;
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn duplicate_keys_are_rejected_at_any_depth() {
        for text in [
            r#"{"read_only":true,"read_only":false}"#,
            r#"{"roots":[{"path":"/a","path":"/b"}]}"#,
            r#"{"read_only":true,"read_\u006fnly":false}"#,
            r#"[{"a":{"b":1,"b":1}}]"#,
        ] {
            let error = read_json::<Value>(text.as_bytes()).unwrap_err();
            assert!(error.is_data(), "{error}");
            assert!(error.to_string().starts_with("duplicate key `"), "{error}");
        }
    }

    #[test]
    fn canonical_json_is_the_same_with_and_without_a_copy() {
        let value = json!({ "b": [{ "z": 1.5, "é": "\u{2028}\n", "Z": null }, []], "a": { "2": -1, "10": true } });
        let text = r#"{"a":{"10":true,"2":-1},"b":[{"Z":null,"z":1.5,"é":"\u2028\n"},[]]}"#;
        let text = text.replace("\\u2028", "\u{2028}");
        assert_eq!(Canonical(&value).to_string(), text);
        assert_eq!(canonical(value).to_string(), text);
    }

    #[test]
    fn json_without_duplicate_keys_is_parsed_unchanged() {
        let value = json!({ "a": [null, true, -1, 1, 1.5, "x", { "a": {} }], "b": [{ "a": 1 }, { "a": 2 }] });
        let read: Value = read_json(value.to_string().as_bytes()).unwrap();
        assert_eq!(read, value);
        let error = read_json::<Value>(b"{").unwrap_err();
        assert!(error.is_eof(), "{error}");
    }
}
