//! Merges configuration sources and records where each key comes from.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::error::{place, set_by};
use super::join::{joined, overridden};
use super::schema::default;
use super::{Config, ConfigError, text};
use crate::path::VirtualPath;
use crate::policy::keys::{KEYS, Key, KeyScope, ValueKind};
use crate::policy::{Authority, PolicyError};
use crate::scope::words;

/// Maximum number of suggestions for an unknown name.
const MAX_NEAR: usize = 3;
/// Maximum length of a name to compare, since comparing is quadratic.
const LONGEST: usize = 64;
/// The resources of the tools of this library.
const RESOURCES: [&str; 4] = ["file", "command", "network", "mcp"];

words! {
    /// Source of a configuration, in this order; a later one never loosens an earlier one.
    pub enum ConfigSource {
        /// A file.
        File = "file",
        /// Environment variables.
        Environment = "environment",
        /// The command line.
        Flags = "flags",
        /// The initialize request of a client.
        Initialize = "initialize",
    }
}

/// Configuration sources. A later source never loosens earlier ones. Of flags and limits, the strictest value counts.
/// Lists that restrict are united, and lists that allow are intersected. The roots and scope lists of a later source
/// replace earlier ones, which still restrict them ([`Config::restrictions`]). What a later source makes grantable must
/// be grantable in the earlier ones.
///
/// ```
/// use bailiwick::config::{ConfigSource, ConfigSources};
/// let sources = ConfigSources::new()
///     .with(ConfigSource::File, serde_json::json!({ "read_only": true, "max_calls": 9 }))?
///     .with(ConfigSource::Initialize, serde_json::json!({ "read_only": false, "max_calls": 5 }))?;
/// let effective = sources.effective()?;
/// assert_eq!(effective.config.to_json()["read_only"], true);
/// assert_eq!(effective.config.to_json()["max_calls"], 5);
/// assert_eq!(effective.origin("max_calls"), Some(ConfigSource::Initialize));
/// assert_eq!(effective.origin("read_only"), Some(ConfigSource::File));
/// assert_eq!(effective.origin("strict"), None);
/// # Ok::<(), bailiwick::config::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConfigSources {
    by_source: BTreeMap<ConfigSource, Map<String, Value>>,
    /// The existing tools, if known.
    tools: Option<Vec<String>>,
    /// The resources of all scopes, if known.
    resources: Option<Vec<String>>,
}

/// A configuration with the origin of its keys.
#[derive(Clone, Debug, PartialEq)]
pub struct Effective {
    /// The configuration.
    pub config: Config,
    origins: BTreeMap<String, ConfigSource>,
    notes: Vec<String>,
}

impl Effective {
    /// Returns the last source that determines the value of a top-level key; `None` if it has its default.
    #[must_use]
    pub fn origin(&self, key: &str) -> Option<ConfigSource> {
        self.origins.get(key).copied()
    }

    /// Returns warnings about likely mistakes, for a log.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

impl ConfigSources {
    /// Creates an empty set of sources.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the existing tools; sources that name others are rejected from now on.
    #[must_use]
    pub fn tools<'t>(mut self, names: impl IntoIterator<Item = &'t str>) -> Self {
        self.tools = Some(names.into_iter().map(str::to_owned).collect());
        self
    }

    /// Sets the resources of all scopes; sources with scopes of others are rejected from now on. The tools of this library use
    /// `file`, `command`, `network` and `mcp`.
    #[must_use]
    pub fn resources<'r>(mut self, names: impl IntoIterator<Item = &'r str>) -> Self {
        self.resources = Some(names.into_iter().map(str::to_owned).collect());
        self
    }

    /// Sets the JSON object of `source`, replacing an earlier one.
    ///
    /// # Errors
    /// [`ConfigError`] with the JSON pointer of the first invalid member, even if a later source has that key, too.
    pub fn with(mut self, source: ConfigSource, document: Value) -> Result<Self, ConfigError> {
        let blame = |fault| ConfigError::new(source, fault);
        checked(&document).map_err(blame)?;
        if let Some(tools) = &self.tools {
            known(&document, tools).map_err(blame)?;
        }
        if let Some(resources) = &self.resources {
            known_resources(&document, "", resources).map_err(blame)?;
        }
        if let Value::Object(mut members) = document {
            members.retain(|_, value| !value.is_null());
            self.by_source.insert(source, members);
        }
        Ok(self)
    }

    /// Sets the JSON object of `source` like [`ConfigSources::with`], except that it can only narrow: of a key that no other
    /// source sets, the stricter of its value and the default counts. This is for a client that may name the roots and
    /// nothing else that widens authority.
    ///
    /// ```
    /// use bailiwick::config::{ConfigSource, ConfigSources};
    /// let client = serde_json::json!({ "network": true, "max_results": 5 });
    /// let sources = ConfigSources::new().with_narrowing(ConfigSource::Initialize, client)?;
    /// let config = sources.effective()?.config.to_json();
    /// assert_eq!(config.get("network"), None);
    /// assert_eq!(config["max_results"], 5);
    /// # Ok::<(), bailiwick::config::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// [`ConfigError`], as from [`ConfigSources::with`], or if no value is as strict as the default.
    pub fn with_narrowing(
        mut self,
        source: ConfigSource,
        document: Value,
    ) -> Result<Self, ConfigError> {
        self = self.with(source, document)?;
        let Some(mut members) = self.by_source.remove(&source) else {
            return Ok(self);
        };
        for field in KEYS.iter().filter(|field| field.parent().is_none()) {
            let is_set = |members: &Map<_, _>| members.contains_key(field.key);
            let default = match field.key {
                // Its default confines less than false, and a policy may set true only if the configuration does.
                "allow_escape" => Some(json!(false)),
                _ => default(field).filter(|_| !self.by_source.values().any(is_set)),
            };
            let Some((default, value)) = default.zip(members.get(field.key)) else {
                continue;
            };
            let blame = |fault| ConfigError::new(source, fault);
            let stricter = joined(field, &default, value).map_err(blame)?;
            if stricter == *value {
                continue;
            }
            if stricter == default {
                // The default may depend on other keys.
                members.remove(field.key);
            } else {
                members.insert(field.key.to_owned(), stricter);
            }
        }
        self.by_source.insert(source, members);
        Ok(self)
    }

    /// Sets the texts of `source`, such as those of flags and variables, by key.
    ///
    /// A flag is `true`, `false`, `1` or `0`, and a count consists of digits. A list is several texts, one text with
    /// commas or line breaks between its items (a comma within `{}` or `[]` or after `\` belongs to its glob), or a
    /// JSON list. `budget` is a JSON object, or each of its members has its own key. `roots` is such a list of paths or
    /// of JSON objects; relative paths are relative to `base`. The first path is the default root unless JSON names
    /// another.
    ///
    /// # Errors
    /// [`ConfigError`], as from [`ConfigSources::with`]; it names the invalid flag or variable.
    pub fn with_texts(
        self,
        source: ConfigSource,
        texts: &BTreeMap<&str, Vec<String>>,
        base: Option<&VirtualPath>,
    ) -> Result<Self, ConfigError> {
        let mut document = Map::new();
        // A key comes before the keys of its members.
        for (key, values) in texts {
            match Key::find(key).filter(|field| field.is_settable()) {
                Some(field) => {
                    let value = text::value(field.kind, values, base).map_err(|error| {
                        let reason = format!("cannot be read: {error}");
                        let fault = PolicyError::invalid(format!("/{key}"), reason);
                        ConfigError::new(source, fault).of_texts(|key| texts.contains_key(key))
                    })?;
                    put(&mut document, field, value);
                }
                None => drop(document.insert((*key).to_owned(), json!(values))),
            }
        }
        self.with(source, Value::Object(document))
            .map_err(|error| error.of_texts(|key| texts.contains_key(key)))
    }

    /// Returns where the member at `pointer` was set: a flag, a variable, or the source and the pointer.
    #[must_use]
    pub fn place(&self, pointer: &str) -> String {
        let key = pointer.split('/').nth(1).unwrap_or_default();
        let mut sources = self.by_source.iter().rev();
        let last = sources.find(|(_, members)| members.contains_key(key));
        let origin = last.map_or(ConfigSource::Initialize, |(source, _)| *source);
        place(origin, set_by(pointer, |_| false), pointer)
    }

    /// Returns the merged configuration of all sources.
    ///
    /// # Errors
    /// [`ConfigError`], which names the last source that has the key.
    pub fn effective(&self) -> Result<Effective, ConfigError> {
        let (mut all, mut origins) = (Map::new(), BTreeMap::new());
        let mut restrictions = Vec::new();
        for (source, members) in &self.by_source {
            let blame = |fault| ConfigError::new(*source, fault);
            restrictions.extend(overridden(&mut all, members).map_err(blame)?);
            for (key, value) in members {
                let old = all.get(key).cloned();
                let new = match (&old, Key::find(key)) {
                    (Some(old), Some(field)) => joined(field, old, value).map_err(blame)?,
                    _ => value.clone(),
                };
                if old.as_ref() != Some(&new) || new == *value {
                    origins.insert(key.clone(), *source);
                }
                all.insert(key.clone(), new);
            }
        }
        let notes = empty_lists(&all);
        let mut config = checked(&Value::Object(all)).map_err(|fault| {
            let key = fault.field().split('/').nth(1).unwrap_or_default();
            let origin = origins.get(key).copied();
            ConfigError::new(origin.unwrap_or(ConfigSource::Initialize), fault)
        })?;
        config.restrictions.extend(restrictions);
        Ok(Effective {
            config,
            origins,
            notes,
        })
    }
}

fn put(document: &mut Map<String, Value>, field: &Key, value: Value) {
    let object = match field.parent() {
        None => Some(document),
        Some(parent) => document
            .entry(parent)
            .or_insert_with(|| json!({}))
            .as_object_mut(),
    };
    // A parent that is not an object is rejected when it is parsed.
    if let Some(object) = object {
        object.insert(field.name().to_owned(), value);
    }
}

/// Allow lists of roots that were given and are empty.
fn empty_lists(document: &Map<String, Value>) -> Vec<String> {
    let roots = document.get("roots").and_then(Value::as_array);
    let allow = |root: &Value| {
        root.get("allow")
            .and_then(Value::as_array)
            .map(Vec::is_empty)
    };
    let roots = roots.into_iter().flatten().enumerate();
    roots
        .filter(|(_, root)| allow(root) == Some(true))
        .map(|(index, _)| {
            format!("/roots/{index}/allow is empty, which means that all of the root is open")
        })
        .collect()
}

/// The resource of the tools of this library that may have been meant by another one.
pub(crate) fn similar_resource(resource: &str) -> Option<&'static str> {
    let is_known = resource.is_empty() || resource == "*" || RESOURCES.contains(&resource);
    let comparable = !is_known && resource.len() <= LONGEST;
    let mut known = RESOURCES.into_iter().filter(|_| comparable);
    known.find(|known| edits(resource, known) * 2 <= known.len())
}

/// Rejects unknown tools: a misspelt tool would be disabled.
fn known(document: &Value, tools: &[String]) -> Result<(), PolicyError> {
    let named = document.get("tools").and_then(Value::as_array);
    let named = named.into_iter().flatten().filter_map(Value::as_str);
    for (index, name) in named.enumerate() {
        if !tools.iter().any(|tool| tool == name) {
            return Err(unknown_tool(&format!("/tools/{index}"), name, tools));
        }
    }
    Ok(())
}

/// Rejects scopes of unknown resources: a misspelt one would deny nothing.
fn known_resources(document: &Value, at: &str, resources: &[String]) -> Result<(), PolicyError> {
    let members = document.as_object().into_iter().flatten();
    for (key, value) in members {
        let field = format!("{at}/{key}");
        let entries = value.as_array().into_iter().flatten().enumerate();
        match Key::find(key).map(|key| key.kind) {
            Some(ValueKind::Patterns) => {
                for (index, pattern) in entries {
                    let resource = pattern.as_str().and_then(|text| text.split(':').nth(1));
                    if let Some(resource) = resource.filter(|resource| *resource != "*")
                        && !resources.iter().any(|known| known == resource)
                    {
                        let field = format!("{field}/{index}");
                        return Err(unknown(&field, "resource", resource, resources));
                    }
                }
            }
            _ if key == "restrictions" => {
                for (index, restriction) in entries {
                    let policy = restriction.get("policy").unwrap_or(&Value::Null);
                    known_resources(policy, &format!("{field}/{index}/policy"), resources)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The error for the unknown tool `name`, with suggestions.
pub(crate) fn unknown_tool(field: &str, name: &str, tools: &[String]) -> PolicyError {
    unknown(field, "tool", name, tools)
}

fn unknown(field: &str, what: &str, name: &str, known: &[String]) -> PolicyError {
    let similar_names = similar_names(name, known);
    let name = crate::text::escape(name);
    let reason = format!("names an unknown {what}: `{name}`; {similar_names}");
    PolicyError::invalid(field, reason)
}

/// The known names that are similar to `name`, as a hint.
fn similar_names(name: &str, known: &[String]) -> String {
    let comparable = known.iter().filter(|_| name.len() <= LONGEST);
    let mut similar_names: Vec<_> = comparable
        .map(|known| (edits(name, known), known))
        .collect();
    similar_names.retain(|(edits, known)| edits * 2 <= known.len());
    similar_names.sort();
    let similar_names = similar_names.iter().take(MAX_NEAR);
    let similar_names: Vec<_> = similar_names
        .map(|(_, known)| format!("`{known}`"))
        .collect();
    if similar_names.is_empty() {
        format!("there are {}", known.join(", "))
    } else {
        format!("did you mean {}?", similar_names.join(" or "))
    }
}

/// Levenshtein distance.
fn edits(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (line, c) in one.chars().enumerate() {
        let (mut corner, mut left) = (line, line + 1);
        let cells = row.iter_mut().skip(1).zip(other.chars());
        for (above, d) in cells {
            let cell = (corner + usize::from(c != d)).min(*above + 1).min(left + 1);
            (corner, left) = (*above, cell);
            *above = cell;
        }
        if let Some(first) = row.first_mut() {
            *first = line + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

/// Parses a configuration and compiles it to find further errors.
fn checked(value: &Value) -> Result<Config, PolicyError> {
    let config = Config::parse(value)?;
    Authority::configured(&config)?;
    Ok(config)
}

impl Key {
    /// Returns whether it has a flag and a variable; the members of a root are part of `roots`, and restrictions can only be
    /// written as JSON.
    #[must_use]
    pub fn is_settable(&self) -> bool {
        let json_only =
            self.key == "restrictions" || matches!(self.parent(), Some("roots" | "restrictions"));
        self.stands_in(KeyScope::Configuration) && !json_only
    }

    /// Returns the keys that have a flag and a variable.
    pub fn settable() -> impl Iterator<Item = &'static Self> {
        KEYS.iter().filter(|field| field.is_settable())
    }

    /// Returns its environment variable, such as `BAILIWICK_READ_MAX_BYTES`.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("BAILIWICK_{}", self.key.replace('/', "_").to_uppercase())
    }

    /// Returns its command-line flag without leading dashes, such as `read-max-bytes`.
    #[must_use]
    pub fn flag(&self) -> String {
        self.key.replace(['/', '_'], "-")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Restriction, ValueKind};
    use crate::policy::Policy;
    use ConfigSource::{Environment, File, Flags, Initialize};

    const ALL: [ConfigSource; 4] = [File, Environment, Flags, Initialize];

    fn example(field: &Key) -> Value {
        serde_json::from_str(field.example).unwrap()
    }

    fn sources(said: &[(ConfigSource, Value)]) -> ConfigSources {
        said.iter()
            .fold(ConfigSources::new(), |sources, (source, said)| {
                sources.with(*source, said.clone()).unwrap()
            })
    }

    #[track_caller]
    fn refused(source: ConfigSource, said: Value, field: &str) -> ConfigError {
        let error = ConfigSources::new().with(source, said).unwrap_err();
        assert_eq!((error.origin(), error.field()), (source, field));
        error
    }

    #[test]
    fn origin_is_the_last_source_with_the_key() {
        for field in KEYS.iter().filter(|field| field.parent().is_none()) {
            let value = example(field);
            for (index, last) in ALL.iter().enumerate() {
                let said: Vec<_> = ALL[..=index]
                    .iter()
                    .map(|source| (*source, json!({ field.key: value })))
                    .collect();
                let effective = sources(&said).effective().unwrap();
                assert_eq!(effective.origin(field.key), Some(*last), "{}", field.key);
                let alone = Config::parse(&json!({ field.key: value })).unwrap();
                assert_eq!(effective.config, alone, "{}", field.key);
            }
        }
    }

    #[test]
    fn later_roots_replace_earlier_ones_and_budgets_merge() {
        let effective = sources(&[
            (Flags, json!({ "budget": { "calls": 1 }, "deny": ["b"] })),
            (
                File,
                json!({
                    "roots": [{ "path": "/a" }, { "path": "/b" }], "deny": ["a"],
                    "budget": { "children": 1 }, "strict": true,
                }),
            ),
            (
                Initialize,
                json!({ "roots": [{ "path": "/c" }], "strict": null }),
            ),
        ])
        .effective()
        .unwrap();
        let expected = json!({
            "roots": [{ "path": "/c" }], "deny": ["a", "b"],
            "budget": { "calls": 1, "children": 1 }, "strict": true,
        });
        let mut expected = Config::parse(&expected).unwrap();
        let earlier = json!({ "roots": [{ "path": "/a" }, { "path": "/b" }] });
        expected.restrictions.push(Restriction {
            roots: Config::parse(&earlier).unwrap().roots,
            policy: Policy::new(),
        });
        assert_eq!(effective.config, expected);
        assert_eq!(effective.origin("strict"), Some(File));
        assert_eq!(effective.origin("access"), None);
    }

    #[test]
    fn invalid_source_is_rejected_even_if_overridden() {
        let good = ConfigSources::new().with(Initialize, json!({ "max_calls": 1 }));
        let error = good
            .unwrap()
            .with(File, json!({ "max_calls": "1" }))
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "configuration (file): /max_calls must be a whole number, 0 or more"
        );
    }

    #[test]
    fn error_names_source_member_and_reason() {
        let error = refused(
            Initialize,
            json!({ "roots": [{ "path": "/r", "deny": [1] }] }),
            "/roots/0/deny/0",
        );
        assert_eq!(
            error.data(),
            json!({
                "kind": "policy_invalid", "code": "POLICY_INVALID",
                "field": "/roots/0/deny/0", "layer": "initialize",
            })
        );
        refused(Flags, json!({ "a~/b": 1 }), "/a~0~1b");
        let whole = refused(Initialize, json!([]), "");
        assert_eq!(
            whole.to_string(),
            "configuration (initialize): must be an object"
        );
        let two = json!([{ "path": "/a", "default": true }, { "path": "/b", "default": true }]);
        refused(File, json!({ "roots": two }), "/roots/1");
        let globs = vec!["a"; crate::policy::MAX_LIST + 1];
        refused(File, json!({ "deny": globs }), "/deny");
    }

    #[test]
    fn texts_of_every_settable_key_equal_their_json() {
        for field in Key::settable() {
            let value = example(field);
            let text = match &value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let texts = BTreeMap::from([(field.key, vec![text])]);
            let read = ConfigSources::new()
                .with_texts(Environment, &texts, None)
                .unwrap();
            let said = match field.parent() {
                None => json!({ field.key: value }),
                Some(parent) => json!({ parent: { field.name(): value } }),
            };
            assert_eq!(read, sources(&[(Environment, said)]), "{}", field.key);
        }
    }

    #[test]
    fn restrictive_lists_of_all_sources_are_united() {
        for key in ["deny", "immutable", "protect", "deny_scopes"] {
            let item = |name: &str| match key {
                "deny_scopes" => format!("read:{name}"),
                _ => name.to_owned(),
            };
            let effective = sources(&[
                (File, json!({ key: [item("a"), item("b")] })),
                (Flags, json!({ key: [item("b"), item("c")] })),
                (Initialize, json!({ key: [] })),
            ])
            .effective()
            .unwrap();
            let all = json!({ key: [item("a"), item("b"), item("c")] });
            assert_eq!(effective.config, Config::parse(&all).unwrap(), "{key}");
        }
    }

    /// The merged configuration of two sources, and that of each one.
    fn together(file: &Value, later: &Value) -> [Authority; 3] {
        let authority = |said: &[(ConfigSource, Value)]| {
            let effective = sources(said).effective().unwrap();
            Authority::configured(&effective.config).unwrap()
        };
        [
            authority(&[(File, file.clone()), (Initialize, later.clone())]),
            authority(&[(File, file.clone())]),
            authority(&[(Initialize, later.clone())]),
        ]
    }

    #[test]
    fn strictest_value_of_all_sources_applies() {
        for (key, loose, tight) in [
            ("read_only", json!(false), json!(true)),
            ("require_preview", json!(false), json!(true)),
            ("strict_hardlinks", json!(false), json!(true)),
            ("require_approval", json!(false), json!(true)),
            ("strict", json!(false), json!(true)),
            ("allow_escape", json!(true), json!(false)),
            ("follow_symlinks", json!(true), json!(false)),
            ("network", json!(true), json!(false)),
            ("access", json!("full"), json!("read")),
            ("read_max_bytes", json!(0), json!(10)),
            ("write_max_bytes", json!(20), json!(10)),
            ("max_results", json!(20), json!(10)),
            ("max_calls", json!(0), json!(10)),
            ("ttl_ms", json!(20), json!(10)),
            ("min_interval_ms", json!(10), json!(20)),
            ("budget", json!({ "calls": 2 }), json!({ "calls": 1 })),
            ("tools", json!(["a", "b"]), json!(["b"])),
            ("verbs", json!(["read", "write"]), json!(["read"])),
            (
                "write_modes",
                json!(["create", "append"]),
                json!(["create"]),
            ),
        ] {
            let expected = Config::parse(&json!({ key: tight })).unwrap();
            for (first, second) in [(&loose, &tight), (&tight, &loose)] {
                let said = [
                    (File, json!({ key: first })),
                    (Initialize, json!({ key: second })),
                ];
                let effective = sources(&said).effective().unwrap();
                assert_eq!(effective.config, expected, "{key} {first} {second}");
                let origin = if *second == tight { Initialize } else { File };
                assert_eq!(effective.origin(key), Some(origin), "{key}");
            }
        }
    }

    #[test]
    fn later_source_never_loosens_roots_or_scope_lists() {
        let roots = [
            json!([{ "path": "/r" }]),
            json!([{ "path": "/r", "deny": ["**/.env"], "immutable": ["*.lock"] }]),
            json!([{ "path": "/r", "access": "read" }]),
            json!([{ "path": "/r", "access": "read" }, { "path": "/r/out" }]),
            json!([{ "path": "/r", "blocked": true }]),
            json!([{ "path": "/r", "allow": ["src/**"] }]),
            json!([{ "path": "/r/src" }]),
            json!([{ "path": "/r/src", "access": "read", "deny": ["x"] }, { "path": "/s" }]),
            json!([{ "path": "/" }]),
        ];
        let scopes = [
            json!({}),
            json!({ "allow_scopes": ["read:file:/r"] }),
            json!({ "allow_scopes": ["write:file:/r/src"], "otherwise": "ask" }),
            json!({ "ask_scopes": ["write:file"], "otherwise": "allow" }),
            json!({ "deny_scopes": ["write:file:/r/src"], "otherwise": "allow" }),
            json!({ "delegate_only": ["write:file:/r/out"], "otherwise": "allow" }),
        ];
        let needs: Vec<crate::scope::Scope> = ["read", "write"]
            .iter()
            .flat_map(|verb| {
                [
                    "r/a",
                    "r/.env",
                    "r/a.lock",
                    "r/src/x",
                    "r/src/.env",
                    "r/out/y",
                    "s/z",
                    "t",
                ]
                .map(|path| format!("{verb}:file:/{path}").parse().unwrap())
            })
            .collect();
        for earlier in &roots {
            let mounts = Config::parse(&json!({ "roots": earlier })).unwrap().roots;
            for later in &roots {
                for (first, second) in scopes
                    .iter()
                    .flat_map(|one| scopes.iter().map(move |other| (one, other)))
                {
                    let with = |roots: &Value, scopes: &Value| {
                        let mut all = scopes.clone();
                        all["roots"] = roots.clone();
                        all
                    };
                    let said = [with(earlier, first), with(later, second)];
                    let [both, file, alone] = together(&said[0], &said[1]);
                    for need in &needs {
                        let joined = both.judge(need, &[]);
                        assert!(joined >= alone.judge(need, &[]), "{said:?} {need}");
                        // Outside its own roots a source has no effect, and the later one applies.
                        let path = need.path().unwrap();
                        if mounts.iter().any(|root| path.starts_with(&root.mount)) {
                            assert!(joined >= file.judge(need, &[]), "{said:?} {need}");
                        }
                    }
                }
            }
        }
    }

    /// Values of a key, of which one is the loosest.
    fn values(field: &Key) -> Vec<Value> {
        match field.kind {
            ValueKind::Flag => vec![json!(true), json!(false)],
            ValueKind::Count => vec![json!(0), json!(1), json!(u64::MAX)],
            ValueKind::OneOf(words) => words.all().into_iter().map(Value::from).collect(),
            ValueKind::ListOf(words) => vec![json!(words.all()), json!([words.all()[0]])],
            _ => vec![example(field)],
        }
    }

    #[test]
    fn narrowing_source_never_loosens_a_default() {
        let roots = json!({ "roots": [{ "path": "/r" }] });
        let host = sources(&[(File, roots)]);
        let authority = |sources: &ConfigSources| {
            let effective = sources.effective().unwrap();
            Authority::configured(&effective.config).unwrap()
        };
        let needs = [
            "read:file:/r/a",
            "write:file:/r/a",
            "read:file:/s",
            "read:network:example.org",
            "read:mcp:notes",
            "execute:command",
        ];
        let needs = needs.map(|need| need.parse::<crate::scope::Scope>().unwrap());
        let default = authority(&host);
        for field in KEYS.iter().filter(|field| field.parent().is_none()) {
            for value in values(field) {
                let sent = json!({ field.key: value });
                let sources = host.clone().with_narrowing(Initialize, sent.clone());
                if matches!(field.key, "grantable" | "allow") {
                    assert_eq!(sources.unwrap_err().data()["kind"], "policy_expansion");
                    continue;
                }
                let narrowed = authority(&sources.unwrap());
                let (limits, flags) = (*narrowed.limits(), narrowed.flags());
                assert_eq!(limits.tighter(*default.limits()), limits, "{sent}");
                assert_eq!(flags.tighter(default.flags()), flags, "{sent}");
                for need in &needs {
                    let verdict = narrowed.judge(need, &[]);
                    assert!(verdict >= default.judge(need, &[]), "{sent} {need}");
                }
            }
        }
    }

    #[test]
    fn narrowing_source_applies_what_is_stricter_than_the_default_or_the_host() {
        let narrowed = |host: Value, sent: Value| {
            let sources = sources(&[(File, host)]).with_narrowing(Initialize, sent);
            let config = sources.unwrap().effective().unwrap().config;
            *Authority::configured(&config).unwrap().limits()
        };
        let (raised, unset) = (json!({ "read_max_bytes": 9 << 20 }), json!({}));
        for (host, sent, bytes) in [
            (&unset, 10, 10),
            (&unset, 2 << 20, 1 << 20),
            (&unset, 0, 1 << 20),
            (&raised, 2 << 20, 2 << 20),
            (&raised, 0, 9 << 20),
        ] {
            let limits = narrowed(host.clone(), json!({ "read_max_bytes": sent }));
            assert_eq!(limits.read_max_bytes, bytes, "{host} {sent}");
        }
        let off = sources(&[]).with_narrowing(Initialize, json!({ "network": false }));
        let config = off.unwrap().effective().unwrap().config;
        assert_eq!(config, Config::parse(&json!({ "network": false })).unwrap());
    }

    #[test]
    fn later_source_cannot_widen_grantable_or_allow() {
        let file = json!({ "grantable": ["read:file:/a"], "allow": ["read:mcp"] });
        let said = |later: Value| sources(&[(File, file.clone()), (Flags, later)]).effective();
        assert!(said(json!({ "grantable": ["read:file:/a/b"] })).is_ok());
        assert!(said(json!({ "grantable": [], "allow": ["read:mcp:notes"] })).is_ok());
        let error = said(json!({ "grantable": ["read:file:/a", "write:file:/a"] })).unwrap_err();
        assert_eq!((error.origin(), error.field()), (Flags, "/grantable/1"));
        let error = said(json!({ "allow": ["write:mcp"] })).unwrap_err();
        assert_eq!((error.origin(), error.field()), (Flags, "/allow/0"));
    }

    #[test]
    fn unknown_tool_is_rejected_with_suggestions() {
        let sources = ConfigSources::new().tools(["read_file", "write_file", "grep"]);
        for source in ALL {
            let known = json!({ "tools": ["grep", "read_file"] });
            assert!(sources.clone().with(source, known).is_ok());
            let unknown = json!({ "tools": ["grep", "reed_file"] });
            let error = sources.clone().with(source, unknown).unwrap_err();
            assert_eq!(error.field(), "/tools/1");
            let told = error.to_string();
            assert!(told.contains("did you mean `read_file`"), "{told}");
            let far = sources.clone().with(source, json!({ "tools": ["?"] }));
            let told = far.unwrap_err().to_string();
            assert!(
                told.ends_with("there are read_file, write_file, grep"),
                "{told}"
            );
        }
    }

    #[test]
    fn edit_distance_is_levenshtein() {
        for (one, other, expected) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("grep", "grep", 0),
            ("reed_file", "read_file", 1),
            ("kitten", "sitting", 3),
            ("flaw", "lawn", 2),
        ] {
            assert_eq!(edits(one, other), expected, "{one} {other}");
        }
    }

    #[test]
    fn place_names_flag_variable_or_pointer() {
        let said = json!({ "roots": [{ "path": "/a" }] });
        let one = |source| sources(&[(source, said.clone())]).place("/roots/0/path");
        assert_eq!(one(Flags), "ROOT or --roots (item 1, path)");
        assert_eq!(one(Environment), "BAILIWICK_ROOTS (item 1, path)");
        assert_eq!(one(File), "configuration (file): /roots/0/path");
    }

    #[test]
    fn duplicate_keys_in_texts_are_rejected() {
        let read = |key: &'static str, text: &str| {
            let texts = BTreeMap::from([(key, vec![text.to_owned()])]);
            ConfigSources::new().with_texts(Flags, &texts, None)
        };
        for (key, duplicate, once) in [
            ("budget", r#"{"calls":1,"calls":9}"#, r#"{"calls":1}"#),
            (
                "roots",
                r#"{"path":"/r","deny":["k"],"deny":[]}"#,
                r#"{"path":"/r","deny":["k"]}"#,
            ),
            (
                "roots",
                r#"[{"path":"/r","access":"read","access":"full"}]"#,
                r#"[{"path":"/r","access":"read"}]"#,
            ),
        ] {
            let error = read(key, duplicate).unwrap_err();
            assert_eq!(error.field(), format!("/{key}"));
            assert!(error.to_string().contains("duplicate key `"), "{error}");
            read(key, once).unwrap();
        }
    }

    #[test]
    fn budget_members_merge_and_unknown_keys_are_rejected() {
        let one = |text: &str| vec![text.to_owned()];
        let texts = BTreeMap::from([
            ("budget", one(r#"{"calls":1,"children":2}"#)),
            ("budget/calls", one("7")),
        ]);
        let read = ConfigSources::new()
            .with_texts(Flags, &texts, None)
            .unwrap();
        let said = json!({ "budget": { "calls": 7, "children": 2 } });
        assert_eq!(read, sources(&[(Flags, said)]));
        for key in ["root", "roots/path", "budget/depth"] {
            let texts = BTreeMap::from([(key, one("/r"))]);
            let error = ConfigSources::new()
                .with_texts(Flags, &texts, None)
                .unwrap_err();
            assert_eq!(error.field(), format!("/{}", key.replace('/', "~1")));
        }
    }

    #[test]
    fn flag_and_variable_names_are_unique() {
        let names: std::collections::BTreeSet<_> = Key::settable()
            .flat_map(|field| [field.flag(), field.variable()])
            .collect();
        assert_eq!(names.len(), 2 * Key::settable().count());
        let field = Key::find("budget/bytes_written").unwrap();
        assert_eq!(field.flag(), "budget-bytes-written");
        assert_eq!(field.variable(), "BAILIWICK_BUDGET_BYTES_WRITTEN");
    }

    #[test]
    fn unknown_resource_of_a_scope_is_rejected_with_suggestions() {
        let sources = ConfigSources::new().resources(["file", "command"]);
        let with = |document| {
            sources
                .clone()
                .with(File, document)
                .map_err(|error| error.to_string())
        };
        let denied = |scope: &str| json!({ "deny_scopes": ["read:file:/r", scope] });
        for known in [
            "execute",
            "read:*",
            "write:file:/a:b",
            "execute:command:ls",
            "*",
        ] {
            assert!(with(denied(known)).is_ok(), "{known}");
        }
        let error = with(denied("write:fiel")).unwrap_err();
        let expected = "/deny_scopes/1 names an unknown resource: `fiel`; did you mean `file`?";
        assert!(error.contains(expected), "{error}");
        let error = with(denied("read:mcp:hub")).unwrap_err();
        assert!(error.contains("there are file, command"), "{error}");
        let nested = json!({ "restrictions": [{ "policy": { "deny_scopes": ["write:fiel"] } }] });
        let error = with(nested).unwrap_err();
        assert!(
            error.contains("/restrictions/0/policy/deny_scopes/0"),
            "{error}"
        );
    }

    #[test]
    fn empty_allow_list_of_a_root_is_noted() {
        let notes = |roots: Value| {
            let effective = sources(&[(File, json!({ "roots": roots }))]).effective();
            effective.unwrap().notes().len()
        };
        assert_eq!(notes(json!([{ "path": "/a", "allow": [] }])), 1);
        assert_eq!(
            notes(json!([{ "path": "/a", "allow": ["**"] }, { "path": "/b" }])),
            0
        );
    }
}
