//! A key in, where it may stand, who may write it and how it restricts out.

use serde::Serialize;

use super::Policy;
use super::error::{PolicyError, PolicyErrorKind};
use crate::call::Origin;

/// Where a key may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FieldScope {
    /// In configuration alone.
    Configuration,
    /// In a policy alone.
    Policy,
    /// In both.
    Any,
}

/// Who may write a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Audience {
    /// People alone.
    Human,
    /// Models alone.
    Llm,
    /// Both.
    Any,
}

/// How the values of several layers are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Restrict {
    /// Subtrees within subtrees.
    Roots,
    /// What all lists cover.
    Intersection,
    /// What any list covers.
    Union,
    /// What opens: all must say yes.
    And,
    /// What closes: one yes is enough.
    Or,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// The same in all.
    Identity,
}

/// One key of configuration and policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Field {
    /// The key; members of `roots` and `budget` stand behind a `/`.
    pub key: &'static str,
    /// Where it may stand.
    pub scope: FieldScope,
    /// Who may write it.
    pub audience: Audience,
    /// How several layers are joined.
    pub restrict: Restrict,
    /// What it does, for people.
    pub about: &'static str,
}

const fn any(key: &'static str, restrict: Restrict, about: &'static str) -> Field {
    Field {
        key,
        scope: FieldScope::Any,
        audience: Audience::Any,
        restrict,
        about,
    }
}

const fn configuration(key: &'static str, restrict: Restrict, about: &'static str) -> Field {
    Field {
        scope: FieldScope::Configuration,
        ..any(key, restrict, about)
    }
}

/// Every key, in the order in which people read them.
pub const FIELDS: &[Field] = &[
    any("roots", Restrict::Roots, "The directories that may be used"),
    any(
        "roots/path",
        Restrict::Roots,
        "Where the directory stands in the namespace",
    ),
    configuration(
        "roots/default",
        Restrict::Identity,
        "Relative paths begin here",
    ),
    configuration(
        "roots/access",
        Restrict::Min,
        "`read` to look only, else files may be changed",
    ),
    any("roots/blocked", Restrict::Or, "The subtree is closed"),
    any(
        "roots/allow",
        Restrict::Intersection,
        "Globs of what is open in it",
    ),
    any(
        "roots/deny",
        Restrict::Union,
        "Globs of what nobody may touch in it",
    ),
    any(
        "roots/immutable",
        Restrict::Union,
        "Globs of what nobody may change in it",
    ),
    any(
        "deny",
        Restrict::Union,
        "Globs of what nobody may touch in any root",
    ),
    any(
        "immutable",
        Restrict::Union,
        "Globs of what nobody may change in any root",
    ),
    any(
        "allow_scopes",
        Restrict::Intersection,
        "Scopes that are allowed; what no scope list names is then denied",
    ),
    any(
        "ask_scopes",
        Restrict::Intersection,
        "Scopes that a person is asked about",
    ),
    any("deny_scopes", Restrict::Union, "Scopes that are denied"),
    any(
        "delegate_only",
        Restrict::Intersection,
        "Scopes that may be handed to children and not used",
    ),
    any(
        "otherwise",
        Restrict::Max,
        "The verdict on what no scope list names",
    ),
    any(
        "tools",
        Restrict::Intersection,
        "The tools that may be called",
    ),
    any(
        "verbs",
        Restrict::Intersection,
        "The verbs that may be used",
    ),
    any(
        "write_modes",
        Restrict::Intersection,
        "The ways in which files may be written",
    ),
    any(
        "access",
        Restrict::Min,
        "How far a worker may go: `read`, `interact` or `full`",
    ),
    any(
        "allow_escape",
        Restrict::And,
        "What lies outside every root may be asked for, as far as it is grantable",
    ),
    any("follow_symlinks", Restrict::And, "Links are followed"),
    any("network", Restrict::And, "The network may be used"),
    any("read_only", Restrict::Or, "Nothing may be changed"),
    any(
        "require_preview",
        Restrict::Or,
        "A change must have been previewed",
    ),
    Field {
        audience: Audience::Human,
        ..any(
            "require_approval",
            Restrict::Or,
            "Every change needs a person",
        )
    },
    any(
        "read_max_bytes",
        Restrict::Min,
        "The largest file or piece of a file returned; 0 is without limit",
    ),
    any(
        "write_max_bytes",
        Restrict::Min,
        "The largest file written; 0 is without limit",
    ),
    any(
        "max_results",
        Restrict::Min,
        "The most entries in one answer; 0 is without limit",
    ),
    any(
        "max_calls",
        Restrict::Min,
        "The most calls of a worker; 0 is without limit",
    ),
    any(
        "ttl_ms",
        Restrict::Min,
        "How long a worker may live; 0 is without limit",
    ),
    any(
        "min_interval_ms",
        Restrict::Max,
        "The least time between two calls",
    ),
    any(
        "budget",
        Restrict::Min,
        "What a worker and all beneath it may spend",
    ),
    any("budget/calls", Restrict::Min, "Tool calls"),
    any("budget/bytes_written", Restrict::Min, "Bytes written"),
    any(
        "budget/files_touched",
        Restrict::Min,
        "Files and directories changed",
    ),
    any(
        "budget/children",
        Restrict::Min,
        "Child workers, at any depth",
    ),
    configuration(
        "grantable",
        Restrict::Identity,
        "Scopes that a person may grant beyond the roots",
    ),
    configuration(
        "allow",
        Restrict::Identity,
        "Scopes other than of files that are allowed",
    ),
    configuration(
        "protect",
        Restrict::Union,
        "Globs of files that only a grant naming them lets change",
    ),
    configuration(
        "strict",
        Restrict::Identity,
        "Refuse policies whose allow globs name more than their issuer's",
    ),
    configuration("otel_endpoint", Restrict::Identity, "Where traces are sent"),
];

impl Field {
    /// The field of that key.
    #[must_use]
    pub fn find(key: &str) -> Option<&'static Self> {
        FIELDS.iter().find(|field| field.key == key)
    }

    /// Refuses a key that is unknown, or does not belong `here`; `at` is its JSON pointer.
    pub(crate) fn check(key: &str, here: FieldScope, at: &str) -> Result<(), PolicyError> {
        let Some(field) = Self::find(key) else {
            return Err(PolicyError::invalid(at, "is no known key"));
        };
        let elsewhere = match field.scope {
            FieldScope::Any => return Ok(()),
            scope if scope == here => return Ok(()),
            FieldScope::Configuration => "belongs in configuration, not in a policy",
            FieldScope::Policy => "belongs in a policy, not in configuration",
        };
        Err(PolicyError::new(
            PolicyErrorKind::PolicyScope,
            at,
            elsewhere,
        ))
    }
}

/// Refuses keys that are not for who wrote the policy.
pub(crate) fn admit_audience(policy: &Policy, origin: Origin) -> Result<(), PolicyError> {
    let refused = match origin {
        Origin::Human => Audience::Llm,
        Origin::Model | Origin::View => Audience::Human,
    };
    let mut present = present(policy).filter_map(Field::find);
    match present.find(|field| field.audience == refused) {
        Some(field) => Err(PolicyError::new(
            PolicyErrorKind::PolicyAudience,
            format!("/{}", field.key),
            "is not for who wrote this policy",
        )),
        None => Ok(()),
    }
}

/// The keys that a policy says something about.
fn present(policy: &Policy) -> impl Iterator<Item = &'static str> {
    let Policy {
        roots,
        deny,
        immutable,
        scopes,
        sets,
        access,
        flags,
        limits,
        faults: _,
    } = policy;
    let lists = [
        ("roots", roots.is_some()),
        ("deny", !deny.is_empty()),
        ("immutable", !immutable.is_empty()),
        ("access", access.is_some()),
    ];
    lists
        .into_iter()
        .chain(scopes.present())
        .chain(sets.present())
        .chain(flags.present())
        .chain(limits.present())
        .filter_map(|(key, present)| present.then_some(key))
}
