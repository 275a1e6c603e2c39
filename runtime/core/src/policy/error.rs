//! Policy errors.

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::open::OpenFolder;
use crate::error::{CallError, Code};
use crate::json::members;

/// Kind of error of a policy or configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyErrorKind {
    /// It requests more than its issuer has.
    PolicyExpansion,
    /// It is invalid: wrong type, unknown key, bad glob.
    PolicyInvalid,
    /// The key is only valid in configuration but is in a policy, or the other way round.
    PolicyScope,
    /// The key is for people, and the policy comes from a model or a view.
    PolicyAudience,
}

impl PolicyErrorKind {
    fn code(self) -> Code {
        match self {
            Self::PolicyExpansion => Code::PolicyExpansion,
            Self::PolicyInvalid | Self::PolicyScope | Self::PolicyAudience => Code::PolicyInvalid,
        }
    }
}

/// Maximum number of entries of a list in a message.
const MAX_SHOWN: usize = 4;
/// Maximum length of an entry in a message, in characters.
const MAX_SHOWN_CHARS: usize = 200;

/// Why a policy or configuration was rejected.
///
/// If several arguments of a policy's builder methods are invalid, the text has one line for each, and
/// [`PolicyError::faults`] returns them.
#[derive(Clone, PartialEq, thiserror::Error)]
pub struct PolicyError(Box<Fault>);

/// As JSON it has the members of `data` that describe the error.
#[derive(Clone, PartialEq, Serialize)]
struct Fault {
    kind: PolicyErrorKind,
    field: String,
    #[serde(skip)]
    reason: String,
    #[serde(skip_serializing_if = "Value::is_null")]
    requested: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    limit: Value,
    /// What the issuer has, for the message, if it says more than `limit`.
    #[serde(skip)]
    held: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    witness: Option<String>,
    /// Errors of other members. These errors have no `others`.
    #[serde(skip)]
    others: Vec<PolicyError>,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)?;
        let mut others = self.0.others.iter();
        others.try_for_each(|other| write!(f, "\n{}", other.0))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            field,
            reason,
            requested,
            limit,
            held,
            witness: _,
            others: _,
        } = self;
        match kind {
            PolicyErrorKind::PolicyExpansion => {
                write!(f, "policy may only restrict: {field} {reason}")?;
                if !requested.is_null() {
                    write!(f, "; asked for: {}", shown(requested))?;
                }
                match held {
                    Some(held) => write!(f, "; held: {held}"),
                    None if limit.is_null() => Ok(()),
                    None => write!(f, "; held: {}", shown(limit)),
                }
            }
            _ if field.is_empty() => write!(f, "the policy {reason}"),
            PolicyErrorKind::PolicyInvalid
            | PolicyErrorKind::PolicyScope
            | PolicyErrorKind::PolicyAudience => write!(f, "{field} {reason}"),
        }
    }
}

/// Like `Display`, since `main` prints this form.
impl fmt::Debug for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The first entries of a value, in backticks.
fn shown(value: &Value) -> String {
    let one = |value: &Value| {
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        let cut: String = text.chars().take(MAX_SHOWN_CHARS).collect();
        format!("`{}`", crate::text::escape(&cut))
    };
    match value {
        Value::Array(values) => some_of(&values.iter().map(one).collect::<Vec<_>>()),
        value => one(value),
    }
}

/// The first entries of a list.
fn some_of(entries: &[String]) -> String {
    let more = entries.len().saturating_sub(MAX_SHOWN);
    let named: Vec<_> = entries.iter().take(MAX_SHOWN).cloned().collect();
    match (named.is_empty(), more) {
        (true, _) => "nothing".to_owned(),
        (false, 0) => named.join(", "),
        (false, _) => format!("{} and {more} more", named.join(", ")),
    }
}

impl PolicyError {
    pub(crate) fn new(
        kind: PolicyErrorKind,
        field: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        Self(Box::new(Fault {
            kind,
            field: field.into(),
            reason: reason.into(),
            requested: Value::Null,
            limit: Value::Null,
            held: None,
            witness: None,
            others: Vec::new(),
        }))
    }

    /// Fails with all of `faults`, if there are any.
    pub(super) fn check(faults: &[Self]) -> Result<(), Self> {
        let Some((first, others)) = faults.split_first() else {
            return Ok(());
        };
        let mut error = first.clone();
        error.0.others = others.to_vec();
        Err(error)
    }

    pub(crate) fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::new(PolicyErrorKind::PolicyInvalid, field, reason)
    }

    pub(crate) fn expansion(
        field: impl Into<String>,
        reason: impl Into<String>,
        requested: impl Into<Value>,
        limit: impl Into<Value>,
    ) -> Self {
        let mut error = Self::new(PolicyErrorKind::PolicyExpansion, field, reason);
        error.0.limit = limit.into();
        error.requested(requested)
    }

    pub(crate) fn requested(mut self, requested: impl Into<Value>) -> Self {
        self.0.requested = requested.into();
        self
    }

    /// Names these folders as what the issuer has, in the message with their access.
    pub(super) fn held(mut self, folders: &[OpenFolder]) -> Self {
        let paths = folders.iter().map(|folder| folder.path.as_str());
        self.0.limit = paths.collect();
        let named: Vec<_> = folders.iter().map(ToString::to_string).collect();
        self.0.held = Some(some_of(&named));
        self
    }

    pub(crate) fn witness(mut self, path: String) -> Self {
        self.0.witness = Some(path);
        self
    }

    /// Returns one error for each invalid member. The other methods describe the first error.
    #[must_use]
    pub fn faults(&self) -> Vec<Self> {
        let mut first = self.clone();
        let others = std::mem::take(&mut first.0.others);
        std::iter::once(first).chain(others).collect()
    }

    /// Returns the kind of error.
    #[must_use]
    pub fn kind(&self) -> PolicyErrorKind {
        self.0.kind
    }

    /// Returns the JSON pointer of the invalid member.
    #[must_use]
    pub fn field(&self) -> &str {
        &self.0.field
    }

    /// The reason, without the JSON pointer.
    pub(crate) fn reason(&self) -> &str {
        &self.0.reason
    }

    /// Returns what the member requests.
    #[must_use]
    pub fn asked(&self) -> &Value {
        &self.0.requested
    }

    /// Returns what the issuer has, as far as the requester may know it.
    #[must_use]
    pub fn limit(&self) -> &Value {
        &self.0.limit
    }

    /// Returns the stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        self.0.kind.code()
    }

    /// Returns the `data` of a JSON-RPC error; `layer` names the source of the policy.
    #[must_use]
    pub fn data(&self, layer: &str) -> Value {
        let mut data = members(json!({ "code": self.code() }));
        data.extend(self.facts());
        data.insert("layer".to_owned(), layer.into());
        Value::Object(data)
    }

    /// The members of `data` that describe the error.
    fn facts(&self) -> Map<String, Value> {
        members(json!(self.0))
    }
}

impl From<PolicyError> for CallError {
    fn from(error: PolicyError) -> Self {
        let call = Self::new(error.code(), error.to_string());
        let facts = error.facts().into_iter();
        facts.fold(call, |call, (key, value)| call.with(&key, value))
    }
}
