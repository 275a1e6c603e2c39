//! What becomes of questions and grants in, the audit events and the trace that tell of it out.

use std::sync::Arc;

use super::{Decision, GrantHolder, Lifetime, Request};
use crate::audit::{AnsweredStep, AuditEvent, Step};
use crate::call::Origin;
use crate::id::{CallId, QuestionId, WorkerId};

/// A question that ended without a yes.
pub(super) fn refused(
    question: QuestionId,
    decision: Decision,
    note: Option<String>,
) -> AnsweredStep {
    AnsweredStep {
        question,
        decision,
        patterns: Vec::new(),
        lifetime: None,
        note,
        left_out: Vec::new(),
    }
}

/// Who holds what an answer grants; nobody if it serves the one call.
pub(super) fn holder(request: &Request, lifetime: Lifetime) -> Option<GrantHolder> {
    match lifetime {
        Lifetime::Once => None,
        Lifetime::Uses(_) | Lifetime::For(_) => Some(GrantHolder::Worker(request.worker)),
        Lifetime::Session => Some(GrantHolder::Session {
            session: Arc::clone(&request.session),
            worker: request.worker,
        }),
        Lifetime::Agent => Some(GrantHolder::Agent(request.agent_path.join("/").into())),
    }
}

/// The worker and the agent that an event about a grant of `holder` names.
fn whom(holder: &GrantHolder) -> (Option<WorkerId>, Arc<str>) {
    match holder {
        GrantHolder::Worker(worker) | GrantHolder::Session { worker, .. } => {
            (Some(*worker), Arc::from(""))
        }
        GrantHolder::Agent(agent) => (None, Arc::clone(agent)),
    }
}

/// An event of what a person does with a grant of `holder`.
pub(super) fn of_person(holder: &GrantHolder, step: Step) -> AuditEvent {
    let (worker, agent) = whom(holder);
    AuditEvent {
        worker,
        agent,
        call: None,
        tool: None,
        origin: Origin::Human,
        step,
    }
}

/// An event of the call that made `request`.
pub(super) fn about(request: &Request, origin: Origin, step: Step) -> AuditEvent {
    AuditEvent {
        worker: Some(request.worker),
        agent: request.agent_path.join("/").into(),
        call: Some(request.call),
        tool: Some(request.tool.clone()),
        origin,
        step,
    }
}

/// Traces that a call waits for a question.
pub(super) fn trace_blocked(request: &Request, call: CallId, question: QuestionId) {
    let (worker, tool) = (request.worker, &request.tool);
    tracing::debug!(%worker, %call, %question, %tool, "blocked");
}

/// Traces that a question is put to whoever answers.
pub(super) fn trace_shown(request: &Request, question: QuestionId) {
    let Request {
        worker, call, tool, ..
    } = request;
    tracing::debug!(%worker, %call, %question, %tool, "shown");
}

/// Traces how a question ended.
pub(super) fn trace_answered(request: &Request, question: QuestionId, decision: Decision) {
    let Request {
        worker, call, tool, ..
    } = request;
    tracing::debug!(%worker, %call, %question, %tool, ?decision, "answered");
}
