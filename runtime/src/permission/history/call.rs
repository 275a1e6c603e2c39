//! History entries of single calls.

use std::sync::Arc;

use serde::Serialize;

use crate::effect::Op;
use crate::error::Code;
use crate::id::{CallId, GrantId};
use crate::scope::{Scope, ScopePattern};

/// How a call ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CallOutcome {
    /// It has not ended, or its end is not recorded yet.
    #[default]
    Open,
    /// It was answered.
    Answered,
    /// Its change was made.
    Applied,
    /// It was refused before it had an effect.
    Denied,
    /// It failed, perhaps after a part of its effect; or the run ended after its effect began and before the end was
    /// recorded.
    Failed,
    /// It brought grants that its client may not bring, so they were ignored. How the call itself ended is another entry.
    GrantsIgnored,
}

impl CallOutcome {
    /// Its name, as in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Answered => "answered",
            Self::Applied => "applied",
            Self::Denied => "denied",
            Self::Failed => "failed",
            Self::GrantsIgnored => "grants_ignored",
        }
    }
}

/// A call, or the start of a worker, without a question of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PastCall {
    /// Which call of the run; none for the start of a worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// How it ended.
    pub outcome: CallOutcome,
    /// What it needed, if it was judged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<Scope>,
    /// The rule that decided, as the audit names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<Arc<str>>,
    /// The code, if it was denied or failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// What the caller was told then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Box<str>>,
    /// Its effect began, and the call failed or no end of it is recorded. Without a [`code`](Self::code) the end is unknown:
    /// none of the effect, a part of it or all of it may have happened.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub begun: bool,
    /// How many steps it carried out before it failed, if the tool knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done: Option<u64>,
    /// How many files and directories it removed before it failed, if the tool knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removed: Option<u64>,
    /// The grants it used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<GrantId>,
    /// The grants for this call alone that its client brought.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub brought: Vec<ScopePattern>,
    /// What its plan does, each once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Op>,
}
