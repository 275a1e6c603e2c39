//! Errors of the console's HTTP API.

use axum::http::StatusCode;
use serde::Serialize;

use bailiwick::CallError;
use bailiwick::permission::AuthorityError;

/// Error body with a stable code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct ApiError {
    #[serde(skip)]
    pub(super) status: StatusCode,
    pub(super) code: &'static str,
    pub(super) message: String,
}

impl ApiError {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: bailiwick::text::escape(&message.into()).into_owned(),
        }
    }

    pub(super) fn malformed(error: &serde_json::Error) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "MALFORMED", error.to_string())
    }

    pub(super) fn media() -> Self {
        let message = "the body must be application/json";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "MEDIA_TYPE", message)
    }

    pub(super) fn body(status: StatusCode, message: String) -> Self {
        Self::new(status, "BODY", message)
    }

    /// 404 Not Found.
    pub(super) fn missing(code: &'static str) -> Self {
        let message = match code {
            "NO_QUESTION" => "unknown question",
            "NO_GRANT" => "unknown grant",
            "NO_TEMPLATE" => "unknown template",
            "NO_RECORD" => "there is no audit log to show",
            "NO_CALL" => "unknown call, or one that is not kept any more",
            "NO_WORKER" => "unknown agent, or one that has ended",
            "NO_CHANGE" => "no such changes can be undone; they may have been undone already",
            "NO_REFUSAL" => "nothing of this kind is refused",
            _ => "unknown runtime; it may have been shut down",
        };
        Self::new(StatusCode::NOT_FOUND, code, message)
    }

    /// The holder of a grant is an agent that has no live worker and holds no grant.
    pub(super) fn unknown_agent(agent: &str) -> Self {
        let message =
            format!("unknown agent `{agent}`: no agent of this name runs or holds a grant");
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "UNKNOWN_AGENT", message)
    }

    /// A request to revoke grants has neither a filter nor `all`, or both.
    pub(super) fn unnamed() -> Self {
        let message = "name the grants to revoke, or `all`";
        Self::new(StatusCode::BAD_REQUEST, "NOTHING_NAMED", message)
    }

    pub(super) fn too_long(what: &str, max: usize) -> Self {
        let message = format!("{what} may have {max} characters at most");
        Self::new(StatusCode::BAD_REQUEST, "TOO_LONG", message)
    }

    /// An undo for the person failed.
    pub(super) fn undo(error: &CallError) -> Self {
        let message = format!("Not undone: {}", error.message());
        Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            error.code().as_str(),
            message,
        )
    }

    pub(super) fn internal(message: &str) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL", message)
    }

    pub(super) fn unreadable(error: &std::io::Error) -> Self {
        let message = format!("the audit log cannot be read: {error}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "RECORD", message)
    }
}

impl From<AuthorityError> for ApiError {
    fn from(error: AuthorityError) -> Self {
        let (status, code) = match &error {
            AuthorityError::NoQuestion => (StatusCode::NOT_FOUND, "NO_QUESTION"),
            AuthorityError::Ended(_) => (StatusCode::CONFLICT, "ENDED"),
            AuthorityError::DoesNotFit
            | AuthorityError::TooManyToLast(_)
            | AuthorityError::Excluded(_) => (StatusCode::UNPROCESSABLE_ENTITY, "DOES_NOT_FIT"),
            AuthorityError::NotGrantable(_) => (StatusCode::UNPROCESSABLE_ENTITY, "NOT_GRANTABLE"),
            AuthorityError::NotThere(_) => (StatusCode::UNPROCESSABLE_ENTITY, "NOT_THERE"),
            AuthorityError::Wider => (StatusCode::UNPROCESSABLE_ENTITY, "WIDER"),
            AuthorityError::Template(_) => (StatusCode::UNPROCESSABLE_ENTITY, "TEMPLATE"),
            AuthorityError::NoGrant => (StatusCode::NOT_FOUND, "NO_GRANT"),
            AuthorityError::InBatch { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "IN_BATCH"),
            AuthorityError::NotTogether(_) => (StatusCode::UNPROCESSABLE_ENTITY, "NOT_TOGETHER"),
            AuthorityError::TooMany => (StatusCode::CONFLICT, "TOO_MANY"),
            AuthorityError::Audit(_) => (StatusCode::SERVICE_UNAVAILABLE, "NOT_RECORDED"),
            AuthorityError::Store(_) => (StatusCode::SERVICE_UNAVAILABLE, "NOT_STORED"),
            AuthorityError::StillStored { .. } => (StatusCode::SERVICE_UNAVAILABLE, "STILL_STORED"),
            AuthorityError::Closed => (StatusCode::GONE, "CLOSED"),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL"),
        };
        Self::new(status, code, error.to_string())
    }
}
