//! Keys of configuration and policy: where they are valid, who may write them, their values, and how layers are merged.

mod table;

use serde::Serialize;

use super::access::Access;
use super::error::{PolicyError, PolicyErrorKind};
use super::flags::FlagFields;
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
    /// The elements that all lists cover.
    Intersection,
    /// The elements that any list covers.
    Union,
    /// A flag that allows something: it must be true in all layers.
    And,
    /// A flag that restricts: it must be true in one layer.
    Or,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// Must be equal in all layers.
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
    /// An integer, 0 or more.
    Count,
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

    /// Finds the member `name` of `parent`, or of the whole document; `at` is its JSON pointer.
    ///
    /// # Errors
    /// [`PolicyError`] if it is unknown or not valid `here`.
    pub(crate) fn member(
        parent: Option<&str>,
        name: &str,
        here: KeyScope,
        at: &str,
    ) -> Result<&'static Self, PolicyError> {
        let mut keys = KEYS.iter().filter(|field| field.key.ends_with(name));
        let member = keys.find(|field| (field.parent(), field.name()) == (parent, name));
        let Some(field) = member else {
            return Err(PolicyError::invalid(at, "is an unknown key"));
        };
        let elsewhere = match field.scope {
            _ if field.stands_in(here) => return Ok(field),
            KeyScope::Policy => "belongs in a policy, not in configuration",
            KeyScope::Configuration | KeyScope::Any => "belongs in configuration, not in a policy",
        };
        let kind = PolicyErrorKind::PolicyScope;
        Err(PolicyError::new(kind, at, elsewhere))
    }
}

/// Rejects keys that the author of the policy may not use. Only flags have an audience, which a test checks.
pub(crate) fn admit_audience(flags: &FlagFields, origin: Origin) -> Result<(), PolicyError> {
    let refused = match origin {
        Origin::Human | Origin::Host => Audience::Llm,
        Origin::Model | Origin::View => Audience::Human,
    };
    let keys = KEYS.iter().filter(|field| field.audience == refused);
    for key in keys.map(|field| field.key) {
        if flags.keys().any(|flag| flag.as_str() == key) {
            return Err(PolicyError::new(
                PolicyErrorKind::PolicyAudience,
                format!("/{key}"),
                "may not be set by the author of this policy",
            ));
        }
    }
    Ok(())
}
