//! Who decided a question and why a grant was revoked, as recorded in the audit.

use serde::{Deserialize, Serialize};

use crate::call::Origin;
use crate::error::{CallError, Code};

/// Who decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DecidedBy {
    /// A person.
    Person,
    /// The host: an [`Approver`](super::Approver) that does not ask a person, or the runtime on behalf of the host.
    Host,
    /// A client that sent an invalid answer; it is unknown whether a person answered.
    Client,
    /// A rule of the policy.
    Rule,
    /// Nobody: the question is open or ended without an answer, or it is not recorded who decided.
    Nobody,
}

impl DecidedBy {
    /// The origin of a step that it decided; of one that nobody decided, the host.
    pub(crate) fn origin(self) -> Origin {
        match self {
            Self::Person => Origin::Human,
            Self::Host | Self::Client | Self::Rule | Self::Nobody => Origin::Host,
        }
    }

    /// Who denied a call that failed with `error`.
    pub(crate) fn of_denial(error: &CallError) -> Self {
        match error.details().get("denied_by").map(Self::deserialize) {
            Some(Ok(by)) => by,
            _ if error.code() == Code::ScopeRequired => Self::Nobody,
            _ => Self::Rule,
        }
    }

    /// Returns its name, as in audit records and `denied_by`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Person => "person",
            Self::Host => "host",
            Self::Client => "client",
            Self::Rule => "rule",
            Self::Nobody => "nobody",
        }
    }
}

/// Why a grant was revoked. Grants that are used up or expire have no such record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RevokeCause {
    /// A person revoked it.
    Person,
    /// The worker that held it ended.
    WorkerEnded,
    /// The session that it was for ended.
    SessionEnded,
    /// It could not be stored.
    NotStored,
}

impl RevokeCause {
    /// Who revoked it.
    pub(crate) const fn by(self) -> DecidedBy {
        match self {
            Self::Person => DecidedBy::Person,
            Self::WorkerEnded | Self::SessionEnded | Self::NotStored => DecidedBy::Host,
        }
    }
}
