//! Handle of the broker: sends its messages and waits for the replies.

use std::collections::BTreeSet;
use std::sync::Arc;

use ractor::RpcReplyPort;
use ractor::rpc::CallResult;
use tokio::sync::watch;

use super::super::broker_state::CallRef;
use super::super::grants::{GrantView, Requester, UsedGrants};
use super::super::ledger::QuestionStatus;
use super::super::settings::{GrantFilter, Narrowing};
use super::super::store::PendingSave;
use super::super::{
    Answer, AuthorityError, BatchAnswer, GrantWriteError, GrantsRevoked, NewGrant, Question,
    Request, Run, Silenced,
};
use super::super::{DecidedBy, record::UNUSABLE};
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
        self.call(|port| Message::UseGrants(requester, needs, call, port))
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
        self.call(|port| Message::Ask(Box::new(request), requester, question_tx, port))
            .await
            .map_err(closed)?
    }

    pub(crate) async fn answer(
        &self,
        id: QuestionId,
        answer: Answer,
    ) -> Result<(), AuthorityError> {
        let reply = self.call(|port| Message::Answer(id, answer, port)).await;
        wait_until_stored(reply).await
    }

    /// Denies a question whose answer cannot be used, on behalf of `by`, which is not a person; has no effect if it has ended.
    pub(crate) fn refuse_unusable(&self, id: QuestionId, by: DecidedBy) {
        let note = Some(UNUSABLE.to_owned());
        let refused = Message::Decided(id, Answer::deny(note), by);
        // A broker that has ended has notified all waiters.
        let _ = self.actor.cast(refused);
    }

    pub(crate) async fn answer_batch(
        &self,
        ids: BTreeSet<QuestionId>,
        answer: BatchAnswer,
    ) -> Result<(), AuthorityError> {
        let reply = self.call(|port| Message::AnswerBatch(ids, answer, port));
        wait_until_stored(reply.await).await
    }

    pub(crate) async fn question(
        &self,
        id: QuestionId,
    ) -> Result<Option<Question>, AuthorityError> {
        self.call(|port| Message::Question(id, port)).await
    }

    #[doc(hidden)]
    pub async fn question_status(&self, id: QuestionId) -> Option<QuestionStatus> {
        let status = self.call(|port| Message::QuestionStatus(id, port)).await;
        status.ok().flatten()
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
        self.call(Message::Questions).await
    }

    pub(crate) async fn grants(&self) -> Result<Vec<GrantView>, AuthorityError> {
        self.call(Message::Grants).await
    }

    pub(crate) async fn grant(&self, new: NewGrant) -> Result<GrantId, AuthorityError> {
        let reply = self.call(|port| Message::Grant(new, port)).await;
        wait_until_stored(reply).await
    }

    /// Revokes a grant and waits until all effects that used it have ended, or one has hung too long.
    pub(crate) async fn revoke_grant(&self, id: GrantId) -> Result<GrantsRevoked, AuthorityError> {
        let (gate, saved) = self.call(|port| Message::Revoke(id, port)).await?;
        self.wait_for_effects(&[gate.ok_or(AuthorityError::NoGrant)?], saved)
            .await
    }

    pub(crate) async fn grant_all(
        &self,
        grants: Vec<NewGrant>,
    ) -> Result<Vec<GrantId>, AuthorityError> {
        let reply = self.call(|port| Message::GrantAll(grants, port)).await;
        wait_until_stored(reply).await
    }

    /// Revokes the grants that match `filter`; waits as [`Self::revoke_grant`] does.
    pub(crate) async fn revoke_where(
        &self,
        filter: GrantFilter,
    ) -> Result<GrantsRevoked, AuthorityError> {
        let (gates, saved) = self.call(|port| Message::RevokeWhere(filter, port)).await?;
        self.wait_for_effects(&gates, saved).await
    }

    /// Narrows a grant and waits until all effects beyond it have ended, or one has hung too long.
    pub(crate) async fn narrow(
        &self,
        id: GrantId,
        change: Narrowing,
    ) -> Result<GrantsRevoked, AuthorityError> {
        let (gate, saved) = self.call(|port| Message::Narrow(id, change, port)).await?;
        let revoked = self.ended(gate?.as_slice()).await;
        saved.done().await.map_err(|source| match source {
            // The writer removed it from the store.
            GrantWriteError::Record(_) => AuthorityError::Store(source),
            GrantWriteError::Write(_) | GrantWriteError::Closed => {
                AuthorityError::StillStored { revoked, source }
            }
        })?;
        Ok(revoked)
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
        let _ = self.call(|port| Message::ForgetWorker(worker, port)).await;
    }

    pub(crate) async fn end_session(&self, session: &str) -> Result<GrantsRevoked, AuthorityError> {
        let gates = self
            .call(|port| Message::EndSession(session.into(), port))
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
        self.call(Message::Silenced).await
    }

    pub(crate) async fn ask_again(&self, silenced: SilencedId) -> Result<bool, AuthorityError> {
        self.call(|port| Message::AskAgain(silenced, port)).await
    }

    /// Waits until all grants to agents are stored and the file is closed.
    pub(crate) async fn close_store(&self) {
        if let Ok(saved) = self.call(Message::CloseStore).await {
            // Changes that could not be stored were reported and logged.
            let _ = saved.done().await;
        }
    }

    /// The authority was dropped: questions that only it could answer are denied.
    pub(crate) fn set_unattended(&self) {
        if self.needs_authority {
            // A broker that has ended has notified all waiters.
            let _ = self.actor.cast(Message::Unattended);
        }
    }

    /// Ends the broker; all waiters get an error.
    pub(crate) fn stop(&self) {
        self.actor.stop(None);
    }

    async fn call<T: Send + 'static>(
        &self,
        message: impl FnOnce(RpcReplyPort<T>) -> Message,
    ) -> Result<T, AuthorityError> {
        match self.actor.call(message, None).await {
            Ok(CallResult::Success(reply)) => Ok(reply),
            Ok(CallResult::SenderError | CallResult::Timeout) | Err(_) => {
                Err(AuthorityError::Closed)
            }
        }
    }
}

/// Waits until a change is stored.
async fn wait_until_stored<T>(
    reply: Result<(Result<T, AuthorityError>, PendingSave), AuthorityError>,
) -> Result<T, AuthorityError> {
    let (reply, saved) = reply?;
    let value = reply?;
    saved.done().await.map_err(AuthorityError::Store)?;
    Ok(value)
}

fn closed(_: AuthorityError) -> CallError {
    CallError::new(Code::Cancelled, "the runtime is shut down")
}
