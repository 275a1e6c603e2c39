//! Access levels and the verbs that they allow.

use super::authority::Authority;
use super::error::PolicyError;
use crate::scope::{Verb, words};

words! {
    /// How far a worker may go; combining is `min`.
    #[derive(Default)]
    pub enum Access {
        /// It may look.
        Read = "read",
        /// It may look and change.
        Interact = "interact",
        /// It may look, change and run.
        #[default]
        Full = "full",
    }
}

impl Access {
    /// The lowest level that allows `verb`.
    pub(crate) const fn required(verb: Verb) -> Self {
        match verb {
            Verb::Read => Self::Read,
            Verb::Write => Self::Interact,
            Verb::Execute => Self::Full,
        }
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
