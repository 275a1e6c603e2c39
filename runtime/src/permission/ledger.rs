//! Requests, answers and the time in, what to tell whom out; no clock, no channel, and an end is an end.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::Duration;

use super::{Decision, Question, QuestionState, Request};
use crate::effect::ContentHash;
use crate::error::{CallError, Code};
use crate::id::{QuestionId, ToolName, WorkerId};
use crate::scope::{Resource, Verb};

/// How much a person may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskLimits {
    /// Questions of one worker in any minute.
    pub per_minute: usize,
    /// Questions of one worker that are open at once.
    pub open_per_worker: usize,
    /// Questions of all workers that are open at once.
    pub open: usize,
    /// Calls that wait for one question.
    pub waiting_per_question: usize,
    /// Refusals of one kind in a row after which the worker is not heard on that kind any more.
    pub refusals_in_a_row: u32,
}

impl Default for AskLimits {
    fn default() -> Self {
        Self {
            per_minute: 10,
            open_per_worker: 3,
            open: 64,
            waiting_per_question: 64,
            refusals_in_a_row: 3,
        }
    }
}

const MINUTE: Duration = Duration::from_secs(60);
/// How many ended questions are remembered, so that a late or doubled answer gets the truth.
const REMEMBERED: usize = 1024;

/// Why a person is not asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotAsked {
    /// Too many questions are open.
    Busy,
    /// The worker asked too often of late.
    TooOften { retry_after: Duration },
    /// A person refused this kind so often that the worker is not heard on it.
    Blocked(Kind),
}

impl From<NotAsked> for CallError {
    fn from(reason: NotAsked) -> Self {
        match reason {
            NotAsked::Busy => Self::new(
                Code::Busy,
                "too many questions are open; go on with something else and try again later",
            )
            .with("retry_after_ms", 1000),
            NotAsked::TooOften { retry_after } => Self::new(
                Code::RateLimited,
                "a person was asked too often; go on with what is allowed",
            )
            .with(
                "retry_after_ms",
                u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX),
            ),
            NotAsked::Blocked((verb, resource)) => Self::new(
                Code::PermissionDenied,
                format!(
                    "a person refused `{verb}:{}` repeatedly and is not asked again; go on without it",
                    resource.as_str()
                ),
            ),
        }
    }
}

/// What refusals are counted by.
pub(crate) type Kind = (Verb, Resource);

/// What became of a request.
#[derive(Debug)]
pub(crate) enum Asked<W> {
    /// A person must be asked.
    Opened(QuestionId),
    /// The same is asked already; its answer will serve.
    Joined(QuestionId),
    /// Nobody is asked.
    Refused(W, NotAsked),
}

/// A question that ended just now.
#[derive(Debug)]
pub(crate) struct Ended<W> {
    pub(crate) question: Question,
    pub(crate) waiters: Vec<W>,
    pub(crate) decision: Decision,
}

/// Requests with the same key are the same question.
type Key = (WorkerId, ToolName, ContentHash, Option<ContentHash>);

#[derive(Debug)]
struct Open<W> {
    question: Question,
    waiters: Vec<W>,
}

/// What is remembered of one worker's questions.
#[derive(Debug, Default)]
struct Asker {
    open: usize,
    recent: VecDeque<Duration>,
    refused: HashMap<Kind, u32>,
}

/// Every question, generic over what waits for its answer.
#[derive(Debug)]
pub(crate) struct Ledger<W> {
    limits: AskLimits,
    patience: Duration,
    next: u64,
    open: BTreeMap<QuestionId, Open<W>>,
    same: HashMap<Key, QuestionId>,
    askers: HashMap<WorkerId, Asker>,
    ended: VecDeque<(QuestionId, Decision)>,
}

impl<W> Ledger<W> {
    /// An empty ledger whose questions end unanswered after `patience`.
    pub(crate) fn new(limits: AskLimits, patience: Duration) -> Self {
        Self {
            limits,
            patience,
            next: 1,
            open: BTreeMap::new(),
            same: HashMap::new(),
            askers: HashMap::new(),
            ended: VecDeque::new(),
        }
    }

    /// Opens a question, or joins the one that asks the same.
    pub(crate) fn ask(&mut self, request: Request, waiter: W, now: Duration) -> Asked<W> {
        let key = key(&request);
        if let Some(open) = self.same.get(&key).and_then(|id| self.open.get_mut(id)) {
            if open.waiters.len() >= self.limits.waiting_per_question {
                return Asked::Refused(waiter, NotAsked::Busy);
            }
            open.waiters.push(waiter);
            return Asked::Joined(open.question.id);
        }
        if let Err(reason) = self.admit(&request, now) {
            return Asked::Refused(waiter, reason);
        }
        let id = QuestionId(self.next);
        self.next += 1;
        let question = Question {
            id,
            asked_at: now,
            expires_at: now.saturating_add(self.patience),
            request,
        };
        let waiters = vec![waiter];
        self.same.insert(key, id);
        self.open.insert(id, Open { question, waiters });
        Asked::Opened(id)
    }

    /// Charges one question to the worker, if it may ask.
    fn admit(&mut self, request: &Request, now: Duration) -> Result<(), NotAsked> {
        let asker = self.askers.entry(request.worker).or_default();
        for kind in kinds(request) {
            if asker.refused.get(&kind).copied().unwrap_or_default()
                >= self.limits.refusals_in_a_row
            {
                return Err(NotAsked::Blocked(kind));
            }
        }
        while asker
            .recent
            .front()
            .is_some_and(|asked| now.saturating_sub(*asked) >= MINUTE)
        {
            asker.recent.pop_front();
        }
        if asker.recent.len() >= self.limits.per_minute {
            let oldest = asker.recent.front().copied().unwrap_or(now);
            return Err(NotAsked::TooOften {
                retry_after: oldest.saturating_add(MINUTE).saturating_sub(now),
            });
        }
        if asker.open >= self.limits.open_per_worker || self.open.len() >= self.limits.open {
            return Err(NotAsked::Busy);
        }
        asker.open += 1;
        asker.recent.push_back(now);
        Ok(())
    }

    /// Ends a question as a person said, unless its time is over or it ended before.
    pub(crate) fn answer(
        &mut self,
        id: QuestionId,
        allowed: bool,
        now: Duration,
    ) -> Option<Ended<W>> {
        let late = self.open.get(&id)?.question.expires_at <= now;
        let decision = match (late, allowed) {
            (true, _) => Decision::Expired,
            (false, true) => Decision::Granted,
            (false, false) => Decision::Denied,
        };
        self.end(id, decision)
    }

    /// Ends every question whose time is over.
    pub(crate) fn expire(&mut self, now: Duration) -> Vec<Ended<W>> {
        self.end_where(Decision::Expired, |open| open.question.expires_at <= now)
    }

    /// Drops waiters that wait no more, and ends questions that nobody waits for.
    pub(crate) fn sweep(&mut self, waits: impl Fn(&W) -> bool) -> Vec<Ended<W>> {
        for open in self.open.values_mut() {
            open.waiters.retain(&waits);
        }
        self.end_where(Decision::Cancelled, |open| open.waiters.is_empty())
    }

    /// Takes the last waiter back; a question that nobody else waits for ends.
    pub(crate) fn withdraw(&mut self, id: QuestionId) -> Option<W> {
        let open = self.open.get_mut(&id)?;
        let waiter = open.waiters.pop();
        if open.waiters.is_empty() {
            self.end(id, Decision::Cancelled);
        }
        waiter
    }

    /// Ends every question of a worker that is no more, and forgets what was remembered of it.
    pub(crate) fn cancel_worker(&mut self, worker: WorkerId) -> Vec<Ended<W>> {
        let ended = self.end_where(Decision::Cancelled, |open| {
            open.question.request.worker == worker
        });
        self.askers.remove(&worker);
        ended
    }

    /// Hears a worker again after too many refusals.
    pub(crate) fn unblock(&mut self, worker: WorkerId) {
        if let Some(asker) = self.askers.get_mut(&worker) {
            asker.refused.clear();
        }
    }

    /// The question, while it is open.
    pub(crate) fn question(&self, id: QuestionId) -> Option<&Question> {
        self.open.get(&id).map(|open| &open.question)
    }

    /// Every open question, in the order they were asked.
    pub(crate) fn questions(&self) -> impl Iterator<Item = &Question> {
        self.open.values().map(|open| &open.question)
    }

    /// How a question stands; none if there was none, or it ended too long ago.
    pub(crate) fn state(&self, id: QuestionId) -> Option<QuestionState> {
        if self.open.contains_key(&id) {
            return Some(QuestionState::Pending);
        }
        self.ended
            .iter()
            .find(|(ended, _)| *ended == id)
            .map(|(_, decision)| QuestionState::Settled(*decision))
    }

    fn end_where(&mut self, decision: Decision, ends: impl Fn(&Open<W>) -> bool) -> Vec<Ended<W>> {
        let ids: Vec<QuestionId> = self
            .open
            .iter()
            .filter(|(_, open)| ends(open))
            .map(|(id, _)| *id)
            .collect();
        ids.into_iter()
            .filter_map(|id| self.end(id, decision))
            .collect()
    }

    /// INVARIANT: the only way out of `open`, so a question ends once.
    fn end(&mut self, id: QuestionId, decision: Decision) -> Option<Ended<W>> {
        let Open { question, waiters } = self.open.remove(&id)?;
        self.same.remove(&key(&question.request));
        if self.ended.len() >= REMEMBERED {
            self.ended.pop_front();
        }
        self.ended.push_back((id, decision));
        if let Some(asker) = self.askers.get_mut(&question.request.worker) {
            asker.open = asker.open.saturating_sub(1);
            for kind in kinds(&question.request) {
                match decision {
                    Decision::Granted => drop(asker.refused.remove(&kind)),
                    Decision::Denied => *asker.refused.entry(kind).or_default() += 1,
                    Decision::Expired | Decision::Cancelled => {}
                }
            }
        }
        Some(Ended {
            question,
            waiters,
            decision,
        })
    }
}

fn key(request: &Request) -> Key {
    (
        request.worker,
        request.tool.clone(),
        request.arguments_hash,
        request.before.map(|token| token.0),
    )
}

fn kinds(request: &Request) -> HashSet<Kind> {
    request
        .needs
        .iter()
        .map(|need| (need.verb(), need.resource().clone()))
        .collect()
}
