//! Audit events and the hash-chained records that hold them.
//!
//! Each step of a call is one event, including denials; some reads have one event in all ([`Step::Finished`]). Events are cheap to create: they are serialised, and get their time
//! and hash, when they are written.

mod chain;
mod observed;
mod past;
mod recorder;
mod segments;
mod sink;
mod verify;

use std::sync::Arc;

use serde::ser::Error as _;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::call::Origin;
use crate::effect::{Change, ContentHash, ExcludedChange, Op, PreviewToken, ResourceChange};
use crate::error::{CallError, Code};
use crate::id::{CallId, GrantId, QuestionId, ToolName, WorkerId};
use crate::json::Canonical;
use crate::path::VirtualPath;
use crate::permission::{DecidedBy, Decision, GrantHolder, Lifetime, Narrowing, RevokeCause};
use crate::policy::{Policy, Verdict};
use crate::scope::{Coverage, Scope, ScopePattern};

pub use chain::{Head, Record, json_line};
pub(crate) use past::{PastChange, PastEvent, PastFailure, PastRecord, PastStep, past};
pub use recorder::AuditError;
pub(crate) use recorder::DEFAULT_CAPACITY;
#[doc(hidden)]
pub use recorder::{Audit, WeakAudit, wall_clock};

pub(crate) use segments::follow_file;
pub use segments::verify_file;
#[doc(hidden)]
pub use segments::{open_segment, without_gap};
pub use sink::{AuditFileError, AuditFileFault, AuditSink, JsonLines, MemoryAudit, TornLine};
pub(crate) use verify::follow;
pub use verify::{AuditBroken, BreakReason, Verified, verify, verify_after};
pub(crate) use verify::{End, walk};

/// One step of a call or a worker.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AuditEvent {
    /// The worker; `None` for actions of a person that concern no particular worker, such as a grant to an agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerId>,
    /// The worker's path in the delegation tree, such as `main/tests`.
    pub agent: Arc<str>,
    /// The call, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// The tool, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolName>,
    /// Who caused it; for the start of a worker, who wrote its policy.
    pub origin: Origin,
    /// What happened.
    #[serde(flatten)]
    pub step: Step,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "step", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Step {
    /// A worker was spawned.
    Spawned {
        /// Its parent.
        #[serde(skip_serializing_if = "Option::is_none")]
        parent: Option<WorkerId>,
        /// Its session.
        session: Arc<str>,
        /// Its own policy layer; recorded as the text of its JSON with sorted keys.
        #[serde(serialize_with = "canonical_text")]
        policy: Arc<Policy>,
    },
    /// A call was judged by policy and grants. A call that was rejected earlier has no such record, nor has a read whose
    /// [`Finished`](Self::Finished) has its needs.
    Judged {
        /// The verdict on all needs together.
        verdict: Verdict,
        /// The needs of the call.
        needs: Arc<[Scope]>,
        /// The deciding layer and rule, as in [`Explanation`](crate::policy::Explanation); `None` if all layers allow all needs without
        /// a grant, since no single rule decides then.
        #[serde(skip_serializing_if = "Option::is_none")]
        rule: Option<Arc<str>>,
    },
    /// A call uses grants.
    GrantUsed {
        /// The live grants, each used once.
        grants: Arc<[GrantId]>,
        /// Grants sent with the call, for it alone.
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        brought: Arc<[ScopePattern]>,
    },
    /// Grants sent by a client that may not grant were ignored.
    IgnoredGrants {
        /// The first of them.
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        brought: Arc<[ScopePattern]>,
    },
    /// A person is asked.
    Asked {
        /// The question, which equal calls share.
        question: QuestionId,
        /// The needs that require approval.
        needs: Arc<[Scope]>,
    },
    /// A question ended.
    Answered(Box<AnsweredStep>),
    /// The call was planned; nothing has changed yet.
    Planned {
        /// Identifies the plan.
        token: PreviewToken,
        /// The files that would change.
        changes: Arc<[ChangeSummary]>,
        /// Other resources that would change.
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        resources: Arc<[ResourceSummary]>,
    },
    /// The plan was previewed; nothing has changed.
    Previewed {
        /// Identifies the plan.
        token: PreviewToken,
    },
    /// The effect begins once this is written.
    Applying {
        /// The plan.
        token: PreviewToken,
        /// Bytes to write.
        bytes: u64,
        /// Files and directories to change.
        files: u64,
    },
    /// Details of an effect that its tool recorded, such as the exit status of a command.
    Recorded {
        /// The details.
        details: Box<Value>,
    },
    /// The effect is complete.
    Applied {
        /// The plan.
        token: PreviewToken,
    },
    /// The call is sent to its server once this is written.
    RemoteCall {
        /// The name of the server in the configuration.
        server: Arc<str>,
        /// The name of the tool at the server.
        tool_there: Arc<str>,
        /// Whether it is a preview.
        preview: bool,
        /// Hash of the arguments as JSON with sorted keys and no spaces.
        arguments_sha256: ContentHash,
    },
    /// The server made a request within the call. The response is not recorded.
    ServerRequest {
        /// The name of the server in the configuration.
        server: Arc<str>,
        /// The method that it called.
        method: &'static str,
        /// Its outcome.
        outcome: RequestOutcome,
        /// Why it was rejected.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<Box<str>>,
    },
    /// Artifacts were stored.
    Artifacts {
        /// Their URIs.
        uris: Box<[Box<str>]>,
    },
    /// Artifacts could not be stored. The call continues without them.
    ArtifactFailed {
        /// The stable code.
        code: Code,
        /// The reason.
        message: Box<str>,
    },
    /// The call was denied before it had any effect.
    Denied {
        /// The stable code.
        code: Code,
        /// The message for the caller.
        message: Box<str>,
        /// Who denied it; nobody if approval was required and nobody was asked.
        by: DecidedBy,
    },
    /// The call failed, possibly after a part of its effect.
    Failed(Box<FailedStep>),
    /// The call was answered. This is the last step of a call, unless an effect ends after the caller stopped waiting.
    Finished {
        /// The code if it was denied or failed.
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<Code>,
        /// Bytes of content in the answer.
        bytes: u64,
        /// The needs of a read without a policy of its own that was judged once, that all layers allowed without a grant,
        /// and that its tool answered at once ([`ReadTool::read_now`](crate::ReadTool::read_now)). Such a read has no
        /// other record.
        #[serde(skip_serializing_if = "Option::is_none")]
        allowed: Option<Arc<[Scope]>>,
    },
    /// A grant that outlives one call was given.
    Granted(Box<GrantedStep>),
    /// A stored grant was restored.
    GrantRestored(Box<GrantedStep>),
    /// A person narrowed a grant.
    GrantNarrowed(Box<NarrowedStep>),
    /// A grant was revoked.
    GrantRevoked {
        /// The grant.
        grant: GrantId,
        /// The cause. Absent in records of older versions.
        #[serde(skip_serializing_if = "Option::is_none")]
        cause: Option<RevokeCause>,
    },
    /// A person decided whether to sign in to a third-party server. The decision applies to all workers.
    SignedIn(Box<SignedInStep>),
    /// The worker was paused: new calls of it and its descendants wait.
    Paused {
        /// Who paused it.
        by: DecidedBy,
    },
    /// The worker was resumed.
    Resumed {
        /// Who resumed it.
        by: DecidedBy,
    },
    /// The worker and its subtree were revoked.
    Revoked,
    /// The worker's actor died. The next call starts another one with the same authority.
    Restarted,
    /// The worker ended; all its calls are answered.
    WorkerStopped,
}

/// Serialises a policy as the text of its JSON with sorted keys.
fn canonical_text<S: Serializer>(policy: &Policy, serializer: S) -> Result<S::Ok, S::Error> {
    let json = serde_json::to_value(policy).map_err(S::Error::custom)?;
    serializer.serialize_str(&Canonical(&json).to_string())
}

impl Step {
    /// The step of a call without result. `begun`: whether its effect had begun.
    pub(crate) fn without_result(error: &CallError, begun: bool) -> Self {
        let (code, message) = (error.code(), error.message().into());
        let detail = |key: &str| error.details().get(key);
        let begun = begun || detail("begun").is_some_and(|begun| *begun == true);
        if !begun && code.is_denial() {
            let by = DecidedBy::of_denial(error);
            return Self::Denied { code, message, by };
        }
        let count = |key: &str| detail(key).and_then(Value::as_u64);
        Self::Failed(Box::new(FailedStep {
            code,
            message,
            begun,
            done: count("done"),
            removed: count("removed").filter(|count| *count > 0),
        }))
    }
}

/// How a request of a server to its client ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RequestOutcome {
    /// It was answered.
    Accepted,
    /// A person declined.
    Declined,
    /// Nobody answered, or the answer was invalid.
    Cancelled,
    /// It was rejected before anybody was asked.
    Refused,
}

/// A failed call, and how far it got before it failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FailedStep {
    /// The stable code.
    pub code: Code,
    /// The message for the caller.
    pub message: Box<str>,
    /// Whether its effect had begun, so it may have happened in part or completely.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub begun: bool,
    /// How many steps of the plan were carried out and not undone, if the tool knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done: Option<u64>,
    /// How many files and directories were removed and not restored, if there are any and the tool knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removed: Option<u64>,
}

/// How a question ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AnsweredStep {
    /// The question.
    pub question: QuestionId,
    /// How it ended.
    pub decision: Decision,
    /// Who ended it. Absent in records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<DecidedBy>,
    /// What was allowed. Empty if exactly the needs were allowed, or nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<Coverage>,
    /// How long it is allowed, if it was allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<Lifetime>,
    /// The person's note to a denial.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The changes and hunks that were excluded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<ExcludedChange>,
    /// The grants of the answer, including those shared with other answers of the same batch. Empty for an approval for
    /// once, and in records of older versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<GrantId>,
    /// Whether similar calls were denied for the rest of the session, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rest_of_session: bool,
}

/// A grant, as it was given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GrantedStep {
    /// The grant.
    pub grant: GrantId,
    /// What it covers. In older records without reach and operations, it covers everything beneath it.
    #[serde(flatten, deserialize_with = "crate::scope::beside")]
    pub pattern: Coverage,
    /// Who may use it.
    pub holder: GrantHolder,
    /// How long it is valid.
    pub lifetime: Lifetime,
    /// Whether the holder's descendants may use it.
    pub descendants: bool,
    /// Who gave it; absent for restored grants and in records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<DecidedBy>,
}

/// The narrowing of a grant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NarrowedStep {
    /// The grant.
    pub grant: GrantId,
    /// The change.
    pub change: Narrowing,
}

/// Decision about signing in to a third-party server, or about further scopes for it. It is audited before it takes
/// effect; decisions made while no runtime used the servers are audited by the next one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedInStep {
    /// The name of the server in the configuration.
    pub server: Arc<str>,
    /// The authorization server.
    pub issuer: Box<str>,
    /// The requested OAuth scopes.
    pub scopes: Vec<String>,
    /// The tool whose call required them, by its name at the server; `None` if it was a sign-in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_there: Option<Box<str>>,
    /// Whether it was allowed.
    pub allowed: bool,
    /// Who decided: a person; the host if the answer did not match the request; or nobody. Absent in records of earlier
    /// versions.
    #[serde(default = "nobody")]
    pub by: DecidedBy,
}

fn nobody() -> DecidedBy {
    DecidedBy::Nobody
}

/// Summary of the change of one path, without content.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ChangeSummary {
    /// The path.
    pub path: VirtualPath,
    /// The operation.
    pub op: Op,
    /// The target of a move or copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<VirtualPath>,
    /// Hash of the file before.
    pub before_sha256: Option<ContentHash>,
    /// Hash of the file after.
    pub after_sha256: Option<ContentHash>,
    /// Lines added.
    pub added: usize,
    /// Lines removed.
    pub removed: usize,
}

impl From<&Change> for ChangeSummary {
    fn from(change: &Change) -> Self {
        Self {
            path: change.path.clone(),
            op: change.op,
            to: change.to.clone(),
            before_sha256: change.before.hash(),
            after_sha256: change.after.hash(),
            added: change.diff.added,
            removed: change.diff.removed,
        }
    }
}

/// Summary of the change of something that is not a file, without content.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResourceSummary {
    /// What changes.
    pub resource: Box<str>,
    /// Hash of its state before, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before_sha256: Option<ContentHash>,
    /// Hash of its state after, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_sha256: Option<ContentHash>,
}

impl From<&ResourceChange> for ResourceSummary {
    fn from(change: &ResourceChange) -> Self {
        let hash = |text: &Option<String>| Some(ContentHash::of(text.as_ref()?.as_bytes()));
        Self {
            resource: change.resource.as_str().into(),
            before_sha256: hash(&change.before),
            after_sha256: hash(&change.after),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An event with every field.
    pub(crate) fn failed(message: &str) -> AuditEvent {
        AuditEvent {
            worker: Some(WorkerId(1)),
            agent: "main".into(),
            call: Some(CallId(2)),
            tool: Some(ToolName::new("edit_file")),
            origin: Origin::Model,
            step: Step::Failed(Box::new(FailedStep {
                code: Code::NotFound,
                message: message.into(),
                begun: false,
                done: None,
                removed: None,
            })),
        }
    }

    #[test]
    fn failed_step_counts_only_what_stays_removed() {
        for (removed, recorded) in [(0, None), (3, Some(3))] {
            let error = CallError::new(Code::Io, "failed").with("removed", removed);
            let Step::Failed(failed) = Step::without_result(&error, true) else {
                panic!("{error}");
            };
            assert_eq!(failed.removed, recorded);
        }
    }

    #[test]
    fn audit_event_is_at_most_160_bytes() {
        assert!(
            size_of::<AuditEvent>() <= 160,
            "{}",
            size_of::<AuditEvent>()
        );
    }
}
