//! Policy stub until the algebra lands.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::scope::{Scope, ScopePattern};

/// The answer to "may it?", from open to closed, so that combining is `max`.
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
pub enum Verdict {
    /// Go on.
    Allow,
    /// A person must say.
    Ask,
    /// No.
    #[default]
    Deny,
}

/// The limits of a call, each the tightest of all layers.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The largest file or piece of a file returned, in bytes.
    pub read_max_bytes: u64,
    /// The largest file written, in bytes.
    pub write_max_bytes: u64,
    /// The most entries, names or matches in one answer.
    pub max_results: u64,
}

/// Everything above a call, as a conjunction of layers.
#[derive(Clone, Debug)]
pub struct Authority {
    limits: Arc<Limits>,
}

impl Authority {
    /// The verdict on one need.
    #[must_use]
    pub fn judge(&self, _need: &Scope, _granted: &[ScopePattern]) -> Verdict {
        Verdict::Allow
    }

    /// The limits.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }
}
