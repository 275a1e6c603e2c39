//! Why a worker may not ask in, what its call is told out.

use std::time::Duration;

use super::Kind;
use crate::error::{CallError, Code};

/// Why a person is not asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotAsked {
    /// Too many questions are open.
    Busy,
    /// The worker asked too often of late.
    TooOften { retry_after: Duration },
    /// A person refused this kind for the rest of the session.
    Silenced(Kind),
}

impl From<NotAsked> for CallError {
    fn from(reason: NotAsked) -> Self {
        match reason {
            NotAsked::Busy => Self::new(
                Code::Busy,
                "too many questions are open; go on with something else and try again later",
            )
            .with("retry_after_ms", 1000),
            NotAsked::TooOften { retry_after } => Self::new(
                Code::RateLimited,
                "a person was asked too often; go on with what is allowed",
            )
            .with(
                "retry_after_ms",
                u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX),
            ),
            NotAsked::Silenced((verb, resource)) => Self::new(
                Code::PermissionDenied,
                format!(
                    "a person refused `{verb}:{}` for the rest of the session; go on without it",
                    resource.as_str()
                ),
            ),
        }
    }
}
