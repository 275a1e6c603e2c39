//! Names of the fields of a struct, without its schema, which takes much longer to make.

use serde::de::value::Error;
use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor};
use serde::forward_to_deserialize_any;

/// The names that `T` is deserialized with; none if it is not a struct that derives `Deserialize`.
pub(super) fn fields_of<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut fields: &[&str] = &[];
    // Nothing is deserialized, so this is always an error.
    let _ = T::deserialize(FieldNames(&mut fields));
    fields
}

/// Takes the names of the fields from the request of a struct for its values.
struct FieldNames<'f>(&'f mut &'static [&'static str]);

impl<'de> Deserializer<'de> for FieldNames<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("there are no values"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::Value;

    use super::*;

    #[expect(dead_code, reason = "only its fields are looked at")]
    #[derive(Deserialize)]
    struct Args {
        path: String,
        #[serde(rename = "type", alias = "kind")]
        kind: Option<u32>,
        #[serde(skip)]
        internal: u32,
    }

    #[expect(dead_code, reason = "only its fields are looked at")]
    #[derive(Deserialize)]
    struct Flattened {
        path: String,
        #[serde(flatten)]
        args: Value,
    }

    #[test]
    fn fields_of_structs_are_found() {
        let found = fields_of::<Args>();
        assert!(found.contains(&"path") && found.contains(&"type"));
        assert!(!found.contains(&"internal"));
        assert!(fields_of::<Flattened>().is_empty());
        assert!(fields_of::<Value>().is_empty() && fields_of::<()>().is_empty());
    }
}
