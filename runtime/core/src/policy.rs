//! Policies: layers that restrict an authority.

mod access;
mod authority;
mod base;
mod braces;
mod build;
mod cache;
mod entries;
mod error;
mod explain;
mod flags;
mod fold;
mod globs;
pub(crate) mod keys;
mod limits;
mod matcher;
mod names;
mod need;
mod open;
mod parse;
mod patterns;
mod protect;
mod roots;
mod scopes;
mod sets;
mod statement;
mod strict;
#[cfg(test)]
mod tests;
mod verdict;
mod verdict_cache;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::call::Origin;
use crate::scope::Verb;
use need::{MountPoint, Need};
use patterns::PatternBudget;
use verdict::{Rule, Ruling};

pub use access::Access;
pub use authority::Authority;
pub use error::{PolicyError, PolicyErrorKind};
pub use explain::{Explanation, LayerName};
pub use flags::Flag;
pub use fold::fold;
pub use globs::{InvalidGlob, PathGlob, glob_builds};
pub use limits::Limits;
pub use open::OpenFolder;
pub use roots::PolicyRoot;
pub use sets::WriteMode;
pub use statement::{SourceKind, Statement, StatementSource, StatementVerdict};
pub use verdict::Verdict;
#[doc(hidden)]
pub use verdict_cache::VerdictCache;

pub(crate) use entries::EntryRules;
pub(crate) use globs::{MAX_GLOB, MAX_LIST};

pub(crate) use parse::{checked, take};
pub(crate) use protect::GIT as REPOSITORY_REASON;

/// Restrictions on a worker or a call. A policy can only restrict the authority of its issuer: the parent that spawns
/// the worker, or the worker that makes the call.
///
/// An absent key restricts nothing; the empty policy allows everything that the issuer has.
///
/// ```
/// use bailiwick::{Policy, Verdict};
/// let policy = Policy::new()
///     .allow("read:file")
///     .ask("write:file:/repo/src")
///     .deny_glob("**/.env")
///     .otherwise(Verdict::Deny);
/// let same = Policy::parse(&serde_json::json!({
///     "allow_scopes": ["read:file"],
///     "ask_scopes": ["write:file:/repo/src"],
///     "deny": ["**/.env"],
///     "otherwise": "deny",
/// }))?;
/// assert_eq!(policy, same);
/// # Ok::<(), bailiwick::policy::PolicyError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Policy {
    fields: Fields,
    /// Invalid input of builder methods; reported when the policy is admitted.
    #[serde(skip)]
    faults: Vec<PolicyError>,
}

/// The keys of a policy. Deserialising them checks nothing, which [`Policy::parse`] does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Fields {
    #[serde(skip_serializing_if = "Option::is_none")]
    roots: Option<Vec<PolicyRoot>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    deny: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    immutable: Vec<String>,
    #[serde(flatten)]
    scopes: scopes::ScopeLists,
    #[serde(flatten)]
    sets: sets::Sets,
    #[serde(skip_serializing_if = "Option::is_none")]
    access: Option<Access>,
    #[serde(flatten, deserialize_with = "parse::known_members")]
    flags: flags::FlagFields,
    #[serde(flatten)]
    limits: limits::LimitFields,
}

/// One compiled policy; cheap to clone.
#[derive(Clone, Debug)]
pub struct Layer(Arc<Compiled>);

#[derive(Debug)]
struct Compiled {
    roots: roots::Roots,
    everywhere: globs::DenyGlobs,
    scopes: scopes::Scopes,
    sets: sets::Sets,
    total: authority::Total,
    /// Approximate size of its globs in bytes.
    size: usize,
}

impl Policy {
    /// Compiles all fields; `defaults` are the limits that the policy does not set.
    fn compile(&self, defaults: Limits, budget: &mut PatternBudget) -> Result<Layer, PolicyError> {
        self.check_arguments()?;
        let Fields {
            roots,
            deny,
            immutable,
            scopes,
            sets,
            access,
            flags,
            limits,
        } = &self.fields;
        let roots = roots::Roots::compile(roots.as_deref(), budget)?;
        let everywhere = globs::DenyGlobs::compile(deny, immutable, "", budget)?;
        Ok(Layer(Arc::new(Compiled {
            roots,
            everywhere,
            scopes: scopes::Scopes::compile(scopes),
            sets: sets.clone(),
            total: authority::Total {
                access: access.unwrap_or_default(),
                flags: flags::Flags::compile(flags),
                limits: limits.compile(defaults),
            },
            size: budget.held(),
        })))
    }

    /// Returns all faults in the arguments of the builder methods.
    pub(crate) fn check_arguments(&self) -> Result<(), PolicyError> {
        PolicyError::check(&self.faults)
    }

    /// Checks field by field that the policy requests no more than `issuer` has.
    fn admit(&self, issuer: &Authority, origin: Origin) -> Result<(), PolicyError> {
        let Fields {
            roots,
            deny: _,
            immutable: _,
            scopes,
            sets,
            access,
            flags,
            limits,
        } = &self.fields;
        keys::admit_audience(flags, origin)?;
        roots::admit(roots.as_deref(), issuer)?;
        scopes::admit(scopes, issuer)?;
        sets.admit(issuer)?;
        access::admit(*access, issuer)?;
        flags::admit(flags, issuer.flags())?;
        limits.admit(issuer.limits())
    }

    /// The tools that it names. If it names any, all others are not allowed.
    pub(crate) fn named_tools(&self) -> impl Iterator<Item = &str> {
        self.fields.sets.tools.iter().flatten().map(String::as_str)
    }

    /// This policy of a configuration, with the network on unless it sets that key.
    pub(crate) fn with_network(mut self) -> Self {
        self.fields.flags.entry(Flag::Network).or_insert(true);
        self
    }

    /// This policy with the configuration's defaults for unset fields.
    fn configured(&self) -> Self {
        let mut policy = self.clone();
        policy.fields.flags.entry(Flag::Network).or_insert(false);
        policy
    }
}

impl Layer {
    fn roots(&self) -> &roots::Roots {
        &self.0.roots
    }

    fn scopes(&self) -> &scopes::Scopes {
        &self.0.scopes
    }

    /// The globs that apply in every root.
    fn everywhere(&self) -> &globs::DenyGlobs {
        &self.0.everywhere
    }

    /// Whether it has rules about names.
    fn has_names(&self) -> bool {
        let mut roots = self.0.roots.entries().iter();
        !self.0.everywhere.is_empty() || roots.any(roots::Subtree::has_names)
    }

    /// Adds the rules on entries of a directory.
    fn add_entry_rules<'l>(
        &'l self,
        mounts: &[MountPoint],
        rules: &mut entries::EntryRulesBuilder<'l, '_>,
    ) {
        let Compiled {
            roots,
            everywhere,
            scopes,
            // These do not depend on paths.
            sets: _,
            total: _,
            size: _,
        } = &*self.0;
        roots
            .entries()
            .iter()
            .for_each(|entry| rules.subtree(entry));
        mounts
            .iter()
            .for_each(|mount| rules.globs(everywhere, mount));
        scopes.patterns().for_each(|pattern| rules.pattern(pattern));
    }

    /// The same layer without rules about names.
    fn without_names(&self) -> Self {
        Self(Arc::new(Compiled {
            roots: self.0.roots.without_names(),
            everywhere: globs::DenyGlobs::default(),
            scopes: self.0.scopes.clone(),
            sets: self.0.sets.clone(),
            total: self.0.total,
            size: 0,
        }))
    }

    /// Approximate size of its globs in bytes.
    pub(crate) fn size(&self) -> usize {
        self.0.size
    }
}

impl Compiled {
    /// The strictest ruling of all fields.
    fn judge(&self, need: &Need<'_>, mounts: &[MountPoint], inherited: bool) -> Ruling {
        let Self {
            roots,
            everywhere,
            scopes,
            sets: _,
            total,
            size: _,
        } = self;
        let ruling = scopes
            .judge(need, inherited)
            .tighter(roots.judge(need))
            .tighter(self.verb(need.verb()))
            .tighter(total.flags.judge(need));
        // These globs are matched at every depth of a path outside the roots.
        if ruling.verdict == Verdict::Deny {
            return ruling;
        }
        ruling.tighter(everywhere.judge(need, |globs| {
            need.any_beneath(mounts, |path| globs.denies(path))
        }))
    }

    /// Whether `verb` may be used at all. This combines `verbs`, `access` and `read_only` into one restriction.
    fn verb(&self, verb: Verb) -> Ruling {
        let read_only = verb != Verb::Read && self.total.flags.get(Flag::ReadOnly);
        Ruling::deny_if(!self.sets.has_verb(verb), Rule::Verbs)
            .tighter(Ruling::deny_if(
                self.total.access < Access::required(verb),
                Rule::Access,
            ))
            .tighter(Ruling::deny_if(read_only, Rule::ReadOnly))
    }

    /// Whether something at or beneath `prefix` may be allowed.
    fn reaches(&self, prefix: &crate::path::VirtualPath, inherited: bool) -> bool {
        self.roots.reaches(prefix) && self.scopes.reaches(prefix, inherited) && self.sets.reaches()
    }
}
