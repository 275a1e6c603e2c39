//! A message in, what is wrong with it if one of its objects has a key twice out.
//!
//! Parsers differ in which of two values they take: a filter on the way could have seen another policy, or other
//! arguments, than the one that would count here.

use std::collections::HashSet;
use std::fmt;

use rmcp::ErrorData;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// The answer to a message that has a key twice.
pub(super) fn refused(text: &[u8]) -> Option<ErrorData> {
    let reason = format!("one object has `{}` twice", crate::escape(&twice(text)?));
    Some(ErrorData::invalid_params(reason, None))
}

/// The first key that stands twice in one object of `text`, at any depth; none if `text` is no JSON, too.
fn twice(text: &[u8]) -> Option<String> {
    let mut found = None;
    let mut parser = serde_json::Deserializer::from_slice(text);
    // It fails where a key is found, and where others find that this is no JSON.
    let _ = Look(&mut found).deserialize(&mut parser);
    found
}

struct Look<'f>(&'f mut Option<String>);

impl<'de> DeserializeSeed<'de> for Look<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Look<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Look(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut keys = HashSet::new();
        while let Some(key) = members.next_key::<String>()? {
            if let Some(key) = keys.replace(key) {
                let reason = serde::de::Error::custom("a key is there twice");
                *self.0 = Some(key);
                return Err(reason);
            }
            members.next_value_seed(Look(self.0))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        assert_eq!(twice(text.as_bytes()).as_deref(), expected, "{text}");
    }

    #[test]
    fn a_key_that_is_there_twice_is_found_at_any_depth_and_in_any_spelling() {
        check(r#"{"a":1,"a":1}"#, Some("a"));
        check(
            r#"{"x":[0,-1,1.5,null,true,"s",{"y":{"b":{},"c":2,"b":3}}]}"#,
            Some("b"),
        );
        check(r#"{"policy":{},"polic\u0079":{}}"#, Some("policy"));
    }

    #[test]
    fn a_key_may_stand_in_several_objects_and_be_a_value() {
        check(r#"{"a":{"a":[{"a":1},{"a":"a"}]},"b":"a"}"#, None);
        check(r#"{"a":1,"A":2}"#, None);
        check("[]", None);
    }

    #[test]
    fn what_is_no_json_has_no_such_key() {
        check(r#"{"a":1,"#, None);
        check(&"[".repeat(10_000), None);
    }
}
