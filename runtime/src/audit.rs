//! Audit events and the hash-chained records that hold them.
//!
//! One event a step, refusals included. An event is cheap to build: it becomes JSON, gets its time and
//! its place in the chain on the thread that writes it.

mod chain;
mod past;
mod recorder;
mod segments;
mod sink;
mod verify;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::call::Origin;
use crate::effect::{Change, ContentHash, ExcludedHunks, Op, PreviewToken};
use crate::error::{CallError, Code};
use crate::id::{CallId, GrantId, QuestionId, ToolName, WorkerId};
use crate::path::VirtualPath;
use crate::permission::{DecidedBy, Decision, GrantHolder, Lifetime, Narrowing, RevokeCause};
use crate::policy::Verdict;
use crate::scope::{Coverage, Scope, ScopePattern};

pub(crate) use chain::Inert;
pub use chain::{Head, Record, json_line};
pub(crate) use past::{PastEvent, PastFailure, PastRecord, PastStep, past};
pub use recorder::AuditError;
#[cfg(feature = "oauth")]
pub(crate) use recorder::WeakAudit;
pub(crate) use recorder::{Audit, DEFAULT_CAPACITY};
pub(crate) use segments::follow_file;
pub use segments::verify_file;
#[cfg(all(feature = "ui", feature = "http"))]
pub(crate) use segments::{open_segment, without_gap};
pub use sink::{AuditFileError, AuditFileFault, AuditSink, JsonLines, MemoryAudit, TornLine};
pub(crate) use verify::follow;
pub use verify::{AuditBroken, BreakReason, Verified, verify, verify_after};
#[cfg(all(feature = "ui", feature = "http"))]
pub(crate) use verify::{End, walk};

/// One step of one call, or of a worker's life.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AuditEvent {
    /// Whose; none for what a person does to no worker in particular, such as a grant to an agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerId>,
    /// The worker's place in the delegation tree, such as `main/tests`.
    pub agent: Arc<str>,
    /// The call, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// The tool, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolName>,
    /// Who caused it.
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
    /// A worker came into being.
    Spawned {
        /// The worker that delegated to it.
        #[serde(skip_serializing_if = "Option::is_none")]
        parent: Option<WorkerId>,
        /// The session it is in.
        session: Arc<str>,
        /// Its own policy layer, as JSON with sorted keys.
        #[serde(skip_serializing_if = "Option::is_none")]
        policy: Option<Arc<str>>,
    },
    /// Policy and grants gave a verdict.
    Judged {
        /// The verdict on all needs together.
        verdict: Verdict,
        /// What the call needs.
        needs: Arc<[Scope]>,
        /// The layer and the rule that decided, as [`Explanation`](crate::Explanation) shows them; none if every layer
        /// allows every need without a grant, for then no single rule decided.
        #[serde(skip_serializing_if = "Option::is_none")]
        rule: Option<Arc<str>>,
    },
    /// A call uses what people granted.
    GrantUsed {
        /// The live grants, one use of each.
        grants: Arc<[GrantId]>,
        /// What was granted to this call alone and came with it.
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        brought: Arc<[ScopePattern]>,
    },
    /// A client that may not bring grants brought some; they are ignored.
    IgnoredGrants {
        /// The first of them.
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        brought: Arc<[ScopePattern]>,
    },
    /// A person is asked.
    Asked {
        /// The question; calls that ask the same share it.
        question: QuestionId,
        /// What they are asked to allow.
        needs: Arc<[Scope]>,
    },
    /// A question ended.
    Answered(Box<AnsweredStep>),
    /// What the call would do is known; nothing has changed yet.
    Planned {
        /// Stands for the plan.
        token: PreviewToken,
        /// What would change.
        changes: Arc<[ChangeSummary]>,
    },
    /// The plan was shown, and nothing changed.
    Previewed {
        /// Stands for the plan.
        token: PreviewToken,
    },
    /// The effect begins after this is written.
    Applying {
        /// The plan that is carried out.
        token: PreviewToken,
        /// Bytes it will write.
        bytes: u64,
        /// Files and directories it will touch.
        files: u64,
    },
    /// The effect is complete.
    Applied {
        /// The plan that was carried out.
        token: PreviewToken,
    },
    /// The call is sent to the server that carries it out after this is written.
    RemoteCall {
        /// The server, as people configured it.
        server: Arc<str>,
        /// The tool, as the server calls it.
        tool_there: Arc<str>,
        /// Only what it would do is asked for.
        preview: bool,
        /// Hash of the arguments as JSON with sorted keys and no spaces.
        arguments_sha256: ContentHash,
    },
    /// The server that carries the call out asked for something within it. What was answered is not recorded.
    ServerRequest {
        /// The server, as people configured it.
        server: Arc<str>,
        /// The method that it called.
        method: &'static str,
        /// How it ended.
        outcome: RequestOutcome,
        /// Why it was refused.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<Box<str>>,
    },
    /// A by-product for people was stored.
    Artifact {
        /// Where they find it.
        uri: Box<str>,
    },
    /// A by-product for people could not be stored. The call goes on without it.
    ArtifactFailed {
        /// The stable code.
        code: Code,
        /// Why.
        message: Box<str>,
    },
    /// The call was refused before it had any effect.
    Denied {
        /// The stable code.
        code: Code,
        /// What the caller was told.
        message: Box<str>,
        /// Who refused it; nobody, if a person would have had to be asked and was not.
        by: DecidedBy,
    },
    /// The call failed, perhaps after a part of its effect.
    Failed(Box<FailedStep>),
    /// The call was answered. This is the last step of a call, unless an effect ends after its caller stopped waiting.
    Finished {
        /// The code if it was denied or failed.
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<Code>,
        /// Bytes of the answer.
        bytes: u64,
    },
    /// Something was granted that outlives one call.
    Granted(Box<GrantedStep>),
    /// A grant that a person gave to an agent before this runtime began is live again.
    GrantRestored(Box<GrantedStep>),
    /// A person left less of a grant.
    GrantNarrowed(Box<NarrowedStep>),
    /// A grant was taken back.
    GrantRevoked {
        /// Which.
        grant: GrantId,
        /// Why; records of older versions do not say.
        #[serde(skip_serializing_if = "Option::is_none")]
        cause: Option<RevokeCause>,
    },
    /// A person said whether a server of others is let in under their name. What they say counts for all workers.
    SignedIn(Box<SignedInStep>),
    /// The worker and its subtree lost their authority.
    Revoked,
    /// The worker died and was started anew with the same authority.
    Restarted,
    /// The worker ended: everybody it owed an answer has one.
    WorkerStopped,
}

impl Step {
    /// The step that records a call without a result. `begun`: its effect began before.
    pub(crate) fn without_result(error: &CallError, begun: bool) -> Self {
        let (code, message) = (error.code(), error.message().into());
        let detail = |key: &str| error.details().get(key);
        let begun = begun || detail("begun").is_some_and(|begun| *begun == true);
        if !begun && code.is_denial() {
            let by = match detail("denied_by").map(DecidedBy::deserialize) {
                Some(Ok(by)) => by,
                _ if code == Code::ScopeRequired => DecidedBy::Nobody,
                _ => DecidedBy::Rule,
            };
            return Self::Denied { code, message, by };
        }
        let count = |key: &str| detail(key).and_then(Value::as_u64);
        Self::Failed(Box::new(FailedStep {
            code,
            message,
            begun,
            done: count("done"),
            removed: count("removed"),
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
    /// Nobody answered, or the answer did not fit.
    Cancelled,
    /// It was refused before anybody was asked.
    Refused,
}

/// How a call failed, and how far it got before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FailedStep {
    /// The stable code.
    pub code: Code,
    /// What the caller was told.
    pub message: Box<str>,
    /// Its effect had begun, so a part of it may have happened, or all of it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub begun: bool,
    /// How many steps of the plan were carried out and not undone, if the tool knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done: Option<u64>,
    /// How many files and directories were removed, if the tool knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removed: Option<u64>,
}

/// How a question ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnsweredStep {
    /// Which question.
    pub question: QuestionId,
    /// How it ended.
    pub decision: Decision,
    /// Who ended it; records of older versions do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<DecidedBy>,
    /// What was allowed; empty if that is exactly what was asked, or nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<Coverage>,
    /// For how long, if it was allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<Lifetime>,
    /// What the person said to a refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What of the change that was shown was not to be made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<ExcludedHunks>,
    /// The grants that serve it from now on, those included that another answer of the same word left. None for once, and
    /// in records of older versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<GrantId>,
    /// A person refused the like of it for the rest of the session, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rest_of_session: bool,
}

/// A grant as it was given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GrantedStep {
    /// Which.
    pub grant: GrantId,
    /// What it covers. One of an older record without reach and operations covers all that is beneath it.
    #[serde(flatten, deserialize_with = "crate::scope::beside")]
    pub pattern: Coverage,
    /// To whom.
    pub holder: GrantHolder,
    /// For how long.
    pub lifetime: Lifetime,
    /// Whether it reaches the holder's sub-agents.
    pub descendants: bool,
    /// Who gave it; a grant that was stored by an earlier run and records of older versions do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<DecidedBy>,
}

/// What a person left of a grant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NarrowedStep {
    /// Which.
    pub grant: GrantId,
    /// What became narrower.
    pub change: Narrowing,
}

/// What came of it that a server of others wanted a person to sign in, or to let it do more. It is recorded before it counts;
/// what was said while no runtime used the servers is recorded by the next that does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedInStep {
    /// The server, as people configured it.
    pub server: Arc<str>,
    /// The authorisation server.
    pub issuer: Box<str>,
    /// What the server would be allowed, in its own words.
    pub scopes: Vec<String>,
    /// The tool whose call wanted more, as the server calls it; none where the server let nobody in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_there: Option<Box<str>>,
    /// Whether it was allowed.
    pub allowed: bool,
    /// Who decided: a person, the host if the answer did not belong to what was asked, or nobody if there was nobody to ask or
    /// nobody answered. A record without it is of an earlier version.
    #[serde(default = "nobody")]
    pub by: DecidedBy,
}

fn nobody() -> DecidedBy {
    DecidedBy::Nobody
}

/// What a plan does to one path, without the content.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChangeSummary {
    /// Where.
    pub path: VirtualPath,
    /// What.
    pub op: Op,
    /// Where to, for a move or copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<VirtualPath>,
    /// Hash of the file as it is.
    pub before_sha256: Option<ContentHash>,
    /// Hash of the file as it will be.
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
    fn an_event_is_small_enough_to_hand_over_by_value() {
        assert!(
            size_of::<AuditEvent>() <= 160,
            "{}",
            size_of::<AuditEvent>()
        );
    }
}
