//! Agents, calls and ended questions as pages show them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::response::{grant_name, lifetime_text, name_in_run, run_name};
use bailiwick::activity::{AllowedBy, CallContent, CancelCause, EndedQuestion, RecentCall};
use bailiwick::effect::{Change, Op, ResourceChange};
use bailiwick::journal::{ChangeState, JournalEntry};
use bailiwick::permission::{DecidedBy, Decision, Lifetime, Question, Run};
use bailiwick::policy::Access;
use bailiwick::tool::ToolName;
use bailiwick::worker::{CallState, ChangedPath};
use bailiwick::{Code, Origin, Scope, VirtualPath, Worker};

/// A live worker.
#[derive(Debug, Serialize)]
pub(crate) struct AgentView {
    worker: String,
    run: String,
    name: String,
    /// The path of names, such as `main/tests`.
    agent: String,
    parent: Option<String>,
    session: String,
    access: Access,
    paused: bool,
    /// Number of open calls.
    calls: u32,
    /// Number of open questions.
    questions: usize,
    /// Number of paths that it and its descendants changed.
    changed: u64,
    started_at: u64,
}

/// A live worker; `questions` are the open questions of its runtime.
pub(crate) fn agent_view(run: Run, worker: &Worker, questions: &[Question]) -> AgentView {
    let agent = worker.agent();
    let own = questions
        .iter()
        .filter(|question| question.request.worker == worker.id());
    AgentView {
        worker: name_in_run(run, worker.id().0),
        run: run_name(run),
        name: agent.rsplit('/').next().unwrap_or(agent).to_owned(),
        agent: agent.to_owned(),
        parent: worker.parent().map(|parent| name_in_run(run, parent.0)),
        session: worker.session().to_owned(),
        access: worker.access(),
        paused: worker.is_paused(),
        calls: worker.status().in_flight,
        questions: own.count(),
        changed: worker.changes_count(),
        started_at: worker.started_at(),
    }
}

/// A question that has ended, and what became of its call.
#[derive(Debug, Serialize)]
pub(crate) struct OutcomeView {
    question: String,
    run: String,
    worker: String,
    agent: Arc<str>,
    sentence: String,
    status: Decision,
    by: &'static str,
    pub(crate) at: u64,
    call: String,
    /// `None` if the call did not run.
    result: Option<ResultView>,
    undo: Option<UndoState>,
}

#[derive(Debug, Serialize)]
struct ResultView {
    state: ResultState,
    code: Option<Code>,
    message: Option<String>,
    files: usize,
}

/// What became of a call that was allowed.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum ResultState {
    Running,
    Applied,
    Failed,
    Stale,
    Denied,
    Cancelled,
}

/// An ended question; `own` is true if this console answered it, `live` if its worker has not ended.
pub(crate) fn outcome_view(
    run: Run,
    ended: &EndedQuestion,
    (own, live): (bool, bool),
    undo: Option<UndoState>,
) -> OutcomeView {
    let result = ended.result.as_ref().map(|result| {
        let code = code_of(result.state);
        ResultView {
            state: match CallResult::from(result.state, result.applied) {
                None => ResultState::Running,
                Some(CallResult::Done) => ResultState::Applied,
                Some(CallResult::Denied) => ResultState::Denied,
                Some(CallResult::Failed) => ResultState::Failed,
                Some(CallResult::Stale) => ResultState::Stale,
                Some(CallResult::Cancelled) => ResultState::Cancelled,
            },
            code,
            message: result.message.clone(),
            files: if result.applied { result.files } else { 0 },
        }
    });
    OutcomeView {
        question: name_in_run(run, ended.question.0),
        run: run_name(run),
        worker: name_in_run(run, ended.worker.0),
        agent: Arc::clone(&ended.agent),
        sentence: ended.intent.clone(),
        status: ended.decision,
        by: match (ended.by, ended.decision) {
            _ if own => "you",
            (_, Decision::Expired) => "nobody: time was up",
            (_, Decision::Cancelled) if live => "the agent's client",
            (_, Decision::Cancelled) => "the agent's client, or because the agent ended",
            (DecidedBy::Person, _) => "another page, terminal or client",
            (DecidedBy::Client, _) => "the client: its answer could not be used",
            (DecidedBy::Host, _) => "the host",
            (DecidedBy::Rule, _) => "a rule",
            _ => "nobody",
        },
        at: ended.at,
        call: name_in_run(run, ended.call.0),
        result,
        undo,
    }
}

/// Whether what a call changed can be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UndoState {
    Possible,
    Undone,
}

impl UndoState {
    /// `None` if nothing of the change is in effect, or it cannot be undone.
    pub(crate) fn of(change: &JournalEntry) -> Option<Self> {
        match change.state {
            ChangeState::Undone { .. } => Some(Self::Undone),
            _ => (change.can_be_undone && change.state.is_in_effect()).then_some(Self::Possible),
        }
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CallResult {
    Done,
    Denied,
    Failed,
    Stale,
    Cancelled,
}

impl CallResult {
    /// How a call ended; `None` if it has not ended.
    pub(crate) fn of(call: &RecentCall) -> Option<Self> {
        Self::from(call.state, call.applied)
    }

    fn from(state: CallState, applied: bool) -> Option<Self> {
        let CallState::Ended(code) = state else {
            return None;
        };
        Some(match code {
            // The effect of a call that was given up may be complete.
            None => Self::Done,
            Some(_) if applied => Self::Done,
            Some(Code::StalePreview) => Self::Stale,
            Some(Code::Cancelled) => Self::Cancelled,
            Some(code) if code.is_denial() => Self::Denied,
            Some(_) => Self::Failed,
        })
    }
}

/// How a call ended and by whom or why, in words; `None` if it has not ended. `own` is true if this console answered its
/// question.
fn end_words(call: &RecentCall, own: bool) -> Option<&'static str> {
    let code = call.code();
    Some(match CallResult::of(call)? {
        CallResult::Done => "Done",
        CallResult::Failed => "Failed",
        // Calls without a question may also lack a preview that their tool requires.
        CallResult::Stale if call.server.is_some() || call.question.is_none() => {
            "Not done: its preview was missing or out of date"
        }
        CallResult::Stale if call.files > 1 => "Not done: the files had changed",
        CallResult::Stale => "Not done: the file had changed",
        CallResult::Cancelled => match call.cancelled_by {
            Some(CancelCause::Caller) => "Cancelled by the agent's client",
            Some(CancelCause::WorkerEnded) => "Cancelled: the agent ended",
            Some(CancelCause::GrantRevoked) => "Cancelled: its permission was revoked",
            _ => "Cancelled",
        },
        CallResult::Denied => match (code, call.denied_by) {
            (_, Some(DecidedBy::Person)) if own => "Denied by you",
            // A person denied all such calls until the agent or its session ends.
            (_, Some(DecidedBy::Person)) if call.question.is_none() => {
                "Denied by an earlier answer"
            }
            (_, Some(DecidedBy::Person)) => "Denied by a person elsewhere",
            (_, Some(DecidedBy::Host)) => "Denied by the host",
            (_, Some(DecidedBy::Client)) => "Denied: the client's answer was invalid",
            (Some(Code::ScopeRequired), _) => "Denied: nobody was asked",
            (_, Some(DecidedBy::Nobody)) => "Denied: nobody answered in time",
            (Some(Code::RateLimited), _) => "Denied: too many calls in a short time",
            (Some(Code::Budget), _) => "Denied: its budget is used up",
            (Some(Code::UnknownTool), _) => "Denied: this agent has no such tool",
            (Some(Code::PolicyExpansion | Code::PolicyInvalid), _) => {
                "Denied: the policy sent with it is invalid"
            }
            (_, Some(DecidedBy::Rule)) => "Denied by the policy",
            _ => "Denied",
        },
    })
}

fn code_of(state: CallState) -> Option<Code> {
    match state {
        CallState::Ended(code) => code,
        _ => None,
    }
}

/// One call.
#[derive(Debug, Serialize)]
pub(crate) struct CallRow {
    call: String,
    run: String,
    worker: String,
    agent: Arc<str>,
    session: Arc<str>,
    tool: ToolName,
    server: Option<Arc<str>>,
    sentence: String,
    preview: bool,
    origin: Origin,
    at: u64,
    ended_at: Option<u64>,
    state: StateName,
    result: Option<CallResult>,
    /// How it ended and by whom or why, in words.
    end: Option<&'static str>,
    code: Option<Code>,
    message: Option<String>,
    allowed_by: Vec<AllowedByView>,
    files: usize,
    added: usize,
    removed: usize,
    /// Whether its changes, arguments and output are still kept.
    kept: bool,
    undo: Option<UndoState>,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum StateName {
    Preparing,
    Asking,
    Queued,
    Running,
    Ended,
}

impl CallRow {
    /// `own` is true if this console answered the call's question, `stores` if permanent grants outlast the server.
    pub(crate) fn new(
        run: Run,
        call: &RecentCall,
        (own, stores): (bool, bool),
        undo: Option<UndoState>,
    ) -> Self {
        let kept = |content: &Arc<CallContent>| !content.changes_left_out;
        Self {
            call: name_in_run(run, call.call.0),
            run: run_name(run),
            worker: name_in_run(run, call.worker.0),
            agent: Arc::clone(&call.agent),
            session: Arc::clone(&call.session),
            tool: call.tool.clone(),
            server: call.server.clone(),
            sentence: call.intent.clone(),
            preview: call.preview,
            origin: call.origin,
            at: call.at,
            ended_at: call.ended_at(),
            state: match call.state {
                CallState::Asking => StateName::Asking,
                CallState::Queued | CallState::Paused => StateName::Queued,
                CallState::Running => StateName::Running,
                CallState::Ended(_) => StateName::Ended,
                _ => StateName::Preparing,
            },
            result: CallResult::of(call),
            end: end_words(call, own),
            code: call.code(),
            message: call.message.clone(),
            allowed_by: call
                .allowed_by
                .iter()
                .map(|allowed| AllowedByView::new(run, allowed, stores))
                .collect(),
            files: call.files,
            added: call.added,
            removed: call.removed,
            kept: call.content.as_ref().is_some_and(kept),
            undo,
        }
    }
}

/// What allowed a call.
#[derive(Debug, Serialize)]
struct AllowedByView {
    kind: AllowedKind,
    text: String,
    grant: Option<String>,
    /// When the grant expires, if `text` says that it is for a limited time.
    expires_at: Option<u64>,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum AllowedKind {
    Policy,
    Grant,
    Person,
    Host,
}

impl AllowedByView {
    fn new(run: Run, allowed: &AllowedBy, stores: bool) -> Self {
        let plain = |kind, text: &str| Self {
            kind,
            text: text.to_owned(),
            grant: None,
            expires_at: None,
        };
        match allowed {
            AllowedBy::Policy => plain(AllowedKind::Policy, "allowed by the policy"),
            AllowedBy::Grant(grant) => Self {
                kind: AllowedKind::Grant,
                text: format!(
                    "{}, {}",
                    grant.pattern.sentence(),
                    lifetime_text(grant, stores)
                ),
                grant: Some(grant_name(run, grant.id)),
                expires_at: grant.expires_at.map(|end| run.at_ms(end)),
            },
            AllowedBy::Answer { by, lifetime, .. } => {
                let kind = match by {
                    DecidedBy::Person => AllowedKind::Person,
                    _ => AllowedKind::Host,
                };
                plain(kind, &format!("allowed {}", duration_of(*lifetime, stores)))
            }
            AllowedBy::Sent(_) => plain(AllowedKind::Host, "allowed by grants sent with the call"),
            _ => plain(AllowedKind::Host, "allowed by the host"),
        }
    }
}

/// How long an answer is valid. Permanent grants outlast the server if it `stores` them.
fn duration_of(lifetime: Lifetime, stores: bool) -> String {
    match lifetime {
        Lifetime::Once => "once".to_owned(),
        Lifetime::Waiting(calls) => format!("for {calls} of the waiting calls"),
        Lifetime::Uses(calls) => format!("for {calls} calls"),
        Lifetime::For(time) => match time.as_secs() {
            seconds if seconds > 0 && seconds % 60 == 0 => format!("for {} min", seconds / 60),
            seconds => format!("for {seconds} s"),
        },
        Lifetime::Session => "until the agent or its session ends".to_owned(),
        Lifetime::Agent if stores => "until it is revoked".to_owned(),
        Lifetime::Agent => "until it is revoked or the server stops".to_owned(),
    }
}

/// One call with its content.
#[derive(Debug, Serialize)]
pub(crate) struct CallDetails<'a> {
    row: CallRow,
    needs: &'a [Scope],
    needs_omitted: usize,
    arguments: &'a str,
    changes: &'a [Change],
    resources: &'a [ResourceChange],
    output: Option<&'a str>,
}

impl<'a> CallDetails<'a> {
    pub(crate) fn new(row: CallRow, call: &'a RecentCall) -> Self {
        let content = call.content.as_deref();
        Self {
            row,
            needs: &call.needs,
            needs_omitted: call.needs_omitted,
            arguments: content.map_or("", |content| &content.arguments),
            changes: content.map_or(&[], |content| &content.changes),
            resources: content.map_or(&[], |content| &content.resources),
            output: content.and_then(|content| content.output.as_deref()),
        }
    }
}

/// A path that an agent or a descendant changed.
#[derive(Debug, Serialize)]
pub(crate) struct ChangedView<'a> {
    path: &'a VirtualPath,
    op: Op,
    to: Option<&'a VirtualPath>,
    worker: String,
    agent: &'a str,
}

impl<'a> ChangedView<'a> {
    pub(crate) fn new(run: Run, changed: &'a ChangedPath) -> Self {
        Self {
            path: &changed.path,
            op: changed.op,
            to: changed.to.as_ref(),
            worker: name_in_run(run, changed.worker.0),
            agent: &changed.agent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;
    use std::time::Duration;

    #[test]
    fn duration_of_an_answer_is_said_exactly() {
        let three = NonZeroU32::new(3).unwrap();
        for (lifetime, said) in [
            (Lifetime::Once, "once"),
            (Lifetime::Waiting(three), "for 3 of the waiting calls"),
            (Lifetime::Uses(three), "for 3 calls"),
            (Lifetime::For(Duration::from_secs(600)), "for 10 min"),
            (Lifetime::For(Duration::from_secs(90)), "for 90 s"),
            (Lifetime::Session, "until the agent or its session ends"),
            (Lifetime::Agent, "until it is revoked"),
        ] {
            assert_eq!(duration_of(lifetime, true), said);
        }
        let unstored = duration_of(Lifetime::Agent, false);
        assert_eq!(unstored, "until it is revoked or the server stops");
    }

    #[test]
    fn ended_call_is_classified_by_its_code_and_effect() {
        let of = |code, applied| CallResult::from(CallState::Ended(code), applied);
        assert_eq!(CallResult::from(CallState::Running, false), None);
        assert_eq!(of(None, false), Some(CallResult::Done));
        assert_eq!(of(Some(Code::Cancelled), true), Some(CallResult::Done));
        for (code, result) in [
            (Code::Cancelled, CallResult::Cancelled),
            (Code::StalePreview, CallResult::Stale),
            (Code::PermissionDenied, CallResult::Denied),
            (Code::Deadline, CallResult::Failed),
        ] {
            assert_eq!(of(Some(code), false), Some(result), "{code}");
        }
    }
}
