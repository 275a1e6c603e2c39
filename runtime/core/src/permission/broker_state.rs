//! State of the broker: the ledger of questions and the table of grants.

mod answers;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::broker::{AskOutcome, BrokerConfig, QuestionSender, TimeSource};
use super::grants::{GrantTable, GrantView, Requester, UsedGrants};
use super::ledger::{Asked, Ended, Ledger};
use super::record::{self, about, answered, of_grant, trace};
use super::settings::{GrantFilter, Narrowing};
use super::store::{Contents, PendingSave, StoreHandle};
use super::{
    AuthorityError, DecidedBy, GrantHolder, Lifetime, NewGrant, Question, Request, RevokeCause, Run,
};
use crate::audit::{Audit, AuditError, AuditEvent, GrantedStep, NarrowedStep, Step};
use crate::call::Origin;
use crate::capability::Gate;
use crate::error::CallError;
use crate::id::{CallId, GrantId, QuestionId, ToolName, WorkerId};
use crate::scope::Scope;

/// Grants that are not in the table yet, and the audit events that must be recorded first.
#[derive(Default)]
struct Drafts {
    grants: Vec<(GrantId, NewGrant)>,
    /// Grants that share their uses.
    counted_together: Vec<Vec<GrantId>>,
    events: Vec<AuditEvent>,
}

/// The call that uses grants, for the audit.
#[derive(Clone, Debug)]
pub(crate) struct CallRef {
    pub(crate) call: CallId,
    pub(crate) tool: ToolName,
    pub(crate) origin: Origin,
}

/// Receives how a call's question ended.
type OutcomeSender = oneshot::Sender<Result<AskOutcome, CallError>>;

/// A call that waits for an answer.
#[derive(Debug)]
pub(super) struct Waiter {
    requester: Requester,
    /// The call, which may not be the one that the question was asked for.
    call: CallId,
    question_tx: Option<QuestionSender>,
    outcome_tx: OutcomeSender,
}

impl Waiter {
    fn reply(self, reply: Result<AskOutcome, CallError>) {
        // The call may have been cancelled.
        let _ = self.outcome_tx.send(reply);
    }
}

/// State of the broker; none of its methods waits.
pub(super) struct BrokerState {
    pub(super) ledger: Ledger<Waiter>,
    grants: GrantTable,
    pub(super) store: StoreHandle,
    run: Run,
    next_grant: u64,
    max_grants: usize,
    audit: Audit,
    /// Revocations that could not be audited yet, at most one per grant. Without them, the grants would be live in the
    /// audit.
    unrecorded: VecDeque<AuditEvent>,
    clock: TimeSource,
    /// Asks the approver on a new task.
    show: Box<dyn Fn(Question) -> AbortHandle + Send>,
    shown: HashMap<QuestionId, AbortHandle>,
    /// Whether nobody can answer.
    pub(super) unattended: bool,
}

impl BrokerState {
    pub(super) fn new(
        config: &BrokerConfig,
        run: Run,
        audit: Audit,
        store: StoreHandle,
        show: Box<dyn Fn(Question) -> AbortHandle + Send>,
    ) -> Self {
        Self {
            ledger: Ledger::new(config.limits, config.timeout, run),
            grants: GrantTable::default(),
            store,
            run,
            next_grant: 1,
            max_grants: config.max_grants,
            audit,
            unrecorded: VecDeque::new(),
            clock: Arc::clone(&config.clock),
            show,
            shown: HashMap::new(),
            unattended: false,
        }
    }

    /// Reports the number of open questions to the monitor.
    pub(super) fn report_open_questions(&self) {
        let open = self.ledger.open_questions();
        self.audit.monitor().set_open_questions(open);
    }

    /// Uses each grant that a call needs once. The use is audited here, since the call may end before it
    /// receives the grants.
    pub(super) fn use_grants(
        &mut self,
        requester: &Requester,
        needs: &[Scope],
        call: CallRef,
    ) -> Option<UsedGrants> {
        let now = (self.clock)();
        let grants = self.grants.usable(requester, needs, now)?;
        let CallRef { call, tool, origin } = call;
        let event = AuditEvent {
            worker: Some(requester.worker),
            agent: Arc::clone(&requester.agent),
            call: Some(call),
            tool: Some(tool),
            origin,
            step: Step::GrantUsed {
                grants: grants.into_iter().collect(),
                brought: [].into(),
            },
        };
        // If the use cannot be audited, the grants are not used, and the call asks.
        self.audit.record(event).ok()?;
        self.grants.use_grants(requester, needs, now)
    }

    pub(super) fn ask(
        &mut self,
        request: Request,
        requester: Requester,
        question_tx: Option<QuestionSender>,
        outcome_tx: OutcomeSender,
    ) {
        let now = self.end_overdue();
        let waiter = Waiter {
            requester,
            call: request.call,
            question_tx,
            outcome_tx,
        };
        match self.ledger.ask(request, waiter, now) {
            Asked::Opened(id) | Asked::Joined(id) => self.post_or_withdraw(id),
            Asked::Refused(waiter, reason) => waiter.reply(Err(reason.into())),
        }
        self.refuse_unattended();
    }

    /// Asks the question for the call that joined last. If that cannot be audited, the call gets an error.
    fn post_or_withdraw(&mut self, id: QuestionId) {
        if let Err(error) = self.post(id)
            && let Some(waiter) = self.ledger.withdraw(id)
        {
            waiter.reply(Err(error.into()));
        }
    }

    /// Audits that the call that joined last asks, then shows the question unless it is already shown.
    fn post(&mut self, id: QuestionId) -> Result<(), AuditError> {
        let Some((question, waiter)) = self.ledger.last_waiter(id) else {
            return Ok(());
        };
        let request = &question.request;
        let needs = request.needs.as_slice().into();
        let step = Step::Asked {
            question: id,
            needs,
        };
        let mut event = about(request, request.origin, step);
        event.call = Some(waiter.call);
        self.audit.record(event)?;
        trace(request, waiter.call, id, None, "blocked");
        if let Some(question_tx) = &waiter.question_tx {
            // The caller may have stopped waiting.
            let _ = question_tx.send(Box::new(question.clone()));
        }
        if !self.shown.contains_key(&id) {
            self.shown.insert(id, (self.show)(question.clone()));
        }
        Ok(())
    }

    /// Adds all grants that a person gives, or none.
    pub(super) fn grant_all(
        &mut self,
        grants: Vec<NewGrant>,
    ) -> Result<Vec<GrantId>, AuthorityError> {
        let mut drafts = Drafts::default();
        let drafted = grants
            .into_iter()
            .map(|new| self.draft(&mut drafts, new, DecidedBy::Person));
        let ids = drafted.collect::<Result<_, _>>()?;
        self.enter(drafts)?;
        Ok(ids)
    }

    /// Audits a grant that a person gives, then adds it.
    pub(super) fn grant(&mut self, new: NewGrant) -> Result<GrantId, AuthorityError> {
        let mut drafts = Drafts::default();
        let id = self.draft(&mut drafts, new, DecidedBy::Person)?;
        self.enter(drafts)?;
        Ok(id)
    }

    /// Drafts a grant with its audit event.
    fn draft(
        &self,
        drafts: &mut Drafts,
        new: NewGrant,
        by: DecidedBy,
    ) -> Result<GrantId, AuthorityError> {
        if !new.is_sound() {
            return Err(AuthorityError::DoesNotFit);
        }
        let others = drafts.grants.len();
        if self.grants.len() + others >= self.max_grants {
            return Err(AuthorityError::TooMany);
        }
        let id = GrantId(self.next_grant.saturating_add(others as u64));
        let step = Step::Granted(Box::new(GrantedStep {
            grant: id,
            pattern: new.pattern.clone(),
            holder: new.holder.clone(),
            lifetime: new.lifetime,
            descendants: new.descendants,
            by: Some(by),
        }));
        drafts.events.push(of_grant(&new.holder, by, step));
        drafts.grants.push((id, new));
        Ok(id)
    }

    /// Records the events of all drafts, or none, then adds the grants.
    fn enter(&mut self, drafts: Drafts) -> Result<(), AuditError> {
        self.audit.record_all(drafts.events)?;
        let now = (self.clock)();
        for (id, new) in drafts.grants {
            self.next_grant = id.0.saturating_add(1);
            self.store.added(id, &new);
            self.grants.insert(id, new, now, self.run.at_ms(now));
        }
        for ids in drafts.counted_together {
            self.grants.share_uses(&ids);
        }
        Ok(())
    }

    /// Closes the grant's gate; the caller waits until it is idle.
    pub(super) fn revoke(&mut self, id: GrantId, cause: RevokeCause) -> Option<Arc<Gate>> {
        let live = self.grants.view(id, (self.clock)()).is_some();
        let (holder, gate) = self.grants.revoke(id)?;
        self.store.removed(id);
        if !live {
            // It was used up or expired, so this is not a revocation. A call in flight that uses it is still stopped.
            return Some(gate);
        }
        let step = Step::GrantRevoked {
            grant: id,
            cause: Some(cause),
        };
        // Closing is safe, so it does not wait for the audit.
        self.unrecorded
            .push_back(of_grant(&holder, cause.by(), step));
        self.record_revoked();
        Some(gate)
    }

    /// Retries the revocations that the audit could not take.
    fn record_revoked(&mut self) {
        while let Some(event) = self.unrecorded.front()
            && self.audit.offer(event.clone()).is_ok()
        {
            self.unrecorded.pop_front();
        }
    }

    pub(super) fn forget_worker(&mut self, worker: WorkerId) {
        for ended in self.ledger.cancel_worker(worker) {
            self.conclude(ended, DecidedBy::Nobody, None);
        }
        self.revoke_all(&self.grants.of_worker(worker), RevokeCause::WorkerEnded);
    }

    pub(super) fn end_session(&mut self, session: &str) -> Vec<Arc<Gate>> {
        self.ledger.end_session(session);
        self.revoke_all(&self.grants.of_session(session), RevokeCause::SessionEnded)
    }

    pub(super) fn revoke_all(&mut self, grants: &[GrantId], cause: RevokeCause) -> Vec<Arc<Gate>> {
        let revoked = grants.iter().filter_map(|id| self.revoke(*id, cause));
        revoked.collect()
    }

    /// Revokes all live grants that match; each has an audit record.
    pub(super) fn revoke_where(&mut self, filter: &GrantFilter) -> Vec<Arc<Gate>> {
        let live = self.grants().into_iter();
        let matching: Vec<GrantId> = live
            .filter(|grant| filter.admits(grant))
            .map(|grant| grant.id)
            .collect();
        self.revoke_all(&matching, RevokeCause::Person)
    }

    /// Audits the narrowing of a grant, then narrows it. Returns the gate of calls that may exceed it.
    pub(super) fn narrow(
        &mut self,
        id: GrantId,
        change: &Narrowing,
    ) -> Result<Option<Arc<Gate>>, AuthorityError> {
        let now = (self.clock)();
        let view = self.grants.view(id, now).ok_or(AuthorityError::NoGrant)?;
        if !change.narrows(&view, now) {
            return Err(AuthorityError::Wider);
        }
        let step = Step::GrantNarrowed(Box::new(NarrowedStep {
            grant: id,
            change: change.clone(),
        }));
        self.audit
            .record(of_grant(&view.holder, DecidedBy::Person, step))?;
        let gate = self.grants.narrow(id, change, now);
        if let Some(left) = self.grants.view(id, now) {
            self.store.narrowed(&left);
        }
        Ok(gate)
    }

    /// Removes expired questions and grants.
    pub(super) fn tick(&mut self) {
        self.record_revoked();
        self.store.retry();
        self.end_overdue();
        self.grants.collect((self.clock)());
    }

    /// Ends expired questions and those that no call waits for. Returns the current time, at which the others are open.
    fn end_overdue(&mut self) -> Duration {
        let now = (self.clock)();
        let mut ended = self.ledger.expire(now);
        let waits = |waiter: &Waiter| !waiter.outcome_tx.is_closed();
        ended.extend(self.ledger.sweep(waits));
        for ended in ended {
            self.conclude(ended, DecidedBy::Nobody, None);
        }
        now
    }

    /// Audits the end of a question that was not answered, and replies to the calls that wait.
    fn conclude(&mut self, ended: Ended<Waiter>, by: DecidedBy, note: Option<&str>) {
        let Question { id, request, .. } = &ended.question;
        let step = record::ended(*id, ended.decision, by, note.map(str::to_owned));
        // A denial is valid even if the audit is full; the audit counts missing records.
        let _ = self.audit.record(answered(request, step));
        self.refuse(ended, by, note);
    }

    fn refuse(&mut self, ended: Ended<Waiter>, by: DecidedBy, note: Option<&str>) {
        let Question { id, request, .. } = &ended.question;
        trace(request, request.call, *id, Some(ended.decision), "answered");
        self.hide(*id);
        for waiter in ended.waiters {
            waiter.reply(Ok(AskOutcome::Refused {
                decision: ended.decision,
                by,
                note: note.map(str::to_owned),
            }));
        }
    }

    fn hide(&mut self, id: QuestionId) {
        if let Some(shown) = self.shown.remove(&id) {
            shown.abort();
        }
    }

    pub(super) fn grants(&self) -> Vec<GrantView> {
        self.grants.views((self.clock)())
    }

    /// Adds stored grants.
    pub(super) fn restore(&mut self, stored: Contents) {
        for grant in stored.grants.into_values() {
            let new = NewGrant {
                pattern: grant.pattern,
                holder: GrantHolder::Agent(grant.agent),
                lifetime: Lifetime::Agent,
                descendants: grant.descendants,
            };
            let now = (self.clock)();
            self.grants.insert(grant.id, new, now, grant.given_at_ms);
        }
        self.next_grant = stored.next;
    }

    /// Closes the store once everything is stored. The runtime ends, so this is the last chance to audit.
    pub(super) fn close_store(&mut self) -> PendingSave {
        for event in std::mem::take(&mut self.unrecorded) {
            // The audit counts records that it still cannot take.
            let _ = self.audit.record(event);
        }
        self.store.close()
    }
}

impl Drop for BrokerState {
    fn drop(&mut self) {
        for shown in self.shown.values() {
            shown.abort();
        }
    }
}

impl fmt::Debug for BrokerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrokerState")
            .field("ledger", &self.ledger)
            .field("grants", &self.grants)
            .finish_non_exhaustive()
    }
}
