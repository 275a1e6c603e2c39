//! Parses a policy from JSON. Errors contain the JSON pointer of the invalid member.

use serde::de::{IntoDeserializer, value};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::Policy;
use super::error::PolicyError;
use super::globs::check;
use super::keys::{EnumKind, Key, KeyScope, ValueKind};
use super::roots::PolicyRoot;
use crate::budget::Budget;
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
pub(crate) struct Pointer<'v> {
    pointer: String,
    value: &'v Value,
}

impl<'v> Pointer<'v> {
    pub(crate) fn top(value: &'v Value) -> Self {
        Self {
            pointer: String::new(),
            value,
        }
    }

    fn wrong(&self, expected: &str) -> PolicyError {
        PolicyError::invalid(self.pointer.as_str(), format!("must be {expected}"))
    }

    pub(crate) fn invalid(&self, reason: impl Into<String>) -> PolicyError {
        PolicyError::invalid(self.pointer.as_str(), reason).requested(self.value.clone())
    }

    /// The error for a key that is not handled.
    pub(crate) fn unknown<T>(&self) -> Result<T, PolicyError> {
        Err(self.invalid("is an unknown key"))
    }

    /// The members of an object; `null` counts as absent.
    fn members(&self) -> Result<impl Iterator<Item = (&'v str, Self)>, PolicyError> {
        let members = self.value.as_object();
        let members = members.ok_or_else(|| self.wrong("an object"))?.iter();
        Ok(members
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| {
                let escaped = key.replace('~', "~0").replace('/', "~1");
                let pointer = format!("{}/{escaped}", self.pointer);
                (key.as_str(), Self { pointer, value })
            }))
    }

    /// Calls `set` for each member of an object, which is the value of the key `parent` or a whole document.
    pub(crate) fn each_key(
        &self,
        parent: Option<&str>,
        here: KeyScope,
        mut set: impl FnMut(&Key, &Self) -> Result<(), PolicyError>,
    ) -> Result<(), PolicyError> {
        self.members()?.try_for_each(|(name, at)| {
            let field = Key::member(parent, name, here, &at.pointer)?;
            set(field, &at)
        })
    }

    pub(crate) fn each<T, C: FromIterator<T>>(
        &self,
        mut read: impl FnMut(&Self) -> Result<T, PolicyError>,
    ) -> Result<C, PolicyError> {
        let items = self.value.as_array().ok_or_else(|| self.wrong("a list"))?;
        let items = items.iter().enumerate().map(|(index, value)| Self {
            pointer: format!("{}/{index}", self.pointer),
            value,
        });
        items.map(|item| read(&item)).collect()
    }

    fn text(&self) -> Result<&'v str, PolicyError> {
        self.value.as_str().ok_or_else(|| self.wrong("a text"))
    }

    pub(crate) fn flag(&self) -> Result<bool, PolicyError> {
        let flag = self.value.as_bool();
        flag.ok_or_else(|| self.wrong("true or false"))
    }

    fn count(&self) -> Result<u64, PolicyError> {
        let count = self.value.as_u64();
        count.ok_or_else(|| self.wrong("a whole number, 0 or more"))
    }

    /// The flag or limit with this key.
    fn named<'k, T: Deserialize<'k>>(&self, key: &'k str) -> Result<T, PolicyError> {
        let named: Result<_, value::Error> = T::deserialize(key.into_deserializer());
        named.or_else(|_| self.unknown())
    }

    /// A value of an enumeration.
    pub(crate) fn word<T: Deserialize<'v>>(&self, kind: EnumKind) -> Result<T, PolicyError> {
        let text = self.text()?;
        let word: Result<_, value::Error> = T::deserialize(text.into_deserializer());
        word.map_err(|_| self.invalid(format!("must be one of {}", kind.all().join(", "))))
    }

    pub(crate) fn globs(&self) -> Result<Vec<String>, PolicyError> {
        self.each(|item| {
            let glob = item.text()?;
            check(glob).map_err(|reason| item.invalid(reason))?;
            Ok(glob.to_owned())
        })
    }

    pub(crate) fn patterns(&self) -> Result<Vec<ScopePattern>, PolicyError> {
        self.each(|item| {
            let parsed = item.text()?.parse::<ScopePattern>();
            parsed.map_err(|error| item.invalid(error.to_string()))
        })
    }

    /// An entry of `roots`. `set` is called for the members that are only valid in configuration.
    pub(crate) fn root(
        &self,
        here: KeyScope,
        mut set: impl FnMut(&Key, &Self) -> Result<(), PolicyError>,
    ) -> Result<PolicyRoot, PolicyError> {
        let mut root = PolicyRoot::new(VirtualPath::top());
        let mut path = None;
        self.each_key(Some("roots"), here, |field, at| {
            match field.name() {
                "path" => {
                    let parsed = VirtualPath::parse(at.text()?, None);
                    path = Some(parsed.map_err(|error| at.invalid(error.to_string()))?);
                }
                "blocked" => root.blocked = Some(at.flag()?),
                "allow" => root.allow = Some(at.globs()?),
                "deny" => root.deny = at.globs()?,
                "immutable" => root.immutable = at.globs()?,
                _ => return set(field, at),
            }
            Ok(())
        })?;
        root.path = path.ok_or_else(|| self.wrong("an object with a `path`"))?;
        Ok(root)
    }

    /// A policy of any size.
    pub(crate) fn policy(&self) -> Result<Policy, PolicyError> {
        let mut policy = Policy::new();
        self.each_key(None, KeyScope::Policy, |field, at| policy.set(field, at))?;
        Ok(policy)
    }

    fn budget(&self) -> Result<Budget, PolicyError> {
        let mut budget = Budget::default();
        self.each_key(Some("budget"), KeyScope::Any, |field, at| {
            let figure = match field.name() {
                "calls" => &mut budget.calls,
                "bytes_written" => &mut budget.bytes_written,
                "files_touched" => &mut budget.files_touched,
                "children" => &mut budget.children,
                _ => return at.unknown(),
            };
            *figure = Some(at.count()?);
            Ok(())
        })?;
        Ok(budget)
    }
}

impl Policy {
    /// Parses a policy; unknown keys are errors. All lists together may have 1024 entries, and all texts 256 KiB.
    ///
    /// # Errors
    /// [`PolicyError`] with the JSON pointer of the first invalid member.
    pub fn parse(value: &Value) -> Result<Self, PolicyError> {
        let whole = Pointer::top(value);
        let mut size = Size::default();
        // This comes first, since parsing costs more than counting.
        for (_, at) in whole.members()? {
            size.add(at.value);
            let over = |what: String| {
                let reason = format!("is too much for one policy: its {what}");
                Err(PolicyError::invalid(at.pointer.as_str(), reason))
            };
            if size.entries > MAX_ENTRIES {
                return over(format!("lists hold more than {MAX_ENTRIES} entries"));
            }
            if size.text > MAX_TEXT {
                return over(format!("texts hold more than {MAX_TEXT} bytes"));
            }
        }
        whole.policy()
    }

    /// Sets the field of a key, which must be one of a policy.
    pub(crate) fn set(&mut self, field: &Key, at: &Pointer<'_>) -> Result<(), PolicyError> {
        match field.key {
            "roots" => {
                let root = |item: &Pointer<'_>| item.root(KeyScope::Policy, |_, at| at.unknown());
                self.roots = Some(at.each(root)?);
            }
            "deny" => self.deny = at.globs()?,
            "immutable" => self.immutable = at.globs()?,
            "allow_scopes" => self.scopes.allow = Some(at.patterns()?),
            "ask_scopes" => self.scopes.ask = Some(at.patterns()?),
            "deny_scopes" => self.scopes.deny = Some(at.patterns()?),
            "delegate_only" => self.scopes.delegate_only = Some(at.patterns()?),
            "otherwise" => self.scopes.otherwise = Some(at.word(EnumKind::Verdicts)?),
            "tools" => self.sets.tools = Some(at.each(|item| item.text().map(str::to_owned))?),
            "verbs" => self.sets.verbs = Some(at.each(|item| item.word(EnumKind::Verbs))?),
            "write_modes" => {
                self.sets.write_modes = Some(at.each(|item| item.word(EnumKind::WriteModes))?);
            }
            "access" => self.access = Some(at.word(EnumKind::Access)?),
            "budget" => self.limits.budget = Some(at.budget()?),
            key if field.kind == ValueKind::Flag => {
                self.flags.insert(at.named(key)?, at.flag()?);
            }
            key => {
                self.limits.counts.insert(at.named(key)?, at.count()?);
            }
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Policy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Self::parse(&value).map_err(serde::de::Error::custom)
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
