//! Reports audit events to the monitor of the runtime.

use std::sync::Arc;

use super::recorder::wall_clock;
use super::{AuditEvent, Step};
use crate::activity::{QuestionEnd, QuestionEvent};
use crate::monitor::{Event, EventKind, Monitor};
use crate::permission::DecidedBy;

/// Data of audit events that the monitor receives once they are recorded.
#[derive(Debug, Default)]
pub(super) struct Observed {
    events: Vec<Event>,
    /// For the record of recent calls, if there is one.
    questions: Vec<QuestionEvent>,
    asked: u64,
    bytes: u64,
    files: u64,
}

impl Observed {
    pub(super) fn new(monitor: &Monitor, events: &[AuditEvent]) -> Self {
        let mut observed = Self::default();
        for event in events {
            match &event.step {
                Step::Asked { .. } => observed.asked += 1,
                Step::Applying { bytes, files, .. } => {
                    observed.bytes = observed.bytes.saturating_add(*bytes);
                    observed.files = observed.files.saturating_add(*files);
                }
                _ => {}
            }
            if monitor.calls().is_some() {
                observed.questions.extend(question_event(event));
            }
            if monitor.is_watched() {
                let event = kind_of(event).map(|kind| Event {
                    worker: event.worker,
                    agent: Arc::clone(&event.agent),
                    kind,
                });
                observed.events.extend(event);
            }
        }
        observed
    }

    pub(super) fn publish(self, monitor: &Monitor) {
        if self.asked > 0 {
            monitor.count_asked(self.asked);
        }
        if self.files > 0 || self.bytes > 0 {
            monitor.count_effect(self.bytes, self.files);
        }
        if let Some(calls) = monitor.calls() {
            for event in self.questions {
                calls.question(event, wall_clock());
            }
        }
        for event in self.events {
            monitor.send(event);
        }
    }
}

/// What happened to a question, for the record of recent calls.
fn question_event(event: &AuditEvent) -> Option<QuestionEvent> {
    let call = event.call?;
    Some(match &event.step {
        Step::Asked { question, .. } => QuestionEvent::Asked {
            question: *question,
            call,
        },
        Step::Answered(step) => QuestionEvent::Ended(Box::new(QuestionEnd {
            question: step.question,
            worker: event.worker?,
            agent: Arc::clone(&event.agent),
            call,
            tool: event.tool.clone()?,
            decision: step.decision,
            by: step.by.unwrap_or(DecidedBy::Nobody),
            lifetime: step.lifetime,
        })),
        _ => return None,
    })
}

/// The kind of event for subscribers; `None` if they receive no event for the step. The start and end of calls are
/// reported elsewhere, since not every end of a call can be recorded.
fn kind_of(event: &AuditEvent) -> Option<EventKind> {
    Some(match &event.step {
        Step::Spawned {
            parent, session, ..
        } => EventKind::WorkerStarted {
            parent: *parent,
            session: Arc::clone(session),
        },
        Step::Restarted => EventKind::WorkerRestarted,
        Step::WorkerStopped => EventKind::WorkerEnded,
        Step::Paused { by } => EventKind::WorkerPaused { by: *by },
        Step::Resumed { by } => EventKind::WorkerResumed { by: *by },
        Step::Asked { question, .. } => EventKind::QuestionAsked {
            question: *question,
            call: event.call,
            tool: event.tool.clone(),
        },
        Step::Answered(step) => EventKind::QuestionAnswered {
            question: step.question,
            decision: step.decision,
            by: step.by,
        },
        Step::Granted(step) | Step::GrantRestored(step) => {
            EventKind::GrantGiven { grant: step.grant }
        }
        Step::GrantRevoked { grant, cause } => EventKind::GrantRevoked {
            grant: *grant,
            cause: *cause,
        },
        _ => return None,
    })
}
