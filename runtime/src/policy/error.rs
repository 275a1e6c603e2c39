//! What is wrong with a policy in, an error that programs and people can act on out.

use std::fmt;

use serde::Serialize;
use serde_json::{Value, json};

use crate::error::{CallError, Code};

/// In which way a policy or configuration is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyErrorKind {
    /// It asks for more than its issuer holds.
    PolicyExpansion,
    /// It cannot be understood: wrong type, unknown key, bad glob.
    PolicyInvalid,
    /// The key belongs in configuration and came in a policy, or the other way round.
    PolicyScope,
    /// The key is for people, and the policy comes from a model or a view.
    PolicyAudience,
}

impl PolicyErrorKind {
    /// The kind as it stands in `data.kind`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PolicyExpansion => "policy_expansion",
            Self::PolicyInvalid => "policy_invalid",
            Self::PolicyScope => "policy_scope",
            Self::PolicyAudience => "policy_audience",
        }
    }
}

/// Why a policy or configuration was refused as a whole.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub struct PolicyError {
    kind: PolicyErrorKind,
    field: String,
    reason: String,
    requested: Value,
    limit: Value,
    witness: Option<String>,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, reason, .. } = self;
        match self.kind {
            PolicyErrorKind::PolicyExpansion => {
                write!(f, "policy may only restrict: {field} {reason}")
            }
            PolicyErrorKind::PolicyInvalid
            | PolicyErrorKind::PolicyScope
            | PolicyErrorKind::PolicyAudience => write!(f, "{field} {reason}"),
        }
    }
}

impl PolicyError {
    pub(crate) fn new(
        kind: PolicyErrorKind,
        field: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            field: field.into(),
            reason: reason.into(),
            requested: Value::Null,
            limit: Value::Null,
            witness: None,
        }
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
        Self {
            requested: requested.into(),
            limit: limit.into(),
            ..Self::new(PolicyErrorKind::PolicyExpansion, field, reason)
        }
    }

    pub(crate) fn requested(mut self, requested: impl Into<Value>) -> Self {
        self.requested = requested.into();
        self
    }

    pub(crate) fn witness(mut self, path: String) -> Self {
        self.witness = Some(path);
        self
    }

    /// In which way it is wrong.
    #[must_use]
    pub fn kind(&self) -> PolicyErrorKind {
        self.kind
    }

    /// The JSON pointer of the member that is wrong.
    #[must_use]
    pub fn field(&self) -> &str {
        &self.field
    }

    /// What the member asks for.
    #[must_use]
    pub fn asked(&self) -> &Value {
        &self.requested
    }

    /// What the issuer holds, as far as it can see that already.
    #[must_use]
    pub fn limit(&self) -> &Value {
        &self.limit
    }

    /// A path that the policy asks for and the issuer does not hold, if one was looked for.
    #[must_use]
    pub fn witness_path(&self) -> Option<&str> {
        self.witness.as_deref()
    }

    /// The stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self.kind {
            PolicyErrorKind::PolicyExpansion => Code::PolicyExpansion,
            PolicyErrorKind::PolicyInvalid
            | PolicyErrorKind::PolicyScope
            | PolicyErrorKind::PolicyAudience => Code::PolicyInvalid,
        }
    }

    /// The `data` of a JSON-RPC error; `layer` says where the policy came from.
    #[must_use]
    pub fn data(&self, layer: &str) -> Value {
        let mut data = json!({ "kind": self.kind, "code": self.code(), "field": self.field });
        if let Some(members) = data.as_object_mut() {
            let facts = [("requested", &self.requested), ("limit", &self.limit)];
            for (key, value) in facts.into_iter().filter(|(_, value)| !value.is_null()) {
                members.insert(key.to_owned(), value.clone());
            }
            members.insert("layer".to_owned(), layer.into());
            if let Some(witness) = &self.witness {
                members.insert("witness".to_owned(), witness.as_str().into());
            }
        }
        data
    }
}

impl From<PolicyError> for CallError {
    fn from(error: PolicyError) -> Self {
        let mut call = Self::new(error.code(), error.to_string())
            .with("kind", error.kind.as_str())
            .with("field", error.field.as_str());
        if !error.requested.is_null() {
            call = call.with("requested", error.requested);
        }
        if !error.limit.is_null() {
            call = call.with("limit", error.limit);
        }
        match error.witness {
            Some(witness) => call.with("witness", witness),
            None => call,
        }
    }
}
