//! Configuration: the roots and the outermost policy layer, and the table of all keys.

mod error;
mod join;
mod schema;
mod sources;
mod text;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::error::{CallError, Code};
use crate::id::WorkerId;
use crate::path::{PathError, VirtualPath};
use crate::policy::{Access, Authority, OpenFolder, Policy, PolicyError, Verdict, checked, take};
use crate::scope::{Resource, Scope, ScopePattern, Verb};

pub use crate::policy::keys::{Audience, EnumKind, KEYS, Key, KeyScope, Merge, ValueKind};
pub use error::ConfigError;
pub use schema::{ConfigSchema, config_schema, policy_schema};
pub use sources::{ConfigSource, ConfigSources, Effective};
pub(crate) use sources::{similar_resource, unknown_tool};

/// Resolves paths written by models to virtual paths.
///
/// Each worker has one. Relative paths are relative to its working directory
/// ([`WorkerSpec::cwd`](crate::WorkerSpec::cwd)).
#[derive(Clone, Debug, Default)]
pub struct Namespace {
    default_root: Option<VirtualPath>,
    /// The worker that uses it.
    worker: Option<WorkerId>,
    /// Whose folders it describes; `None` before it is narrowed to a worker.
    authority: Option<Authority>,
    /// The optional roots that could not be opened.
    unavailable: Arc<[UnavailableRoot]>,
    /// Whether no path can be used.
    empty: bool,
}

/// An optional root ([`RootConfig::optional`]) that could not be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnavailableRoot {
    /// Its mount point.
    pub path: VirtualPath,
    /// Why it could not be opened.
    pub reason: String,
}

/// Message to clients of a server without root.
pub(crate) const NO_ROOT: &str =
    "this server has no root directory: ask the person who runs it to start it with a directory";

/// Maximum number of open folders in an error or a description.
const MAX_NAMED: usize = 8;

impl Namespace {
    /// Whether no path can be used.
    pub(crate) fn is_empty(&self) -> bool {
        self.empty
    }

    /// Sets the optional roots that could not be opened.
    pub(crate) fn without(self, unavailable: Vec<UnavailableRoot>) -> Self {
        Self {
            unavailable: unavailable.into(),
            ..self
        }
    }

    /// This namespace as that of `worker`.
    pub(crate) fn of_worker(self, worker: WorkerId) -> Self {
        Self {
            worker: Some(worker),
            ..self
        }
    }

    /// The namespace of a child. Its working directory is the first of these that there is: `cwd`; that of this namespace, if
    /// the child may read or change it; the only outermost folder that it may read; if it may read none, the only folder
    /// that it may change.
    pub(crate) fn narrowed(&self, cwd: Option<VirtualPath>, authority: &Authority) -> Self {
        let inherited = || {
            let root = self.default_root.clone()?;
            let open = [Verb::Read, Verb::Write].map(|verb| Scope::file(verb, root.clone()));
            let mut open = open.iter();
            open.any(|need| authority.judge(need, &[]) != Verdict::Deny)
                .then_some(root)
        };
        let only = || {
            let open = authority.open_folders();
            let readable: Vec<_> = open.iter().filter(|it| it.is_outermost()).collect();
            match (&*readable, open) {
                ([one], _) => Some(one.path.clone()),
                ([], [one]) => Some(one.path.clone()),
                _ => None,
            }
        };
        let default_root = cwd.or_else(inherited).or_else(only);
        // A worker that is restricted to other folders must not learn of them.
        let told = self.unavailable.iter();
        let told = told.filter(|root| authority.policies_hold(&root.path));
        let unavailable = if self.unavailable.is_empty() {
            Arc::clone(&self.unavailable)
        } else {
            told.cloned().collect()
        };
        Self {
            default_root,
            worker: self.worker,
            authority: Some(authority.clone()),
            unavailable,
            empty: self.empty,
        }
    }

    /// The working directory, unless `other` has the same.
    pub(crate) fn moved_from(&self, other: &Self) -> Option<&VirtualPath> {
        let begin = self.default_root.as_ref();
        begin.filter(|_| self.default_root != other.default_root)
    }

    /// This namespace, with the parent of the working directory as working directory.
    pub(crate) fn above(mut self) -> Self {
        self.default_root = self.default_root.and_then(|root| root.parent());
        self
    }

    /// Resolves a path written by a model. Relative paths are relative to the working directory.
    ///
    /// # Errors
    /// `INVALID_ARGUMENTS` if it is not a path, or is relative and there is no working directory; `PERMISSION_DENIED` if
    /// there is no root.
    pub fn path(&self, text: &str) -> Result<VirtualPath, CallError> {
        if self.empty {
            return Err(CallError::new(Code::PermissionDenied, NO_ROOT));
        }
        VirtualPath::parse(text, self.default_root.as_ref()).map_err(|error| {
            let mut message = error.to_string();
            if error == PathError::Relative {
                message = format!(
                    "the path `{}` is relative, and this worker has no working directory; {}",
                    crate::text::escape(text),
                    self.orientation()
                );
            }
            CallError::new(Code::InvalidArguments, message)
        })
    }

    /// Like [`Namespace::path`], for the argument of a call at the JSON pointer `field`, which an error names in its details.
    ///
    /// # Errors
    /// As for [`Namespace::path`].
    ///
    /// ```
    /// let error = bailiwick::config::Namespace::default().path_argument("/to", "notes.md").unwrap_err();
    /// assert_eq!(error.details()["field"], "/to");
    /// ```
    pub fn path_argument(&self, field: &str, text: &str) -> Result<VirtualPath, CallError> {
        self.path(text).map_err(|error| error.with("field", field))
    }

    /// Returns the worker whose calls it is for.
    #[must_use]
    pub fn worker(&self) -> Option<WorkerId> {
        self.worker
    }

    /// Returns the working directory, which relative paths are relative to.
    #[must_use]
    pub fn default_root(&self) -> Option<&VirtualPath> {
        self.default_root.as_ref()
    }

    /// Returns the folders that the worker may use.
    #[must_use]
    pub fn open_folders(&self) -> &[OpenFolder] {
        let authority = self.authority.as_ref();
        authority.map_or(&[], Authority::open_folders)
    }

    /// Returns the optional roots that could not be opened.
    #[must_use]
    pub fn unavailable_roots(&self) -> &[UnavailableRoot] {
        &self.unavailable
    }

    /// One or two sentences that tell a model which folders it may work in.
    pub(crate) fn orientation(&self) -> String {
        if self.empty {
            return NO_ROOT.to_owned();
        }
        let open = self.open_folders();
        let named = open.iter().take(MAX_NAMED);
        let named: Vec<_> = named.map(ToString::to_string).collect();
        let more = open.len().saturating_sub(MAX_NAMED);
        let mut text = match (named.is_empty(), more) {
            (true, _) => "no folder is open to you".to_owned(),
            (false, 0) => format!("open to you: {}", named.join(", ")),
            (false, _) => format!(
                "open to you: {}, and {more} more that `list_roots` names",
                named.join(", ")
            ),
        };
        if let Some(root) = &self.default_root {
            text.push_str("; relative paths begin in `");
            text.push_str(&crate::text::escape(root.as_str()));
            text.push('`');
        }
        text
    }
}

/// Configuration of a root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RootConfig {
    /// Its mount point.
    #[serde(rename = "path")]
    pub mount: VirtualPath,
    /// Whether it is the default working directory.
    #[serde(default)]
    pub default: bool,
    /// Whether it is skipped if it cannot be opened.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
    /// `Read` for reading only; higher levels also allow changes.
    #[serde(default)]
    pub access: Access,
    /// Globs of files that workers may use; everything if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Globs of files that are always denied, even if granted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    /// Globs of files that can never be changed, even if granted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub immutable: Vec<String>,
    /// Whether the whole subtree is blocked.
    #[serde(default)]
    pub blocked: bool,
}

impl RootConfig {
    /// Creates a root for reading and writing.
    #[must_use]
    pub fn new(mount: VirtualPath) -> Self {
        Self {
            mount,
            default: false,
            optional: false,
            access: Access::Full,
            allow: Vec::new(),
            deny: Vec::new(),
            immutable: Vec::new(),
            blocked: false,
        }
    }

    /// Creates a root for reading only.
    #[must_use]
    pub fn read_only(mount: VirtualPath) -> Self {
        Self {
            access: Access::Read,
            ..Self::new(mount)
        }
    }
}

/// Restriction by an earlier source of the configuration on a later one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Restriction {
    /// Roots of the earlier source: inside each of them its access and globs apply.
    pub roots: Vec<RootConfig>,
    /// Scope lists of the earlier source.
    pub policy: Policy,
}

impl Restriction {
    fn of_checked(mut members: Map<String, Value>) -> Result<Self, PolicyError> {
        Ok(Self {
            roots: take(&mut members, "roots")?,
            policy: Policy::of_checked(take(&mut members, "policy")?)?,
        })
    }

    fn to_json(&self) -> Value {
        let Self { roots, policy } = self;
        let mut members = Map::new();
        if !roots.is_empty() {
            members.insert("roots".to_owned(), json!(roots));
        }
        let policy = policy_members(policy);
        if !policy.is_empty() {
            members.insert("policy".to_owned(), Value::Object(policy));
        }
        Value::Object(members)
    }
}

/// Policy fields of the earlier source.
fn policy_members(policy: &Policy) -> Map<String, Value> {
    let mut members = crate::json::members(json!(policy));
    if let Some(budget) = members.get_mut("budget").and_then(Value::as_object_mut) {
        budget.retain(|_, figure| !figure.is_null());
    }
    members
}

/// Configuration: the only layer that gives authority. It contains no host paths.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// The roots.
    pub roots: Vec<RootConfig>,
    /// What a person may grant outside the roots.
    pub grantable: Vec<ScopePattern>,
    /// Allowed scopes of resources other than files.
    pub allow: Vec<ScopePattern>,
    /// Globs of protected files in addition to the built-in ones; changing one requires a grant that names it.
    pub protect: Vec<String>,
    /// Whether a policy is rejected if its allow globs name more than those of its issuer.
    pub strict: bool,
    /// All other fields of a policy.
    pub policy: Policy,
    /// Restrictions of earlier sources whose roots or scope lists were replaced by a later one.
    pub restrictions: Vec<Restriction>,
}

impl Config {
    /// Creates a configuration in which nothing is open or grantable.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses a configuration; `roots[].path` is the mount point of a root.
    ///
    /// # Errors
    /// [`PolicyError`] with the JSON pointer of the first invalid member.
    pub fn parse(value: &Value) -> Result<Self, PolicyError> {
        let mut members = checked(value, KeyScope::Configuration)?;
        let restrictions: Vec<Map<_, _>> = take(&mut members, "restrictions")?;
        let restrictions = restrictions.into_iter().map(Restriction::of_checked);
        Ok(Self {
            roots: take(&mut members, "roots")?,
            grantable: take(&mut members, "grantable")?,
            allow: take(&mut members, "allow")?,
            protect: take(&mut members, "protect")?,
            strict: take(&mut members, "strict")?,
            restrictions: restrictions.collect::<Result<_, _>>()?,
            policy: Policy::of_checked(members)?,
        })
    }

    /// Adds a root.
    #[must_use]
    pub fn root(mut self, root: RootConfig) -> Self {
        self.roots.push(root);
        self
    }

    /// Adds a grantable pattern.
    #[must_use]
    pub fn grantable(mut self, pattern: ScopePattern) -> Self {
        self.grantable.push(pattern);
        self
    }

    /// Sets the policy fields.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Adds grantable and allowed patterns. An allowed pattern of the resource `network` turns the network on, unless the
    /// configuration sets the key.
    pub(crate) fn and(mut self, grantable: Vec<ScopePattern>, allow: Vec<ScopePattern>) -> Self {
        let mut resources = allow.iter().filter_map(ScopePattern::resource);
        if resources.any(Resource::is_network) {
            self.policy = self.policy.with_network();
        }
        self.grantable.extend(grantable);
        self.allow.extend(allow);
        self
    }

    /// Whether no file can be used: there is no root, and nothing outside is grantable.
    pub(crate) fn opens_no_file(&self) -> bool {
        self.roots.is_empty() && !self.grantable.iter().any(ScopePattern::is_of_files)
    }

    /// Returns the namespace. Relative paths are relative to the default root, otherwise to the only root.
    #[must_use]
    pub fn namespace(&self) -> Namespace {
        let default = self.roots.iter().find(|root| root.default);
        let only = self.roots.first().filter(|_| self.roots.len() == 1);
        let default = default.or(only).map(|root| root.mount.clone());
        Namespace {
            default_root: default,
            empty: self.opens_no_file(),
            ..Namespace::default()
        }
    }

    /// Returns the configuration as JSON for [`Config::parse`], which results in an equivalent configuration.
    ///
    /// Roots in [`Config::policy`] become one more restriction.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let Self {
            roots,
            grantable,
            allow,
            protect,
            strict,
            policy,
            restrictions,
        } = self;
        let mut members = policy_members(policy);
        let mut restrictions: Vec<Value> = restrictions.iter().map(Restriction::to_json).collect();
        if let Some(kept) = members.insert("roots".to_owned(), json!(roots)) {
            restrictions.push(json!({ "policy": { "roots": kept } }));
        }
        let lists = [
            ("restrictions", json!(restrictions)),
            ("grantable", json!(grantable)),
            ("allow", json!(allow)),
            ("protect", json!(protect)),
        ];
        for (key, list) in lists {
            members.insert(key.to_owned(), list);
        }
        members.insert("strict".to_owned(), json!(strict));
        Value::Object(members)
    }
}
