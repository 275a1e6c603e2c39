//! Reasons why a question is not asked, and their errors.

use std::fmt;
use std::time::Duration;

use crate::error::{CallError, Code};
use crate::scope::Coverage;

/// The limit that a question exceeds, with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// [`AskLimits::open_per_worker`](super::AskLimits::open_per_worker)
    OpenPerWorker(usize),
    /// [`AskLimits::open`](super::AskLimits::open)
    Open(usize),
    /// [`AskLimits::waiting_per_question`](super::AskLimits::waiting_per_question)
    WaitingPerQuestion(usize),
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OpenPerWorker(most) => write!(
                f,
                "at most {most} questions of one worker are open (`AskLimits::open_per_worker`)"
            ),
            Self::Open(most) => write!(
                f,
                "at most {most} questions of all workers are open (`AskLimits::open`)"
            ),
            Self::WaitingPerQuestion(most) => write!(
                f,
                "at most {most} calls wait for one question (`AskLimits::waiting_per_question`)"
            ),
        }
    }
}

/// Why a question is not asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotAsked {
    /// Too many questions are open, or too many calls wait for one.
    Busy(Limit),
    /// The worker asked too often within a minute.
    TooOften {
        per_minute: usize,
        retry_after: Duration,
    },
    /// A person denied this for the rest of the session.
    Silenced(Coverage),
}

impl From<NotAsked> for CallError {
    fn from(reason: NotAsked) -> Self {
        match reason {
            NotAsked::Busy(limit) => Self::new(
                Code::Busy,
                format!(
                    "no further question can be asked now: {limit}; go on with something else and try again later"
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
            .with(
                "retry_after_ms",
                u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX),
            ),
            NotAsked::Silenced(denied) => Self::new(
                Code::PermissionDenied,
                format!(
                    "a person refused `{}` for the rest of the session; go on without it",
                    crate::escape(&denied.pattern().to_string())
                ),
            ),
        }
    }
}
