//! A question that ended in, its record and what everybody who waited is told out.

use super::super::broker::Ruling;
use super::super::ledger::Ended;
use super::super::record::{about, refused, trace_answered};
use super::super::{Decision, Request};
use super::{Desk, Waiter};
use crate::audit::{AnsweredStep, AuditError, Step};
use crate::call::Origin;
use crate::id::QuestionId;

impl Desk {
    pub(super) fn conclude(&mut self, ended: Ended<Waiter>) {
        self.record_ended(Some(&ended), None);
        self.refuse(Some(ended), None);
    }

    pub(super) fn refuse(&mut self, ended: Option<Ended<Waiter>>, note: Option<&str>) {
        let Some(ended) = ended else { return };
        let id = ended.question.id;
        self.hide(id);
        for waiter in ended.waiters {
            waiter.tell(Ok(Ruling::Refused {
                decision: ended.decision,
                note: note.map(str::to_owned),
            }));
        }
    }

    pub(super) fn hide(&mut self, id: QuestionId) {
        if let Some(shown) = self.shown.remove(&id) {
            shown.abort();
        }
    }

    pub(super) fn record_end(
        &self,
        request: &Request,
        step: AnsweredStep,
    ) -> Result<(), AuditError> {
        let origin = match step.decision {
            Decision::Granted | Decision::Denied => Origin::Human,
            Decision::Expired | Decision::Cancelled => request.origin,
        };
        let (question, decision) = (step.question, step.decision);
        let step = Step::Answered(Box::new(step));
        self.audit.record(about(request, origin, step))?;
        trace_answered(request, question, decision);
        Ok(())
    }

    pub(super) fn record_ended(&self, ended: Option<&Ended<Waiter>>, note: Option<&str>) {
        if let Some(ended) = ended {
            let step = refused(ended.question.id, ended.decision, note.map(str::to_owned));
            // A refusal stands even if the audit is full, and the audit counts what it could not take.
            let _ = self.record_end(&ended.question.request, step);
        }
    }
}
