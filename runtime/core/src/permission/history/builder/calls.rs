//! Builds the history entries of single calls.

use std::sync::Arc;

use super::super::{CallOutcome, HistoryEvent, PastCall};
use super::HistoryBuilder;
use crate::audit::{PastChange, PastFailure, PastRecord};
use crate::call::Origin;
use crate::effect::Op;
use crate::error::Code;
use crate::id::{CallId, GrantId};
use crate::permission::{DecidedBy, Decision};
use crate::policy::Verdict;
use crate::scope::{Scope, ScopePattern, Verb};

/// State of a call that has not ended.
#[derive(Clone, Debug, Default)]
pub(super) struct CallBuilder {
    needs: Vec<Scope>,
    rule: Option<Arc<str>>,
    changes: Vec<Op>,
    /// Whether it was sent to a server, not as a preview.
    sent: bool,
    /// The index of the entry of its question.
    pub(super) question: Option<usize>,
    /// The index of its own entry.
    entry: Option<usize>,
    /// Whether its own entry only says that its effect began.
    only_begun: bool,
}

impl CallBuilder {
    /// Whether a mutating call was sent to a server.
    fn changes_remotely(&self) -> bool {
        self.sent && self.needs.iter().any(|need| need.verb() != Verb::Read)
    }
}

impl HistoryBuilder {
    /// The index of the entry of a call's question.
    fn question_of(&self, call: Option<CallId>) -> Option<usize> {
        self.run.calls.get(&call?)?.question
    }

    /// Whether the entry of the question says, or will say, that the call was not allowed: it is open when the call ends.
    fn is_covered_by_question(&self, call: Option<CallId>) -> bool {
        let index = self.question_of(call);
        let entry = index.and_then(|index| self.entries.get(index)?.as_ref());
        entry.is_some_and(|entry| entry.decision != Some(Decision::Granted))
    }

    fn progress(&mut self, call: Option<CallId>) -> Option<&mut CallBuilder> {
        call.map(|call| self.run.calls.entry(call).or_default())
    }

    /// Changes the entry of a call, adding it if necessary.
    fn edit(
        &mut self,
        past: &PastRecord,
        change: impl FnOnce(&mut Option<Decision>, &mut DecidedBy, &mut PastCall),
    ) {
        let known = past.event.call.and_then(|call| self.run.calls.get(&call));
        let known = known.cloned().unwrap_or_default();
        let index = known.entry.unwrap_or_else(|| {
            let what = PastCall {
                call: past.event.call,
                needs: known.needs,
                rule: known.rule,
                changes: known.changes,
                ..PastCall::default()
            };
            let what = HistoryEvent::Call(Box::new(what));
            self.push(past, None, DecidedBy::Nobody, what)
        });
        if let Some(progress) = self.progress(past.event.call) {
            progress.entry = Some(index);
            progress.only_begun = false;
        }
        let entry = self.entry_mut(index);
        if let Some(entry) = entry
            && let HistoryEvent::Call(call) = &mut entry.event
        {
            change(&mut entry.decision, &mut entry.by, call);
        }
    }

    /// Records that a call succeeded; without a grant a rule of the policy allowed it.
    fn allowed(&mut self, past: &PastRecord, outcome: CallOutcome) {
        self.edit(past, |decision, by, call| {
            call.outcome = outcome;
            // The record of a failure that came before it stays.
            call.begun &= call.code.is_some();
            if decision.is_none() {
                (*decision, *by) = (Some(Decision::Granted), DecidedBy::Rule);
            }
        });
    }

    pub(super) fn judged(
        &mut self,
        past: &PastRecord,
        verdict: Verdict,
        needs: &[Scope],
        rule: Option<&Arc<str>>,
    ) {
        // A server asked for more grants instead of carrying the call out.
        self.remove_only_begun(past.event.call);
        if let Some(progress) = self.progress(past.event.call) {
            progress.needs = needs.to_vec();
            progress.rule = rule.cloned();
        }
        let denied = verdict == Verdict::Deny;
        let has_entry = past
            .event
            .call
            .is_some_and(|call| self.entry_of(call).is_some());
        if denied || has_entry {
            self.edit(past, |decision, by, call| {
                call.begun = false;
                call.needs = needs.to_vec();
                call.rule = rule.cloned();
                if denied {
                    (*decision, *by) = (Some(Decision::Denied), DecidedBy::Rule);
                    call.outcome = CallOutcome::Denied;
                }
            });
        }
    }

    /// Records the plan of a call; the entry of its question has it, too, once the call is allowed. A plan that was made
    /// for the question does not count yet.
    pub(super) fn planned(&mut self, call: Option<CallId>, changes: &[PastChange]) {
        let add = |ops: &mut Vec<Op>| {
            for change in changes {
                if !ops.contains(&change.op) {
                    ops.push(change.op);
                }
            }
        };
        if let Some(index) = self.question_of(call)
            && let Some(entry) = self.entry_mut(index)
            && entry.decision == Some(Decision::Granted)
            && let HistoryEvent::Question(question) = &mut entry.event
        {
            add(&mut question.changes);
        }
        if let Some(progress) = self.progress(call) {
            progress.changes.clear();
            add(&mut progress.changes);
        }
    }

    pub(super) fn grant_used(
        &mut self,
        past: &PastRecord,
        grants: &[GrantId],
        brought: &[ScopePattern],
    ) {
        let mut granted_by = DecidedBy::Person;
        for grant in grants {
            let grant = self.grant(*grant);
            grant.used(past.at_ms);
            if grant.by != DecidedBy::Person {
                granted_by = grant.by;
            }
        }
        if brought.is_empty() && self.question_of(past.event.call).is_some() {
            return;
        }
        self.edit(past, |decision, by, call| {
            // Only the host can send grants with a call. It does so for a person who undoes changes.
            let granted_by = match (brought, past.event.origin) {
                ([], _) => granted_by,
                (_, Some(Origin::Human)) => DecidedBy::Person,
                _ => DecidedBy::Host,
            };
            (*decision, *by) = (Some(Decision::Granted), granted_by);
            let new = grants.iter().filter(|grant| !call.grants.contains(grant));
            let new: Vec<_> = new.copied().collect();
            call.grants.extend(new);
            call.brought.extend_from_slice(brought);
        });
    }

    pub(super) fn grants_ignored(&mut self, past: &PastRecord, brought: &[ScopePattern]) {
        let what = HistoryEvent::Call(Box::new(PastCall {
            outcome: CallOutcome::GrantsIgnored,
            brought: brought.to_vec(),
            ..PastCall::default()
        }));
        self.push(past, Some(Decision::Denied), DecidedBy::Rule, what);
    }

    pub(super) fn remote_call(&mut self, past: &PastRecord) {
        let Some(progress) = self.progress(past.event.call) else {
            return;
        };
        progress.sent = true;
        if progress.changes_remotely() {
            self.effect_begins(past);
        }
    }

    /// Records that the effect of a call begins, until another record says how it ended.
    pub(super) fn effect_begins(&mut self, past: &PastRecord) {
        let Some(progress) = self.progress(past.event.call) else {
            return;
        };
        let only_begun = progress.entry.is_none();
        let changes = progress.changes.clone();
        self.edit(past, |_, _, call| {
            call.begun = true;
            call.changes = changes;
        });
        if let Some(progress) = self.progress(past.event.call) {
            progress.only_begun = only_begun;
        }
    }

    /// Removes the entry of a call that says only that its effect began.
    fn remove_only_begun(&mut self, call: Option<CallId>) {
        let known = call.and_then(|call| self.run.calls.get_mut(&call));
        let Some(known) = known.filter(|known| known.only_begun) else {
            return;
        };
        known.only_begun = false;
        let index = known.entry.take();
        if let Some(entry) = index.and_then(|index| self.entries.get_mut(index)) {
            *entry = None;
        }
    }

    /// Removes the entry of a call that says only which live grants it used before it was asked about.
    pub(super) fn remove_unasked(&mut self, call: CallId) {
        let only_granted = self.entry_of(call).is_some_and(|call| {
            call.outcome == CallOutcome::Open && !call.begun && call.brought.is_empty()
        });
        let known = self.run.calls.get_mut(&call).filter(|_| only_granted);
        let index = known.and_then(|known| known.entry.take());
        if let Some(entry) = index.and_then(|index| self.entries.get_mut(index)) {
            *entry = None;
        }
    }

    /// Marks calls as failed if their effect began in a run that ended before it recorded how they ended.
    pub(super) fn fail_open_effects(&mut self) {
        let known = std::mem::take(&mut self.run.calls);
        for index in known.into_values().filter_map(|known| known.entry) {
            let entry = self.entry_mut(index);
            if let Some(HistoryEvent::Call(call)) = entry.map(|entry| &mut entry.event)
                && call.begun
                && call.outcome == CallOutcome::Open
            {
                call.outcome = CallOutcome::Failed;
            }
        }
    }

    pub(super) fn applied(&mut self, past: &PastRecord) {
        let Some(index) = self.question_of(past.event.call) else {
            let changes = self
                .progress(past.event.call)
                .map(|known| known.changes.clone());
            self.allowed(past, CallOutcome::Applied);
            return self.edit(past, |_, _, call| {
                call.changes = changes.unwrap_or_default();
            });
        };
        self.remove_only_begun(past.event.call);
        if let Some(entry) = self.entry_mut(index)
            && let HistoryEvent::Question(question) = &mut entry.event
        {
            question.applied += 1;
        }
    }

    pub(super) fn denied(&mut self, past: &PastRecord, failure: &PastFailure) {
        if self.is_covered_by_question(past.event.call) {
            return;
        }
        // Records of the first version do not distinguish denials from failures.
        let by = match (failure.by, failure.code) {
            (Some(by), _) => by,
            (None, Some(Code::ScopeRequired)) => DecidedBy::Nobody,
            (None, Some(code)) if code.is_denial() => DecidedBy::Rule,
            (None, _) => return self.failed(past, failure),
        };
        self.edit(past, |decision, decided_by, call| {
            (*decision, *decided_by) = (Some(Decision::Denied), by);
            call.outcome = CallOutcome::Denied;
            call.code = failure.code;
            call.message.clone_from(&failure.message);
        });
    }

    pub(super) fn failed(&mut self, past: &PastRecord, failure: &PastFailure) {
        if self.is_covered_by_question(past.event.call) {
            return;
        }
        self.edit(past, |_, _, call| {
            // The record of an effect may come before that of the deadline which it missed.
            if call.outcome != CallOutcome::Applied {
                call.outcome = CallOutcome::Failed;
            }
            call.code = failure.code;
            call.message.clone_from(&failure.message);
            call.begun = failure.begun;
            (call.done, call.removed) = (failure.done, failure.removed);
        });
    }

    pub(super) fn finished(&mut self, past: &PastRecord, code: Option<Code>) {
        let Some(id) = past.event.call else {
            return;
        };
        let asked = self.question_of(past.event.call).is_some();
        if asked && code.is_none() {
            // The entry of the question covers it.
            self.remove_only_begun(past.event.call);
        }
        let Some(known) = self.run.calls.get(&id) else {
            return;
        };
        let has_entry = known.entry.is_some() || (known.changes_remotely() && !asked);
        if has_entry && code.is_none() {
            let applied = CallOutcome::Applied;
            let is_applied = |call: &PastCall| call.outcome == applied;
            let ends_so = if self.entry_of(id).is_some_and(is_applied) {
                applied
            } else {
                CallOutcome::Answered
            };
            self.allowed(past, ends_so);
        }
        // The effect of an abandoned call may still end.
        if !self.entry_of(id).is_some_and(|call| call.begun) {
            self.run.calls.remove(&id);
        }
    }

    fn entry_of(&self, call: CallId) -> Option<&PastCall> {
        let index = self.run.calls.get(&call)?.entry?;
        match &self.entries.get(index)?.as_ref()?.event {
            HistoryEvent::Call(call) => Some(call),
            _ => None,
        }
    }
}
