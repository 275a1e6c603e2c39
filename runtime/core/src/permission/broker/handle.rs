//! Handle of the broker: sends work to it and waits for the results.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::{oneshot, watch};

use super::super::broker_state::{BrokerState, CallRef};
use super::super::grants::{GrantView, Requester, UsedGrants};
use super::super::ledger::QuestionStatus;
use super::super::record::UNUSABLE;
use super::super::settings::{GrantFilter, Narrowing};
use super::super::store::PendingSave;
use super::super::{
    Answer, AuthorityError, BatchAnswer, DecidedBy, GrantWriteError, GrantsRevoked, NewGrant,
    Question, Request, RevokeCause, Run, Silenced,
};
use super::{AskOutcome, Broker, Message, QuestionSender};
use crate::capability::{Gate, settled};
use crate::error::{CallError, Code};
use crate::id::{GrantId, QuestionId, SilencedId, WorkerId};
use crate::scope::Scope;

impl Broker {
    /// Uses each needed grant once, if live grants cover all `needs`.
    pub(crate) async fn use_grants(
        &self,
        requester: Requester,
        needs: Arc<[Scope]>,
        call: CallRef,
    ) -> Result<Option<UsedGrants>, CallError> {
        self.change(move |state| state.use_grants(&requester, &needs, call))
            .await
            .map_err(closed)
    }

    /// Asks a question and waits for its end; `question_tx` receives the open question. Dropping the future withdraws the
    /// question.
    #[doc(hidden)]
    pub async fn ask(
        &self,
        request: Request,
        requester: Requester,
        question_tx: Option<QuestionSender>,
    ) -> Result<AskOutcome, CallError> {
        let (outcome_tx, outcome) = oneshot::channel();
        self.send(Message::changing(move |state| {
            state.ask(request, requester, question_tx, outcome_tx);
        }));
        let ended = outcome.await.map_err(|_| AuthorityError::Closed);
        ended.map_err(closed)?
    }

    pub(crate) async fn answer(
        &self,
        id: QuestionId,
        answer: Answer,
    ) -> Result<(), AuthorityError> {
        self.change_and_store(move |state| state.answer(id, answer, DecidedBy::Person))
            .await
    }

    /// Denies a question whose answer cannot be used, on behalf of `by`, which is not a person; has no effect if it has ended.
    pub(crate) fn refuse_unusable(&self, id: QuestionId, by: DecidedBy) {
        let answer = Answer::deny(Some(UNUSABLE.to_owned()));
        self.send(Message::changing(move |state| state.decide(id, answer, by)));
    }

    pub(crate) async fn answer_batch(
        &self,
        ids: BTreeSet<QuestionId>,
        answer: BatchAnswer,
    ) -> Result<(), AuthorityError> {
        self.change_and_store(move |state| state.answer_batch(&ids, answer))
            .await
    }

    pub(crate) async fn question(
        &self,
        id: QuestionId,
    ) -> Result<Option<Question>, AuthorityError> {
        self.query(move |state| state.ledger.question(id).cloned())
            .await
    }

    #[doc(hidden)]
    pub async fn question_status(&self, id: QuestionId) -> Option<QuestionStatus> {
        let status = self.query(move |state| state.ledger.question_status(id));
        status.await.ok().flatten()
    }

    /// Returns the run of the runtime.
    #[doc(hidden)]
    #[must_use]
    pub fn run(&self) -> Run {
        self.run
    }

    /// Notifies of changes of questions and grants.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.clone()
    }

    pub(crate) async fn open_questions(&self) -> Result<Vec<Question>, AuthorityError> {
        self.query(|state| state.ledger.questions().cloned().collect())
            .await
    }

    /// Waits until `find` returns a value, which is called with the open questions after each change.
    #[cfg(test)]
    pub(crate) async fn wait_for_questions<T>(
        &self,
        mut find: impl FnMut(&[Question]) -> Option<T>,
    ) -> T {
        let mut changes = self.changes();
        loop {
            if let Some(found) = find(&self.open_questions().await.unwrap()) {
                return found;
            }
            changes.changed().await.unwrap();
        }
    }

    pub(crate) async fn grants(&self) -> Result<Vec<GrantView>, AuthorityError> {
        self.query(|state| state.grants()).await
    }

    pub(crate) async fn grant(&self, new: NewGrant) -> Result<GrantId, AuthorityError> {
        self.change_and_store(|state| state.grant(new)).await
    }

    /// Revokes a grant and waits until all effects that used it have ended, or one has hung too long.
    pub(crate) async fn revoke_grant(&self, id: GrantId) -> Result<GrantsRevoked, AuthorityError> {
        let revoke = move |state: &mut BrokerState| {
            (state.revoke(id, RevokeCause::Person), state.store.save())
        };
        let (gate, saved) = self.change(revoke).await?;
        self.wait_for_effects(&[gate.ok_or(AuthorityError::NoGrant)?], saved)
            .await
    }

    pub(crate) async fn grant_all(
        &self,
        grants: Vec<NewGrant>,
    ) -> Result<Vec<GrantId>, AuthorityError> {
        self.change_and_store(|state| state.grant_all(grants)).await
    }

    /// Revokes the grants that match `filter`; waits as [`Self::revoke_grant`] does.
    pub(crate) async fn revoke_where(
        &self,
        filter: GrantFilter,
    ) -> Result<GrantsRevoked, AuthorityError> {
        let (gates, saved) = self
            .change(move |state| (state.revoke_where(&filter), state.store.save()))
            .await?;
        self.wait_for_effects(&gates, saved).await
    }

    /// Narrows a grant and waits until all effects beyond it have ended, or one has hung too long.
    pub(crate) async fn narrow(
        &self,
        id: GrantId,
        change: Narrowing,
    ) -> Result<GrantsRevoked, AuthorityError> {
        let (gate, saved) = self
            .change(move |state| (state.narrow(id, &change), state.store.save()))
            .await?;
        let narrowed = self.wait_for_effects(gate?.as_slice(), saved).await;
        narrowed.map_err(|error| match error {
            // The writer removed it from the store.
            AuthorityError::StillStored {
                source: source @ GrantWriteError::Record(_),
                ..
            } => AuthorityError::Store(source),
            other => other,
        })
    }

    /// Waits until all effects that hold passes of these gates have ended and the change is stored.
    async fn wait_for_effects(
        &self,
        gates: &[Arc<Gate>],
        saved: PendingSave,
    ) -> Result<GrantsRevoked, AuthorityError> {
        let revoked = self.ended(gates).await;
        match saved.done().await {
            Ok(()) => Ok(revoked),
            Err(source) => Err(AuthorityError::StillStored { revoked, source }),
        }
    }

    /// Cancels a worker's questions and ends its grants. It does not wait for effects: those that use the grants also pass
    /// the gate of the worker or of a descendant, and that wait is bounded.
    pub(crate) async fn forget_worker(&self, worker: WorkerId) {
        // A broker that has ended has no grants.
        let _ = self.change(move |state| state.forget_worker(worker)).await;
    }

    pub(crate) async fn end_session(&self, session: &str) -> Result<GrantsRevoked, AuthorityError> {
        let session = session.to_owned();
        let gates = self
            .change(move |state| state.end_session(&session))
            .await?;
        Ok(self.ended(&gates).await)
    }

    async fn ended(&self, gates: &[Arc<Gate>]) -> GrantsRevoked {
        GrantsRevoked {
            grants: gates.len(),
            unfinished: settled(gates, self.grace).await,
        }
    }

    pub(crate) async fn silenced(&self) -> Result<Vec<Silenced>, AuthorityError> {
        self.query(|state| state.ledger.silenced()).await
    }

    pub(crate) async fn ask_again(&self, silenced: SilencedId) -> Result<bool, AuthorityError> {
        self.change(move |state| state.ledger.ask_again_about(silenced))
            .await
    }

    /// Waits until all grants to agents are stored and the file is closed.
    pub(crate) async fn close_store(&self) {
        if let Ok(saved) = self.change(BrokerState::close_store).await {
            // Changes that could not be stored were reported and logged.
            let _ = saved.done().await;
        }
    }

    /// The authority was dropped: questions that only it could answer are denied.
    pub(crate) fn set_unattended(&self) {
        if self.needs_authority {
            self.send(Message::changing(BrokerState::set_unattended));
        }
    }

    /// Ends the broker; all waiters get an error.
    pub(crate) fn stop(&self) {
        self.actor.stop(None);
    }

    /// Returns the result of work that changes nothing.
    async fn query<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut BrokerState) -> T + Send + 'static,
    ) -> Result<T, AuthorityError> {
        self.call(false, work).await
    }

    /// Returns the result of work that may change questions or grants.
    async fn change<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut BrokerState) -> T + Send + 'static,
    ) -> Result<T, AuthorityError> {
        self.call(true, work).await
    }

    async fn call<T: Send + 'static>(
        &self,
        changes: bool,
        work: impl FnOnce(&mut BrokerState) -> T + Send + 'static,
    ) -> Result<T, AuthorityError> {
        let (result_tx, result) = oneshot::channel();
        let work = move |state: &mut BrokerState| {
            // The caller may have stopped waiting.
            let _ = result_tx.send(work(state));
        };
        self.send(Message {
            work: Box::new(work),
            changes,
        });
        result.await.map_err(|_| AuthorityError::Closed)
    }

    /// Like [`Self::change`], and waits until the change is stored.
    async fn change_and_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut BrokerState) -> Result<T, AuthorityError> + Send + 'static,
    ) -> Result<T, AuthorityError> {
        let (result, saved) = self
            .change(|state| (work(state), state.store.save()))
            .await?;
        let value = result?;
        saved.done().await.map_err(AuthorityError::Store)?;
        Ok(value)
    }

    /// Sends a message. If the broker has ended, the message is dropped, and with it the sender of its result.
    fn send(&self, message: Message) {
        drop(self.actor.cast(message));
    }
}

fn closed(_: AuthorityError) -> CallError {
    CallError::new(Code::Cancelled, "the runtime is shut down")
}
