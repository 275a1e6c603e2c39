//! State of the calls of one worker.

mod prepare;
mod queue;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::fast::FixedState;
use tracing::Span;
use tracing::field::Empty;

use super::Shared;
use super::actor::WorkerMsg;
use super::admission::{Admitted, Done, Incoming, ReplySender, lost};
use super::approval::Asking;
use super::blocking::Ticket;
use super::deadline::DeadlineGuard;
use super::jobs::{self, Approved};
use super::path_locks::PathLockGuard;
use super::prepare::Request;
use super::remote::RemoteTask;
use crate::audit::Step as AuditStep;
use crate::call::Asks;
use crate::capability::{Interrupt, StopReason};
use crate::effect::{ExcludedHunks, Preview};
use crate::error::{CallError, Code};
use crate::id::CallId;
use crate::permission::QuestionSender;
use crate::pipeline::{CallInfo, Cleared, Granted, Judged, Mode, Parsed, Step, Waiting};
use crate::policy::Limits;
use crate::tool::AnyPlan;

pub(crate) use prepare::Prepared;

/// Where a call under way is.
#[derive(Debug)]
enum Stage {
    /// It waits for a thread to have its own policy compiled, or has one.
    Preparing(Option<Request>),
    /// It waits for a thread to be judged again under its own policy, or has one.
    Judging(Option<Step<Parsed>>, Judging),
    /// Live grants are planned through.
    CheckingGrants(Step<Waiting>),
    /// It waits for a thread to make the plan that is shown with the question, or has one.
    Planning(Step<Waiting>),
    /// A person was asked.
    Asking(Step<Waiting>, Option<AnyPlan>),
    /// It waits for its turn to write, or for a thread.
    Ready(Step<Cleared>, Option<Approved>),
    /// A pool thread has it.
    Running,
    /// A server has it.
    Remote { _task: RemoteTask },
}

/// Why a call is judged.
#[derive(Debug)]
enum Judging {
    /// It begins, or grants were used, or a tool found something.
    Going,
    /// A person answered, by what was planned for them.
    Answered(Option<Approved>),
}

/// Who waits for a call, and what it holds.
#[derive(Debug)]
struct Caller {
    info: Arc<CallInfo>,
    /// What tracing sees of the call; nothing unless a subscriber wants it.
    span: Span,
    port: ReplySender,
    /// How long after the call before it came.
    since: Option<Duration>,
    /// When it came.
    received: Instant,
    /// How long its work may take; waiting for people is not work.
    limit: Duration,
    deadline_guard: Option<DeadlineGuard>,
    /// Its job, from when the pool has it.
    ticket: Option<Arc<Ticket>>,
    /// Its paths, from when it is first in line to write until its job has them.
    path_lock: Option<PathLockGuard>,
    /// What it asked, from when it asked until it is answered.
    asking: Option<Asking>,
    asks: Asks,
    /// Who hears of each question that it waits for.
    question_tx: Option<QuestionSender>,
    admitted: Admitted,
}

/// What one life of a worker knows; a restart begins with an empty calls.
#[derive(Debug)]
pub(crate) struct CallTable {
    shared: Arc<Shared>,
    calls: HashMap<CallId, (Stage, Caller), FixedState>,
    /// Mutating calls in the order they became ready; only the first claims its paths.
    writes: VecDeque<CallId>,
    /// Calls that wait for one of this worker's max_jobs in the pool.
    ready: VecDeque<CallId>,
    /// Calls with a place in the pool, those whose callers gave up included.
    running: HashSet<CallId, FixedState>,
    /// Calls whose own policies are to be compiled, or judged by.
    policies: VecDeque<CallId>,
    /// The call whose policy is being compiled or judged by. A worker has one place for that, so that the policies of one
    /// do not keep those of others waiting.
    compiling: Option<CallId>,
    /// When the last call came.
    last: Option<Instant>,
    closing: bool,
}

impl CallTable {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            calls: HashMap::default(),
            writes: VecDeque::new(),
            ready: VecDeque::new(),
            running: HashSet::default(),
            policies: VecDeque::new(),
            compiling: None,
            last: None,
            closing: false,
        }
    }

    /// Whether the worker is to end and owes nobody an answer.
    pub(super) fn is_over(&self) -> bool {
        self.closing && self.calls.is_empty()
    }

    /// Audits that the worker ended.
    pub(super) fn stopped(&self) {
        self.shared.note(AuditStep::WorkerStopped);
    }

    /// Begins a new call. A policy of its own is compiled on the CPU pool, never here.
    pub(super) fn receive(&mut self, incoming: Incoming) {
        let Incoming {
            request,
            deadline,
            asks,
            question_tx,
            admitted,
            port,
        } = incoming;
        let now = Instant::now();
        let since = self.last.map(|last| now.duration_since(last));
        if let Err(error) = check_interval(self.shared.authority.limits(), since) {
            return self.shared.finished(&request.info, port, Err(error));
        }
        self.last = Some(now);
        let (id, info) = (request.info.id, Arc::clone(&request.info));
        let limit = self.shared.core.limit(deadline);
        let span = tracing::debug_span!(
            "call",
            worker = %self.shared.agent,
            call = %id,
            tool = %info.tool,
            origin = ?info.origin,
            verdict = Empty,
        );
        let mut caller = Caller {
            info,
            span,
            port,
            since,
            received: now,
            limit,
            deadline_guard: None,
            ticket: None,
            path_lock: None,
            asking: None,
            asks,
            question_tx,
            admitted,
        };
        if request.policy.is_none() {
            let step = request.prepare(&self.shared);
            return self.judge_or_answer(id, step, caller);
        }
        caller.arm(id, &self.shared);
        self.calls
            .insert(id, (Stage::Preparing(Some(request)), caller));
        self.policies.push_back(id);
        self.compile_next();
    }

    fn judge_or_answer(
        &mut self,
        id: CallId,
        step: Result<Step<Parsed>, CallError>,
        caller: Caller,
    ) {
        match step {
            Ok(step) => self.judge(id, step, caller),
            Err(error) => self.answer(id, caller, Err(error)),
        }
    }

    /// Moves a call on as far as it goes without waiting.
    fn judge(&mut self, id: CallId, step: Step<Parsed>, caller: Caller) {
        self.judge_for(id, step, Judging::Going, caller);
    }

    /// Judges a call: here, or on the CPU pool under a policy of its own, which whoever called chose the size of.
    fn judge_for(&mut self, id: CallId, step: Step<Parsed>, why: Judging, mut caller: Caller) {
        if !step.has_own_policy() {
            let judged = self.shared.judge(step);
            return self.judged_for(id, judged, why, caller);
        }
        caller.arm(id, &self.shared);
        self.calls
            .insert(id, (Stage::Judging(Some(step), why), caller));
        self.policies.push_back(id);
        self.compile_next();
    }

    fn judged_for(&mut self, id: CallId, judged: Judged, why: Judging, caller: Caller) {
        match why {
            Judging::Going => self.judged(id, judged, caller),
            Judging::Answered(approved) => self.approved(id, judged, approved, caller),
        }
    }

    fn judged(&mut self, id: CallId, judged: Judged, caller: Caller) {
        caller.span.record("verdict", judged.verdict().as_str());
        match judged {
            Judged::Refused(error) => self.answer(id, caller, Err(error)),
            Judged::Ask(waiting) => self.find_grants(id, waiting, caller),
            Judged::Run(cleared) => match jobs::read_now(&cleared) {
                None => self.enqueue(id, cleared, None, caller),
                Some(Ok(done)) => self.answer(id, caller, Ok(done)),
                Some(Err(interrupt)) => {
                    self.judge_or_answer(id, cleared.interrupted(interrupt), caller)
                }
            },
        }
    }

    /// Goes on with a call that a person allowed.
    fn approved(&mut self, id: CallId, judged: Judged, approved: Option<Approved>, caller: Caller) {
        match judged {
            Judged::Run(cleared) => {
                let (worker, tool) = (self.shared.id, &caller.info.tool);
                tracing::debug!(%worker, call = %id, %tool, "retried");
                self.enqueue(id, cleared, approved, caller);
            }
            // The answer was narrower than the need: asking again at once would be a trick.
            Judged::Ask(waiting) => self.answer(id, caller, Err(waiting.scope_required())),
            Judged::Refused(error) => self.answer(id, caller, Err(error)),
        }
    }

    /// A preview of what may be read asks nobody: it changes nothing.
    fn find_grants(&mut self, id: CallId, mut waiting: Step<Waiting>, mut caller: Caller) {
        caller.deadline_guard = None;
        let shown = caller.info.mode == Mode::Preview && waiting.early_plan().is_some();
        if shown || !waiting.has_untried_needs() {
            return self.plan_early(id, waiting, caller);
        }
        caller.asking = Some(self.shared.check_grants(id, &waiting));
        self.calls
            .insert(id, (Stage::CheckingGrants(waiting), caller));
    }

    pub(super) fn used(&mut self, id: CallId, granted: Result<Option<Granted>, CallError>) {
        match (self.calls.remove(&id), granted) {
            (Some((Stage::CheckingGrants(waiting), caller)), Ok(Some(granted))) => {
                match self.shared.used(&caller.info, &granted.used) {
                    Ok(()) => self.judge(id, waiting.granted(granted), caller),
                    Err(error) => self.answer(id, caller, Err(error)),
                }
            }
            (Some((Stage::CheckingGrants(waiting), caller)), Ok(None)) => {
                self.plan_early(id, waiting, caller)
            }
            (Some((Stage::CheckingGrants(_), caller)), Err(error)) => {
                self.answer(id, caller, Err(error));
            }
            (other, _) => self.reinsert(id, other),
        }
    }

    /// Plans a change before anybody is asked, if its targets may be read.
    fn plan_early(&mut self, id: CallId, waiting: Step<Waiting>, mut caller: Caller) {
        if waiting.early_plan().is_none() {
            return self.question(id, waiting, None, caller);
        }
        caller.arm(id, &self.shared);
        self.calls.insert(id, (Stage::Planning(waiting), caller));
        self.wait_for_thread(id);
    }

    pub(super) fn planned(&mut self, id: CallId, plan: Result<(AnyPlan, Preview), Interrupt>) {
        match (self.take_finished(id), plan) {
            (Some((Stage::Planning(_), caller)), Ok((_, preview)))
                if caller.info.mode == Mode::Preview =>
            {
                self.answer(id, caller, Ok(Done::Preview(preview)));
            }
            (Some((Stage::Planning(waiting), caller)), Ok(plan)) => {
                self.question(id, waiting, Some(plan), caller);
            }
            (Some((Stage::Planning(waiting), caller)), Err(interrupt)) => {
                self.judge_or_answer(id, waiting.interrupted(interrupt), caller);
            }
            (other, _) => self.reinsert(id, other),
        }
        self.start_ready();
    }

    /// Puts the question; the call waits without a thread, and other calls go on.
    fn question(
        &mut self,
        id: CallId,
        waiting: Step<Waiting>,
        plan: Option<(AnyPlan, Preview)>,
        mut caller: Caller,
    ) {
        caller.deadline_guard = None;
        let (plan, preview) = plan.unzip();
        let held = plan.as_ref().map_or(0, AnyPlan::weight);
        let allowed = self.shared.may_ask(&waiting, caller.asks);
        let asked = allowed.and_then(|()| caller.admitted.hold(held)).map(|()| {
            let (asks, question_tx) = (caller.asks, caller.question_tx.clone());
            self.shared
                .question(id, &waiting, preview, asks, question_tx)
        });
        match asked {
            Ok(asking) => {
                caller.asking = Some(asking);
                self.calls
                    .insert(id, (Stage::Asking(waiting, plan), caller));
            }
            Err(error) => self.answer(id, caller, Err(error)),
        }
    }

    pub(super) fn answered(
        &mut self,
        id: CallId,
        answer: Result<(Granted, Vec<ExcludedHunks>), CallError>,
    ) {
        match (self.calls.remove(&id), answer) {
            (Some((Stage::Asking(waiting, plan), caller)), Ok((granted, left_out))) => {
                let (worker, tool) = (self.shared.id, &caller.info.tool);
                tracing::debug!(%worker, call = %id, %tool, "continued");
                if let Err(error) = self.shared.used(&caller.info, &granted.used) {
                    return self.answer(id, caller, Err(error));
                }
                let approved = plan.map(|plan| Approved { plan, left_out });
                let why = Judging::Answered(approved);
                self.judge_for(id, waiting.granted(granted), why, caller);
            }
            (Some((Stage::Asking(..), caller)), Err(error)) => self.answer(id, caller, Err(error)),
            (other, _) => self.reinsert(id, other),
        }
    }
}

impl Drop for CallTable {
    /// Answers the open calls of a worker that dies, and records their ends. Nothing of them begins any more.
    fn drop(&mut self) {
        for (_, (stage, caller)) in std::mem::take(&mut self.calls) {
            caller.info.stop.raise(StopReason::Cancelled);
            if let Some(ticket) = &caller.ticket {
                // Whether it began does not matter: what did not never will, and what did ends by itself.
                let _ = self.pool_of(&stage).abandon(ticket);
            }
            caller.finish(&self.shared, Err(lost(&self.shared)));
        }
    }
}

/// Refuses a call that comes sooner after the one before it than `limits` allow.
fn check_interval(limits: &Limits, since: Option<Duration>) -> Result<(), CallError> {
    let least = Duration::from_millis(limits.min_interval_ms);
    let wait = since.and_then(|since| least.checked_sub(since));
    let Some(wait) = wait.filter(|wait| !wait.is_zero()) else {
        return Ok(());
    };
    let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
    let error = CallError::new(
        Code::RateLimited,
        "calls come faster than the policy allows",
    );
    Err(error.with("retry_after_ms", wait))
}

impl Caller {
    /// Holds the call to the lifetime that its own policy gives it.
    fn limit_to(&mut self, limits: &Limits) {
        let life = Duration::from_millis(limits.ttl_ms);
        if life < self.limit {
            self.limit = life.saturating_sub(self.received.elapsed());
            self.deadline_guard = None;
        }
    }

    /// Answers the call. It gives its place back first: whoever has the answer may at once make the next call.
    fn finish(self, shared: &Shared, result: Result<Done, CallError>) {
        drop(self.admitted);
        shared.finished(&self.info, self.port, result);
    }

    fn arm(&mut self, id: CallId, shared: &Arc<Shared>) {
        if self.deadline_guard.is_none() {
            let (worker, stop) = (Arc::clone(shared), Arc::clone(&self.info.stop));
            self.deadline_guard = Some(shared.core.deadlines.arm(self.limit, move || {
                // The job sees the flag at its next checkpoint even while the mailbox is busy.
                stop.raise(StopReason::Expired);
                worker.post(WorkerMsg::Expired(id));
            }));
        }
    }
}
