//! Ledger of questions: a state machine without clock or channels in which each question ends once.

mod refused;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::{Decision, DeniedCalls, Question, QuestionState, Request, Run, Silenced, WaitingCalls};
use crate::effect::ContentHash;
use crate::id::{CallId, QuestionId, SilencedId, ToolName, WorkerId};
use crate::scope::{Coverage, Scope};

use refused::{NotAsked, OPEN, OPEN_PER_WORKER, WAITING_PER_QUESTION};

/// Limits of questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskLimits {
    /// Questions of one worker per minute.
    pub per_minute: usize,
    /// Open questions of one worker.
    pub open_per_worker: usize,
    /// Open questions of all workers.
    pub open: usize,
    /// Calls that wait for one question.
    pub waiting_per_question: usize,
}

impl Default for AskLimits {
    fn default() -> Self {
        Self {
            per_minute: 10,
            open_per_worker: 3,
            open: 64,
            waiting_per_question: 64,
        }
    }
}

const MINUTE: Duration = Duration::from_secs(60);
/// How many ended questions are remembered, for late and repeated answers.
const REMEMBERED: usize = 1024;
/// Maximum number of entries in `silenced`. The oldest entry is removed first; its calls are then asked about again.
const MAX_SILENCED: usize = 1000;

/// Result of a request.
#[derive(Debug)]
pub(crate) enum Asked<W> {
    /// A question was opened.
    Opened(QuestionId),
    /// The request joined an equal open question.
    Joined(QuestionId),
    /// No question is asked.
    Refused(W, NotAsked),
}

/// A question that has just ended.
#[derive(Debug)]
pub(crate) struct Ended<W> {
    pub(crate) question: Question,
    pub(crate) waiters: Vec<W>,
    pub(crate) decision: Decision,
}

/// Requests with the same key are the same question. Equal arguments do not imply equal needs: typed arguments have no
/// JSON, and a link may have changed.
type Key = (
    WorkerId,
    ToolName,
    ContentHash,
    Option<ContentHash>,
    Vec<Scope>,
    Option<CallId>,
);

#[derive(Debug)]
struct Open<W> {
    question: Question,
    waiters: Vec<W>,
}

impl<W> Open<W> {
    fn join(&mut self, waiter: W) -> Asked<W> {
        self.waiters.push(waiter);
        self.count();
        Asked::Joined(self.question.id)
    }

    fn count(&self) {
        self.question.calls.set(self.waiters.len());
    }
}

/// Status of a question for its session.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct QuestionStatus {
    pub(crate) session: Arc<str>,
    #[doc(hidden)]
    pub state: QuestionState,
    /// What was granted, if it was.
    #[doc(hidden)]
    pub granted: Vec<Coverage>,
}

/// Counters of one worker's questions.
#[derive(Debug, Default)]
struct QuestionCounters {
    open: usize,
    recent: VecDeque<Duration>,
}

/// All questions. `W` waits for an answer.
#[derive(Debug)]
pub(crate) struct Ledger<W> {
    limits: AskLimits,
    timeout: Duration,
    run: Run,
    next: u64,
    open: BTreeMap<QuestionId, Open<W>>,
    same: HashMap<Key, QuestionId>,
    counters: HashMap<WorkerId, QuestionCounters>,
    /// What people denied for the rest of a session.
    silenced: BTreeMap<SilencedId, Silenced>,
    next_silenced: u64,
    ended: VecDeque<(QuestionId, QuestionStatus)>,
}

impl<W> Ledger<W> {
    /// Creates an empty ledger of one run whose questions expire after `timeout`.
    pub(crate) fn new(limits: AskLimits, timeout: Duration, run: Run) -> Self {
        Self {
            limits,
            timeout,
            run,
            next: 1,
            open: BTreeMap::new(),
            same: HashMap::new(),
            counters: HashMap::new(),
            silenced: BTreeMap::new(),
            next_silenced: 1,
            ended: VecDeque::new(),
        }
    }

    /// Opens a question, or joins an equal one.
    pub(crate) fn ask(&mut self, request: Request, waiter: W, now: Duration) -> Asked<W> {
        let key = key(&request);
        if let Some(open) = self.same.get(&key).and_then(|id| self.open.get_mut(id)) {
            if open.waiters.len() >= self.limits.waiting_per_question {
                let most = self.limits.waiting_per_question;
                return Asked::Refused(waiter, NotAsked::busy(most, WAITING_PER_QUESTION));
            }
            return open.join(waiter);
        }
        if let Err(reason) = self.admit(&request, now) {
            return Asked::Refused(waiter, reason);
        }
        Asked::Opened(self.open(key, request, waiter, now))
    }

    /// Asks again for a call whose question ended with an answer for other calls. It was admitted before, so no limit applies.
    pub(crate) fn ask_again(&mut self, request: Request, waiter: W, now: Duration) -> QuestionId {
        let key = key(&request);
        if let Some(open) = self.same.get(&key).and_then(|id| self.open.get_mut(id)) {
            open.join(waiter);
            return open.question.id;
        }
        self.counters.entry(request.worker).or_default().open += 1;
        self.open(key, request, waiter, now)
    }

    fn open(&mut self, key: Key, request: Request, waiter: W, now: Duration) -> QuestionId {
        let id = QuestionId(self.next);
        self.next += 1;
        let question = Question {
            id,
            run: self.run,
            asked_at: now,
            expires_at: now.saturating_add(self.timeout),
            request: Arc::new(request),
            calls: WaitingCalls::default(),
        };
        let waiters = vec![waiter];
        self.same.insert(key, id);
        self.open.insert(id, Open { question, waiters });
        id
    }

    /// Counts one question of the worker. Fails if the worker may not ask.
    fn admit(&mut self, request: &Request, now: Duration) -> Result<(), NotAsked> {
        if let Some(denied) = self.silences(request) {
            return Err(NotAsked::Silenced(denied.clone()));
        }
        let counters = self.counters.entry(request.worker).or_default();
        while counters
            .recent
            .front()
            .is_some_and(|asked| now.saturating_sub(*asked) >= MINUTE)
        {
            counters.recent.pop_front();
        }
        if counters.recent.len() >= self.limits.per_minute {
            let oldest = counters.recent.front().copied().unwrap_or(now);
            return Err(NotAsked::TooOften {
                per_minute: self.limits.per_minute,
                retry_after: oldest.saturating_add(MINUTE).saturating_sub(now),
            });
        }
        let AskLimits {
            open_per_worker,
            open,
            ..
        } = self.limits;
        if counters.open >= open_per_worker {
            return Err(NotAsked::busy(open_per_worker, OPEN_PER_WORKER));
        }
        if self.open.len() >= open {
            return Err(NotAsked::busy(open, OPEN));
        }
        counters.open += 1;
        counters.recent.push_back(now);
        Ok(())
    }

    /// Ends a question with an approval or, if `granted` is `None`, a denial. It expires instead if its time has passed.
    pub(crate) fn answer(
        &mut self,
        id: QuestionId,
        granted: Option<&[Coverage]>,
        now: Duration,
    ) -> Option<Ended<W>> {
        let late = self.open.get(&id)?.question.expires_at <= now;
        let decision = match (late, granted) {
            (true, _) => Decision::Expired,
            (false, Some(_)) => Decision::Granted,
            (false, None) => Decision::Denied,
        };
        let ended = self.end(id, decision)?;
        if let (Decision::Granted, Some((_, past))) = (decision, self.ended.back_mut()) {
            past.granted = granted.unwrap_or_default().to_vec();
        }
        Some(ended)
    }

    /// Ends all questions whose time has passed.
    pub(crate) fn expire(&mut self, now: Duration) -> Vec<Ended<W>> {
        self.end_where(Decision::Expired, |open| open.question.expires_at <= now)
    }

    /// Drops waiters that no longer wait, and ends questions without waiters.
    pub(crate) fn sweep(&mut self, waits: impl Fn(&W) -> bool) -> Vec<Ended<W>> {
        for open in self.open.values_mut() {
            open.waiters.retain(&waits);
            open.count();
        }
        self.end_where(Decision::Cancelled, |open| open.waiters.is_empty())
    }

    /// Removes the last waiter; a question without other waiters ends.
    pub(crate) fn withdraw(&mut self, id: QuestionId) -> Option<W> {
        let open = self.open.get_mut(&id)?;
        let waiter = open.waiters.pop();
        open.count();
        if open.waiters.is_empty() {
            self.end(id, Decision::Cancelled);
        }
        waiter
    }

    /// Ends all questions of a worker that has ended, and removes its data.
    pub(crate) fn cancel_worker(&mut self, worker: WorkerId) -> Vec<Ended<W>> {
        let ended = self.end_where(Decision::Cancelled, |open| {
            open.question.request.worker == worker
        });
        self.counters.remove(&worker);
        self.silenced
            .retain(|_, silenced| silenced.worker != worker);
        ended
    }

    /// Denies further calls like that of an open question, for its worker and session.
    pub(crate) fn silence(&mut self, id: QuestionId, calls: DeniedCalls) {
        let Some(open) = self.open.get(&id) else {
            return;
        };
        let request = &open.question.request;
        let denied = calls.of(&request.needs);
        let same = |silenced: &Silenced| {
            silenced.worker == request.worker
                && silenced.session == request.session
                && silenced.denied == denied
        };
        if self.silenced.values().any(same) {
            return;
        }
        if self.silenced.len() >= MAX_SILENCED {
            self.silenced.pop_first();
        }
        let id = SilencedId(self.next_silenced);
        self.next_silenced += 1;
        let silenced = Silenced {
            id,
            worker: request.worker,
            agent: request.agent_path.join("/"),
            session: Arc::clone(&request.session),
            denied,
        };
        self.silenced.insert(id, silenced);
    }

    /// The denial for the rest of the session that applies to the request.
    fn silences(&self, request: &Request) -> Option<&Coverage> {
        let of_request = self.silenced.values().filter(|silenced| {
            silenced.worker == request.worker && silenced.session == request.session
        });
        let needed = |denied: &&Coverage| request.needs.iter().any(|need| denied.meets(need));
        of_request
            .flat_map(|silenced| &silenced.denied)
            .find(needed)
    }

    /// Removes a denial for the rest of a session. Returns whether it existed.
    pub(crate) fn ask_again_about(&mut self, id: SilencedId) -> bool {
        self.silenced.remove(&id).is_some()
    }

    /// Removes the denials of a session that ended.
    pub(crate) fn end_session(&mut self, session: &str) {
        self.silenced
            .retain(|_, silenced| *silenced.session != *session);
    }

    /// Denials for the rest of a session, the oldest first.
    pub(crate) fn silenced(&self) -> Vec<Silenced> {
        self.silenced.values().cloned().collect()
    }

    /// The question, while it is open.
    pub(crate) fn question(&self, id: QuestionId) -> Option<&Question> {
        self.open.get(&id).map(|open| &open.question)
    }

    /// The question, while it is open, and the waiter that joined it last.
    pub(crate) fn last_waiter(&self, id: QuestionId) -> Option<(&Question, &W)> {
        let open = self.open.get(&id)?;
        Some((&open.question, open.waiters.last()?))
    }

    /// All open questions, in the order in which they were asked.
    pub(crate) fn questions(&self) -> impl Iterator<Item = &Question> {
        self.open.values().map(|open| &open.question)
    }

    pub(crate) fn open_questions(&self) -> usize {
        self.open.len()
    }

    /// State of a question; `None` if it does not exist or ended too long ago.
    pub(crate) fn state(&self, id: QuestionId) -> Option<QuestionState> {
        self.question_status(id).map(|status| status.state)
    }

    /// Status of a question.
    pub(crate) fn question_status(&self, id: QuestionId) -> Option<QuestionStatus> {
        if let Some(open) = self.open.get(&id) {
            return Some(QuestionStatus {
                session: Arc::clone(&open.question.request.session),
                state: QuestionState::Pending,
                granted: Vec::new(),
            });
        }
        let (_, past) = self.ended.iter().find(|(ended, _)| *ended == id)?;
        Some(past.clone())
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

    /// INVARIANT: only this removes a question from `open`, so a question ends once.
    fn end(&mut self, id: QuestionId, decision: Decision) -> Option<Ended<W>> {
        let Open { question, waiters } = self.open.remove(&id)?;
        self.same.remove(&key(&question.request));
        if self.ended.len() >= REMEMBERED {
            self.ended.pop_front();
        }
        let status = QuestionStatus {
            session: Arc::clone(&question.request.session),
            state: QuestionState::Settled(decision),
            granted: Vec::new(),
        };
        self.ended.push_back((id, status));
        let worker = question.request.worker;
        if let Some(counters) = self.counters.get_mut(&worker) {
            counters.open = counters.open.saturating_sub(1);
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
        request.needs.clone(),
        request.alone.then_some(request.call),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::cases;
    use crate::error::CallError;
    use crate::fixtures::request;
    use crate::path::VirtualPath;
    use crate::scope::{Operation, Scope};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const PATIENCE: Duration = Duration::from_secs(600);
    const NEED: &[&str] = &["write:file:/r/x"];

    fn ledger() -> Ledger<u64> {
        Ledger::new(AskLimits::default(), PATIENCE, Run::default())
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[track_caller]
    fn opened(asked: Asked<u64>) -> QuestionId {
        match asked {
            Asked::Opened(id) => id,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn refused(asked: Asked<u64>) -> NotAsked {
        match asked {
            Asked::Refused(_, reason) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn equal_requests_share_one_question_and_its_answer() {
        let mut ledger = ledger();
        let id = opened(ledger.ask(request(1, 1, NEED), 10, at(0)));
        let joined = ledger.ask(request(1, 1, NEED), 11, at(1));
        assert!(matches!(joined, Asked::Joined(same) if same == id));
        let ended = ledger.answer(id, Some(&[]), at(2)).unwrap();
        assert_eq!(
            (ended.decision, ended.waiters),
            (Decision::Granted, vec![10, 11])
        );
    }

    #[test]
    fn requests_that_differ_in_any_part_are_separate_questions() {
        let limits = AskLimits {
            open_per_worker: 4,
            ..AskLimits::default()
        };
        let mut ledger = Ledger::new(limits, PATIENCE, Run::default());
        let first = opened(ledger.ask(request(1, 1, NEED), 10, at(0)));
        let changed = Request {
            before: Some(crate::effect::PreviewToken(ContentHash::of(b"other"))),
            ..request(1, 1, NEED)
        };
        let elsewhere = request(1, 1, &["write:file:/r/y"]);
        for other in [request(2, 1, NEED), request(1, 2, NEED), changed, elsewhere] {
            assert_ne!(opened(ledger.ask(other, 11, at(0))), first);
        }
    }

    #[test]
    fn call_that_asks_alone_shares_no_question() {
        let mut ledger = ledger();
        let alone = |call| Request {
            alone: true,
            call: CallId(call),
            ..request(1, 1, NEED)
        };
        let first = opened(ledger.ask(alone(1), 10, at(0)));
        let second = opened(ledger.ask(alone(2), 11, at(0)));
        let shared = opened(ledger.ask(request(1, 1, NEED), 12, at(0)));
        assert_eq!(BTreeSet::from([first, second, shared]).len(), 3);
        assert_eq!(
            ledger.answer(first, Some(&[]), at(1)).unwrap().waiters,
            [10]
        );
    }

    #[test]
    fn second_answer_has_no_effect() {
        let mut ledger = ledger();
        let id = opened(ledger.ask(request(1, 1, NEED), 10, at(0)));
        assert!(ledger.answer(id, None, at(1)).is_some());
        assert!(ledger.answer(id, Some(&[]), at(2)).is_none());
        assert_eq!(
            ledger.state(id),
            Some(QuestionState::Settled(Decision::Denied))
        );
    }

    #[test]
    fn late_approval_is_expired() {
        let mut ledger = ledger();
        let id = opened(ledger.ask(request(1, 1, NEED), 10, at(0)));
        let other = opened(ledger.ask(request(1, 2, NEED), 10, at(1)));
        let ended = ledger.answer(id, Some(&[]), PATIENCE).unwrap();
        assert_eq!(ended.decision, Decision::Expired);
        let ended = ledger.answer(other, Some(&[]), PATIENCE).unwrap();
        assert_eq!(ended.decision, Decision::Granted);
    }

    #[test]
    fn worker_asks_at_most_ten_questions_per_minute() {
        let mut ledger = ledger();
        for n in 0..10 {
            let id = opened(ledger.ask(request(1, n, NEED), n, at(n)));
            ledger.answer(id, Some(&[]), at(n));
        }
        assert_eq!(
            refused(ledger.ask(request(1, 10, NEED), 10, at(20))),
            NotAsked::TooOften {
                per_minute: 10,
                retry_after: at(40)
            }
        );
        opened(ledger.ask(request(2, 10, NEED), 10, at(20)));
        opened(ledger.ask(request(1, 10, NEED), 10, at(60)));
    }

    #[test]
    fn open_questions_are_bounded_per_worker_and_together() {
        let limits = AskLimits {
            open: 4,
            ..AskLimits::default()
        };
        let mut ledger = Ledger::new(limits, PATIENCE, Run::default());
        for n in 0..3 {
            opened(ledger.ask(request(1, n, NEED), n, at(0)));
        }
        assert_eq!(
            refused(ledger.ask(request(1, 3, NEED), 3, at(0))),
            NotAsked::busy(3, OPEN_PER_WORKER)
        );
        let id = opened(ledger.ask(request(2, 0, NEED), 4, at(0)));
        assert_eq!(
            refused(ledger.ask(request(3, 0, NEED), 5, at(0))),
            NotAsked::busy(4, OPEN)
        );
        ledger.answer(id, Some(&[]), at(0));
        opened(ledger.ask(request(3, 0, NEED), 5, at(0)));
    }

    #[test]
    fn refusal_of_a_question_names_the_limit_that_can_be_raised() {
        for (reason, limit) in [
            (
                NotAsked::busy(3, OPEN_PER_WORKER),
                "at most 3 questions of one worker are open (`AskLimits::open_per_worker`)",
            ),
            (
                NotAsked::busy(4, OPEN),
                "at most 4 questions of all workers are open (`AskLimits::open`)",
            ),
            (
                NotAsked::busy(5, WAITING_PER_QUESTION),
                "at most 5 calls wait for one question (`AskLimits::waiting_per_question`)",
            ),
            (
                NotAsked::TooOften {
                    per_minute: 6,
                    retry_after: at(1),
                },
                "at most 6 questions of one worker in a minute (`AskLimits::per_minute`)",
            ),
        ] {
            let error = CallError::from(reason);
            assert!(error.message().contains(limit), "{error}");
            assert!(error.details().get("retry_after_ms").is_some(), "{error:?}");
        }
    }

    #[test]
    fn question_counts_waiting_calls_and_asking_again_is_not_limited() {
        let mut ledger = ledger();
        let id = opened(ledger.ask(request(1, 1, NEED), 10, at(0)));
        let shown = ledger.question(id).unwrap().clone();
        assert_eq!(shown.waiting(), 1);
        for waiter in 11..14 {
            ledger.ask(request(1, 1, NEED), waiter, at(0));
        }
        assert_eq!(shown.waiting(), 4, "a copy that was shown counts on");
        ledger.sweep(|waiter| *waiter != 12);
        assert_eq!(shown.waiting(), 3);
        for n in 0..20 {
            let again = ledger.ask_again(request(1, 2, NEED), 20 + n, at(0));
            assert_eq!(ledger.question(again).unwrap().waiting() as u64, n + 1);
        }
    }

    #[test]
    fn waiters_of_one_question_are_bounded() {
        let mut ledger = ledger();
        let asked: Vec<_> = (0..65)
            .map(|n| ledger.ask(request(1, 1, NEED), n, at(0)))
            .collect();
        assert!(matches!(
            asked.last(),
            Some(Asked::Refused(
                64,
                NotAsked::Busy {
                    most: 64,
                    what: WAITING_PER_QUESTION
                }
            ))
        ));
        assert!(matches!(asked.get(63), Some(Asked::Joined(_))));
    }

    #[test]
    fn denial_for_the_session_applies_to_needs_for_more_than_what_was_denied() {
        let mut ledger = ledger();
        let file = VirtualPath::parse("/r/x", None).unwrap();
        let change = Scope::doing(Operation::Change, file.clone());
        let ask = |ledger: &mut Ledger<u64>, n, need| {
            let mut request = request(1, n, NEED);
            request.needs = vec![need];
            ledger.ask(request, n, at(n * 10))
        };
        let id = opened(ask(&mut ledger, 1, change.clone()));
        ledger.silence(id, DeniedCalls::Same);
        ledger.answer(id, None, at(10));
        let more = change.or(Operation::Create);
        assert!(matches!(
            refused(ask(&mut ledger, 2, more)),
            NotAsked::Silenced(_)
        ));
        opened(ask(&mut ledger, 3, Scope::doing(Operation::Delete, file)));
    }

    #[test]
    fn denial_affects_later_calls_only_if_a_person_says_so() {
        let mut ledger = ledger();
        for n in 0..5 {
            let id = opened(ledger.ask(request(1, n, NEED), n, at(n * 10)));
            ledger.answer(id, None, at(n * 10));
        }
        let silence = |ledger: &mut Ledger<u64>, calls| {
            let id = opened(ledger.ask(request(1, 9, NEED), 9, at(70)));
            ledger.silence(id, calls);
            ledger.answer(id, None, at(70));
        };
        silence(&mut ledger, DeniedCalls::Same);
        let asked = |ledger: &mut Ledger<u64>, worker, need: &str| match ledger.ask(
            request(worker, 9, &[need]),
            9,
            at(200),
        ) {
            Asked::Opened(id) => {
                ledger.answer(id, None, at(200));
                true
            }
            Asked::Refused(_, NotAsked::Silenced(_)) => false,
            other => panic!("{other:?}"),
        };
        let (same, other, read) = ("write:file:/r/x", "write:file:/r/y", "read:file:/r/x");
        let about =
            |ledger: &mut Ledger<u64>| [same, other, read].map(|need| asked(ledger, 1, need));
        assert_eq!(about(&mut ledger), [false, true, true]);
        assert!(asked(&mut ledger, 2, same));
        let denials = ledger.silenced();
        assert_eq!((denials.len(), denials[0].worker), (1, WorkerId(1)));
        assert!(ledger.ask_again_about(denials[0].id) && !ledger.ask_again_about(denials[0].id));
        silence(&mut ledger, DeniedCalls::Kind);
        assert_eq!(about(&mut ledger), [false, false, true]);
        let denials = ledger.silenced();
        assert_eq!(denials[0].denied, ["write:file".parse().unwrap()]);
        ledger.end_session("another");
        assert_eq!(ledger.silenced().len(), 1);
        ledger.end_session("session");
        assert_eq!(ledger.silenced(), []);
        silence(&mut ledger, DeniedCalls::Kind);
        ledger.cancel_worker(WorkerId(1));
        assert_eq!(ledger.silenced(), []);
    }

    #[test]
    fn denials_for_the_session_are_bounded() {
        let mut ledger = ledger();
        for n in 0..=MAX_SILENCED as u64 {
            let id = opened(ledger.ask(request(n, 1, NEED), 1, at(0)));
            ledger.silence(id, DeniedCalls::Same);
            ledger.answer(id, None, at(0));
        }
        assert_eq!(ledger.silenced().len(), MAX_SILENCED);
        opened(ledger.ask(request(0, 1, NEED), 1, at(0)));
        let denied = refused(ledger.ask(request(1, 1, NEED), 1, at(0)));
        assert!(matches!(denied, NotAsked::Silenced(_)));
    }

    #[test]
    fn question_without_waiters_ends() {
        let mut ledger = ledger();
        let alone = opened(ledger.ask(request(1, 1, NEED), 10, at(0)));
        let shared = opened(ledger.ask(request(1, 2, NEED), 10, at(0)));
        ledger.ask(request(1, 2, NEED), 11, at(0));
        let ended = ledger.sweep(|waiter| *waiter != 10);
        assert_eq!(
            ended
                .iter()
                .map(|ended| ended.question.id)
                .collect::<Vec<_>>(),
            [alone]
        );
        assert_eq!(ledger.state(shared), Some(QuestionState::Pending));
        assert_eq!(ledger.withdraw(shared), Some(11));
        assert_eq!(
            ledger.state(shared),
            Some(QuestionState::Settled(Decision::Cancelled))
        );
    }

    #[test]
    fn questions_of_an_ended_worker_end() {
        let mut ledger = ledger();
        let mine = opened(ledger.ask(request(1, 1, NEED), 10, at(0)));
        let theirs = opened(ledger.ask(request(2, 1, NEED), 20, at(0)));
        let ended = ledger.cancel_worker(WorkerId(1));
        assert_eq!(
            ended
                .iter()
                .flat_map(|ended| ended.waiters.clone())
                .collect::<Vec<_>>(),
            [10]
        );
        assert_eq!(
            ledger.state(mine),
            Some(QuestionState::Settled(Decision::Cancelled))
        );
        assert_eq!(ledger.state(theirs), Some(QuestionState::Pending));
    }

    #[derive(Clone, Debug)]
    enum Event {
        Ask(u64, u64),
        Answer(u64, bool),
        Wait(u64),
        Leave(u64),
        Stop(u64),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            4 => (0u64..3, 0u64..5).prop_map(|(worker, argument)| Event::Ask(worker, argument)),
            3 => (1u64..30, any::<bool>()).prop_map(|(id, allowed)| Event::Answer(id, allowed)),
            1 => (0u64..400).prop_map(Event::Wait),
            1 => (0u64..60).prop_map(Event::Leave),
            1 => (0u64..3).prop_map(Event::Stop),
        ]
    }

    proptest! {
        #![proptest_config(cases(256))]
        #[test]
        fn question_ends_once_and_each_waiter_is_notified_once(events in proptest::collection::vec(event(), 0..80)) {
            let mut ledger = ledger();
            let mut now = at(0);
            let mut waiting = BTreeSet::new();
            let mut states: BTreeMap<QuestionId, Decision> = BTreeMap::new();
            let mut prompts: HashMap<u64, Vec<Duration>> = HashMap::new();
            for (waiter, event) in (0u64..).zip(events) {
                let ended = match event {
                    Event::Ask(worker, argument) => {
                        match ledger.ask(request(worker, argument, NEED), waiter, now) {
                            Asked::Opened(_) => {
                                waiting.insert(waiter);
                                prompts.entry(worker).or_default().push(now);
                            }
                            Asked::Joined(_) => drop(waiting.insert(waiter)),
                            Asked::Refused(..) => {}
                        }
                        Vec::new()
                    }
                    Event::Answer(id, allowed) => ledger.answer(QuestionId(id), allowed.then_some(&[][..]), now).into_iter().collect(),
                    Event::Wait(seconds) => {
                        now += at(seconds);
                        ledger.expire(now)
                    }
                    Event::Leave(gone) => {
                        waiting.remove(&gone);
                        ledger.sweep(|waiter| *waiter != gone)
                    }
                    Event::Stop(worker) => {
                        prompts.remove(&worker);
                        ledger.cancel_worker(WorkerId(worker))
                    }
                };
                for ended in ended {
                    prop_assert!(states.insert(ended.question.id, ended.decision).is_none());
                    prop_assert!(ended.decision != Decision::Granted || now < ended.question.expires_at);
                    for waiter in ended.waiters {
                        prop_assert!(waiting.remove(&waiter), "{} was told twice", waiter);
                    }
                }
                for (id, decision) in &states {
                    prop_assert_eq!(ledger.state(*id), Some(QuestionState::Settled(*decision)));
                }
                let open: usize = ledger.open.values().map(|open| open.waiters.len()).sum();
                prop_assert_eq!(open, waiting.len());
                prop_assert!(ledger.questions().all(|question| now < question.expires_at));
            }
            for times in prompts.values() {
                prop_assert!(times.windows(11).all(|window| window[10] - window[0] >= MINUTE));
            }
        }
    }
}
