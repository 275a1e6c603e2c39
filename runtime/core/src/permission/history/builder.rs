//! Builds history entries from audit records.

mod calls;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use calls::CallBuilder;

use super::report::GrantUse;
use super::{HistoryEntry, HistoryEvent, PastQuestion};
use crate::audit::{
    AnsweredStep, BreakReason, GrantedStep, NarrowedStep, PastEvent, PastRecord, PastStep,
    SignedInStep, past,
};
use crate::call::Origin;
use crate::id::{CallId, GrantId, QuestionId, WorkerId};
use crate::permission::{DecidedBy, Decision, GrantHolder, RevokeCause};
use crate::scope::Scope;

/// The history so far.
#[derive(Clone, Debug, Default)]
pub(super) struct HistoryBuilder {
    /// Entries; `None` for those that were merged into another one.
    entries: Vec<Option<HistoryEntry>>,
    grants: BTreeMap<(u64, GrantId), GrantUse>,
    runs: u64,
    run: RunState,
}

/// State of the current run; indexes are those in the list of all entries.
#[derive(Clone, Debug, Default)]
struct RunState {
    workers: BTreeMap<WorkerId, WorkerInfo>,
    questions: BTreeMap<QuestionId, usize>,
    open: BTreeSet<usize>,
    /// The calls that have not ended.
    calls: BTreeMap<CallId, CallBuilder>,
    /// Grants since the last answer: the grants of an answer come right before it.
    fresh: Vec<usize>,
    /// Grants that were given in it, or were live when it began.
    grants: BTreeSet<GrantId>,
    /// Whether it did anything other than restoring grants.
    begun: bool,
}

/// Agent and session of a worker.
#[derive(Clone, Debug)]
struct WorkerInfo {
    agent: Arc<str>,
    session: Option<Arc<str>>,
}

impl HistoryBuilder {
    pub(super) fn entries(&self) -> impl Iterator<Item = &HistoryEntry> {
        self.entries.iter().flatten()
    }

    fn entry_mut(&mut self, index: usize) -> Option<&mut HistoryEntry> {
        self.entries.get_mut(index)?.as_mut()
    }

    pub(super) fn grants(&self) -> impl Iterator<Item = &GrantUse> {
        self.grants.values()
    }

    /// Returns a callback for the lines of an audit in order, with the number of each in its chain.
    pub(super) fn records(&mut self) -> impl FnMut(u64, &[u8]) -> Result<(), BreakReason> {
        |seq, line| {
            if seq == 0 {
                self.begin_chain();
            }
            self.take(&past(line)?);
            Ok(())
        }
    }

    /// Begins another chain, which is that of another runtime. Open questions of the previous one may still be answered.
    pub(super) fn begin_chain(&mut self) {
        self.runs += 1;
        self.run = RunState::default();
    }

    /// Begins another run of the same chain: the previous runtime has ended, and so have its questions and calls.
    fn begin_run(&mut self) {
        self.fail_open_effects();
        for index in std::mem::take(&mut self.run.open) {
            if let Some(entry) = self.entry_mut(index) {
                entry.decision = Some(Decision::Expired);
            }
        }
        self.begin_chain();
    }

    pub(super) fn take(&mut self, past: &PastRecord) {
        if self.runs == 0 || self.begins_a_run(&past.event) {
            self.begin_run();
        }
        let event = &past.event;
        self.run.begun |= !matches!(event.step, PastStep::GrantRestored(_) | PastStep::Other);
        match &event.step {
            PastStep::Spawned { session } => {
                let info = WorkerInfo {
                    agent: Arc::clone(&event.agent),
                    session: session.clone(),
                };
                let worker = event.worker.map(|worker| (worker, info));
                self.run.workers.extend(worker);
            }
            PastStep::Judged {
                verdict,
                needs,
                rule,
            } => self.judged(past, *verdict, needs, rule.as_ref()),
            PastStep::Asked { question, needs } => self.asked(past, *question, needs),
            PastStep::Answered(step) => self.answered(past, step),
            PastStep::Planned { changes } => self.planned(event.call, changes),
            PastStep::GrantUsed { grants, brought } => self.grant_used(past, grants, brought),
            PastStep::IgnoredGrants { brought } => self.grants_ignored(past, brought),
            PastStep::RemoteCall { preview: false } => self.remote_call(past),
            PastStep::Applying => self.effect_begins(past),
            PastStep::Applied => self.applied(past),
            PastStep::Denied(failure) => self.denied(past, failure),
            PastStep::Failed(failure) => self.failed(past, failure),
            PastStep::Finished { code } => self.finished(past, *code),
            PastStep::Granted(step) => self.granted(past, step),
            PastStep::GrantRestored(step) => self.restored(past, step),
            PastStep::GrantNarrowed(step) => self.narrowed(past, step),
            PastStep::GrantRevoked { grant, cause } => self.revoked(past, *grant, *cause),
            PastStep::SignedIn(step) => self.signed_in(past, step),
            PastStep::RemoteCall { preview: true } | PastStep::Other => {}
        }
    }

    fn revoked(&mut self, past: &PastRecord, grant: GrantId, cause: Option<RevokeCause>) {
        let of = self.grant(grant);
        of.ended_at = Some(past.at_ms);
        let what = HistoryEvent::Revoked {
            grant,
            held: of.pattern.clone(),
            cause,
        };
        let by = cause.map_or(DecidedBy::Nobody, RevokeCause::by);
        self.push(past, None, by, what);
    }

    fn signed_in(&mut self, past: &PastRecord, step: &SignedInStep) {
        // Only a person can allow it, even if an older record does not say so.
        let (decision, by) = if step.allowed {
            (Decision::Granted, DecidedBy::Person)
        } else {
            (Decision::Denied, step.by)
        };
        let what = HistoryEvent::SignedIn(Box::new(step.clone()));
        self.push(past, Some(decision), by, what);
    }

    /// Whether an event begins a run: ids are unique in a run, and a run restores grants before it does anything else.
    fn begins_a_run(&self, event: &PastEvent) -> bool {
        match &event.step {
            PastStep::Spawned { .. } => event
                .worker
                .is_some_and(|worker| self.run.workers.contains_key(&worker)),
            PastStep::Granted(step) => self.run.grants.contains(&step.grant),
            PastStep::GrantRestored(step) => {
                self.run.begun || self.run.grants.contains(&step.grant)
            }
            PastStep::Asked { question, .. } => self
                .run
                .questions
                .get(question)
                .is_some_and(|index| !self.run.open.contains(index)),
            _ => false,
        }
    }

    fn push(
        &mut self,
        past: &PastRecord,
        decision: Option<Decision>,
        by: DecidedBy,
        what: HistoryEvent,
    ) -> usize {
        let event = &past.event;
        let worker = event.worker;
        let known = worker.and_then(|worker| self.run.workers.get(&worker));
        let agent = known.filter(|_| event.agent.is_empty());
        let agent = agent.map_or(&event.agent, |info| &info.agent);
        self.entries.push(Some(HistoryEntry {
            run: self.runs,
            at: past.at_ms,
            agent: Arc::clone(agent),
            worker,
            session: known.and_then(|info| info.session.clone()),
            tool: event.tool.clone(),
            origin: event.origin,
            decision,
            by,
            event: what,
        }));
        self.entries.len() - 1
    }

    fn asked(&mut self, past: &PastRecord, question: QuestionId, needs: &[Scope]) {
        let index = match self.run.questions.get(&question) {
            Some(index) => *index,
            None => self.open(past, question, needs),
        };
        if let Some(call) = past.event.call {
            self.run.calls.entry(call).or_default().question = Some(index);
            self.remove_unasked(call);
        }
    }

    fn open(&mut self, past: &PastRecord, question: QuestionId, needs: &[Scope]) -> usize {
        let what = HistoryEvent::Question(Box::new(PastQuestion {
            question,
            needs: needs.to_vec(),
            ended_at: None,
            patterns: Vec::new(),
            lifetime: None,
            note: None,
            grants: Vec::new(),
            left_out: Vec::new(),
            changes: Vec::new(),
            applied: 0,
        }));
        let index = self.push(past, None, DecidedBy::Nobody, what);
        self.run.questions.insert(question, index);
        self.run.open.insert(index);
        index
    }

    fn answered(&mut self, past: &PastRecord, step: &AnsweredStep) {
        let fresh = std::mem::take(&mut self.run.fresh);
        let index = match self.run.questions.get(&step.question) {
            Some(index) => *index,
            // The question is no longer in the audit, or was lost while the audit was full.
            None => self.open(past, step.question, &[]),
        };
        self.run.open.remove(&index);
        let grants = if step.grants.is_empty() {
            self.absorb_older(&fresh, step)
        } else {
            self.absorb(&fresh, &step.grants);
            step.grants.clone()
        };
        let Some(entry) = self.entry_mut(index) else {
            return;
        };
        entry.decision = Some(step.decision);
        // Older records do not say who answered, but only people could answer.
        entry.by = step.by.unwrap_or(match step.decision {
            Decision::Granted | Decision::Denied => DecidedBy::Person,
            Decision::Expired | Decision::Cancelled => DecidedBy::Nobody,
        });
        if let HistoryEvent::Question(question) = &mut entry.event {
            question.ended_at = Some(past.at_ms);
            question.patterns.clone_from(&step.patterns);
            question.lifetime = step.lifetime;
            question.note.clone_from(&step.note);
            question.left_out.clone_from(&step.left_out);
            question.grants = grants;
        }
    }

    /// Removes the entries of grants that an answer names, since the entry of the answer covers them.
    fn absorb(&mut self, fresh: &[usize], grants: &[GrantId]) {
        for index in fresh {
            if let Some(entry) = self.entries.get_mut(*index)
                && let Some(HistoryEvent::Granted(granted)) = entry.as_ref().map(|one| &one.event)
                && grants.contains(&granted.grant)
            {
                *entry = None;
            }
        }
    }

    /// Like [`Self::absorb`], for answers of older records, which name no grants. Their grants come right before them
    /// and equal the answer.
    fn absorb_older(&mut self, fresh: &[usize], step: &AnsweredStep) -> Vec<GrantId> {
        // An approval for once adds no grant, so the grants before it were given separately.
        if step
            .lifetime
            .is_some_and(|held| held.waiting_calls().is_some())
        {
            return Vec::new();
        }
        let first = fresh.len().saturating_sub(step.patterns.len());
        let last = fresh.get(first..).unwrap_or_default();
        let granted = |index: &usize| match self.entries.get(*index)?.as_ref()?.event {
            HistoryEvent::Granted(ref granted) => Some(granted),
            _ => None,
        };
        let all = last.len() == step.patterns.len()
            && last.iter().zip(&step.patterns).all(|(index, pattern)| {
                granted(index).is_some_and(|granted| {
                    granted.pattern == *pattern && Some(granted.lifetime) == step.lifetime
                })
            });
        if !all {
            return Vec::new();
        }
        let ids = last.iter().filter_map(granted).map(|granted| granted.grant);
        let ids: Vec<GrantId> = ids.collect();
        self.absorb(last, &ids);
        ids
    }

    fn granted(&mut self, past: &PastRecord, step: &GrantedStep) {
        let what = HistoryEvent::Granted(Box::new(step.clone()));
        let by = step.by.unwrap_or(match past.event.origin {
            Some(Origin::Human) => DecidedBy::Person,
            Some(Origin::Host) => DecidedBy::Host,
            _ => DecidedBy::Nobody,
        });
        let index = self.push(past, Some(Decision::Granted), by, what);
        let (agent, session) = match &step.holder {
            GrantHolder::Agent(agent) => (Some(Arc::clone(agent)), None),
            GrantHolder::Worker(worker) | GrantHolder::Session { worker, .. } => {
                let info = self.run.workers.get(worker).cloned();
                info.map_or((None, None), |info| (Some(info.agent), info.session))
            }
        };
        self.run.grants.insert(step.grant);
        let grant = self.grant(step.grant);
        grant.given_at = Some(past.at_ms);
        grant.by = by;
        grant.covers(step);
        grant.agent = agent;
        grant.session = session;
        self.run.fresh.push(index);
    }

    /// A grant that outlives its run stays one grant, and its uses are summed up. Unknown grants were added without a record
    /// and get an entry.
    fn restored(&mut self, past: &PastRecord, step: &GrantedStep) {
        self.run.grants.insert(step.grant);
        let before = self.grants.iter().rev().find(|((_, id), grant)| {
            *id == step.grant && grant.ended_at.is_none() && grant.includes(step)
        });
        let key = before.map(|(key, _)| *key);
        let known = key.and_then(|key| self.grants.remove(&key));
        if known.is_none() {
            let what = HistoryEvent::Unrecorded(Box::new(step.clone()));
            self.push(past, Some(Decision::Granted), DecidedBy::Nobody, what);
        }
        let here = (self.runs, step.grant);
        let grant = known.unwrap_or_else(|| GrantUse::new(self.runs, step.grant));
        let grant = self.grants.entry(here).or_insert(grant);
        grant.covers(step);
        if let GrantHolder::Agent(agent) = &step.holder {
            grant.agent = Some(Arc::clone(agent));
        }
    }

    fn narrowed(&mut self, past: &PastRecord, step: &NarrowedStep) {
        let grant = self.grant(step.grant);
        let held = grant.pattern.clone();
        let left = match (&grant.pattern, &step.change.pattern) {
            (Some(held), _) => step.change.left_of(held),
            // What it covered before is not recorded.
            (None, Some(pattern)) => step.change.left_of(&pattern.clone().into()),
            (None, None) => None,
        };
        if left.is_some() {
            grant.pattern = left;
        }
        if step.change.holder_only {
            grant.descendants = Some(false);
        }
        let what = HistoryEvent::Narrowed {
            step: Box::new(step.clone()),
            held,
        };
        self.push(past, None, DecidedBy::Person, what);
    }

    /// The grant of this run; of one that was given before, only the uses are known.
    fn grant(&mut self, id: GrantId) -> &mut GrantUse {
        let run = self.runs;
        let new = || GrantUse::new(run, id);
        self.grants.entry((run, id)).or_insert_with(new)
    }
}
