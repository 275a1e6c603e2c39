//! Messages to the broker in, replies and audit events out: the ledger of questions and the book of grants together.

mod edits;
mod ends;
mod kept;
mod views;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use tokio::task::AbortHandle;

use super::broker::{AskPort, BrokerConfig, Ruling, TimeSource, Told};
use super::grants::{Claimant, GrantBook, Redeemed};
use super::ledger::{Asked, Ledger};
use super::record::{about, holder, of_person, refused, trace_blocked};
use super::store::Keeper;
use super::{
    Answer, AuthorityError, Decision, Lifetime, NewGrant, Question, QuestionState, Request, Run,
};
use crate::audit::{AnsweredStep, Audit, AuditError, GrantedStep, Step};
use crate::capability::Gate;
use crate::effect::LeftOut;
use crate::error::CallError;
use crate::id::{CallId, GrantId, QuestionId, WorkerId};
use crate::scope::{Scope, ScopePattern};

/// A call that waits for an answer.
#[derive(Debug)]
struct Waiter {
    claimant: Claimant,
    /// The call itself: the question may have been asked for another.
    call: CallId,
    told: Option<Told>,
    port: AskPort,
}

impl Waiter {
    fn tell(self, reply: Result<Ruling, CallError>) {
        // The call may have been cancelled meanwhile.
        let _ = self.port.send(reply);
    }
}

/// The broker's state. Nothing here waits.
pub(super) struct Desk {
    ledger: Ledger<Waiter>,
    book: GrantBook,
    keeper: Keeper,
    next_grant: u64,
    max_grants: usize,
    audit: Audit,
    clock: TimeSource,
    /// Puts a question to the approver, on a task of its own.
    show: Box<dyn Fn(Question) -> AbortHandle + Send>,
    shown: HashMap<QuestionId, AbortHandle>,
}

impl Desk {
    pub(super) fn new(
        config: &BrokerConfig,
        run: Run,
        audit: Audit,
        keeper: Keeper,
        show: Box<dyn Fn(Question) -> AbortHandle + Send>,
    ) -> Self {
        Self {
            ledger: Ledger::new(config.limits, config.patience, run),
            book: GrantBook::default(),
            keeper,
            next_grant: 1,
            max_grants: config.max_grants,
            audit,
            clock: Arc::clone(&config.clock),
            show,
            shown: HashMap::new(),
        }
    }

    pub(super) fn redeem(&mut self, claimant: &Claimant, needs: &[Scope]) -> Option<Redeemed> {
        self.book.redeem(claimant, needs, (self.clock)())
    }

    pub(super) fn ask(
        &mut self,
        request: Request,
        claimant: Claimant,
        told: Option<Told>,
        port: AskPort,
    ) {
        self.end_overdue();
        let call = request.call;
        let waiter = Waiter {
            claimant,
            call,
            told: told.clone(),
            port,
        };
        let id = match self.ledger.ask(request, waiter, (self.clock)()) {
            Asked::Opened(id) | Asked::Joined(id) => id,
            Asked::Refused(waiter, reason) => return waiter.tell(Err(reason.into())),
        };
        if let Err(error) = self.put(id, call, told)
            && let Some(waiter) = self.ledger.withdraw(id)
        {
            waiter.tell(Err(error.into()));
        }
    }

    /// Records that `call` asks, then shows the question unless it is shown already.
    fn put(&mut self, id: QuestionId, call: CallId, told: Option<Told>) -> Result<(), AuditError> {
        let Some(question) = self.ledger.question(id) else {
            return Ok(());
        };
        let request = &question.request;
        let needs = request.needs.as_slice().into();
        let step = Step::Asked {
            question: id,
            needs,
        };
        let mut event = about(request, request.origin, step);
        event.call = Some(call);
        self.audit.record(event)?;
        trace_blocked(request, call, id);
        if let Some(told) = told {
            // Whoever made the call may have gone meanwhile.
            let _ = told.send(question.clone());
        }
        if !self.shown.contains_key(&id) {
            self.shown.insert(id, (self.show)(question.clone()));
        }
        Ok(())
    }

    /// Ends a question as a person said, or says why it has no effect.
    pub(super) fn answer(&mut self, id: QuestionId, answer: Answer) -> Result<(), AuthorityError> {
        self.end_overdue();
        let Some(question) = self.ledger.question(id) else {
            return Err(match self.ledger.state(id) {
                Some(QuestionState::Settled(decision)) => AuthorityError::Ended(decision),
                Some(QuestionState::Pending) | None => AuthorityError::NoQuestion,
            });
        };
        let request = question.request.clone();
        match answer {
            Answer::Deny { note } => {
                let step = refused(id, Decision::Denied, note.clone());
                self.record_end(&request, step)?;
                let ended = self.ledger.answer(id, None, (self.clock)());
                self.refuse(ended, note.as_deref());
                Ok(())
            }
            Answer::Allow {
                patterns,
                lifetime,
                descendants,
                left_out,
            } => self.allow(id, &request, patterns, lifetime, descendants, left_out),
        }
    }

    /// Ends a question as its approver said; an answer that has no effect is a refusal.
    pub(super) fn decide(&mut self, id: QuestionId, answer: Answer) {
        if self.answer(id, answer).is_err() && self.ledger.question(id).is_some() {
            let note = Some("the answer could not be used");
            let ended = self.ledger.answer(id, None, (self.clock)());
            self.record_ended(ended.as_ref(), note);
            self.refuse(ended, note);
        }
    }

    fn allow(
        &mut self,
        id: QuestionId,
        request: &Request,
        patterns: Vec<ScopePattern>,
        lifetime: Lifetime,
        descendants: bool,
        mut left_out: Vec<LeftOut>,
    ) -> Result<(), AuthorityError> {
        left_out.retain(|part| !part.hunks.is_empty());
        // A grant for later calls would let through what was left out of this one.
        let divides = !left_out.is_empty();
        if !request.fits(&patterns)
            || !request.can_leave_out(&left_out)
            || (divides && lifetime != Lifetime::Once)
        {
            return Err(AuthorityError::DoesNotFit);
        }
        let patterns = request.meant(patterns);
        let new = holder(request, lifetime).map(|holder| {
            patterns.iter().map(move |pattern| NewGrant {
                pattern: pattern.clone(),
                holder: holder.clone(),
                lifetime,
                descendants,
            })
        });
        let step = AnsweredStep {
            question: id,
            decision: Decision::Granted,
            patterns: patterns.clone(),
            lifetime: Some(lifetime),
            note: None,
            left_out: left_out.clone(),
        };
        self.enter_all(new.into_iter().flatten())
            .and_then(|entered| {
                self.record_end(request, step).map_err(|error| {
                    self.revoke_all(&entered);
                    error.into()
                })
            })?;
        let now = (self.clock)();
        let Some(ended) = self.ledger.answer(id, Some(&patterns), now) else {
            return Ok(());
        };
        self.hide(id);
        // A call that is gone must not spend a use.
        let waiting = ended.waiters.into_iter();
        for waiter in waiting.filter(|waiter| !waiter.port.is_closed()) {
            let redeemed = if lifetime == Lifetime::Once {
                Some(Redeemed {
                    patterns: patterns.clone(),
                    ..Redeemed::default()
                })
            } else {
                self.book.redeem(&waiter.claimant, &request.needs, now)
            };
            match redeemed {
                Some(redeemed) => waiter.tell(Ok(Ruling::Allowed(redeemed, left_out.clone()))),
                // The uses ran out among the calls that shared the question.
                None => {
                    let again = Request {
                        call: waiter.call,
                        ..request.clone()
                    };
                    self.ask(again, waiter.claimant, waiter.told, waiter.port);
                }
            }
        }
        Ok(())
    }

    /// Enters all grants or none.
    pub(super) fn enter_all(
        &mut self,
        grants: impl IntoIterator<Item = NewGrant>,
    ) -> Result<Vec<GrantId>, AuthorityError> {
        let mut entered = Vec::new();
        for new in grants {
            match self.grant(new) {
                Ok(id) => entered.push(id),
                Err(error) => {
                    self.revoke_all(&entered);
                    return Err(error);
                }
            }
        }
        Ok(entered)
    }

    /// Records a grant, then enters it.
    pub(super) fn grant(&mut self, new: NewGrant) -> Result<GrantId, AuthorityError> {
        if !new.is_sound() {
            return Err(AuthorityError::DoesNotFit);
        }
        if self.book.len() >= self.max_grants {
            return Err(AuthorityError::TooMany);
        }
        let id = GrantId(self.next_grant);
        let step = Step::Granted(Box::new(GrantedStep {
            grant: id,
            pattern: new.pattern.clone(),
            holder: new.holder.clone(),
            lifetime: new.lifetime,
            descendants: new.descendants,
        }));
        self.audit.record(of_person(&new.holder, step))?;
        self.next_grant += 1;
        self.keeper.give(id, &new);
        self.book.insert(id, new, (self.clock)());
        Ok(id)
    }

    /// Closes the grant's gate; whoever revokes waits until it is idle.
    pub(super) fn revoke(&mut self, id: GrantId) -> Option<Arc<Gate>> {
        let live = self.book.view(id, (self.clock)()).is_some();
        let (holder, gate) = self.book.revoke(id)?;
        self.keeper.take(id);
        if !live {
            // It ended by its uses or its time: nobody took it back, but a call under way by it is stopped.
            return Some(gate);
        }
        let step = Step::GrantRevoked { grant: id };
        // Closing is the safe side: a full audit counts the event it could not take.
        let _ = self.audit.record(of_person(&holder, step));
        Some(gate)
    }

    pub(super) fn forget_worker(&mut self, worker: WorkerId) {
        for ended in self.ledger.cancel_worker(worker) {
            self.conclude(ended);
        }
        self.revoke_all(&self.book.of_worker(worker));
    }

    pub(super) fn end_session(&mut self, session: &str) -> Vec<Arc<Gate>> {
        self.revoke_all(&self.book.of_session(session))
    }

    fn revoke_all(&mut self, grants: &[GrantId]) -> Vec<Arc<Gate>> {
        let revoked = grants.iter().filter_map(|id| self.revoke(*id));
        revoked.collect()
    }

    pub(super) fn unblock(&mut self, worker: WorkerId) {
        self.ledger.unblock(worker);
    }

    /// Ends what is over.
    pub(super) fn tick(&mut self) {
        self.end_overdue();
        self.book.collect((self.clock)());
    }

    /// Ends questions whose time is over and those that nobody waits for.
    fn end_overdue(&mut self) {
        self.expire();
        for ended in self.ledger.sweep(|waiter| !waiter.port.is_closed()) {
            self.conclude(ended);
        }
    }

    fn expire(&mut self) {
        for ended in self.ledger.expire((self.clock)()) {
            self.conclude(ended);
        }
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        for shown in self.shown.values() {
            shown.abort();
        }
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk")
            .field("ledger", &self.ledger)
            .field("book", &self.book)
            .finish_non_exhaustive()
    }
}
