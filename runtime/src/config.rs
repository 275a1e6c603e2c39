//! Configuration: the roots and the outermost policy layer, and the table of all keys.

mod error;
mod join;
mod parse;
mod schema;
mod sources;
mod text;

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::error::{CallError, Code};
use crate::path::{PathError, VirtualPath};
use crate::policy::{Access, Authority, OpenFolder, Policy, Verdict};
use crate::scope::{Resource, Scope, ScopePattern, Verb};

pub use crate::policy::{Audience, EnumKind, KEYS, Key, KeyScope, Merge, ValueKind};
pub use error::ConfigError;
pub use schema::{config_schema, policy_schema};
pub(crate) use sources::unknown_tool;
pub use sources::{ConfigSource, ConfigSources, Effective};

/// How the paths that models write become virtual paths.
///
/// Each worker has one. Relative paths begin in its working directory ([`WorkerSpec::cwd`](crate::WorkerSpec::cwd)).
#[derive(Clone, Debug, Default)]
pub struct Namespace {
    default_root: Option<VirtualPath>,
    /// What the worker may use inside the roots.
    open: Arc<[OpenFolder]>,
    /// The optional roots that could not be opened.
    unavailable: Arc<[UnavailableRoot]>,
    /// Whether no path can be used at all.
    empty: bool,
}

/// An optional root ([`RootConfig::optional`]) that could not be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnavailableRoot {
    /// Where it was to be mounted.
    pub path: VirtualPath,
    /// Why it could not be opened.
    pub reason: String,
}

/// What a client reads where a server has no root.
pub(crate) const NO_ROOT: &str =
    "this server has no root directory: ask the person who runs it to start it with a directory";

/// How many open folders an error or a description names.
const MOST_NAMED: usize = 8;

impl Namespace {
    /// How a worker reads paths that may use `open`.
    pub(crate) fn new(default_root: Option<VirtualPath>, open: Vec<OpenFolder>) -> Self {
        Self {
            default_root,
            open: open.into(),
            unavailable: Arc::default(),
            empty: false,
        }
    }

    /// The same where no path can be used, since there is no root and none beyond could be granted.
    pub(crate) fn emptied(self, empty: bool) -> Self {
        Self { empty, ..self }
    }

    /// Whether no path can be used at all.
    #[cfg(feature = "mcp")]
    pub(crate) fn is_empty(&self) -> bool {
        self.empty
    }

    /// The same beside optional roots that could not be opened.
    pub(crate) fn without(self, unavailable: Vec<UnavailableRoot>) -> Self {
        Self {
            unavailable: unavailable.into(),
            ..self
        }
    }

    /// The namespace of a worker beneath one with this namespace. Relative paths begin in `cwd`, else where they begin here
    /// if that is open, else in the one outermost folder that can be read, else in the one that can be written.
    pub(crate) fn narrowed(&self, cwd: Option<VirtualPath>, authority: &Authority) -> Self {
        let open = authority.open_folders();
        let inherited = || {
            let root = self.default_root.clone()?;
            let open = [Verb::Read, Verb::Write].map(|verb| Scope::file(verb, root.clone()));
            let mut open = open.iter();
            open.any(|need| authority.judge(need, &[]) != Verdict::Deny)
                .then_some(root)
        };
        let only = || {
            let readable: Vec<_> = open.iter().filter(|it| it.is_outermost()).collect();
            match (&*readable, &*open) {
                ([one], _) => Some(one.path.clone()),
                ([], [one]) => Some(one.path.clone()),
                _ => None,
            }
        };
        let default_root = cwd.or_else(inherited).or_else(only);
        // A worker that is kept to other folders is not told of them.
        let unavailable = self.unavailable.iter();
        let unavailable = unavailable.filter(|root| authority.policies_hold(&root.path));
        Self::new(default_root, open)
            .without(unavailable.cloned().collect())
            .emptied(self.empty)
    }

    /// Where relative paths begin, unless they begin there in `other`, too.
    pub(crate) fn moved_from(&self, other: &Self) -> Option<&VirtualPath> {
        let begin = self.default_root.as_ref();
        begin.filter(|_| self.default_root != other.default_root)
    }

    /// The same where relative paths begin in the folder that holds the working directory.
    pub(crate) fn above(mut self) -> Self {
        self.default_root = self.default_root.and_then(|root| root.parent());
        self
    }

    /// Reads a path as a model wrote it; a relative one lies beneath the working directory.
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
                    "the path `{}` is relative, and there is no one folder in which relative paths begin; {}",
                    crate::escape(text),
                    self.orientation()
                );
            }
            CallError::new(Code::InvalidArguments, message)
        })
    }

    /// Where relative paths begin: the worker's working directory.
    #[must_use]
    pub fn default_root(&self) -> Option<&VirtualPath> {
        self.default_root.as_ref()
    }

    /// The folders that the worker may use.
    #[must_use]
    pub fn open_folders(&self) -> &[OpenFolder] {
        &self.open
    }

    /// The optional roots that could not be opened.
    #[must_use]
    pub fn unavailable_roots(&self) -> &[UnavailableRoot] {
        &self.unavailable
    }

    /// One or two sentences for a model on where it may work.
    pub(crate) fn orientation(&self) -> String {
        if self.empty {
            return NO_ROOT.to_owned();
        }
        let named: Vec<_> = self.open.iter().take(MOST_NAMED).collect();
        let named: Vec<_> = named.iter().map(ToString::to_string).collect();
        let more = self.open.len().saturating_sub(MOST_NAMED);
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
            text.push_str(&crate::escape(root.as_str()));
            text.push('`');
        }
        text
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
    /// Whether the other roots are served without this one if it cannot be opened.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
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
            optional: false,
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

impl Restriction {
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

/// What a policy says, by key.
fn policy_members(policy: &Policy) -> Map<String, Value> {
    let mut members = match json!(policy) {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    if let Some(budget) = members.get_mut("budget").and_then(Value::as_object_mut) {
        budget.retain(|_, figure| !figure.is_null());
    }
    members
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

    /// This, with more that may be granted and more that is allowed.
    pub(crate) fn and(mut self, grantable: Vec<ScopePattern>, allow: Vec<ScopePattern>) -> Self {
        self.grantable.extend(grantable);
        self.allow.extend(allow);
        self
    }

    /// Whether no file can be used at all: there is no root, and none beyond could be granted.
    pub(crate) fn opens_no_file(&self) -> bool {
        let of_files = |pattern: &ScopePattern| {
            let resource = pattern.resource();
            resource.is_none_or(|resource| *resource == Resource::File)
        };
        self.roots.is_empty() && !self.grantable.iter().any(of_files)
    }

    /// How the paths that models write are read: the default root, else the only one.
    #[must_use]
    pub fn namespace(&self) -> Namespace {
        let default = self.roots.iter().find(|root| root.default);
        let only = self.roots.first().filter(|_| self.roots.len() == 1);
        let default = default.or(only).map(|root| root.mount.clone());
        Namespace::new(default, Vec::new()).emptied(self.opens_no_file())
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

    /// The configuration as [`Config::parse`] reads it; what is read decides the same.
    ///
    /// What [`Config::policy`] says of roots has no place beside the roots themselves, and is one more of the restrictions.
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
