//! An id or nothing in, the questions and grants that people may see out.

use super::super::Question;
use super::super::grants::GrantView;
use super::super::ledger::Standing;
use super::Desk;
use crate::id::QuestionId;

impl Desk {
    pub(in super::super) fn question(&self, id: QuestionId) -> Option<Question> {
        self.ledger.question(id).cloned()
    }

    pub(in super::super) fn standing(&self, id: QuestionId) -> Option<Standing> {
        self.ledger.standing(id)
    }

    pub(in super::super) fn questions(&self) -> Vec<Question> {
        self.ledger.questions().cloned().collect()
    }

    pub(in super::super) fn grants(&self) -> Vec<GrantView> {
        self.book.views((self.clock)())
    }
}
