//! Audit events and trace events of questions and grants.

use std::sync::Arc;

use super::{DecidedBy, Decision, GrantHolder, Lifetime, Request};
use crate::audit::{AnsweredStep, AuditEvent, Step};
use crate::call::Origin;
use crate::id::{CallId, QuestionId, WorkerId};

/// Note for an answer without effect.
pub(super) const UNUSABLE: &str = "the answer could not be used";
/// Note for a question whose approver panicked.
pub(super) const PANICKED: &str = "the approver panicked";
/// Note for a question that nobody could answer.
pub(super) const NOBODY: &str = "nobody could be asked";

/// The step of a question that ended, without what was approved.
pub(super) fn ended(
    question: QuestionId,
    decision: Decision,
    by: DecidedBy,
    note: Option<String>,
) -> AnsweredStep {
    AnsweredStep {
        question,
        decision,
        by: Some(by),
        patterns: Vec::new(),
        lifetime: None,
        note,
        left_out: Vec::new(),
        grants: Vec::new(),
        rest_of_session: false,
    }
}

/// The holder of the grants of an answer; `None` if it is for the waiting calls only.
pub(super) fn holder(request: &Request, lifetime: Lifetime) -> Option<GrantHolder> {
    match lifetime {
        Lifetime::Once | Lifetime::Waiting(_) => None,
        Lifetime::Uses(_) | Lifetime::For(_) | Lifetime::Session => Some(GrantHolder::Session {
            session: Arc::clone(&request.session),
            worker: request.worker,
        }),
        Lifetime::Agent => Some(GrantHolder::Agent(request.agent_path.join("/").into())),
    }
}

/// The worker and agent of an event about a grant of `holder`.
fn worker_and_agent(holder: &GrantHolder) -> (Option<WorkerId>, Arc<str>) {
    match holder {
        GrantHolder::Worker(worker) | GrantHolder::Session { worker, .. } => {
            (Some(*worker), Arc::from(""))
        }
        GrantHolder::Agent(agent) => (None, Arc::clone(agent)),
    }
}

/// The origin of a decision of `by`; without a decision, that of the request.
fn origin(by: DecidedBy, asked: Origin) -> Origin {
    match by {
        DecidedBy::Nobody => asked,
        by => by.origin(),
    }
}

/// The event of the end of a question.
pub(super) fn answered(request: &Request, step: AnsweredStep) -> AuditEvent {
    let by = step.by.unwrap_or(DecidedBy::Nobody);
    let step = Step::Answered(Box::new(step));
    about(request, origin(by, request.origin), step)
}

/// An event of a grant of `holder`.
pub(super) fn of_grant(holder: &GrantHolder, by: DecidedBy, step: Step) -> AuditEvent {
    let (worker, agent) = worker_and_agent(holder);
    AuditEvent {
        worker,
        agent,
        call: None,
        tool: None,
        origin: origin(by, Origin::Host),
        step,
    }
}

/// An event of the call that made `request`.
pub(super) fn about(request: &Request, origin: Origin, step: Step) -> AuditEvent {
    AuditEvent {
        worker: Some(request.worker),
        agent: agent(request).into(),
        call: Some(request.call),
        tool: Some(request.tool.clone()),
        origin,
        step,
    }
}

/// The worker's path of names.
fn agent(request: &Request) -> String {
    request.agent_path.join("/")
}

/// Traces what happens to a question of `call`: it is `blocked`, `shown` or `answered`.
pub(super) fn trace(
    request: &Request,
    call: CallId,
    question: QuestionId,
    decision: Option<Decision>,
    what: &str,
) {
    let (worker, agent, tool) = (request.worker, agent(request), &request.tool);
    let decision = decision.map(tracing::field::debug);
    tracing::debug!(%worker, agent, %call, %question, %tool, decision, "{what}");
}
