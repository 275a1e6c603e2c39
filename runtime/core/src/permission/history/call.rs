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
    /// Its change was applied.
    Applied,
    /// It was refused before it had an effect.
    Denied,
    /// It failed, possibly after a part of its effect, or the run ended during its effect.
    Failed,
    /// Grants sent with it were ignored, since its client may not grant. The end of the call is another entry.
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

/// A call or the start of a worker, without a question.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PastCall {
    /// The id of the call in the run; `None` for the start of a worker.
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
    /// The message for the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Box<str>>,
    /// Whether its effect began, and the call failed or its end is not recorded. Without a [`code`](Self::code), the
    /// end is unknown: the effect may not have happened, or may have happened partly or completely.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub begun: bool,
    /// How many steps it carried out and did not undo, if it failed and the tool knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done: Option<u64>,
    /// How many files and directories it removed and did not restore, if it failed and the tool knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removed: Option<u64>,
    /// The grants it used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<GrantId>,
    /// The grants that its client sent for this call alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub brought: Vec<ScopePattern>,
    /// The operations of its plan, each once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Op>,
}
