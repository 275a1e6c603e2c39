//! Reads a policy from JSON; errors name the JSON pointer of the member.

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::Policy;
use super::access::Access;
use super::error::PolicyError;
use super::globs::check;
use super::keys::{Key, KeyScope};
use super::roots::PolicyRoot;
use super::sets::WriteMode;
use super::verdict::Verdict;
use crate::budget::Budget;
use crate::path::VirtualPath;
use crate::scope::{ScopePattern, Verb};

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

    pub(crate) fn pointer(&self) -> &str {
        &self.pointer
    }

    fn wrong(&self, expected: &str) -> PolicyError {
        PolicyError::invalid(self.pointer.as_str(), format!("must be {expected}"))
    }

    pub(crate) fn invalid(&self, reason: impl Into<String>) -> PolicyError {
        PolicyError::invalid(self.pointer.as_str(), reason).requested(self.value.clone())
    }

    /// The members; `null` counts as absent.
    pub(crate) fn members(&self) -> Result<impl Iterator<Item = (&'v str, Self)>, PolicyError> {
        let members: &Map<String, Value> = self
            .value
            .as_object()
            .ok_or_else(|| self.wrong("an object"))?;
        let set = members.iter().filter(|(_, value)| !value.is_null());
        let pointer = self.pointer.clone();
        Ok(set.map(move |(key, value)| {
            let escaped = key.replace('~', "~0").replace('/', "~1");
            let at = Self {
                pointer: format!("{pointer}/{escaped}"),
                value,
            };
            (key.as_str(), at)
        }))
    }

    pub(crate) fn items(&self) -> Result<impl Iterator<Item = Self>, PolicyError> {
        let items = self.value.as_array().ok_or_else(|| self.wrong("a list"))?;
        let pointer = self.pointer.clone();
        Ok(items.iter().enumerate().map(move |(index, value)| Self {
            pointer: format!("{pointer}/{index}"),
            value,
        }))
    }

    pub(crate) fn text(&self) -> Result<&'v str, PolicyError> {
        self.value.as_str().ok_or_else(|| self.wrong("a text"))
    }

    pub(crate) fn flag(&self) -> Result<bool, PolicyError> {
        self.value
            .as_bool()
            .ok_or_else(|| self.wrong("true or false"))
    }

    fn count(&self) -> Result<u64, PolicyError> {
        self.value
            .as_u64()
            .ok_or_else(|| self.wrong("a whole number, 0 or more"))
    }

    /// One of a few known texts.
    pub(crate) fn one_of<T: Copy>(
        &self,
        known: &[T],
        name: impl Fn(T) -> &'static str,
    ) -> Result<T, PolicyError> {
        let text = self.text()?;
        let found = known.iter().copied().find(|member| name(*member) == text);
        found.ok_or_else(|| {
            let names: Vec<_> = known.iter().map(|member| name(*member)).collect();
            self.invalid(format!("must be one of {}", names.join(", ")))
        })
    }

    fn each<T, C: FromIterator<T>>(
        &self,
        read: impl Fn(&Self) -> Result<T, PolicyError>,
    ) -> Result<C, PolicyError> {
        self.items()?.map(|item| read(&item)).collect()
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

    pub(crate) fn path(&self) -> Result<VirtualPath, PolicyError> {
        VirtualPath::parse(self.text()?, None).map_err(|error| self.invalid(error.to_string()))
    }
}

impl Policy {
    /// Parses a policy; unknown keys are errors. All lists together may have 1024 entries, and all texts 256 KiB.
    ///
    /// # Errors
    /// [`PolicyError`] with the JSON pointer of the first invalid member.
    pub fn parse(value: &Value) -> Result<Self, PolicyError> {
        let mut policy = Self::new();
        let mut size = Size::default();
        // First, since parsing costs more than counting.
        for (_, at) in Pointer::top(value).members()? {
            size.add(at.value);
            if size.entries > MAX_ENTRIES {
                let reason = format!(
                    "is too much for one policy: its lists hold more than {MAX_ENTRIES} entries"
                );
                return Err(PolicyError::invalid(at.pointer, reason));
            }
            if size.text > MAX_TEXT {
                let reason = format!(
                    "is too much for one policy: its texts hold more than {MAX_TEXT} bytes"
                );
                return Err(PolicyError::invalid(at.pointer, reason));
            }
        }
        for (key, at) in Pointer::top(value).members()? {
            Key::check(key, KeyScope::Policy, at.pointer())?;
            policy.set(key, &at)?;
        }
        Ok(policy)
    }

    /// Sets the field of a key, which must be one of a policy.
    pub(crate) fn set(&mut self, key: &str, at: &Pointer<'_>) -> Result<(), PolicyError> {
        match key {
            "roots" => self.roots = Some(at.each(root)?),
            "deny" => self.deny = at.globs()?,
            "immutable" => self.immutable = at.globs()?,
            "allow_scopes" => self.scopes.allow = Some(at.patterns()?),
            "ask_scopes" => self.scopes.ask = Some(at.patterns()?),
            "deny_scopes" => self.scopes.deny = Some(at.patterns()?),
            "delegate_only" => self.scopes.delegate_only = Some(at.patterns()?),
            "otherwise" => {
                self.scopes.otherwise = Some(at.one_of(&Verdict::ALL, Verdict::as_str)?);
            }
            "tools" => self.sets.tools = Some(at.each(|item| item.text().map(str::to_owned))?),
            "verbs" => {
                self.sets.verbs = Some(at.each(|item| item.one_of(&Verb::ALL, Verb::as_str))?);
            }
            "write_modes" => {
                let read = |item: &Pointer<'_>| item.one_of(&WriteMode::ALL, WriteMode::as_str);
                self.sets.write_modes = Some(at.each(read)?);
            }
            "access" => self.access = Some(at.one_of(&Access::ALL, Access::as_str)?),
            _ => return self.set_figure(key, at),
        }
        Ok(())
    }

    fn set_figure(&mut self, key: &str, at: &Pointer<'_>) -> Result<(), PolicyError> {
        let (flags, limits) = (&mut self.flags, &mut self.limits);
        let flag = match key {
            "allow_escape" => &mut flags.allow_escape,
            "follow_symlinks" => &mut flags.follow_symlinks,
            "network" => &mut flags.network,
            "read_only" => &mut flags.read_only,
            "strict_hardlinks" => &mut flags.strict_hardlinks,
            "require_preview" => &mut flags.require_preview,
            "require_approval" => &mut flags.require_approval,
            "budget" => {
                limits.budget = Some(budget(at)?);
                return Ok(());
            }
            _ => {
                let limit = match key {
                    "read_max_bytes" => &mut limits.read_max_bytes,
                    "write_max_bytes" => &mut limits.write_max_bytes,
                    "max_results" => &mut limits.max_results,
                    "max_calls" => &mut limits.max_calls,
                    "ttl_ms" => &mut limits.ttl_ms,
                    "min_interval_ms" => &mut limits.min_interval_ms,
                    _ => return Err(at.invalid("is no known key")),
                };
                *limit = Some(at.count()?);
                return Ok(());
            }
        };
        *flag = Some(at.flag()?);
        Ok(())
    }
}

fn root(at: &Pointer<'_>) -> Result<PolicyRoot, PolicyError> {
    let mut root = PolicyRoot::new(VirtualPath::top());
    let mut path = None;
    for (key, at) in at.members()? {
        Key::check(&format!("roots/{key}"), KeyScope::Policy, at.pointer())?;
        match key {
            "path" => path = Some(at.path()?),
            "blocked" => root.blocked = Some(at.flag()?),
            "allow" => root.allow = Some(at.globs()?),
            "deny" => root.deny = at.globs()?,
            "immutable" => root.immutable = at.globs()?,
            _ => return Err(at.invalid("is no known key")),
        }
    }
    root.path = path.ok_or_else(|| at.wrong("an object with a `path`"))?;
    Ok(root)
}

fn budget(at: &Pointer<'_>) -> Result<Budget, PolicyError> {
    let mut budget = Budget::default();
    for (key, at) in at.members()? {
        let figure = match key {
            "calls" => &mut budget.calls,
            "bytes_written" => &mut budget.bytes_written,
            "files_touched" => &mut budget.files_touched,
            "children" => &mut budget.children,
            _ => return Err(at.invalid("is no known key")),
        };
        *figure = Some(at.count()?);
    }
    Ok(budget)
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
    fn all_lists_of_a_policy_together_are_bounded() {
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
    fn all_texts_of_a_policy_together_are_bounded() {
        let pattern = format!("read:file:{}", "/aaa".repeat(250));
        let list = |count: usize| json!({ "allow_scopes": vec![&*pattern; count] });
        assert!(Policy::parse(&list(200)).is_ok());
        refused(&list(MAX_TEXT / 1000), "/allow_scopes");
    }

    #[test]
    fn a_model_may_compile_less_than_a_person() {
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
