//! What a person configures in, the namespace and the outermost policy layer out.

mod error;
mod join;
mod parse;
mod schema;
mod sources;
mod text;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::error::{CallError, Code};
use crate::path::VirtualPath;
use crate::policy::{Access, Policy};
use crate::scope::{ScopePattern, Verb};

pub use error::ConfigError;
pub use schema::{config_schema, policy_schema};
pub use sources::{ConfigSource, ConfigSources, Effective};

/// How the paths that models write become virtual paths.
#[derive(Clone, Debug, Default)]
pub struct Namespace {
    default_root: Option<VirtualPath>,
}

impl Namespace {
    pub(crate) fn new(default_root: Option<VirtualPath>) -> Self {
        Self { default_root }
    }

    /// Reads a path as a model wrote it; a relative one lies beneath the default root.
    ///
    /// # Errors
    /// `INVALID_ARGUMENTS` if it is no path.
    pub fn path(&self, text: &str) -> Result<VirtualPath, CallError> {
        VirtualPath::parse(text, self.default_root.as_ref())
            .map_err(|error| CallError::new(Code::InvalidArguments, error.to_string()))
    }

    /// Where relative paths begin.
    #[must_use]
    pub fn default_root(&self) -> Option<&VirtualPath> {
        self.default_root.as_ref()
    }
}

/// A directory that a person opened to workers, by the name under which they see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RootConfig {
    /// Where it stands in the namespace.
    #[serde(rename = "path")]
    pub mount: VirtualPath,
    /// Whether relative paths begin here.
    pub default: bool,
    /// `Read` to look only; anything above to change files, too.
    pub access: Access,
    /// What of it is open; everything if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// What nobody may touch, whatever is granted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    /// What nobody may change, whatever is granted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub immutable: Vec<String>,
    /// Whether the whole subtree is closed.
    pub blocked: bool,
}

impl RootConfig {
    /// A root whose files may be read and written.
    #[must_use]
    pub fn new(mount: VirtualPath) -> Self {
        Self {
            mount,
            default: false,
            access: Access::Full,
            allow: Vec::new(),
            deny: Vec::new(),
            immutable: Vec::new(),
            blocked: false,
        }
    }

    /// A root whose files may be read.
    #[must_use]
    pub fn read_only(mount: VirtualPath) -> Self {
        Self {
            access: Access::Read,
            ..Self::new(mount)
        }
    }
}

/// What an earlier source of the configuration takes away from what a later one opens. It opens nothing itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Restriction {
    /// Roots of the earlier source: within each of them, its access and globs hold.
    pub roots: Vec<RootConfig>,
    /// Scope lists of the earlier source.
    pub policy: Policy,
}

/// What people configured: the only layer that gives anything. Host paths are no part of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// The directories that workers may see.
    pub roots: Vec<RootConfig>,
    /// What a person may grant beyond that.
    pub grantable: Vec<ScopePattern>,
    /// What is allowed of resources other than files.
    pub allow: Vec<ScopePattern>,
    /// Files that only a grant naming them lets change, beyond those always protected.
    pub protect: Vec<String>,
    /// Whether a policy is refused if its allow globs name more than its issuer's.
    pub strict: bool,
    /// Everything else that a policy could say.
    pub policy: Policy,
    /// What earlier sources take away, where a later one took the place of their roots or scope lists.
    pub restrictions: Vec<Restriction>,
}

impl Config {
    /// Nothing is open and nothing can be granted.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a root.
    #[must_use]
    pub fn root(mut self, root: RootConfig) -> Self {
        self.roots.push(root);
        self
    }

    /// Adds what a person may grant.
    #[must_use]
    pub fn grantable(mut self, pattern: ScopePattern) -> Self {
        self.grantable.push(pattern);
        self
    }

    /// Sets what a policy could say, too.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// How the paths that models write are read: the default root, else the only one.
    #[must_use]
    pub fn namespace(&self) -> Namespace {
        let default = self.roots.iter().find(|root| root.default);
        let only = self.roots.first().filter(|_| self.roots.len() == 1);
        Namespace::new(default.or(only).map(|root| root.mount.clone()))
    }

    /// How far a server of this configuration lets anyone go: `Read` if nothing can be changed, `Full` if policies may
    /// say `allow_escape`, else `Interact`.
    #[must_use]
    pub fn access_level(&self) -> Access {
        let open = |root: &RootConfig| !root.blocked && root.access != Access::Read;
        let root = |root: &RootConfig| {
            let earlier = self.restrictions.iter().filter_map(|earlier| {
                let around = earlier.roots.iter();
                let around = around.filter(|outer| root.mount.starts_with(&outer.mount));
                around.max_by_key(|outer| outer.mount.depth())
            });
            open(root) && earlier.into_iter().all(open)
        };
        let granted = |pattern: &ScopePattern| pattern.verb().is_none_or(|verb| verb != Verb::Read);
        let given = self.grantable.iter().chain(&self.allow).any(granted);
        self.policy.level(given || self.roots.iter().any(root))
    }

    /// The configuration as [`Config::parse`] reads it.
    ///
    /// What the policy says of roots has no place beside the roots themselves, and is left out; so are restrictions.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let Self {
            roots,
            grantable,
            allow,
            protect,
            strict,
            policy,
            restrictions: _,
        } = self;
        let mut members = match json!(policy) {
            Value::Object(members) => members,
            _ => Map::new(),
        };
        members.insert("roots".to_owned(), json!(roots));
        if let Some(budget) = members.get_mut("budget").and_then(Value::as_object_mut) {
            budget.retain(|_, figure| !figure.is_null());
        }
        let lists = [
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
