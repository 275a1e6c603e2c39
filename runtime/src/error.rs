//! Errors of calls: a stable code and a message.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::escape::escape_lines;
use crate::path::VirtualPath;
use crate::scope::Scope;

/// The longest message, in bytes; an argument that it quotes may be much longer.
const MAX_MESSAGE: usize = 4096;

/// Stable code of a refusal or failure; programs branch on it, never on the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum Code {
    /// A person may allow this; nobody was asked yet, or the asking layer is elsewhere.
    ScopeRequired,
    /// Policy or a person refused.
    PermissionDenied,
    /// A policy asked for more than its issuer holds.
    PolicyExpansion,
    /// A policy could not be understood.
    PolicyInvalid,
    /// The files no longer match the preview that was approved.
    StalePreview,
    /// There is nothing at that path, or nothing that this worker may know of.
    NotFound,
    /// Something is there already and overwriting was not asked for.
    AlreadyExists,
    /// The file is not UTF-8 text.
    NotText,
    /// The path is a device, FIFO, socket, another file system, or a directory where a file is needed.
    NotRegular,
    /// The path is a file where a directory is needed.
    NotDirectory,
    /// A limit on size, count or depth was reached.
    TooLarge,
    /// The text to replace does not occur.
    NoMatch,
    /// The text to replace occurs more than once.
    AmbiguousMatch,
    /// The file is not what `expected_hash` says, or another change came between.
    Conflict,
    /// Too much is in flight; try again after `retry_after_ms`.
    Busy,
    /// Calls come faster than the policy allows.
    RateLimited,
    /// The call did not end in time.
    Deadline,
    /// The caller gave up, or the worker was revoked or stopped.
    Cancelled,
    /// A budget of the worker or of an ancestor is spent.
    Budget,
    /// The worker died and was restarted while the call was in flight.
    WorkerRestarted,
    /// There is no tool of that name, or this worker may not use it.
    UnknownTool,
    /// The arguments do not fit the tool's schema.
    InvalidArguments,
    /// Another server carried the call out, or tried to, and says that it failed.
    ServerFailed,
    /// What another server answered breaks its own schema, the limits or the protocol; it is not passed on.
    ServerFault,
    /// The server that carries this tool out is not connected, or ended meanwhile.
    ServerGone,
    /// The disk is full, or a write failed for another reason of the system.
    Io,
    /// A fault of this library or of a tool.
    Internal,
}

impl Code {
    /// Whether it says that a policy or a person refused; else the call was not refused but failed.
    pub(crate) const fn is_denial(self) -> bool {
        matches!(
            self,
            Self::ScopeRequired
                | Self::PermissionDenied
                | Self::PolicyExpansion
                | Self::PolicyInvalid
                | Self::RateLimited
                | Self::Budget
                | Self::UnknownTool
        )
    }

    /// The code as it stands on the wire, such as `STALE_PREVIEW`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ScopeRequired => "SCOPE_REQUIRED",
            Self::PermissionDenied => "PERMISSION_DENIED",
            Self::PolicyExpansion => "POLICY_EXPANSION",
            Self::PolicyInvalid => "POLICY_INVALID",
            Self::StalePreview => "STALE_PREVIEW",
            Self::NotFound => "NOT_FOUND",
            Self::AlreadyExists => "ALREADY_EXISTS",
            Self::NotText => "NOT_TEXT",
            Self::NotRegular => "NOT_REGULAR",
            Self::NotDirectory => "NOT_DIRECTORY",
            Self::TooLarge => "TOO_LARGE",
            Self::NoMatch => "NO_MATCH",
            Self::AmbiguousMatch => "AMBIGUOUS_MATCH",
            Self::Conflict => "CONFLICT",
            Self::Busy => "BUSY",
            Self::RateLimited => "RATE_LIMITED",
            Self::Deadline => "DEADLINE",
            Self::Cancelled => "CANCELLED",
            Self::Budget => "BUDGET",
            Self::WorkerRestarted => "WORKER_RESTARTED",
            Self::UnknownTool => "UNKNOWN_TOOL",
            Self::InvalidArguments => "INVALID_ARGUMENTS",
            Self::ServerFailed => "SERVER_FAILED",
            Self::ServerFault => "SERVER_FAULT",
            Self::ServerGone => "SERVER_GONE",
            Self::Io => "IO",
            Self::Internal => "INTERNAL",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a call gave no result: what a model or a program is told.
///
/// The message names no host path, never differs between "does not exist" and "not yours", and
/// never teaches a way around a refusal.
#[derive(Clone, PartialEq, thiserror::Error)]
#[error("{}: {}", self.0.code, self.0.message)]
pub struct CallError(Box<Inner>);

/// What `main` prints of it; the details follow in the alternate form (`{:#?}`).
impl fmt::Debug for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)?;
        if f.alternate() && !self.0.details.is_empty() {
            write!(f, " {:#?}", self.0.details)?;
        }
        Ok(())
    }
}

/// Behind one pointer, so that a result is no larger for what is rarely in it.
#[derive(Clone, PartialEq)]
struct Inner {
    code: Code,
    message: String,
    details: Map<String, Value>,
    requested: Vec<Scope>,
    denied: Option<Scope>,
}

impl CallError {
    /// A refusal or failure with its stable code; `message` says what to do next.
    ///
    /// A message may quote names, files and arguments: what deceives in it is escaped, and a long one is cut.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            code,
            message: readable(message.into()),
            details: Map::new(),
            requested: Vec::new(),
            denied: None,
        }))
    }

    /// `NOT_FOUND` for `path`: the same error whether the path does not exist or the worker may not use it.
    #[must_use]
    pub fn not_found(path: &VirtualPath) -> Self {
        let path = crate::escape::escape(path.as_str());
        Self::new(
            Code::NotFound,
            format!("there is nothing at `{path}` that this worker may use"),
        )
    }

    /// `UNKNOWN_TOOL`: the same error whether the tool does not exist or the caller may not use it.
    pub(crate) fn unknown_tool(tool: &str) -> Self {
        let tool = crate::escape::escape(tool);
        Self::new(
            Code::UnknownTool,
            format!("there is no tool `{tool}` for this worker"),
        )
    }

    /// `INVALID_ARGUMENTS` for the argument at the JSON pointer `field`, which `details.field` has; `reason` says what was
    /// expected. If a tool returns it from `prepare` or `plan`, one of the tool's examples is added.
    ///
    /// ```
    /// use bailiwick::CallError;
    /// let error = CallError::invalid_argument("/limit", "expected an integer of at least 1, got `0`");
    /// assert_eq!(error.message(), "invalid argument `/limit`: expected an integer of at least 1, got `0`");
    /// assert_eq!(error.details()["field"], "/limit");
    /// ```
    #[must_use]
    pub fn invalid_argument(field: &str, reason: impl fmt::Display) -> Self {
        let message = format!("invalid argument `{field}`: {reason}");
        Self::new(Code::InvalidArguments, message).with("field", field)
    }

    /// Adds a fact for programs, such as the line numbers of an ambiguous match.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.details.insert(key.to_owned(), value.into());
        self
    }

    /// Names the scopes that a person could grant to let the call through.
    #[must_use]
    pub(crate) fn requesting(mut self, scopes: Vec<Scope>) -> Self {
        self.0.requested = scopes;
        self
    }

    /// Names the need that a policy denies.
    #[must_use]
    pub(crate) fn denying(mut self, need: &Scope) -> Self {
        self.0.denied = Some(need.clone());
        self
    }

    /// The need that a policy denies, if that is known.
    #[cfg(feature = "mcp")]
    pub(crate) fn denied(&self) -> Option<&Scope> {
        self.0.denied.as_ref()
    }

    /// Adds a clause to the message.
    #[must_use]
    pub(crate) fn and_clause(mut self, clause: &str) -> Self {
        self.0.message.push_str("; ");
        self.0.message.push_str(clause);
        self
    }

    /// Adds a sentence to the message.
    #[cfg(feature = "mcp")]
    #[must_use]
    pub(crate) fn and(mut self, sentence: &str) -> Self {
        self.0.message.push_str(". ");
        self.0.message.push_str(sentence);
        self
    }

    /// The stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The sentence for the model.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Inner for programs, by key.
    #[must_use]
    pub fn details(&self) -> &Map<String, Value> {
        &self.0.details
    }

    /// Exactly the needs that a person could grant; empty whenever asking would not help.
    #[must_use]
    pub fn requested_scopes(&self) -> &[Scope] {
        &self.0.requested
    }
}

/// `message` with what deceives written out, and cut if it is long.
fn readable(message: String) -> String {
    let escaped = match escape_lines(&message) {
        Cow::Borrowed(_) => None,
        Cow::Owned(escaped) => Some(escaped),
    };
    let mut text = escaped.unwrap_or(message);
    if text.len() > MAX_MESSAGE {
        let mut ends = (0..=MAX_MESSAGE).rev();
        let end = ends.find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
        text.push_str(" [cut]");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(message: &str, expected: &str) {
        let error = CallError::new(Code::NotFound, message);
        assert_eq!(error.message(), expected);
        assert_eq!(error.to_string(), format!("NOT_FOUND: {expected}"));
    }

    #[test]
    fn what_deceives_in_a_message_is_written_out() {
        check(
            "no `a\u{202e}b\u{200b}`\u{1b}[2J",
            "no `a\\u{202e}b\\u{200b}`\\u{1b}[2J",
        );
        check("line 1\n\tline 2 é", "line 1\n\tline 2 é");
    }

    #[test]
    fn a_message_is_cut_at_a_character() {
        let long = "é".repeat(MAX_MESSAGE);
        check(&long, &format!("{} [cut]", "é".repeat(MAX_MESSAGE / 2)));
        let full = "x".repeat(MAX_MESSAGE);
        check(&full, &full);
    }
}
