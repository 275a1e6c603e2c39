//! Records ended questions and refuses the calls that waited for them.

use super::super::broker::AskOutcome;
use super::super::ledger::Ended;
use super::super::record::{answered, refused, trace_answered};
use super::super::{DecidedBy, Question};
use super::{BrokerState, Waiter};
use crate::id::QuestionId;

impl BrokerState {
    pub(super) fn conclude(&mut self, ended: Ended<Waiter>) {
        self.record_ended(Some(&ended), DecidedBy::Nobody, None);
        self.refuse(Some(ended), DecidedBy::Nobody, None);
    }

    pub(super) fn refuse(
        &mut self,
        ended: Option<Ended<Waiter>>,
        by: DecidedBy,
        note: Option<&str>,
    ) {
        let Some(ended) = ended else { return };
        let Question { id, request, .. } = &ended.question;
        trace_answered(request, *id, ended.decision);
        self.hide(*id);
        for waiter in ended.waiters {
            waiter.reply(Ok(AskOutcome::Refused {
                decision: ended.decision,
                by,
                note: note.map(str::to_owned),
            }));
        }
    }

    pub(super) fn hide(&mut self, id: QuestionId) {
        if let Some(shown) = self.shown.remove(&id) {
            shown.abort();
        }
    }

    pub(super) fn record_ended(
        &self,
        ended: Option<&Ended<Waiter>>,
        by: DecidedBy,
        note: Option<&str>,
    ) {
        if let Some(ended) = ended {
            let Question { id, request, .. } = &ended.question;
            let step = refused(*id, ended.decision, by, note.map(str::to_owned));
            // A denial is valid even if the audit is full; the audit counts missing records.
            let _ = self.audit.record(answered(request, step));
        }
    }
}
