//! Parses a policy from JSON. Errors contain the JSON pointer of the invalid member.

use std::collections::BTreeMap;

use serde::de::{DeserializeOwned, Error as _, IntoDeserializer, value};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::Policy;
use super::error::PolicyError;
use super::globs;
use super::keys::{EnumKind, KEYS, Key, KeyScope, ValueKind};
use crate::path::VirtualPath;
use crate::scope::ScopePattern;

/// Maximum number of entries of all lists of one policy.
const MAX_ENTRIES: usize = 1024;
/// Maximum number of bytes of all texts of one policy.
const MAX_TEXT: usize = 256 << 10;

/// Size of a JSON value.
#[derive(Debug, Default)]
struct Size {
    entries: usize,
    text: usize,
}

impl Size {
    fn add(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.text += text.len(),
            Value::Array(items) => {
                self.entries += items.len();
                items.iter().for_each(|item| self.add(item));
            }
            Value::Object(members) => {
                for (key, value) in members {
                    self.text += key.len();
                    self.add(value);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// A JSON value with its JSON pointer.
#[derive(Clone, Debug)]
struct Located<'v> {
    pointer: String,
    value: &'v Value,
}

/// Checks a document by the table of keys. Returns it without members that are `null`, which count as absent.
pub(crate) fn checked(document: &Value, here: KeyScope) -> Result<Map<String, Value>, PolicyError> {
    Located::top(document).object(None, here)
}

/// Removes and deserialises the checked member `key`, or returns its default.
pub(crate) fn take<T: DeserializeOwned + Default>(
    members: &mut Map<String, Value>,
    key: &str,
) -> Result<T, PolicyError> {
    members
        .shift_remove(key)
        .map_or_else(|| Ok(T::default()), deserialized)
}

/// Fails only if a type does not agree with the table of keys.
fn deserialized<T: DeserializeOwned>(checked: Value) -> Result<T, PolicyError> {
    serde_json::from_value(checked).map_err(|error| PolicyError::invalid("", error.to_string()))
}

impl<'v> Located<'v> {
    fn top(value: &'v Value) -> Self {
        Self {
            pointer: String::new(),
            value,
        }
    }

    fn invalid(&self, reason: impl Into<String>) -> PolicyError {
        PolicyError::invalid(self.pointer.as_str(), reason).requested(self.value.clone())
    }

    /// `found`, which is what the value was expected to be.
    fn expect<T>(&self, found: Option<T>, expected: &str) -> Result<T, PolicyError> {
        found.ok_or_else(|| {
            PolicyError::invalid(self.pointer.as_str(), format!("must be {expected}"))
        })
    }

    fn text(&self) -> Result<&'v str, PolicyError> {
        self.expect(self.value.as_str(), "a text")
    }

    /// The members of an object that are not `null`.
    fn members(&self) -> Result<impl Iterator<Item = (&'v str, Self)>, PolicyError> {
        let members = self.expect(self.value.as_object(), "an object")?.iter();
        Ok(members
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| {
                let escaped = name.replace('~', "~0").replace('/', "~1");
                let pointer = format!("{}/{escaped}", self.pointer);
                (name.as_str(), Self { pointer, value })
            }))
    }

    /// An object of the keys of `parent`, or a whole document.
    fn object(
        &self,
        parent: Option<&str>,
        here: KeyScope,
    ) -> Result<Map<String, Value>, PolicyError> {
        let mut object = Map::new();
        for (name, member) in self.members()? {
            let key = Key::member(parent, name, here, &member.pointer)?;
            object.insert(name.to_owned(), member.checked(key, here)?);
        }
        let required = |key: &&Key| key.parent() == parent && key.kind == ValueKind::Path;
        match KEYS.iter().find(required).map(Key::name) {
            Some(name) if !object.contains_key(name) => {
                self.expect(None, &format!("an object with a `{name}`"))
            }
            _ => Ok(object),
        }
    }

    fn list(
        &self,
        check: impl FnMut(Self) -> Result<Value, PolicyError>,
    ) -> Result<Value, PolicyError> {
        let items = self
            .expect(self.value.as_array(), "a list")?
            .iter()
            .enumerate();
        items
            .map(|(index, value)| Self {
                pointer: format!("{}/{index}", self.pointer),
                value,
            })
            .map(check)
            .collect()
    }

    /// The value of `key`.
    fn checked(&self, key: &Key, here: KeyScope) -> Result<Value, PolicyError> {
        match key.kind {
            ValueKind::Flag => self
                .expect(self.value.as_bool(), "true or false")
                .map(Value::from),
            ValueKind::Count => self
                .expect(self.value.as_u64(), "a whole number, 0 or more")
                .map(Value::from),
            ValueKind::Path => self.valid(|text| VirtualPath::parse(text, None)),
            ValueKind::OneOf(words) => self.word(words),
            ValueKind::ListOf(words) => self.list(|item| item.word(words)),
            ValueKind::Names => self.list(|item| item.text().map(Value::from)),
            ValueKind::Globs => self.list(|item| item.valid(globs::check)),
            ValueKind::Patterns => self.list(|item| item.valid(str::parse::<ScopePattern>)),
            ValueKind::Object => self.object(Some(key.key), here).map(Value::Object),
            ValueKind::Objects => {
                let mut has_default = false;
                self.list(|item| {
                    // Roots of a restriction have the same members as roots.
                    let object = item.object(Some(key.name()), here)?;
                    let default = object.get("default") == Some(&Value::Bool(true));
                    if default && std::mem::replace(&mut has_default, true) {
                        return Err(item.invalid("is a second default root"));
                    }
                    Ok(Value::Object(object))
                })
            }
            ValueKind::Policy => self.object(None, KeyScope::Policy).map(Value::Object),
        }
    }

    /// The text, if `parse` accepts it.
    fn valid<T, E: ToString>(
        &self,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Value, PolicyError> {
        let text = self.text()?;
        match parse(text) {
            Ok(_) => Ok(text.into()),
            Err(reason) => Err(self.invalid(reason.to_string())),
        }
    }

    /// A value of an enumeration.
    fn word(&self, kind: EnumKind) -> Result<Value, PolicyError> {
        let text = self.text()?;
        if kind.all().contains(&text) {
            return Ok(text.into());
        }
        Err(self.invalid(format!("must be one of {}", kind.all().join(", "))))
    }
}

/// Deserialises the members whose keys are of type `K`, and ignores all others.
pub(super) fn known_members<'de, K, V, D>(deserializer: D) -> Result<BTreeMap<K, V>, D::Error>
where
    K: DeserializeOwned + Ord,
    V: DeserializeOwned,
    D: Deserializer<'de>,
{
    let mut known = BTreeMap::new();
    for (name, value) in Map::deserialize(deserializer)? {
        let key: Result<K, value::Error> = K::deserialize(name.into_deserializer());
        if let Ok(key) = key {
            known.insert(key, V::deserialize(value).map_err(D::Error::custom)?);
        }
    }
    Ok(known)
}

impl Policy {
    /// Parses a policy; unknown keys are errors. All lists together may have 1024 entries, and all texts 256 KiB.
    ///
    /// # Errors
    /// [`PolicyError`] with the JSON pointer of the first invalid member.
    pub fn parse(value: &Value) -> Result<Self, PolicyError> {
        let mut size = Size::default();
        // This comes first, since parsing costs more than counting.
        for (_, member) in Located::top(value).members()? {
            size.add(member.value);
            let over = |what: String| {
                let reason = format!("is too much for one policy: its {what}");
                Err(PolicyError::invalid(member.pointer.as_str(), reason))
            };
            if size.entries > MAX_ENTRIES {
                return over(format!("lists hold more than {MAX_ENTRIES} entries"));
            }
            if size.text > MAX_TEXT {
                return over(format!("texts hold more than {MAX_TEXT} bytes"));
            }
        }
        Self::of_checked(checked(value, KeyScope::Policy)?)
    }

    /// The policy with these members, which were checked.
    pub(crate) fn of_checked(members: Map<String, Value>) -> Result<Self, PolicyError> {
        Ok(Self {
            fields: deserialized(Value::Object(members))?,
            faults: Vec::new(),
        })
    }
}

impl<'de> Deserialize<'de> for Policy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Self::parse(&value).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::call::Origin;
    use crate::config::{Config, RootConfig};
    use crate::policy::Authority;

    #[track_caller]
    fn refused(policy: &Value, field: &str) {
        let error = Policy::parse(policy).unwrap_err();
        assert_eq!(error.field(), field, "{error}");
    }

    #[test]
    fn lists_of_a_policy_are_bounded_in_total() {
        let half = vec!["read"; MAX_ENTRIES / 2];
        let most = json!({ "allow_scopes": half, "ask_scopes": half });
        assert!(Policy::parse(&most).is_ok());
        let more = json!({ "allow_scopes": half, "ask_scopes": half, "tools": ["x"] });
        refused(&more, "/tools");
        let roots: Vec<_> = (0..MAX_ENTRIES / 2)
            .map(|index| json!({ "path": format!("/r/{index}"), "deny": ["a", "b"] }))
            .collect();
        refused(&json!({ "roots": roots }), "/roots");
        refused(&json!({ "else": vec![1; MAX_ENTRIES + 1] }), "/else");
    }

    #[test]
    fn texts_of_a_policy_are_bounded_in_total() {
        let pattern = format!("read:file:{}", "/aaa".repeat(250));
        let list = |count: usize| json!({ "allow_scopes": vec![&*pattern; count] });
        assert!(Policy::parse(&list(200)).is_ok());
        refused(&list(MAX_TEXT / 1000), "/allow_scopes");
    }

    #[test]
    fn model_policies_have_a_smaller_glob_budget() {
        let root = VirtualPath::parse("/r", None).unwrap();
        let host = Authority::configured(&Config::new().root(RootConfig::new(root))).unwrap();
        let globs = |count: usize| -> Vec<_> {
            (0..count)
                .map(|index| format!("a*/{index:03}/{}", "?".repeat(90)))
                .collect()
        };
        let policy = |count: usize| Policy::parse(&json!({ "deny": globs(count) })).unwrap();
        for (count, origin, admitted) in [
            (80, Origin::Model, true),
            (90, Origin::Model, false),
            (90, Origin::View, false),
            (90, Origin::Human, true),
            (700, Origin::Human, false),
        ] {
            let layer = host.admit(&policy(count), origin);
            assert_eq!(layer.is_ok(), admitted, "{count} {origin:?}");
            let once = host.admit_once(&policy(count), origin);
            assert_eq!(once.is_ok(), admitted, "{count} {origin:?}");
        }
        // Cached lists are charged as well.
        let refused = host.admit(&policy(90), Origin::Model).unwrap_err();
        assert_eq!(refused.field(), "/deny");
        let lists: Vec<_> = (0..40)
            .map(|index| json!({ "path": format!("/r/{index}"), "deny": ["a"] }))
            .collect();
        let lists = Policy::parse(&json!({ "roots": lists })).unwrap();
        let refused = host.admit(&lists, Origin::Model).unwrap_err();
        assert_eq!(refused.field(), "/roots/32/deny");
        assert!(host.admit(&lists, Origin::Human).is_ok());
    }
}
