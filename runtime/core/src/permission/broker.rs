//! Actor that owns all questions and grants.

mod handle;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, SpawnErr};
use tokio::sync::{mpsc, oneshot, watch};

use super::broker_state::BrokerState;
use super::grants::UsedGrants;
use super::ledger::AskLimits;
use super::record::{PANICKED, trace};
use super::store::{GrantStore, StoreHandle, WallClock};
use super::{Answer, Approver, DecidedBy, Decision, Question, RevokeCause, Run, millis};
use crate::audit::{Audit, wall_clock};
use crate::capability::GRACE;
use crate::effect::ExcludedChange;
use crate::id::{GrantId, QuestionId};

/// Monotonic time since the runtime began.
pub(crate) type TimeSource = Arc<dyn Fn() -> Duration + Send + Sync>;

/// Configuration of the broker.
#[doc(hidden)]
pub struct BrokerConfig {
    pub(crate) limits: AskLimits,
    /// How long a question waits for an answer.
    pub(crate) timeout: Duration,
    /// Maximum number of live grants.
    pub(crate) max_grants: usize,
    /// How often expired questions and grants are removed.
    pub(crate) tick: Duration,
    /// How long a revocation waits for effects in progress.
    pub(crate) grace: Duration,
    pub(crate) clock: TimeSource,
    /// Wall clock.
    pub(crate) wall: WallClock,
    /// Distinguishes this run of the runtime from others.
    pub(crate) nonce: u64,
    /// Store of grants to agents; without it they end with the runtime.
    pub(crate) store: Option<GrantStore>,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        let start = std::time::Instant::now();
        Self {
            limits: AskLimits::default(),
            timeout: Duration::from_secs(600),
            max_grants: 10_000,
            tick: Duration::from_secs(1),
            grace: GRACE,
            clock: Arc::new(move || start.elapsed()),
            wall: Arc::new(wall_clock),
            nonce: 0,
            store: None,
        }
    }
}

impl fmt::Debug for BrokerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrokerConfig")
            .field("limits", &self.limits)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// What a person excluded from a call.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct Exclusion {
    /// The excluded parts; at least one.
    pub parts: Vec<ExcludedChange>,
    /// The sentence about what remains.
    pub sentence: String,
}

/// How a call's question ended.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub enum AskOutcome {
    /// The call is allowed by these grants, without what a person excluded, if anything.
    Allowed(UsedGrants, Option<Exclusion>),
    /// The call is not allowed.
    Refused {
        /// Denied, expired or cancelled.
        decision: Decision,
        /// Who refused.
        by: DecidedBy,
        /// A note for the agent.
        note: Option<String>,
    },
}

/// Receives the question that a call waits for. Boxed, since each channel reserves memory for 32 messages.
#[doc(hidden)]
pub type QuestionSender = mpsc::UnboundedSender<Box<Question>>;

/// Work on the state of the broker, which does not wait.
type Work = Box<dyn FnOnce(&mut BrokerState) + Send>;

/// Message to the broker.
pub(crate) struct Message {
    work: Work,
    /// Whether it may change a question or a grant.
    changes: bool,
}

impl Message {
    /// Work that may change questions or grants.
    fn changing(work: impl FnOnce(&mut BrokerState) + Send + 'static) -> Self {
        Self {
            work: Box::new(work),
            changes: true,
        }
    }
}

// These messages never leave the process.
#[cfg(feature = "ractor-cluster")]
impl ractor::Message for Message {}

/// Broker actor; notifies watchers after each message that may have changed a question or a grant.
struct BrokerActor(watch::Sender<()>);

#[cfg_attr(feature = "ractor-async-trait", ractor::async_trait)]
impl Actor for BrokerActor {
    type Msg = Message;
    type State = BrokerState;
    type Arguments = (BrokerConfig, Run, Audit, Arc<dyn Approver>);

    async fn pre_start(
        &self,
        me: ActorRef<Message>,
        (mut config, run, audit, approver): Self::Arguments,
    ) -> Result<BrokerState, ActorProcessingErr> {
        me.send_interval(config.tick, || Message::changing(BrokerState::tick));
        let (broker, wall) = (me.clone(), Arc::clone(&config.wall));
        let report = Arc::new(move |grants: Vec<GrantId>, revoked: oneshot::Sender<()>| {
            let revoke = Message::changing(move |state| {
                state.revoke_all(&grants, RevokeCause::NotStored);
                // The caller may have stopped waiting.
                let _ = revoked.send(());
            });
            // A broker that has ended has no grants, and dropping the sender notifies the receiver.
            drop(broker.cast(revoke));
        });
        let store = config.store.take();
        let (store, stored) = StoreHandle::new(store, &audit, wall, report);
        let show = Box::new(move |question: Question| {
            let request = &question.request;
            trace(request, request.call, question.id, None, "shown");
            tokio::spawn(decide(Arc::clone(&approver), question, me.clone())).abort_handle()
        });
        let mut state = BrokerState::new(&config, run, audit, store, show);
        state.restore(stored);
        Ok(state)
    }

    async fn handle(
        &self,
        _: ActorRef<Message>,
        message: Message,
        state: &mut BrokerState,
    ) -> Result<(), ActorProcessingErr> {
        (message.work)(state);
        // If nobody waits, grants that cannot be stored are revoked and logged.
        drop(state.store.save());
        if message.changes {
            state.report_open_questions();
            self.0.send_replace(());
        }
        Ok(())
    }
}

/// Lets the approver decide; a panic counts as a denial.
async fn decide(approver: Arc<dyn Approver>, question: Question, broker: ActorRef<Message>) {
    let mut reply = Reply {
        broker,
        id: question.id,
        answer: Answer::deny(Some(PANICKED.to_owned())),
        by: DecidedBy::Host,
    };
    reply.answer = approver.decide(&question).await;
    if approver.is_person(&reply.answer) {
        reply.by = DecidedBy::Person;
    }
}

/// Sends the answer to the broker when dropped, also during a panic.
struct Reply {
    broker: ActorRef<Message>,
    id: QuestionId,
    answer: Answer,
    by: DecidedBy,
}

impl Drop for Reply {
    fn drop(&mut self) {
        let answer = std::mem::replace(&mut self.answer, Answer::DENY);
        let (id, by) = (self.id, self.by);
        // A broker that has ended has notified all waiters.
        let _ = self
            .broker
            .cast(Message::changing(move |state| state.decide(id, answer, by)));
    }
}

/// Handle of the broker. Once the broker has ended, all calls return an error at once.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct Broker {
    actor: ActorRef<Message>,
    grace: Duration,
    run: Run,
    needs_authority: bool,
    stores_grants: bool,
    changes: watch::Receiver<()>,
}

impl Broker {
    /// A name that is unique in this process.
    pub(crate) fn name(&self) -> String {
        self.actor.get_id().to_string()
    }

    /// Whether both are handles of the same broker.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.actor.get_id() == other.actor.get_id()
    }

    /// Whether there is a grant store.
    pub(crate) fn stores_grants(&self) -> bool {
        self.stores_grants
    }

    /// Starts the broker.
    #[doc(hidden)]
    pub async fn start(
        config: BrokerConfig,
        audit: Audit,
        approver: Arc<dyn Approver>,
    ) -> Result<Self, SpawnErr> {
        let grace = config.grace;
        let run = Run {
            nonce: config.nonce,
            began_ms: (config.wall)().saturating_sub(millis((config.clock)())),
        };
        let needs_authority = approver.needs_authority();
        let stores_grants = config.store.is_some();
        let arguments = (config, run, audit, approver);
        let (changed, changes) = watch::channel(());
        let (actor, _) = Actor::spawn(None, BrokerActor(changed), arguments).await?;
        Ok(Self {
            actor,
            grace,
            run,
            needs_authority,
            stores_grants,
            changes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{AuditSink, Head, MemoryAudit, Record, Step};
    use crate::call::Origin;
    use crate::error::{CallError, Code};
    use crate::fixtures::request;
    use crate::id::{SilencedId, WorkerId};
    use crate::permission::{
        AskOutcome, AuthorityError, CallRef, Deciding, Deferred, DeniedCalls, DenyAll, GrantFilter,
        GrantHolder, GrantWriteError, Lifetime, Narrowing, NewGrant, Request, Requester, Scripted,
        Terminal,
    };
    use crate::scope::Scope;
    use std::io;
    use std::num::NonZeroU32;
    use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
    use std::task::{Context, Waker};
    use tokio::task::{JoinHandle, JoinSet};

    const NEED: &[&str] = &["write:file:/r/x"];

    struct Stage {
        broker: Broker,
        seconds: Arc<AtomicU64>,
        audit: Audit,
        log: MemoryAudit,
    }

    async fn stage(approver: impl Approver) -> Stage {
        let seconds = Arc::new(AtomicU64::new(0));
        let now = Arc::clone(&seconds);
        let config = BrokerConfig {
            clock: Arc::new(move || Duration::from_secs(now.load(Ordering::SeqCst))),
            ..BrokerConfig::default()
        };
        let log = MemoryAudit::new(100_000);
        let audit = Audit::start(log.clone(), 100_000).unwrap();
        let broker = Broker::start(config, audit.clone(), Arc::new(approver))
            .await
            .unwrap();
        Stage {
            broker,
            seconds,
            audit,
            log,
        }
    }

    impl Stage {
        /// Asks on a new task; the question is in the broker's mailbox when this returns.
        fn asking(&self, request: Request) -> JoinHandle<Result<AskOutcome, CallError>> {
            let (broker, requester) = (self.broker.clone(), requester(&request));
            let mut asking = Box::pin(async move { broker.ask(request, requester, None).await });
            let mut context = Context::from_waker(Waker::noop());
            assert!(asking.as_mut().poll(&mut context).is_pending());
            tokio::spawn(asking)
        }

        async fn ask(&self, request: Request) -> Result<AskOutcome, CallError> {
            let requester = requester(&request);
            self.broker.ask(request, requester, None).await
        }

        /// Waits for the only open question.
        async fn question(&self) -> QuestionId {
            self.question_of(|_| true).await
        }

        /// Waits until the only open question is as wanted.
        async fn question_of(&self, wanted: impl Fn(&Question) -> bool) -> QuestionId {
            let only = |open: &[Question]| match open {
                [question] if wanted(question) => Some(question.id),
                _ => None,
            };
            self.broker.wait_for_questions(only).await
        }

        async fn steps(&self) -> Vec<Step> {
            self.audit.flush().await.unwrap();
            self.log
                .records()
                .iter()
                .map(|record| record.event().step.clone())
                .collect()
        }
    }

    fn requester(request: &Request) -> Requester {
        Requester {
            worker: request.worker,
            ancestors: [].into(),
            session: Arc::clone(&request.session),
            agent: request.agent_path.join("/").into(),
        }
    }

    fn call_ref() -> CallRef {
        CallRef {
            call: crate::id::CallId(1),
            tool: crate::id::ToolName::new("edit_file"),
            origin: Origin::Model,
        }
    }

    fn uses(count: u32) -> Lifetime {
        Lifetime::Uses(NonZeroU32::new(count).unwrap())
    }

    fn refusal(answered: Result<AskOutcome, CallError>) -> Decision {
        match answered.unwrap() {
            AskOutcome::Refused { decision, .. } => decision,
            AskOutcome::Allowed(used, _) => panic!("{used:?}"),
        }
    }

    fn allowed(answered: Result<AskOutcome, CallError>) -> UsedGrants {
        match answered.unwrap() {
            AskOutcome::Allowed(used, _) => used,
            refused @ AskOutcome::Refused { .. } => panic!("{refused:?}"),
        }
    }

    #[tokio::test]
    async fn once_allows_the_asking_call_and_adds_no_grant() {
        let stage = stage(Scripted::new().allow("write".parse().unwrap(), Lifetime::Once)).await;
        let used = allowed(stage.ask(request(1, 1, NEED)).await);
        let need: Scope = NEED[0].parse().unwrap();
        assert_eq!(used.patterns, [crate::scope::Coverage::of(&need)]);
        assert_eq!(stage.broker.grants().await.unwrap(), []);
        assert_eq!(
            refusal(stage.ask(request(1, 2, &["read:file:/r/x"])).await),
            Decision::Denied
        );
    }

    #[tokio::test]
    async fn two_use_answer_makes_the_third_call_ask() {
        let stage = stage(Scripted::new().allow("write".parse().unwrap(), uses(2))).await;
        let first = request(1, 1, NEED);
        let (requester, needs): (_, Arc<[Scope]>) = (requester(&first), first.needs.clone().into());
        assert_eq!(allowed(stage.ask(first).await).grants.len(), 1);
        for expected in [true, false] {
            let again = stage
                .broker
                .use_grants(requester.clone(), Arc::clone(&needs), call_ref())
                .await
                .unwrap();
            assert_eq!(again.is_some(), expected);
        }
    }

    #[tokio::test]
    async fn once_allows_one_of_sixty_four_equal_calls() {
        let stage = stage(Deferred).await;
        let mut asking: JoinSet<_> = (0..64).map(|_| stage.asking(request(1, 1, NEED))).collect();
        let waiting = async || stage.broker.open_questions().await.unwrap()[0].waiting();
        stage.question_of(|question| question.waiting() == 64).await;
        // More answers than a worker may ask questions in a minute.
        for answered in 0..20 {
            let id = stage.question().await;
            assert_eq!(waiting().await, 64 - answered);
            stage.broker.answer(id, Answer::ONCE).await.unwrap();
            allowed(asking.join_next().await.unwrap().unwrap().unwrap());
        }
        let some = Lifetime::Waiting(NonZeroU32::new(10).unwrap());
        let id = stage.question().await;
        stage.broker.answer(id, Answer::allow(some)).await.unwrap();
        assert_eq!(waiting().await, 34);
        assert_eq!(stage.broker.grants().await.unwrap(), []);
        let id = stage.question().await;
        stage.broker.answer(id, Answer::DENY).await.unwrap();
        let (mut allowed, mut denied) = (0, 0);
        for call in asking.join_all().await {
            match call.unwrap().unwrap() {
                AskOutcome::Allowed(..) => allowed += 1,
                AskOutcome::Refused { .. } => denied += 1,
            }
        }
        assert_eq!(
            (allowed, denied),
            (10, 34),
            "a denial answers all calls that wait"
        );
    }

    #[tokio::test]
    async fn calls_beyond_the_granted_uses_ask_again() {
        let stage = stage(Deferred).await;
        let (first, second) = (
            stage.asking(request(1, 1, NEED)),
            stage.asking(request(1, 1, NEED)),
        );
        let id = stage.question().await;
        stage
            .broker
            .answer(id, Answer::allow(uses(1)))
            .await
            .unwrap();
        allowed(first.await.unwrap());
        let again = stage.question().await;
        assert_ne!(again, id);
        stage.broker.answer(again, Answer::DENY).await.unwrap();
        assert_eq!(refusal(second.await.unwrap()), Decision::Denied);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn sixty_four_calls_share_ten_uses_exactly() {
        let stage = stage(DenyAll).await;
        let grant = NewGrant {
            pattern: "write:file:/r".parse().unwrap(),
            holder: GrantHolder::Worker(WorkerId(1)),
            lifetime: uses(10),
            descendants: false,
        };
        stage.broker.grant(grant).await.unwrap();
        let sample = request(1, 1, NEED);
        let needs: Arc<[Scope]> = sample.needs.clone().into();
        let calls: Vec<_> = (0..64)
            .map(|_| {
                let (broker, requester, needs) =
                    (stage.broker.clone(), requester(&sample), Arc::clone(&needs));
                tokio::spawn(async move {
                    broker
                        .use_grants(requester, needs, call_ref())
                        .await
                        .unwrap()
                        .is_some()
                })
            })
            .collect();
        let mut served = 0;
        for call in calls {
            served += usize::from(call.await.unwrap());
        }
        assert_eq!(served, 10);
    }

    #[tokio::test]
    async fn grant_use_is_audited_even_if_the_call_is_gone() {
        let stage = stage(DenyAll).await;
        let grant = NewGrant {
            pattern: "write:file:/r".parse().unwrap(),
            holder: GrantHolder::Worker(WorkerId(1)),
            lifetime: uses(1),
            descendants: false,
        };
        let id = stage.broker.grant(grant).await.unwrap();
        let sample = request(1, 1, NEED);
        let use_grants = Message::changing(move |state| {
            drop(state.use_grants(&requester(&sample), &sample.needs, call_ref()));
        });
        stage.broker.actor.cast(use_grants).unwrap();
        assert_eq!(stage.broker.grants().await.unwrap(), []);
        let used = |step: &Step| matches!(step, Step::GrantUsed { grants, .. } if **grants == [id]);
        assert_eq!(
            stage.steps().await.iter().filter(|step| used(step)).count(),
            1
        );
    }

    #[tokio::test]
    async fn unanswered_question_expires() {
        let stage = stage(Deferred).await;
        let asking = stage.asking(request(1, 1, NEED));
        let id = stage.question().await;
        stage.seconds.store(600, Ordering::SeqCst);
        let tick = Message::changing(BrokerState::tick);
        stage.broker.actor.cast(tick).unwrap();
        assert_eq!(refusal(asking.await.unwrap()), Decision::Expired);
        let late = stage.broker.answer(id, Answer::ONCE).await;
        assert!(matches!(
            late,
            Err(AuthorityError::Ended(Decision::Expired))
        ));
    }

    #[tokio::test(start_paused = true)]
    async fn broker_expires_questions_by_timer() {
        let stage = stage(Deferred).await;
        stage.seconds.store(1, Ordering::SeqCst);
        let asking = stage.asking(request(1, 1, NEED));
        stage.question().await;
        stage.seconds.store(601, Ordering::SeqCst);
        assert_eq!(refusal(asking.await.unwrap()), Decision::Expired);
    }

    /// Never answers the first worker, answers others at once.
    struct Slow(AtomicUsize);

    impl Approver for Slow {
        fn is_person(&self, _: &Answer) -> bool {
            false
        }

        fn decide<'q>(&'q self, question: &'q Question) -> Deciding<'q> {
            self.0.fetch_add(1, Ordering::SeqCst);
            match question.request.worker {
                WorkerId(1) => Box::pin(std::future::pending()),
                _ => Box::pin(std::future::ready(Answer::ONCE)),
            }
        }
    }

    #[tokio::test]
    async fn slow_approver_delays_no_other_question() {
        let stage = stage(Slow(AtomicUsize::new(0))).await;
        let slow = stage.asking(request(1, 1, NEED));
        stage.question().await;
        allowed(stage.ask(request(2, 1, NEED)).await);
        assert!(!slow.is_finished());
        stage.broker.forget_worker(WorkerId(1)).await;
        assert_eq!(refusal(slow.await.unwrap()), Decision::Cancelled);
    }

    #[tokio::test]
    async fn panicking_approver_denies() {
        let stage = stage(Scripted::new().rule(|_| panic!("a fault of the approver"))).await;
        assert_eq!(
            refusal(stage.ask(request(1, 1, NEED)).await),
            Decision::Denied
        );
    }

    #[tokio::test]
    async fn invalid_answer_denies_for_approvers_and_fails_for_people() {
        let elsewhere = Answer::Allow {
            patterns: vec!["write:file:/q".parse().unwrap()],
            lifetime: Lifetime::Session,
            descendants: false,
            left_out: Vec::new(),
        };
        let wrong = elsewhere.clone();
        let scripted = stage(Scripted::new().rule(move |_| Some(wrong.clone()))).await;
        assert_eq!(
            refusal(scripted.ask(request(1, 1, NEED)).await),
            Decision::Denied
        );
        assert_eq!(scripted.broker.grants().await.unwrap(), []);
        let person = stage(Deferred).await;
        let asking = person.asking(request(1, 1, NEED));
        let id = person.question().await;
        let error = person.broker.answer(id, elsewhere).await;
        assert!(matches!(error, Err(AuthorityError::DoesNotFit)));
        person.broker.answer(id, Answer::ONCE).await.unwrap();
        allowed(asking.await.unwrap());
    }

    #[tokio::test]
    async fn denial_says_why_the_answer_of_an_approver_has_no_effect() {
        let for_no_time =
            Scripted::new().rule(|_| Some(Answer::allow(Lifetime::For(Duration::ZERO))));
        let panics = Scripted::new().rule(|_| panic!("a fault of the approver"));
        let denies = Scripted::new();
        for (approver, expected) in [
            (
                for_no_time,
                Some(
                    "the answer could not be used: the answer must cover everything that is asked",
                ),
            ),
            (panics, Some("the approver panicked")),
            (denies, None),
        ] {
            let asked = stage(approver).await.ask(request(1, 1, NEED)).await;
            let AskOutcome::Refused { note, by, .. } = asked.unwrap() else {
                panic!("{expected:?}");
            };
            let is_expected = match (&note, expected) {
                (Some(note), Some(expected)) => note.starts_with(expected),
                (note, expected) => note.is_none() && expected.is_none(),
            };
            assert!(
                is_expected && by == DecidedBy::Host,
                "{expected:?}: {note:?}"
            );
        }
    }

    /// Counts what a person is shown and never answers.
    struct Counting(Arc<AtomicUsize>);

    impl Approver for Counting {
        fn is_person(&self, _: &Answer) -> bool {
            false
        }

        fn decide<'q>(&'q self, _: &'q Question) -> Deciding<'q> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Box::pin(std::future::pending())
        }
    }

    #[tokio::test]
    async fn flood_of_requests_shows_three_questions() {
        let shown = Arc::new(AtomicUsize::new(0));
        let stage = stage(Counting(Arc::clone(&shown))).await;
        let mut waiting = Vec::new();
        for n in 0..3 {
            waiting.push(stage.asking(request(1, n, NEED)));
        }
        for n in 3..10_000 {
            let refused = stage.ask(request(1, n, NEED)).await.unwrap_err();
            assert_eq!(refused.code(), Code::Busy);
        }
        assert_eq!(stage.broker.open_questions().await.unwrap().len(), 3);
        assert_eq!(shown.load(Ordering::SeqCst), 3);
        assert!(waiting.iter().all(|asking| !asking.is_finished()));
    }

    #[tokio::test]
    async fn only_people_deny_later_calls_and_can_undo_it() {
        let stage = stage(Deferred).await;
        for n in 0..5 {
            let asking = stage.asking(request(1, n, NEED));
            let id = stage.question().await;
            stage.broker.answer(id, Answer::DENY).await.unwrap();
            assert_eq!(refusal(asking.await.unwrap()), Decision::Denied);
        }
        assert_eq!(stage.broker.silenced().await.unwrap(), []);
        let asking = stage.asking(request(1, 9, NEED));
        let id = stage.question().await;
        let deny = Answer::Deny {
            note: Some("not today".to_owned()),
            rest_of_session: Some(DeniedCalls::Kind),
        };
        stage.broker.answer(id, deny).await.unwrap();
        assert_eq!(refusal(asking.await.unwrap()), Decision::Denied);
        let result = stage.broker.silenced().await.unwrap();
        assert_eq!((result.len(), result[0].worker), (1, WorkerId(1)));
        let refused = stage.ask(request(1, 10, NEED)).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
        assert!(refused.message().contains("rest of the session"));
        assert!(stage.broker.ask_again(result[0].id).await.unwrap());
        assert!(!stage.broker.ask_again(result[0].id).await.unwrap());
        let asking = stage.asking(request(1, 11, NEED));
        let id = stage.question().await;
        stage.broker.answer(id, Answer::ONCE).await.unwrap();
        allowed(asking.await.unwrap());
    }

    #[tokio::test]
    async fn automatic_approver_denies_no_later_calls() {
        let deny = Answer::Deny {
            note: None,
            rest_of_session: Some(DeniedCalls::Kind),
        };
        let stage = stage(Scripted::new().rule(move |_| Some(deny.clone()))).await;
        assert_eq!(
            refusal(stage.ask(request(1, 1, NEED)).await),
            Decision::Denied
        );
        assert_eq!(stage.broker.silenced().await.unwrap(), []);
        // A person on a terminal denies the kind for the session.
        let input = "stop\n";
        let terminal = Terminal::new(input.as_bytes(), io::sink(), false);
        let stage = super::tests::stage(terminal).await;
        assert_eq!(
            refusal(stage.ask(request(1, 1, NEED)).await),
            Decision::Denied
        );
        let silenced = stage.broker.silenced().await.unwrap();
        assert_eq!(silenced[0].denied, ["write:file".parse().unwrap()]);
        let refused = stage.ask(request(1, 2, NEED)).await.unwrap_err();
        assert!(refused.message().contains("rest of the session"));
    }

    #[tokio::test]
    async fn cancelled_call_withdraws_its_question() {
        let stage = stage(Deferred).await;
        let asking = stage.asking(request(1, 1, NEED));
        stage.question().await;
        asking.abort();
        assert!(asking.await.unwrap_err().is_cancelled());
        let tick = Message::changing(BrokerState::tick);
        stage.broker.actor.cast(tick).unwrap();
        assert!(stage.broker.open_questions().await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn ended_broker_notifies_all_waiters() {
        let stage = stage(Deferred).await;
        let asking = stage.asking(request(1, 1, NEED));
        stage.question().await;
        stage.broker.stop();
        assert_eq!(asking.await.unwrap().unwrap_err().code(), Code::Cancelled);
        let later = stage.ask(request(1, 2, NEED)).await;
        assert_eq!(later.unwrap_err().code(), Code::Cancelled);
        // Everything else fails, too.
        let questions = stage.broker.open_questions().await;
        assert!(matches!(questions, Err(AuthorityError::Closed)));
        let grants = stage.broker.grants().await;
        assert!(matches!(grants, Err(AuthorityError::Closed)));
        let question = stage.broker.question(QuestionId(1)).await;
        assert!(matches!(question, Err(AuthorityError::Closed)));
        let again = stage.broker.ask_again(SilencedId(1)).await;
        assert!(matches!(again, Err(AuthorityError::Closed)));
        let ended = stage.broker.end_session("session").await;
        assert!(matches!(ended, Err(AuthorityError::Closed)));
    }

    #[tokio::test]
    async fn revocation_waits_for_running_effects_and_prevents_new_ones() {
        let stage = stage(Scripted::new().allow("write".parse().unwrap(), uses(1))).await;
        let used = allowed(stage.ask(request(1, 1, NEED)).await);
        let gate = Arc::clone(&used.gates[0]);
        let pass = gate.pass().unwrap();
        let broker = stage.broker.clone();
        let revoking = tokio::spawn(async move { broker.revoke_grant(used.grants[0].id).await });
        gate.closed().await;
        assert!(!revoking.is_finished());
        assert!(gate.pass().is_none());
        drop(pass);
        revoking.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn hanging_effect_is_reported_after_the_grace_period() {
        let mut stage =
            stage(Scripted::new().allow("write".parse().unwrap(), Lifetime::Session)).await;
        stage.broker.grace = Duration::ZERO;
        let first = allowed(stage.ask(request(1, 1, NEED)).await);
        let hangs = first.gates[0].pass().unwrap();
        let result = stage.broker.revoke_grant(first.grants[0].id).await.unwrap();
        assert_eq!((result.grants, result.unfinished), (1, 1));
        let second = allowed(stage.ask(request(1, 2, NEED)).await);
        let hangs_too = second.gates[0].pass().unwrap();
        let result = stage.broker.end_session("session").await.unwrap();
        assert_eq!((result.grants, result.unfinished), (1, 1));
        drop((hangs, hangs_too));
        allowed(stage.ask(request(1, 3, NEED)).await);
        let result = stage.broker.end_session("session").await.unwrap();
        assert_eq!((result.grants, result.unfinished), (1, 0));
    }

    /// The names of the steps in the audit.
    async fn names(stage: &Stage) -> Vec<String> {
        let name = |step: &Step| serde_json::to_value(step).unwrap()["step"].clone();
        let steps = stage.steps().await;
        steps
            .iter()
            .map(|step| name(step).as_str().unwrap().to_owned())
            .collect()
    }

    #[tokio::test]
    async fn end_of_session_revokes_grants_of_any_lifetime_but_those_of_the_agent() {
        for (lifetime, ends) in [
            (uses(10), true),
            (Lifetime::For(Duration::from_secs(3600)), true),
            (Lifetime::Session, true),
            (Lifetime::Agent, false),
        ] {
            let stage = stage(Scripted::new().allow("write".parse().unwrap(), lifetime)).await;
            let used = allowed(stage.ask(request(1, 1, NEED)).await);
            stage.broker.end_session("session").await.unwrap();
            assert_eq!(used.gates[0].is_closed(), ends, "{lifetime:?}");
        }
    }

    #[tokio::test]
    async fn answer_for_no_time_is_a_denial() {
        for (time, allows) in [(Duration::ZERO, false), (Duration::from_secs(60), true)] {
            let script = Scripted::new().allow("write".parse().unwrap(), Lifetime::For(time));
            let asked = stage(script).await.ask(request(1, 1, NEED)).await;
            let allowed = matches!(asked.unwrap(), AskOutcome::Allowed(..));
            assert_eq!(allowed, allows, "{time:?}");
        }
    }

    #[tokio::test]
    async fn end_of_session_revokes_its_grants_and_is_audited() {
        let stage = stage(Scripted::new().allow("write".parse().unwrap(), Lifetime::Session)).await;
        let used = allowed(stage.ask(request(1, 1, NEED)).await);
        stage.broker.end_session("another").await.unwrap();
        assert!(!used.gates[0].is_closed());
        stage.broker.end_session("session").await.unwrap();
        assert!(used.gates[0].is_closed());
        assert_eq!(
            names(&stage).await,
            [
                "asked",
                "granted",
                "answered",
                "grant_used",
                "grant_revoked"
            ]
        );
    }

    #[tokio::test]
    async fn worker_is_forgotten_while_its_effect_hangs() {
        let stage = stage(Scripted::new().allow("write".parse().unwrap(), uses(2))).await;
        let used = allowed(stage.ask(request(1, 1, NEED)).await);
        let pass = used.gates[0].pass().unwrap();
        stage.broker.forget_worker(WorkerId(1)).await;
        assert!(used.gates[0].is_closed());
        drop(pass);
    }

    #[tokio::test]
    async fn answers_are_audited() {
        let stage = stage(Scripted::new().allow("write".parse().unwrap(), Lifetime::Session)).await;
        allowed(stage.ask(request(1, 1, NEED)).await);
        refusal(stage.ask(request(1, 2, &["read:file:/r/x"])).await);
        let grant = stage.broker.grants().await.unwrap()[0].id;
        stage.broker.revoke_grant(grant).await.unwrap();
        assert_eq!(
            names(&stage).await,
            [
                "asked",
                "granted",
                "answered",
                "grant_used",
                "asked",
                "answered",
                "grant_revoked"
            ]
        );
    }

    /// Denies as a person.
    struct Asks;

    impl Approver for Asks {
        fn decide<'q>(&'q self, _: &'q Question) -> Deciding<'q> {
            Box::pin(std::future::ready(Answer::DENY))
        }

        fn is_person(&self, _: &Answer) -> bool {
            true
        }
    }

    /// Who answered the last question, as reported to the call and as audited.
    async fn answered(
        stage: &Stage,
        ruling: Result<AskOutcome, CallError>,
    ) -> (DecidedBy, Decision, DecidedBy, Origin) {
        let AskOutcome::Refused { by, .. } = ruling.unwrap() else {
            panic!("it was allowed");
        };
        stage.audit.flush().await.unwrap();
        let records = stage.log.records();
        let event = records.last().unwrap().event();
        let Step::Answered(step) = &event.step else {
            panic!("{event:?}");
        };
        (by, step.decision, step.by.unwrap(), event.origin)
    }

    #[tokio::test]
    async fn denial_names_who_denied() {
        async fn check(approver: impl Approver, by: DecidedBy, origin: Origin) {
            let stage = stage(approver).await;
            let ruling = stage.ask(request(1, 1, NEED)).await;
            let expected = (by, Decision::Denied, by, origin);
            assert_eq!(answered(&stage, ruling).await, expected);
        }
        check(Asks, DecidedBy::Person, Origin::Human).await;
        let host = (DecidedBy::Host, Origin::Host);
        check(DenyAll, host.0, host.1).await;
        check(Scripted::new(), host.0, host.1).await;
        let panics = Scripted::new().rule(|_| panic!("a fault of the approver"));
        check(panics, host.0, host.1).await;
        let typed = |input: &'static str| Terminal::new(input.as_bytes(), io::sink(), false);
        check(typed("\n"), DecidedBy::Person, Origin::Human).await;
        check(typed("5"), DecidedBy::Person, Origin::Human).await;
        check(typed(""), host.0, host.1).await;
        check(typed("1\n"), host.0, host.1).await;
        struct Broken;
        impl io::Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
        }
        let broken = Terminal::new(io::BufReader::new(Broken), io::sink(), false);
        check(broken, host.0, host.1).await;
        let beyond = Scripted::new().rule(|_| {
            Some(Answer::Allow {
                patterns: vec!["write:file:/q".parse().unwrap()],
                lifetime: Lifetime::Session,
                descendants: false,
                left_out: Vec::new(),
            })
        });
        check(beyond, host.0, host.1).await;

        let stage = stage(Deferred).await;
        let asking = stage.asking(request(1, 1, NEED));
        let id = stage.question().await;
        stage.broker.answer(id, Answer::DENY).await.unwrap();
        let person = (
            DecidedBy::Person,
            Decision::Denied,
            DecidedBy::Person,
            Origin::Human,
        );
        assert_eq!(answered(&stage, asking.await.unwrap()).await, person);
        let asking = stage.asking(request(1, 2, NEED));
        stage.question().await;
        stage.seconds.store(600, Ordering::SeqCst);
        let tick = Message::changing(BrokerState::tick);
        stage.broker.actor.cast(tick).unwrap();
        let nobody = (
            DecidedBy::Nobody,
            Decision::Expired,
            DecidedBy::Nobody,
            Origin::Model,
        );
        assert_eq!(answered(&stage, asking.await.unwrap()).await, nobody);
    }

    #[tokio::test]
    async fn audit_says_why_and_by_whom_a_grant_was_revoked() {
        let stage = stage(Scripted::new().allow("write".parse().unwrap(), Lifetime::Session)).await;
        let allowed = async |n| allowed(stage.ask(request(1, n, NEED)).await).grants[0].id;
        let grant = allowed(1).await;
        stage.broker.revoke_grant(grant).await.unwrap();
        allowed(2).await;
        let filter = GrantFilter::default();
        stage.broker.revoke_where(filter).await.unwrap();
        allowed(3).await;
        stage.broker.end_session("session").await.unwrap();
        allowed(4).await;
        stage.broker.forget_worker(WorkerId(1)).await;
        stage.audit.flush().await.unwrap();
        let result: Vec<_> = stage
            .log
            .records()
            .iter()
            .filter_map(|record| match record.event().step {
                Step::GrantRevoked { cause, .. } => Some((cause.unwrap(), record.event().origin)),
                _ => None,
            })
            .collect();
        let person = (RevokeCause::Person, Origin::Human);
        let expected = [
            person,
            person,
            (RevokeCause::SessionEnded, Origin::Host),
            (RevokeCause::WorkerEnded, Origin::Host),
        ];
        assert_eq!(result, expected);
    }

    /// An audit on a disk that may be full.
    #[derive(Clone)]
    struct Disk {
        log: MemoryAudit,
        full: Arc<AtomicBool>,
    }

    impl AuditSink for Disk {
        fn head(&self) -> Head {
            self.log.head()
        }

        fn keep(&mut self, records: &[Record]) -> io::Result<()> {
            if self.full.load(Ordering::SeqCst) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.log.keep(records)
        }
    }

    /// A broker with a grant store in `folder`; its audit fails while the answer says so.
    async fn keeping(folder: &tempfile::TempDir) -> (Stage, Arc<AtomicBool>) {
        let (log, full) = (MemoryAudit::new(1000), Arc::new(AtomicBool::new(false)));
        let disk = Disk {
            log: log.clone(),
            full: Arc::clone(&full),
        };
        let audit = Audit::start(disk, 1000).unwrap();
        let config = BrokerConfig {
            store: Some(GrantStore::open(folder.path().join("grants")).unwrap()),
            ..BrokerConfig::default()
        };
        let broker = Broker::start(config, audit.clone(), Arc::new(Deferred));
        let stage = Stage {
            broker: broker.await.unwrap(),
            seconds: Arc::default(),
            audit,
            log,
        };
        (stage, full)
    }

    fn for_main() -> NewGrant {
        NewGrant {
            pattern: "write:file:/r".parse().unwrap(),
            holder: GrantHolder::Agent("main".into()),
            lifetime: Lifetime::Agent,
            descendants: false,
        }
    }

    #[tokio::test]
    async fn rollback_during_audit_failure_is_recorded_later() {
        let folder = tempfile::tempdir().unwrap();
        let (stage, full) = keeping(&folder).await;
        full.store(true, Ordering::SeqCst);
        let refused = stage.broker.grant(for_main()).await;
        let Err(AuthorityError::Store(GrantWriteError::Record(_))) = refused else {
            panic!("{refused:?}");
        };
        full.store(false, Ordering::SeqCst);
        // The first event is the grant that the audit could not write.
        assert!(matches!(stage.steps().await.as_slice(), [Step::Granted(_)]));
        for _ in 0..2 {
            let tick = Message::changing(BrokerState::tick);
            stage.broker.actor.cast(tick).unwrap();
            assert_eq!(stage.broker.grants().await.unwrap(), []);
            let steps = stage.steps().await;
            let [Step::Granted(given), Step::GrantRevoked { grant, cause }] = steps.as_slice()
            else {
                panic!("{steps:?}");
            };
            assert_eq!(given.grant, *grant);
            assert_eq!(*cause, Some(RevokeCause::NotStored));
        }
        let missed = stage.log.records().iter().map(Record::missed).sum::<u64>();
        assert_eq!(missed, 0, "it is late, and not missing");
    }

    #[tokio::test]
    async fn narrowing_that_cannot_be_audited_revokes_the_grant() {
        let folder = tempfile::tempdir().unwrap();
        let (stage, full) = keeping(&folder).await;
        let file = folder.path().join("grants");
        let grant = stage.broker.grant(for_main()).await.unwrap();
        let to = |pattern: &str| Narrowing {
            pattern: Some(pattern.parse().unwrap()),
            ..Narrowing::default()
        };
        stage
            .broker
            .narrow(grant, to("write:file:/r/a"))
            .await
            .unwrap();
        assert_eq!(GrantStore::read(&file).unwrap().len(), 1);
        full.store(true, Ordering::SeqCst);
        let refused = stage.broker.narrow(grant, to("write:file:/r/a/b")).await;
        let Err(AuthorityError::Store(GrantWriteError::Record(_))) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(stage.broker.grants().await.unwrap(), []);
        assert_eq!(GrantStore::read(&file).unwrap(), []);
    }

    #[tokio::test]
    async fn unauditable_questions_are_not_asked() {
        struct Full;
        impl crate::audit::AuditSink for Full {
            fn head(&self) -> crate::audit::Head {
                crate::audit::Head::default()
            }
            fn keep(&mut self, _: &[crate::audit::Record]) -> std::io::Result<()> {
                Err(std::io::ErrorKind::StorageFull.into())
            }
        }
        let audit = Audit::start(Full, 10).unwrap();
        let shown = Arc::new(AtomicUsize::new(0));
        let approver = Arc::new(Counting(Arc::clone(&shown)));
        let broker = Broker::start(BrokerConfig::default(), audit.clone(), approver)
            .await
            .unwrap();
        let sample = request(1, 1, NEED);
        let requester = requester(&sample);
        audit.record(crate::audit::tests::failed("x")).unwrap();
        audit.flush().await.unwrap_err();
        let refused = broker.ask(sample, requester, None).await.unwrap_err();
        assert_eq!(
            (refused.code(), shown.load(Ordering::SeqCst)),
            (Code::Io, 0)
        );
        assert!(broker.open_questions().await.unwrap().is_empty());
    }
}
