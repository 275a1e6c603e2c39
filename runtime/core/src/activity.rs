//! Record of recent calls and ended questions, for people who watch a runtime. Nothing is recorded unless
//! [`RuntimeBuilder::keep_calls`](crate::RuntimeBuilder::keep_calls) is set.

mod log;

use std::sync::Arc;

use crate::call::Origin;
use crate::effect::{Change, ResourceChange};
use crate::error::Code;
pub use crate::id::CallId;
use crate::id::{QuestionId, ToolName, WorkerId};
use crate::permission::{DecidedBy, Decision, GrantView, Lifetime, is_at_or_beneath};
use crate::scope::{Scope, ScopePattern};
use crate::worker::CallState;

pub(crate) use log::{CallLog, QuestionEnd, QuestionEvent, Received};

/// How many calls a runtime keeps for [`Runtime::recent_calls`](crate::Runtime::recent_calls).
///
/// If the contents do not fit, the oldest calls lose their contents first; if the calls are too many, the oldest ended
/// ones are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepCalls {
    /// Number of calls.
    pub calls: usize,
    /// Approximate bytes of contents: arguments, diffs and outputs of all calls. One call has at most an eighth of it.
    pub bytes: usize,
}

impl Default for KeepCalls {
    fn default() -> Self {
        Self {
            calls: 1000,
            bytes: 16 << 20,
        }
    }
}

/// A call of any worker, from [`Runtime::recent_calls`](crate::Runtime::recent_calls). Denied and failed calls are
/// included, and so are calls of workers that have ended. Times are in milliseconds since 1970.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RecentCall {
    /// The call.
    pub call: CallId,
    /// Its worker.
    pub worker: WorkerId,
    /// The worker's path of names, such as `main/tests`.
    pub agent: Arc<str>,
    /// The worker's session.
    pub session: Arc<str>,
    /// The tool.
    pub tool: ToolName,
    /// The third-party server that provides the tool; `None` for a tool of this runtime.
    pub server: Option<Arc<str>>,
    /// Who wrote the call.
    pub origin: Origin,
    /// Whether the call only previews a change.
    pub preview: bool,
    /// Whether the tool may change something.
    pub mutates: bool,
    /// One sentence for people, at most 1,000 characters: that of its last question, otherwise rendered from the tool's
    /// template. It quotes the agent's arguments.
    pub intent: String,
    /// When it was received.
    pub at: u64,
    /// Its state.
    pub state: CallState,
    /// When it entered this state; for an ended call, when it ended.
    pub since: u64,
    /// The message for the caller, if the call was denied or failed.
    pub message: Option<String>,
    /// Who denied the call, if it was denied.
    pub denied_by: Option<DecidedBy>,
    /// Why the call was cancelled, if it was cancelled and the reason is known.
    pub cancelled_by: Option<CancelCause>,
    /// The needs of the call: the first 20, with at most 8 KiB of text.
    pub needs: Vec<Scope>,
    /// How many further needs there are.
    pub needs_omitted: usize,
    /// The needs that people were asked about: the first 20, with at most 8 KiB of text.
    pub asked: Vec<Scope>,
    /// How many further ones there are.
    pub asked_omitted: usize,
    /// The last question that the call waited for.
    pub question: Option<QuestionId>,
    /// What allowed it, in the order in which it was judged: the first 20.
    pub allowed_by: Vec<AllowedBy>,
    /// Number of files and directories that it changed, or would change if it did not run or is a preview.
    pub files: usize,
    /// Lines added in them.
    pub added: usize,
    /// Lines removed in them.
    pub removed: usize,
    /// Whether the changes were made completely. This may be true for a call that was cancelled or ran out of time after
    /// its effect had begun.
    pub applied: bool,
    /// Its arguments, changes and output; `None` if they are not kept any more.
    pub content: Option<Arc<CallContent>>,
}

/// Arguments, changes and output of a [`RecentCall`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CallContent {
    /// The beginning of the arguments as JSON, at most 16 KiB; empty for arguments of the tool's own type and
    /// for those that nest too deeply.
    pub arguments: String,
    /// What the call changed, or would change if it did not run or is a preview. Without the old texts.
    pub changes: Vec<Change>,
    /// The same for what is not a file.
    pub resources: Vec<ResourceChange>,
    /// Whether the changes are left out because they are too large.
    pub changes_left_out: bool,
    /// The first 4 KiB of the text for the caller; `None` if the call has no result.
    pub output: Option<String>,
}

/// What allowed a call.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum AllowedBy {
    /// The policies and the configuration, without a grant.
    Policy,
    /// A grant, as it was before this use.
    Grant(Box<GrantView>),
    /// Grants for this call alone, which the host or a trusted client sent with it: the first 20.
    Sent(Vec<ScopePattern>),
    /// The answer to a question.
    Answer {
        /// The question.
        question: QuestionId,
        /// Who answered.
        by: DecidedBy,
        /// How long the answer is valid.
        lifetime: Lifetime,
    },
}

/// Why a call was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CancelCause {
    /// The caller no longer waited for the result.
    Caller,
    /// The worker ended or was revoked.
    WorkerEnded,
    /// A grant that the call used was revoked.
    GrantRevoked,
}

/// A question that has ended, from [`Runtime::ended_questions`](crate::Runtime::ended_questions).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EndedQuestion {
    /// The question.
    pub question: QuestionId,
    /// The worker that asked.
    pub worker: WorkerId,
    /// The worker's path of names.
    pub agent: Arc<str>,
    /// The call that it was asked for.
    pub call: CallId,
    /// One sentence for people that describes the call, at most 1,000 characters.
    pub intent: String,
    /// How it ended.
    pub decision: Decision,
    /// Who ended it.
    pub by: DecidedBy,
    /// When it ended, in milliseconds since 1970.
    pub at: u64,
    /// What became of the call after it was allowed; `None` if it was not allowed.
    pub result: Option<AfterApproval>,
}

/// What became of a call that was allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AfterApproval {
    /// The state of the call.
    pub state: CallState,
    /// The message for the caller, if the call failed.
    pub message: Option<String>,
    /// Number of files and directories that it changed, or would have changed if it did not run.
    pub files: usize,
    /// Whether its changes were made completely.
    pub applied: bool,
}

impl RecentCall {
    /// Returns whether the agent that made it is called `agent`, such as `main/tests`, or is beneath one that is.
    #[must_use]
    pub fn is_made_at_or_beneath(&self, agent: &str) -> bool {
        is_at_or_beneath(&self.agent, agent)
    }

    /// Returns the code if the call has ended and was denied or failed.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        match self.state {
            CallState::Ended(code) => code,
            _ => None,
        }
    }

    /// Returns when the call ended, in milliseconds since 1970.
    #[must_use]
    pub fn ended_at(&self) -> Option<u64> {
        matches!(self.state, CallState::Ended(_)).then_some(self.since)
    }
}
