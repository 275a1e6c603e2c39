//! Questions and grants as people see them.

use super::super::Question;
use super::super::grants::GrantView;
use super::super::ledger::QuestionStatus;
use super::BrokerState;
use crate::id::QuestionId;

impl BrokerState {
    pub(in super::super) fn question(&self, id: QuestionId) -> Option<Question> {
        self.ledger.question(id).cloned()
    }

    pub(in super::super) fn question_status(&self, id: QuestionId) -> Option<QuestionStatus> {
        self.ledger.question_status(id)
    }

    pub(in super::super) fn questions(&self) -> Vec<Question> {
        self.ledger.questions().cloned().collect()
    }

    pub(in super::super) fn grants(&self) -> Vec<GrantView> {
        self.grants.views((self.clock)())
    }
}
