//! Reasons why a question is not asked, and their errors.

use std::time::Duration;

use super::super::{DecidedBy, millis};
use crate::error::{CallError, Code};
use crate::scope::Coverage;

/// What a limit counts.
pub(super) const OPEN_PER_WORKER: &str =
    "questions of one worker are open (`AskLimits::open_per_worker`)";
pub(super) const OPEN: &str = "questions of all workers are open (`AskLimits::open`)";
pub(super) const WAITING_PER_QUESTION: &str =
    "calls wait for one question (`AskLimits::waiting_per_question`)";

/// Why a question is not asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotAsked {
    /// Too many questions are open, or too many calls wait for one.
    Busy { most: usize, what: &'static str },
    /// The worker asked too often within a minute.
    TooOften {
        per_minute: usize,
        retry_after: Duration,
    },
    /// A person denied this for the rest of the session.
    Silenced(Coverage),
}

impl NotAsked {
    pub(super) fn busy(most: usize, what: &'static str) -> Self {
        Self::Busy { most, what }
    }
}

impl From<NotAsked> for CallError {
    fn from(reason: NotAsked) -> Self {
        match reason {
            NotAsked::Busy { most, what } => Self::new(
                Code::Busy,
                format!(
                    "no further question can be asked now: at most {most} {what}; go on with something else and try again later"
                ),
            )
            .with("retry_after_ms", 1000),
            NotAsked::TooOften {
                per_minute,
                retry_after,
            } => Self::new(
                Code::RateLimited,
                format!(
                    "a person was asked too often: at most {per_minute} questions of one worker in a minute \
                     (`AskLimits::per_minute`); go on with what is allowed"
                ),
            )
            .with("retry_after_ms", millis(retry_after)),
            NotAsked::Silenced(denied) => Self::new(
                Code::PermissionDenied,
                format!(
                    "a person refused `{}` for the rest of the session; go on without it",
                    crate::text::escape(&denied.pattern().to_string())
                ),
            )
            .with("denied_by", DecidedBy::Person.as_str()),
        }
    }
}
