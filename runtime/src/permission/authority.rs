//! `GrantAuthority`: the only handle that grants and answers questions.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use super::broker::Broker;
use super::{
    Answer, Decision, GrantView, GrantWriteError, GrantsRevoked, NewGrant, NotBatchable, Question,
    Silenced, TemplateError,
};
use crate::audit::AuditError;
use crate::id::{GrantId, QuestionId, SilencedId};
use crate::policy::Authority;
use crate::scope::{Coverage, Marks, ScopePattern};

/// Why a person's word had no effect.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthorityError {
    /// There is no such question, or it ended long ago.
    #[error("there is no such question")]
    NoQuestion,
    /// The question ended before, and an end is an end.
    #[error("the question has ended already")]
    Ended(Decision),
    /// The grant names a server, or a tool of one, that is not there now. A grant counts for what it is when it is given.
    #[error("`{}` is no server, or no tool of one, that is there now", crate::escape(.0))]
    NotThere(String),
    /// Nothing that the grant covers may be granted here, so it would have no effect.
    #[error("`{}` cannot be granted here: it lies outside the roots and all that is `grantable`", crate::escape(.0))]
    NotGrantable(String),
    /// The answer leaves a need uncovered or reaches above what may be granted here.
    #[error("the answer does not cover what is asked, or covers more than may be granted")]
    DoesNotFit,
    /// One question of a batch cannot be answered so; nothing of the batch was.
    #[error("the question {question} of the batch cannot be answered so")]
    InBatch {
        /// The question.
        question: QuestionId,
        /// Why.
        source: Box<AuthorityError>,
    },
    /// The question cannot stand in a batch, or not in this one: it is looked at by itself.
    #[error("the question cannot be answered together with these: {0}")]
    NotTogether(NotBatchable),
    /// The change would leave more than there was; that takes another grant.
    #[error("a grant can only be narrowed; for more, give another")]
    Wider,
    /// The template cannot be applied.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// There is no such grant, or it ended.
    #[error("there is no such grant")]
    NoGrant,
    /// Too many grants are live.
    #[error("too many grants are live; revoke some")]
    TooMany,
    /// It cannot be recorded, so it is not done.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// It cannot be stored or recorded, so it was taken back; what was to be narrowed, whole. A call that waited for it may
    /// have been carried out.
    #[error("the grant cannot be stored, so it was taken back")]
    Store(#[source] GrantWriteError),
    /// It was taken back and counts no more, but the store still has it, as it was before: the next runtime would take it
    /// up. That is tried again while this runtime lives.
    #[error("the grant was taken back, but cannot be removed from the store")]
    StillStored {
        /// What taking it back came to.
        revoked: GrantsRevoked,
        /// Why it cannot be removed.
        source: GrantWriteError,
    },
    /// The runtime is shut down.
    #[error("the runtime is shut down")]
    Closed,
}

/// Tells that a question or a grant may have changed; several changes may be told as one.
#[derive(Clone, Debug)]
pub struct Changes(watch::Receiver<()>);

impl Changes {
    /// Returns once something may have changed; none if the runtime is gone.
    pub async fn next(&mut self) -> Option<()> {
        self.0.changed().await.ok()
    }
}

/// Answers questions, grants and revokes: whoever holds it speaks for the person.
///
/// It is handed out once, when the runtime is built, and never reaches a model-facing path. It cannot be
/// made, and there is no second one:
/// ```compile_fail
/// fn second(authority: &bailiwick::GrantAuthority) -> bailiwick::GrantAuthority {
///     authority.clone()
/// }
/// ```
/// ```compile_fail
/// let forged = bailiwick::GrantAuthority { broker: todo!(), authority: todo!(), marks: todo!() };
/// ```
/// Its holder lends it:
/// ```
/// fn lent(authority: &bailiwick::GrantAuthority) -> &bailiwick::GrantAuthority {
///     authority
/// }
/// ```
#[derive(Debug)]
pub struct GrantAuthority {
    broker: Broker,
    authority: Authority,
    marks: Arc<ArcSwap<Marks>>,
}

impl Drop for GrantAuthority {
    fn drop(&mut self) {
        self.broker.leave_unattended();
    }
}

impl GrantAuthority {
    /// Speaks for people to `broker`; `authority` is that of the runtime, and knows what is protected; `marks` is what the
    /// names of servers stand for.
    pub(crate) fn new(broker: Broker, authority: Authority, marks: Arc<ArcSwap<Marks>>) -> Self {
        Self {
            broker,
            authority,
            marks,
        }
    }

    /// A pattern of a person, with the marks that what it names has now.
    pub(super) fn marked(&self, pattern: &ScopePattern) -> Result<ScopePattern, AuthorityError> {
        let marks = self.marks.load();
        marks.marked(pattern).map_err(AuthorityError::NotThere)
    }

    /// The same for what a grant covers. What nobody may grant here would have no effect, so it is refused.
    pub(super) fn grantable(&self, covered: &Coverage) -> Result<Coverage, AuthorityError> {
        let pattern = self.marked(covered.pattern())?;
        if !self.authority.is_grantable(&pattern) {
            return Err(AuthorityError::NotGrantable(pattern.to_string()));
        }
        let none = || AuthorityError::NotGrantable(covered.pattern().to_string());
        covered.with_pattern(pattern).ok_or_else(none)
    }

    /// Ends a question whose answer had no effect, in the name of `by`: no person refused it.
    #[cfg(feature = "mcp")]
    pub(crate) fn refuse_unusable(&self, question: QuestionId, by: super::DecidedBy) {
        self.broker.refuse_unusable(question, by);
    }

    pub(crate) fn authority(&self) -> &Authority {
        &self.authority
    }

    pub(crate) fn broker(&self) -> &Broker {
        &self.broker
    }

    /// The questions that wait for an answer, in the order they were asked.
    ///
    /// # Errors
    /// [`AuthorityError::Closed`]
    pub async fn questions(&self) -> Result<Vec<Question>, AuthorityError> {
        self.broker.open_questions().await
    }

    /// Tells from now on whenever a question or a grant may have changed.
    #[must_use]
    pub fn changes(&self) -> Changes {
        let mut told = self.broker.changes();
        told.mark_unchanged();
        Changes(told)
    }

    /// The question, while it waits for an answer.
    ///
    /// # Errors
    /// [`AuthorityError::Closed`]
    pub async fn question(&self, id: QuestionId) -> Result<Option<Question>, AuthorityError> {
        self.broker.question(id).await
    }

    /// Answers a question. A yes for an agent is on the disk when this returns, if there is a
    /// [`GrantStore`](super::GrantStore); the call that waits does not wait for that.
    ///
    /// # Errors
    /// [`AuthorityError`] if it ended, or the answer does not fit it. A second answer changes nothing.
    pub async fn answer(&self, question: QuestionId, answer: Answer) -> Result<(), AuthorityError> {
        self.broker.answer(question, answer).await
    }

    /// Grants without being asked. It never beats a deny, a protected name or a worker's own policy. A grant to an
    /// agent is on the disk when this returns, if there is a [`GrantStore`](super::GrantStore).
    ///
    /// A server of others and its tool may be named without their marks (`write:mcp:SERVER:TOOL`): the grant then has
    /// those that they have now, and is none once they are others. A page ([`Worker::open_view`](crate::Worker::open_view))
    /// has a mark of its own and is named by no grant without it: a person answers the question that its call asks.
    ///
    /// # Errors
    /// [`AuthorityError::NotThere`] if it names a server that there is none of, or a tool that is withheld;
    /// [`AuthorityError::NotGrantable`] if the configuration leaves nothing of it to be granted;
    /// [`AuthorityError`] if there are too many grants or it cannot be recorded or stored.
    pub async fn grant(&self, grant: NewGrant) -> Result<GrantId, AuthorityError> {
        let pattern = self.grantable(&grant.pattern)?;
        self.broker.grant(NewGrant { pattern, ..grant }).await
    }

    /// The live grants, in the order they were given.
    ///
    /// # Errors
    /// [`AuthorityError::Closed`]: that tells nothing of what the next runtime would take up from a store.
    pub async fn grants(&self) -> Result<Vec<GrantView>, AuthorityError> {
        self.broker.grants().await
    }

    /// Takes a grant back. When this returns, nothing that uses it begins, and effects that had begun have ended, but
    /// for [`GrantsRevoked::unfinished`]; a stored one is gone from the disk.
    ///
    /// # Errors
    /// [`AuthorityError::NoGrant`] if it is gone already, [`AuthorityError::StillStored`] if only the store has it still.
    pub async fn revoke(&self, grant: GrantId) -> Result<GrantsRevoked, AuthorityError> {
        self.broker.revoke_grant(grant).await
    }

    /// What nobody is asked about for the rest of a session, because a person said so ([`Answer::Deny`]), the oldest first.
    ///
    /// # Errors
    /// [`AuthorityError::Closed`]
    pub async fn silenced(&self) -> Result<Vec<Silenced>, AuthorityError> {
        self.broker.silenced().await
    }

    /// Asks again about what a person denied for the rest of the session. Returns whether it was still silenced.
    ///
    /// # Errors
    /// [`AuthorityError::Closed`]
    pub async fn ask_again(&self, silenced: SilencedId) -> Result<bool, AuthorityError> {
        self.broker.ask_again(silenced).await
    }

    /// Ends a session: every grant that was to last as long as it is revoked, as by [`GrantAuthority::revoke`].
    ///
    /// # Errors
    /// [`AuthorityError::Closed`]
    pub async fn end_session(&self, session: &str) -> Result<GrantsRevoked, AuthorityError> {
        self.broker.end_session(session).await
    }
}
