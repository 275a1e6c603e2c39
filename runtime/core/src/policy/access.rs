//! Access levels and the verbs that they allow.

use serde::{Deserialize, Serialize};

use super::authority::Authority;
use super::error::PolicyError;
use super::need::Need;
use super::verdict::{Rule, Ruling};
use crate::scope::Verb;

/// How far a worker may go; combining is `min`.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// It may look.
    Read,
    /// It may look and change.
    Interact,
    /// It may look, change and run.
    #[default]
    Full,
}

impl Access {
    /// Every level, from closed to open.
    pub const ALL: [Self; 3] = [Self::Read, Self::Interact, Self::Full];

    /// Returns the level as written in a policy.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Interact => "interact",
            Self::Full => "full",
        }
    }

    /// The lowest level that allows `verb`.
    pub(crate) const fn required(verb: Verb) -> Self {
        match verb {
            Verb::Read => Self::Read,
            Verb::Write => Self::Interact,
            Verb::Execute => Self::Full,
        }
    }

    pub(crate) fn judge(self, need: &Need<'_>) -> Ruling {
        Ruling::deny_if(self < Self::required(need.verb()), Rule::Access)
    }
}

/// Rejects a level above the issuer's.
pub(crate) fn admit(access: Option<Access>, issuer: &Authority) -> Result<(), PolicyError> {
    let held = issuer.access();
    match access.filter(|wanted| *wanted > held) {
        Some(wanted) => Err(PolicyError::expansion(
            "/access",
            "is above the issuer's",
            wanted.as_str(),
            held.as_str(),
        )),
        None => Ok(()),
    }
}
