//! Who decided a question and why a grant was revoked, as the audit names it.

use serde::{Deserialize, Serialize};

/// Who decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DecidedBy {
    /// A person.
    Person,
    /// The host, by an [`Approver`](super::Approver) that asks no person; or the runtime in its place.
    Host,
    /// A client, which sent an answer that could not be used; no person is known to have said anything.
    Client,
    /// A rule of the policy.
    Rule,
    /// Nobody: it is open, or ended without an answer; or the record does not say.
    Nobody,
}

impl DecidedBy {
    /// Its name, as in records and in `denied_by`.
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

/// Why a grant is no more. One that ended by its uses or its time has no record of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RevokeCause {
    /// A person took it back.
    Person,
    /// The worker that held it ended.
    WorkerEnded,
    /// The session that it was for ended.
    SessionEnded,
    /// It could not be stored, so it was rolled back.
    NotStored,
}

impl RevokeCause {
    /// Who took it back.
    pub(crate) const fn by(self) -> DecidedBy {
        match self {
            Self::Person => DecidedBy::Person,
            Self::WorkerEnded | Self::SessionEnded | Self::NotStored => DecidedBy::Host,
        }
    }
}
