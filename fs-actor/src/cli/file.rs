//! Reads the configuration file.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::CliError;

/// The largest configuration file that is read, in bytes.
const MOST: u64 = 1 << 20;

pub(super) fn read(path: &Path) -> Result<Value, CliError> {
    let failed = |source| CliError::File {
        path: path.to_owned(),
        source,
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(MOST + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > MOST {
        return Err(CliError::Large {
            path: path.to_owned(),
            most: MOST,
        });
    }
    let read: Result<Unique, _> = serde_json::from_slice(&bytes);
    read.map(|unique| unique.0)
        .map_err(|source| CliError::Json {
            path: path.to_owned(),
            source,
        })
}

/// JSON in which no object has a key twice: of two restrictions one would be lost.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Self)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(Unique(item)) = items.next_element()? {
            all.push(item);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some((key, Unique(value))) = members.next_entry::<String, Unique>()? {
            if all.contains_key(&key) {
                let key = bailiwick::escape(&key);
                return Err(A::Error::custom(format_args!("duplicate key `{key}`")));
            }
            all.insert(key, value);
        }
        Ok(Value::Object(all))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Result<Value, String> {
        let read: Result<Unique, _> = serde_json::from_str(text);
        read.map(|unique| unique.0)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn duplicate_keys_are_refused_at_any_depth() {
        for text in [
            r#"{"read_only":true,"read_only":false}"#,
            r#"{"roots":[{"path":"/a","path":"/b"}]}"#,
            r#"{"read_only":true,"read_\u006fnly":false}"#,
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with("duplicate key `"), "{error}");
        }
    }

    #[test]
    fn other_json_is_read_as_it_is() {
        let value = json!({ "a": [null, true, -1, 1, 1.5, "x", { "a": {} }], "b": [] });
        assert_eq!(read(&value.to_string()), Ok(value));
        assert!(read("{").is_err());
    }
}
