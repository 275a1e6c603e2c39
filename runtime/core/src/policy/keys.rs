//! Keys of configuration and policy: where they are valid, who may write them, their values and how layers merge.

mod table;

use serde::Serialize;

use super::Policy;
use super::access::Access;
use super::error::{PolicyError, PolicyErrorKind};
use super::sets::WriteMode;
use super::verdict::Verdict;
use crate::call::Origin;
use crate::scope::Verb;

pub use table::KEYS;

/// Where a key is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyScope {
    /// In configuration only.
    Configuration,
    /// In a policy only.
    Policy,
    /// In both.
    Any,
}

/// Who may write a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Audience {
    /// People only.
    Human,
    /// Models only.
    Llm,
    /// Both.
    Any,
}

/// How the values of several layers are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Merge {
    /// Nested subtrees.
    Roots,
    /// What all lists cover.
    Intersection,
    /// What any list covers.
    Union,
    /// A flag that allows something: all must be true.
    And,
    /// A flag that restricts: one true is enough.
    Or,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// Must be equal in all.
    Identity,
}

/// Enumerations used as values of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EnumKind {
    /// Access levels.
    Access,
    /// Verdicts.
    Verdicts,
    /// Verbs.
    Verbs,
    /// Write modes.
    WriteModes,
}

impl EnumKind {
    /// Returns all values, as written.
    #[must_use]
    pub fn all(self) -> Vec<&'static str> {
        match self {
            Self::Access => Access::ALL.map(Access::as_str).into(),
            Self::Verdicts => Verdict::ALL.map(Verdict::as_str).into(),
            Self::Verbs => Verb::ALL.map(Verb::as_str).into(),
            Self::WriteModes => WriteMode::ALL.map(WriteMode::as_str).into(),
        }
    }
}

/// Type of the values of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueKind {
    /// True or false.
    Flag,
    /// A whole number, 0 or more.
    Count,
    /// A text.
    Text,
    /// An absolute path.
    Path,
    /// A value of an enumeration.
    OneOf(EnumKind),
    /// A list of values of an enumeration.
    ListOf(EnumKind),
    /// A list of names.
    Names,
    /// A list of globs.
    Globs,
    /// A list of scope patterns.
    Patterns,
    /// An object with the keys beneath this one.
    Object,
    /// A list of objects with the keys beneath this one.
    Objects,
    /// A policy object.
    Policy,
}

/// A key of configuration or policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Key {
    /// The key; members of `roots`, `restrictions` and `budget` follow a `/`.
    pub key: &'static str,
    /// Type of its values.
    pub kind: ValueKind,
    /// Where it is valid.
    pub scope: KeyScope,
    /// Who may write it.
    pub audience: Audience,
    /// How its values in several layers are merged.
    #[serde(rename = "restrict")]
    pub merge: Merge,
    /// Description for people.
    pub about: &'static str,
    /// An example value, as JSON.
    pub example: &'static str,
}

impl Key {
    /// Returns the key of that name.
    #[must_use]
    pub fn find(key: &str) -> Option<&'static Self> {
        KEYS.iter().find(|field| field.key == key)
    }

    /// Returns the key of the object that contains this one, if any.
    #[must_use]
    pub fn parent(&self) -> Option<&'static str> {
        self.key.split_once('/').map(|(parent, _)| parent)
    }

    /// Returns the key without its parent.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.key.split_once('/').map_or(self.key, |(_, name)| name)
    }

    /// Returns whether it is valid `here`.
    #[must_use]
    pub fn stands_in(&self, here: KeyScope) -> bool {
        self.scope == KeyScope::Any || self.scope == here
    }

    /// Rejects a key that is unknown or not valid `here`; `at` is its JSON pointer.
    pub(crate) fn check(key: &str, here: KeyScope, at: &str) -> Result<(), PolicyError> {
        let Some(field) = Self::find(key) else {
            return Err(PolicyError::invalid(at, "is no known key"));
        };
        let elsewhere = match field.scope {
            KeyScope::Any => return Ok(()),
            scope if scope == here => return Ok(()),
            KeyScope::Configuration => "belongs in configuration, not in a policy",
            KeyScope::Policy => "belongs in a policy, not in configuration",
        };
        Err(PolicyError::new(
            PolicyErrorKind::PolicyScope,
            at,
            elsewhere,
        ))
    }
}

/// Rejects keys that the author of the policy may not use.
pub(crate) fn admit_audience(policy: &Policy, origin: Origin) -> Result<(), PolicyError> {
    let refused = match origin {
        Origin::Human | Origin::Host => Audience::Llm,
        Origin::Model | Origin::View => Audience::Human,
    };
    let mut present = present(policy).filter_map(Key::find);
    match present.find(|field| field.audience == refused) {
        Some(field) => Err(PolicyError::new(
            PolicyErrorKind::PolicyAudience,
            format!("/{}", field.key),
            "is not for who wrote this policy",
        )),
        None => Ok(()),
    }
}

/// The keys that a policy sets.
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
