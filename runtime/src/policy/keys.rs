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

/// Where a key may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyScope {
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
pub enum Merge {
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

/// The words that a key knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EnumKind {
    /// Access levels.
    Access,
    /// Verdicts.
    Verdicts,
    /// Verbs.
    Verbs,
    /// Ways of writing a file.
    WriteModes,
}

impl EnumKind {
    /// Each of them, as it is written.
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

/// What values a key takes.
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
    /// One of the words.
    OneOf(EnumKind),
    /// A list of the words.
    ListOf(EnumKind),
    /// A list of names.
    Names,
    /// A list of globs.
    Globs,
    /// A list of scope patterns.
    Patterns,
    /// An object of the keys behind this one.
    Object,
    /// A list of objects of the keys behind this one.
    Objects,
    /// An object of the keys of a policy.
    Policy,
}

/// One key of configuration and policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Key {
    /// The key; members of `roots`, `restrictions` and `budget` stand behind a `/`.
    pub key: &'static str,
    /// What values it takes.
    pub kind: ValueKind,
    /// Where it may stand.
    pub scope: KeyScope,
    /// Who may write it.
    pub audience: Audience,
    /// How several layers are joined.
    #[serde(rename = "restrict")]
    pub merge: Merge,
    /// What it does, for people.
    pub about: &'static str,
    /// A value that could be written, as JSON.
    pub example: &'static str,
}

impl Key {
    /// The field of that key.
    #[must_use]
    pub fn find(key: &str) -> Option<&'static Self> {
        KEYS.iter().find(|field| field.key == key)
    }

    /// The key of the object that this one is a member of, if it is one.
    #[must_use]
    pub fn parent(&self) -> Option<&'static str> {
        self.key.split_once('/').map(|(parent, _)| parent)
    }

    /// The key as it stands in its object.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.key.split_once('/').map_or(self.key, |(_, name)| name)
    }

    /// Whether it may stand `here`.
    #[must_use]
    pub fn stands_in(&self, here: KeyScope) -> bool {
        self.scope == KeyScope::Any || self.scope == here
    }

    /// Refuses a key that is unknown, or does not belong `here`; `at` is its JSON pointer.
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

/// Refuses keys that are not for who wrote the policy.
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
