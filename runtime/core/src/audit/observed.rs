//! Reports audit events to the monitor of the runtime.

use std::sync::Arc;

use super::{AuditEvent, Step};
use crate::monitor::{Event, EventKind, Monitor};

/// Data of audit events that the monitor receives once they are recorded.
#[derive(Debug, Default)]
pub(super) struct Observed {
    events: Vec<Event>,
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
        for event in self.events {
            monitor.send(event);
        }
    }
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
