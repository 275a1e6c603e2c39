//! `GrantAuthority`: the only handle that grants and answers questions.

use super::broker::Broker;
use super::choices;
use super::ledger::QuestionStatus;
use super::{
    Answer, Decision, GrantHolder, GrantView, GrantWriteError, GrantsRevoked, NewGrant,
    NotBatchable, Question, Run, Silenced, TemplateError,
};
use crate::audit::AuditError;
use crate::effect::ExclusionError;
use crate::error::{CallError, Code};
use crate::id::{GrantId, QuestionId, SilencedId};
use crate::policy::Authority;
use crate::scope::{Coverage, Marks, ScopePattern};
use crate::supervisor::Core;
use arc_swap::ArcSwap;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Weak};
use tokio::sync::watch;

/// Why an operation of a person failed.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AuthorityError {
    /// The question does not exist, or ended long ago.
    #[error("unknown question")]
    NoQuestion,
    /// The question has ended already.
    #[error("the question has ended already")]
    Ended(Decision),
    /// The grant names an unknown server or tool. A grant is bound to the current form of what it names.
    #[error("unknown server or tool `{}`", crate::text::escape(.0))]
    NotThere(String),
    /// Nothing that the grant covers is grantable here, so it would have no effect.
    #[error("`{}` cannot be granted: it is outside the roots and not covered by `grantable`", crate::text::escape(.0))]
    NotGrantable(String),
    /// The answer does not cover all needs, covers more than is grantable here, or has a lifetime that is not possible.
    #[error(
        "the answer must cover everything that is asked, and no more than may be granted, for a time that is possible"
    )]
    DoesNotFit,
    /// An answer beyond this call would grant so many patterns that nobody could read them.
    #[error(
        "{0} permissions can be allowed only for this call; for longer, allow their folder or project"
    )]
    TooManyToLast(usize),
    /// Parts of the change cannot be excluded.
    #[error(transparent)]
    Excluded(#[from] ExclusionError),
    /// One question of a batch cannot be answered this way; none of the batch was answered.
    #[error("question {question} of the batch cannot be answered this way")]
    InBatch {
        /// The question.
        question: QuestionId,
        /// The reason.
        source: Box<AuthorityError>,
    },
    /// The question cannot be part of this batch and must be answered by itself.
    #[error("the question cannot be answered together with these: {0}")]
    NotTogether(NotBatchable),
    /// The change would widen the grant; that requires another grant.
    #[error("a grant can only be narrowed: add another one to allow more")]
    Wider,
    /// The template cannot be applied.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The grant does not exist, or has ended.
    #[error("unknown grant")]
    NoGrant,
    /// Too many grants are live.
    #[error("too many grants are live; revoke some")]
    TooMany,
    /// The operation cannot be audited, so it was not done.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The grant cannot be stored or audited, so it was revoked. A narrowing that fails in this way also revokes its
    /// grant. A call that waited for the grant may have been carried out.
    #[error("the grant cannot be stored and was revoked")]
    Store(#[source] GrantWriteError),
    /// The grant was revoked, but could not be removed from the store, so the next runtime would restore it. Removing it is
    /// retried while this runtime lives.
    #[error("the grant was revoked, but cannot be removed from the store")]
    StillStored {
        /// Result of the revocation.
        revoked: GrantsRevoked,
        /// The reason.
        source: GrantWriteError,
    },
    /// The runtime is shut down.
    #[error("the runtime is shut down")]
    Closed,
}

/// Like `Display`, with the causes, since `main` prints this form.
impl fmt::Debug for AuthorityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::error::write_chain(self, f)
    }
}

/// Notifies of changes of questions and grants; several changes may be reported as one.
#[derive(Clone, Debug)]
pub struct Changes(watch::Receiver<()>);

impl Changes {
    /// Waits for the next change; `None` if the runtime has ended.
    pub async fn next(&mut self) -> Option<()> {
        self.0.changed().await.ok()
    }
}

/// Answers questions, grants and revokes on behalf of the person.
///
/// It is returned once, when the runtime is built, and models cannot access it. It can be neither created nor cloned:
/// ```compile_fail
/// fn second(authority: &bailiwick::GrantAuthority) -> bailiwick::GrantAuthority {
///     authority.clone()
/// }
/// ```
/// ```compile_fail
/// let forged = bailiwick::GrantAuthority { broker: todo!(), authority: todo!(), marks: todo!() };
/// ```
/// It can be borrowed:
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
    core: Weak<Core>,
}

impl Drop for GrantAuthority {
    fn drop(&mut self) {
        self.broker.set_unattended();
    }
}

impl GrantAuthority {
    /// `authority` is that of the runtime, which knows protected names; `marks` resolves names of servers; `core` knows
    /// the workers.
    pub(crate) fn new(
        broker: Broker,
        authority: Authority,
        marks: Arc<ArcSwap<Marks>>,
        core: Weak<Core>,
    ) -> Self {
        Self {
            broker,
            authority,
            marks,
            core,
        }
    }

    /// The state of the runtime.
    pub(crate) fn core(&self) -> Result<Arc<Core>, CallError> {
        let closed = || CallError::new(Code::Cancelled, "the runtime is shut down");
        self.core.upgrade().ok_or_else(closed)
    }

    /// Returns the path of the agent that holds a grant, such as `main/tests`; `None` if the worker has ended.
    #[must_use]
    pub fn agent(&self, holder: &GrantHolder) -> Option<Arc<str>> {
        match holder {
            GrantHolder::Worker(worker) | GrantHolder::Session { worker, .. } => {
                let core = self.core.upgrade()?;
                let shared = core.registry.get(worker)?;
                Some(Arc::clone(&shared.agent))
            }
            GrantHolder::Agent(agent) => Some(Arc::clone(agent)),
        }
    }

    /// Returns the paths of all agents that have a live worker or hold a grant.
    ///
    /// # Errors
    /// [`AuthorityError::Closed`]
    pub async fn agents(&self) -> Result<BTreeSet<Arc<str>>, AuthorityError> {
        let grants = self.grants().await?;
        let mut agents: BTreeSet<Arc<str>> = grants
            .iter()
            .filter_map(|grant| self.agent(&grant.holder))
            .collect();
        if let Some(core) = self.core.upgrade() {
            agents.extend(core.registry.iter().map(|shared| Arc::clone(&shared.agent)));
        }
        Ok(agents)
    }

    /// A pattern of a person, with the current marks of what it names.
    pub(super) fn marked(&self, pattern: &ScopePattern) -> Result<ScopePattern, AuthorityError> {
        let marks = self.marks.load();
        marks.marked(pattern).map_err(AuthorityError::NotThere)
    }

    /// Like [`Self::marked`], for what a grant covers. A grant without effect is rejected.
    pub(super) fn grantable(&self, covered: &Coverage) -> Result<Coverage, AuthorityError> {
        let pattern = self.marked(covered.pattern())?;
        if !self.authority.is_grantable(&pattern) {
            return Err(AuthorityError::NotGrantable(pattern.to_string()));
        }
        let none = || AuthorityError::NotGrantable(covered.pattern().to_string());
        covered.with_pattern(pattern).ok_or_else(none)
    }

    /// Denies a question whose answer had no effect, on behalf of `by`, since no person denied it.
    #[doc(hidden)]
    pub fn refuse_unusable(&self, question: QuestionId, by: super::DecidedBy) {
        self.broker.refuse_unusable(question, by);
    }

    /// Returns what a grant of `pattern` allows, as a sentence for people. Escape it before it is shown.
    #[must_use]
    pub fn covers(&self, pattern: &Coverage) -> String {
        choices::sentence(std::slice::from_ref(pattern), &self.authority.served())
    }

    #[doc(hidden)]
    #[must_use]
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    pub(crate) fn broker(&self) -> &Broker {
        &self.broker
    }

    /// The run of the runtime, which numbers of questions and grants belong to.
    #[doc(hidden)]
    #[must_use]
    pub fn run(&self) -> Run {
        self.broker.run()
    }

    /// Returns whether permanent grants are stored. Otherwise they end with the runtime.
    #[must_use]
    pub fn stores_grants(&self) -> bool {
        self.broker.stores_grants()
    }

    /// How a question ended, or whether it is open.
    #[doc(hidden)]
    pub async fn question_status(&self, id: QuestionId) -> Option<QuestionStatus> {
        self.broker.question_status(id).await
    }

    /// Returns the open questions, in the order in which they were asked.
    ///
    /// # Errors
    /// [`AuthorityError::Closed`]
    pub async fn questions(&self) -> Result<Vec<Question>, AuthorityError> {
        self.broker.open_questions().await
    }

    /// Subscribes to changes of questions and grants.
    #[must_use]
    pub fn changes(&self) -> Changes {
        let mut changes = self.broker.changes();
        changes.mark_unchanged();
        Changes(changes)
    }

    /// Returns the question if it is open.
    ///
    /// # Errors
    /// [`AuthorityError::Closed`]
    pub async fn question(&self, id: QuestionId) -> Result<Option<Question>, AuthorityError> {
        self.broker.question(id).await
    }

    /// Answers a question. If there is a [`GrantStore`](super::GrantStore), a grant to an agent is on disk when this returns;
    /// the waiting call does not wait for that.
    ///
    /// # Errors
    /// [`AuthorityError`] if it has ended or the answer is invalid for it. A second answer has no effect.
    pub async fn answer(&self, question: QuestionId, answer: Answer) -> Result<(), AuthorityError> {
        self.broker.answer(question, answer).await
    }

    /// Grants without a question. A grant never overrides a deny, a protected name or a worker's own policy. If there is a
    /// [`GrantStore`](super::GrantStore), a grant to an agent is on disk when this returns.
    ///
    /// Third-party servers and their tools may be named without their marks (`write:mcp:SERVER:TOOL`): the grant then
    /// gets the current marks, and is void once they change. A page (a view of `bailiwick-mcp`) has its own mark and
    /// cannot be named without it; a person answers the question that its call asks.
    ///
    /// # Errors
    /// [`AuthorityError::NotThere`] if it names an unknown server or a withheld tool;
    /// [`AuthorityError::NotGrantable`] if nothing of it is grantable;
    /// [`AuthorityError`] if there are too many grants or it cannot be audited or stored.
    pub async fn grant(&self, grant: NewGrant) -> Result<GrantId, AuthorityError> {
        let pattern = self.grantable(&grant.pattern)?;
        self.broker.grant(NewGrant { pattern, ..grant }).await
    }

    /// Returns the live grants, in the order in which they were given.
    ///
    /// # Errors
    /// [`AuthorityError::Closed`]; stored grants may still exist then.
    pub async fn grants(&self) -> Result<Vec<GrantView>, AuthorityError> {
        self.broker.grants().await
    }

    /// Revokes a grant. When this returns, no effect that uses it can begin, and those that had begun have ended, except for
    /// [`GrantsRevoked::unfinished`]; a stored grant is removed from disk.
    ///
    /// # Errors
    /// [`AuthorityError::NoGrant`] if it has ended already; [`AuthorityError::StillStored`] if it could not be removed from the
    /// store.
    pub async fn revoke(&self, grant: GrantId) -> Result<GrantsRevoked, AuthorityError> {
        self.broker.revoke_grant(grant).await
    }

    /// Returns what was denied for the rest of a session ([`Answer::Deny`]), the oldest first.
    ///
    /// # Errors
    /// [`AuthorityError::Closed`]
    pub async fn silenced(&self) -> Result<Vec<Silenced>, AuthorityError> {
        self.broker.silenced().await
    }

    /// Asks again about calls that were denied for the rest of the session. Returns whether they were still denied.
    ///
    /// # Errors
    /// [`AuthorityError::Closed`]
    pub async fn ask_again(&self, silenced: SilencedId) -> Result<bool, AuthorityError> {
        self.broker.ask_again(silenced).await
    }

    /// Ends a session: revokes its session grants, as by [`GrantAuthority::revoke`].
    ///
    /// # Errors
    /// [`AuthorityError::Closed`]
    pub async fn end_session(&self, session: &str) -> Result<GrantsRevoked, AuthorityError> {
        self.broker.end_session(session).await
    }
}
