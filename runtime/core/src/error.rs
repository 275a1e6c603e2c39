//! Errors of calls: a stable code and a message.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

use serde_json::{Map, Value};

use crate::path::VirtualPath;
use crate::scope::{Scope, words};
use crate::text::escape_lines;

/// Maximum length of a message in bytes; an argument that it quotes may be much longer.
const MAX_MESSAGE: usize = 4096;

words! {
    /// Stable code of a denial or failure. Programs must branch on the code, never on the message.
    #[non_exhaustive]
    pub enum Code {
        /// The call requires approval, and nobody was asked.
        ScopeRequired = "SCOPE_REQUIRED",
        /// Policy or a person denied the call.
        PermissionDenied = "PERMISSION_DENIED",
        /// A policy requests more than its issuer has.
        PolicyExpansion = "POLICY_EXPANSION",
        /// A policy is invalid.
        PolicyInvalid = "POLICY_INVALID",
        /// The files no longer match the preview that was approved.
        StalePreview = "STALE_PREVIEW",
        /// The path does not exist, or the worker may not know of it.
        NotFound = "NOT_FOUND",
        /// The path exists already and overwriting was not requested.
        AlreadyExists = "ALREADY_EXISTS",
        /// The file is not UTF-8 text.
        NotText = "NOT_TEXT",
        /// The path is a device, FIFO, socket, another file system, or a directory where a file is needed.
        NotRegular = "NOT_REGULAR",
        /// The path is a file where a directory is needed.
        NotDirectory = "NOT_DIRECTORY",
        /// A limit on size, count or depth was reached.
        TooLarge = "TOO_LARGE",
        /// The text to replace does not occur.
        NoMatch = "NO_MATCH",
        /// The text to replace occurs more than once.
        AmbiguousMatch = "AMBIGUOUS_MATCH",
        /// The file does not match `expected_hash`, or was changed concurrently.
        Conflict = "CONFLICT",
        /// Too many calls are in flight; try again after `retry_after_ms`.
        Busy = "BUSY",
        /// Calls are made faster than the policy allows.
        RateLimited = "RATE_LIMITED",
        /// The deadline has passed.
        Deadline = "DEADLINE",
        /// The caller cancelled the call, or the worker was revoked or stopped.
        Cancelled = "CANCELLED",
        /// A budget of the worker or of an ancestor is exceeded.
        Budget = "BUDGET",
        /// The worker died and was restarted while the call was in flight.
        WorkerRestarted = "WORKER_RESTARTED",
        /// The tool does not exist, or this worker may not use it.
        UnknownTool = "UNKNOWN_TOOL",
        /// The arguments do not match the tool's schema.
        InvalidArguments = "INVALID_ARGUMENTS",
        /// A third-party server reported that the call failed.
        ServerFailed = "SERVER_FAILED",
        /// The result of a third-party server violates its schema, the limits or the protocol.
        ServerFault = "SERVER_FAULT",
        /// The server of this tool is not connected, or disconnected during the call.
        ServerGone = "SERVER_GONE",
        /// The disk is full, or another I/O error occurred.
        Io = "IO",
        /// A bug in this library or a tool.
        Internal = "INTERNAL",
    }
}

impl Code {
    /// Returns whether a call with this code was denied by a policy or a person; otherwise it failed.
    #[must_use]
    pub const fn is_denial(self) -> bool {
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
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Writes the message of an error and those of its causes.
pub(crate) fn write_chain(error: &dyn Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{error}")?;
    let mut causes = std::iter::successors(error.source(), |cause| (*cause).source());
    causes.try_for_each(|cause| write!(f, ": {cause}"))
}

/// Error of a call, for models and programs.
///
/// The message contains no host path, does not reveal whether a hidden path exists, and never suggests how to bypass a
/// refusal.
#[derive(Clone, PartialEq, thiserror::Error)]
#[error("{}: {}", self.0.code, self.0.message)]
pub struct CallError(Box<Inner>);

/// Like `Display`, since `main` prints this form. The alternate form (`{:#?}`) adds the details.
impl fmt::Debug for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)?;
        if f.alternate() && !self.0.details.is_empty() {
            write!(f, " {:#?}", self.0.details)?;
        }
        Ok(())
    }
}

/// Boxed to keep results small.
#[derive(Clone, PartialEq)]
struct Inner {
    code: Code,
    message: String,
    details: Map<String, Value>,
    requested: Vec<Scope>,
    denied: Option<Scope>,
}

impl CallError {
    /// Creates an error with a stable code; `message` says what to do next.
    ///
    /// A message may quote names, files and arguments: deceptive characters are escaped, and a long message is cut.
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
        let path = crate::text::escape(path.as_str());
        Self::new(
            Code::NotFound,
            format!("there is nothing at `{path}` that this worker may use"),
        )
    }

    /// `UNKNOWN_TOOL`: the same error whether the tool does not exist or the caller may not use it.
    #[doc(hidden)]
    #[must_use]
    pub fn unknown_tool(tool: &str) -> Self {
        let tool = crate::text::escape(tool);
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

    /// Adds a detail for programs, such as the line numbers of an ambiguous match.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.details.insert(key.to_owned(), value.into());
        self
    }

    /// Sets the scopes that a person could grant to allow the call.
    #[must_use]
    #[doc(hidden)]
    pub fn requesting(mut self, scopes: Vec<Scope>) -> Self {
        self.0.requested = scopes;
        self
    }

    /// Sets the need that a policy denies.
    #[must_use]
    pub(crate) fn denying(mut self, need: &Scope) -> Self {
        self.0.denied = Some(need.clone());
        self
    }

    /// Returns the need that a policy denies, if that is known.
    #[doc(hidden)]
    #[must_use]
    pub fn denied(&self) -> Option<&Scope> {
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
    #[must_use]
    #[doc(hidden)]
    pub fn and(mut self, sentence: &str) -> Self {
        self.0.message.push_str(". ");
        self.0.message.push_str(sentence);
        self
    }

    /// Returns the stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// Returns the message for the model.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Details for programs, by key. Tools can add keys of their own. Those of this library are:
    ///
    /// | key | value |
    /// |---|---|
    /// | `begun` | `true` if the effect had begun, so its outcome is unknown |
    /// | `done` | the number of steps or items that were completed |
    /// | `field` | JSON pointer to the invalid argument, or to the invalid key of a policy |
    /// | `denied_by` | who denied the call, such as `person` or `host` |
    /// | `retry_after_ms` | after how many milliseconds the call can be tried again |
    /// | `cause` | with `STALE_PREVIEW`, the `code` and `message` with which the call fails now |
    /// | `bytes`, `limit` | a size that is too large, and its limit |
    #[must_use]
    pub fn details(&self) -> &Map<String, Value> {
        &self.0.details
    }

    /// Returns exactly the needs that a person could grant; empty if asking would not help.
    ///
    /// The text of a scope names neither its operations nor whether it reaches beneath its path. To send a need elsewhere
    /// and grant no more than it, send [`Coverage::of`](crate::scope::Coverage::of) of it.
    ///
    /// [`Explanation::grant`](crate::policy::Explanation::grant), from [`Worker::explain`](crate::Worker::explain), is the
    /// smallest grant that allows a need; [`GrantAuthority::grant`](crate::GrantAuthority::grant) gives it.
    #[must_use]
    pub fn requested_scopes(&self) -> &[Scope] {
        &self.0.requested
    }
}

/// `message` with deceptive characters escaped, and cut if it is long.
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
    fn message_escapes_deceptive_characters() {
        check(
            "no `a\u{202e}b\u{200b}`\u{1b}[2J",
            "no `a\\u{202e}b\\u{200b}`\\u{1b}[2J",
        );
        check("line 1\n\tline 2 é", "line 1\n\tline 2 é");
    }

    #[test]
    fn long_message_is_cut_at_a_character_boundary() {
        let long = "é".repeat(MAX_MESSAGE);
        check(&long, &format!("{} [cut]", "é".repeat(MAX_MESSAGE / 2)));
        let full = "x".repeat(MAX_MESSAGE);
        check(&full, &full);
    }
}
