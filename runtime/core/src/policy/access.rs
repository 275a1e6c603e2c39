//! Access levels and the verbs that they allow.

use super::authority::Authority;
use super::error::PolicyError;
use crate::scope::{Verb, words};

words! {
    /// How far a worker's access may go. The combination of two levels is the lower one.
    #[derive(Default)]
    pub enum Access {
        /// It may read.
        Read = "read",
        /// It may read and change.
        Interact = "interact",
        /// It may read, change and execute.
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

/// Rejects a level above that of the issuer.
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
