//! State of the calls of one worker.

mod open_call;
mod prepare;
mod queue;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::FixedState;
use ractor::ActorId;
use tracing::field::Empty;

use super::Shared;
use super::activity::CallState;
use super::admission::{Done, unanswered};
use super::blocking::Ticket;
use super::future::TaskGuard;
use super::jobs::{self, Approved};
use super::prepare::UnparsedCall;
use crate::call::Mode;
use crate::capability::{Interrupt, StopReason};
use crate::effect::Preview;
use crate::error::{CallError, Code};
use crate::id::CallId;
use crate::permission::Exclusion;
use crate::pipeline::{Cleared, Granted, Judged, Parsed, Step, Waiting};
use crate::policy::{Limits, Verdict, VerdictCache};
use crate::scope::Scope;
use crate::tool::AnyPlan;

pub(crate) use open_call::OpenCall;
pub(crate) use prepare::CompiledCall;

/// Stage of a call in flight.
#[derive(Debug)]
enum Stage {
    /// It waits until its worker is resumed.
    Paused(UnparsedCall),
    /// Its own policy is being compiled (`None`), or waits for that.
    Preparing(Option<UnparsedCall>),
    /// It is being judged under its own policy (`None`), or waits for that.
    Judging(Option<Step<Parsed>>, JudgeCause),
    /// Live grants are being looked up.
    CheckingGrants(Step<Waiting>),
    /// It is being planned for the question, or waits for a slot of its tool or a thread.
    Planning(Step<Waiting>),
    /// Its question is open.
    Asking(Step<Waiting>, Option<AnyPlan>),
    /// It waits for a slot of its tool, its path locks or a thread.
    Queued(Step<Cleared>, Option<Approved>),
    /// It runs on a pool thread, or waits for one.
    Running,
    /// It runs as a future.
    Future { _task: TaskGuard },
}

impl Stage {
    fn state(&self) -> CallState {
        match self {
            Self::Paused(_) => CallState::Paused,
            Self::Preparing(_) | Self::Judging(..) | Self::CheckingGrants(_) => {
                CallState::Preparing
            }
            Self::Planning(_) | Self::Queued(..) => CallState::Queued,
            Self::Asking(..) => CallState::Asking,
            Self::Running | Self::Future { .. } => CallState::Running,
        }
    }
}

/// Why a call is judged.
#[derive(Debug)]
enum JudgeCause {
    /// Its needs or its grants are new: the call is new, uses grants, or was interrupted by its tool.
    Changed,
    /// Its question was answered, with this plan.
    Answered(Option<Approved>),
}

/// The pool of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PoolKind {
    /// Compiles and judges by policies.
    Cpu,
    /// File tools.
    Io,
    /// File tools of calls that were granted files outside the roots.
    IoOutside,
    /// Other tools.
    Tools,
}

/// A job that was submitted to a pool.
#[derive(Debug)]
struct Submitted {
    pool: PoolKind,
    ticket: Arc<Ticket>,
}

/// State of the actor; another actor of the worker begins with an empty table.
pub(crate) struct CallTable {
    shared: Arc<Shared>,
    calls: HashMap<CallId, (Stage, Box<OpenCall>), FixedState>,
    /// Calls that wait until the worker is resumed, in the order in which they were received.
    paused: VecDeque<CallId>,
    /// Mutating calls in the order in which they were queued, without those whose turn it is.
    writes: VecDeque<CallId>,
    /// The mutating calls whose turn it is: they wait for their path locks or a thread, or run.
    writing: HashSet<CallId, FixedState>,
    /// The one of them beside which no other may run.
    writing_alone: Option<CallId>,
    /// Calls that wait until this worker may run another job in the pool.
    runnable: VecDeque<CallId>,
    /// Calls with a job in a pool, including those whose callers gave up.
    running: HashMap<CallId, PoolKind, FixedState>,
    /// Calls whose large results their callers have not passed on yet.
    undelivered: HashSet<CallId, FixedState>,
    /// Calls that wait until their own policies are compiled or evaluated.
    policies: VecDeque<CallId>,
    /// The call whose policy is being compiled or evaluated. There is at most one per worker, so that one worker's
    /// policies do not delay those of others.
    compiling: Option<CallId>,
    verdicts: VerdictCache,
    closing: bool,
    /// The worker may have another actor by now.
    detached: bool,
}

impl CallTable {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let verdicts = VerdictCache::new(shared.authority.clone());
        Self {
            shared,
            calls: HashMap::default(),
            paused: VecDeque::new(),
            writes: VecDeque::new(),
            writing: HashSet::default(),
            writing_alone: None,
            runnable: VecDeque::new(),
            running: HashMap::default(),
            undelivered: HashSet::default(),
            policies: VecDeque::new(),
            compiling: None,
            verdicts,
            closing: false,
            detached: false,
        }
    }

    /// Whether the actor has nothing left to do: the worker is closing and all calls are answered, or it is idle.
    pub(super) fn is_done(&self) -> bool {
        self.detached || (self.closing && self.calls.is_empty())
    }

    /// Ends the actor, unless a call or a job runs or waits, or a large result was not passed on.
    pub(super) fn end_if_idle(&mut self, actor: ActorId) {
        let idle = self.calls.is_empty() && self.running.is_empty() && self.undelivered.is_empty();
        self.detached = idle && !self.closing && self.shared.detach_idle(actor);
    }

    /// Audits that the worker ended, unless only its actor does.
    pub(super) fn end(&self, actor: ActorId) {
        if !self.detached {
            self.shared.end_with_actor(actor);
        }
    }

    /// Begins a new call. If the worker is paused or earlier calls are still queued from a pause, the call is queued. If the
    /// worker was revoked, or the call comes too soon after the last one, it is rejected.
    pub(super) fn receive(&mut self, request: UnparsedCall, mut call: Box<OpenCall>) {
        if self.closing {
            // It was posted before its worker was revoked.
            return call.finish(&self.shared, Err(self.shared.gate().error()));
        }
        let admitted_at = call.admitted_at;
        let previous = *self.shared.last_admitted.lock();
        call.since_previous = previous.map(|previous| admitted_at.duration_since(previous));
        if let Err(error) = check_interval(self.shared.authority.limits(), call.since_previous) {
            return call.finish(&self.shared, Err(error));
        }
        *self.shared.last_admitted.lock() = Some(admitted_at);
        let info = &call.info;
        let id = info.id;
        self.shared.report_received(info, admitted_at);
        call.span = tracing::debug_span!(
            "call",
            worker = %self.shared.agent,
            call = %id,
            tool = %info.tool,
            origin = ?info.origin,
            verdict = Empty,
        );
        // Calls queued during a pause run first; `WorkerMsg::Resumed` has not been processed yet.
        if self.shared.pause.is_paused() || !self.paused.is_empty() {
            call.start_deadline(id, &self.shared);
            self.store(id, Stage::Paused(request), call);
            return self.paused.push_back(id);
        }
        self.begin(id, request, call);
    }

    /// The worker or an ancestor was resumed.
    pub(super) fn resumed(&mut self) {
        while !self.shared.pause.is_paused()
            && let Some(id) = self.paused.pop_front()
        {
            match self.calls.remove(&id) {
                Some((Stage::Paused(request), call)) => {
                    self.enter(id, CallState::Preparing);
                    self.begin(id, request, call);
                }
                other => self.reinsert(id, other),
            }
        }
    }

    /// Prepares and judges a call. Its own policy is compiled on the CPU pool, never here.
    fn begin(&mut self, id: CallId, request: UnparsedCall, mut call: Box<OpenCall>) {
        if request.policy.is_none() {
            let step = request.prepare(&self.shared, call.since_previous);
            return self.judge_or_answer(id, step, call);
        }
        call.start_deadline(id, &self.shared);
        self.store(id, Stage::Preparing(Some(request)), call);
        self.policies.push_back(id);
        self.compile_next();
    }

    fn judge_or_answer(
        &mut self,
        id: CallId,
        step: Result<Step<Parsed>, CallError>,
        call: Box<OpenCall>,
    ) {
        match step {
            Ok(step) => self.judge(id, step, JudgeCause::Changed, call),
            Err(error) => self.answer(id, call, Err(error)),
        }
    }

    /// Reports the state of a call.
    fn enter(&self, id: CallId, state: CallState) {
        self.shared.activity.enter(id, state);
        self.shared.log_state(id, state);
    }

    /// Stores a call until a message advances it.
    fn store(&mut self, id: CallId, stage: Stage, call: Box<OpenCall>) {
        self.enter(id, stage.state());
        self.calls.insert(id, (stage, call));
    }

    /// Judges a call: here, or on the CPU pool if it has a policy of its own, whose size the caller chose.
    fn judge(
        &mut self,
        id: CallId,
        step: Step<Parsed>,
        cause: JudgeCause,
        mut call: Box<OpenCall>,
    ) {
        if !step.has_own_policy() {
            return self.judge_here(id, step, cause, call);
        }
        call.start_deadline(id, &self.shared);
        self.store(id, Stage::Judging(Some(step), cause), call);
        self.policies.push_back(id);
        self.compile_next();
    }

    fn judge_here(
        &mut self,
        id: CallId,
        step: Step<Parsed>,
        cause: JudgeCause,
        call: Box<OpenCall>,
    ) {
        let is_first = step.is_first_round() && matches!(cause, JudgeCause::Changed);
        let judgement = match self.shared.judge_unrecorded(step, &mut self.verdicts) {
            Ok(judgement) => judgement,
            Err(error) => return self.answer(id, call, Err(error)),
        };
        let (needs, rule) = (judgement.needs, judgement.rule);
        match judgement.judged {
            Judged::Allowed(cleared) if is_first && rule.is_none() => {
                self.run_allowed(id, cleared, needs, call);
            }
            judged => {
                let verdict = judged.verdict();
                match self.shared.record_verdict(&call.info, verdict, needs, rule) {
                    Ok(()) => self.judged(id, judged, cause, call),
                    Err(error) => self.answer(id, call, Err(error)),
                }
            }
        }
    }

    /// Advances a judged call as far as possible without waiting.
    fn judged(&mut self, id: CallId, judged: Judged, cause: JudgeCause, call: Box<OpenCall>) {
        if let JudgeCause::Answered(approved) = cause {
            return self.approved(id, judged, approved, call);
        }
        call.span.record("verdict", judged.verdict().as_str());
        match judged {
            Judged::Rejected(error) => self.answer(id, call, Err(error)),
            Judged::Ask(waiting) => self.find_grants(id, waiting, call),
            Judged::Allowed(cleared) => {
                let read = jobs::read_now(&self.shared, &cleared);
                self.run(id, cleared, read, call);
            }
        }
    }

    /// Runs a call that has these needs, and that all layers allow when it is judged for the first time. If its tool answers it
    /// at once, its verdict and its end are one record.
    fn run_allowed(
        &mut self,
        id: CallId,
        cleared: Step<Cleared>,
        needs: Arc<[Scope]>,
        call: Box<OpenCall>,
    ) {
        call.span.record("verdict", Verdict::Allow.as_str());
        let read = jobs::read_now(&self.shared, &cleared);
        if let Some(Ok(done)) = read {
            return call.finish_with(&self.shared, Ok(done), Some(needs));
        }
        let verdict = Verdict::Allow;
        match self.shared.record_verdict(&call.info, verdict, needs, None) {
            Ok(()) => self.run(id, cleared, read, call),
            Err(error) => self.answer(id, call, Err(error)),
        }
    }

    /// Runs a cleared call; `read` is its result if its tool has answered it at once.
    fn run(
        &mut self,
        id: CallId,
        cleared: Step<Cleared>,
        read: Option<Result<Done, Interrupt>>,
        call: Box<OpenCall>,
    ) {
        match read.or_else(|| jobs::preview_act_now(&self.shared, &cleared)) {
            None => self.enqueue(id, cleared, None, call),
            Some(Ok(done)) => self.answer(id, call, Ok(done)),
            Some(Err(interrupt)) => self.judge_or_answer(id, cleared.interrupted(interrupt), call),
        }
    }

    /// Continues a call that a person allowed.
    fn approved(
        &mut self,
        id: CallId,
        judged: Judged,
        approved: Option<Approved>,
        call: Box<OpenCall>,
    ) {
        match judged {
            Judged::Allowed(cleared) => {
                let (worker, tool) = (self.shared.id, &call.info.tool);
                tracing::debug!(%worker, agent = %self.shared.agent, call = %id, %tool, "retried");
                self.enqueue(id, cleared, approved, call);
            }
            // The answer was narrower than the need. Asking again at once would put pressure on the person.
            Judged::Ask(waiting) => self.answer(id, call, Err(waiting.scope_required())),
            Judged::Rejected(error) => self.answer(id, call, Err(error)),
        }
    }

    /// Looks up grants, except for previews of readable targets, which require no approval.
    fn find_grants(&mut self, id: CallId, mut waiting: Step<Waiting>, mut call: Box<OpenCall>) {
        let planned = || waiting.act_job().is_some() || waiting.early_plan().is_some();
        let shown = call.info.mode == Mode::Preview && planned();
        if shown || !waiting.take_untried_needs() {
            return self.plan_early(id, waiting, call);
        }
        call.start_deadline(id, &self.shared);
        call.asking = Some(self.shared.check_grants(id, &waiting));
        self.store(id, Stage::CheckingGrants(waiting), call);
    }

    pub(super) fn grants_checked(
        &mut self,
        id: CallId,
        granted: Result<Option<Granted>, CallError>,
    ) {
        match (self.calls.remove(&id), granted) {
            (Some((Stage::CheckingGrants(waiting), call)), Ok(Some(granted))) => {
                match self.shared.audit_used_grants(&call.info, &granted.used) {
                    Ok(()) => {
                        self.shared.log_granted(id, &granted.used);
                        let step = waiting.granted(granted);
                        self.judge(id, step, JudgeCause::Changed, call);
                    }
                    Err(error) => self.answer(id, call, Err(error)),
                }
            }
            (Some((Stage::CheckingGrants(waiting), call)), Ok(None)) => {
                self.plan_early(id, waiting, call)
            }
            (Some((Stage::CheckingGrants(_), call)), Err(error)) => {
                self.answer(id, call, Err(error));
            }
            (other, _) => self.reinsert(id, other),
        }
    }

    /// Plans a change before anybody is asked, if its targets may be read or its tool plans it without reading.
    fn plan_early(&mut self, id: CallId, waiting: Step<Waiting>, mut call: Box<OpenCall>) {
        if let Some(job) = waiting.act_job() {
            let plan = jobs::preview_act(&self.shared, &waiting, job);
            return self.planned_early(id, waiting, plan, call);
        }
        if waiting.early_plan().is_none() {
            return self.question(id, waiting, None, call);
        }
        if call.info.mode != Mode::Preview
            && let Err(error) = self.shared.may_plan(&waiting, call.asks)
        {
            return self.answer(id, call, Err(error));
        }
        match self.take_slot(id, &mut call) {
            Ok(true) => self.enqueue_planning(id, waiting, call),
            Ok(false) => self.store(id, Stage::Planning(waiting), call),
            Err(error) => self.answer(id, call, Err(error)),
        }
    }

    pub(super) fn planned(&mut self, id: CallId, plan: Result<(AnyPlan, Preview), Interrupt>) {
        match self.take_finished(id) {
            Some((Stage::Planning(waiting), call)) => {
                self.planned_early(id, waiting, plan, call);
            }
            other => self.reinsert(id, other),
        }
        self.start_runnable();
    }

    fn planned_early(
        &mut self,
        id: CallId,
        waiting: Step<Waiting>,
        plan: Result<(AnyPlan, Preview), Interrupt>,
        call: Box<OpenCall>,
    ) {
        match plan {
            Ok((_, preview)) if call.info.mode == Mode::Preview => {
                self.answer(id, call, Ok(Done::Preview(preview.into())));
            }
            Ok(plan) => self.question(id, waiting, Some(plan), call),
            Err(interrupt) => self.judge_or_answer(id, waiting.interrupted(interrupt), call),
        }
    }

    /// Asks the question. The call waits without a thread, and other calls continue.
    fn question(
        &mut self,
        id: CallId,
        waiting: Step<Waiting>,
        plan: Option<(AnyPlan, Preview)>,
        mut call: Box<OpenCall>,
    ) {
        if self.shared.gate().is_closed() {
            // `WorkerMsg::Close` has not been processed yet.
            let ended = self.shared.gate().error();
            return self.answer(id, call, Err(ended));
        }
        call.suspend_deadline();
        call.slot = None;
        let (plan, preview) = plan.unzip();
        let size = plan.as_ref().map_or(0, AnyPlan::weight);
        let allowed = self.shared.may_ask(&waiting, call.asks, preview.as_ref());
        let asked = allowed
            .and_then(|()| call.admitted.charge_plan(size))
            .map(|()| {
                let (asks, question_tx) = (call.asks, call.question_tx.clone());
                self.shared
                    .question(id, &waiting, preview, asks, question_tx)
            });
        match asked {
            Ok(asking) => {
                call.asking = Some(asking);
                self.store(id, Stage::Asking(waiting, plan), call);
            }
            Err(error) => self.answer(id, call, Err(error)),
        }
    }

    pub(super) fn question_answered(
        &mut self,
        id: CallId,
        answer: Result<(Granted, Option<Exclusion>), CallError>,
    ) {
        match (self.calls.remove(&id), answer) {
            (Some((Stage::Asking(waiting, plan), call)), Ok((granted, exclusion))) => {
                let (worker, tool) = (self.shared.id, &call.info.tool);
                tracing::debug!(%worker, agent = %self.shared.agent, call = %id, %tool, "continued");
                if let Err(error) = self.shared.audit_used_grants(&call.info, &granted.used) {
                    return self.answer(id, call, Err(error));
                }
                let (excluded, sentence) = match exclusion {
                    Some(Exclusion { parts, sentence }) => (parts, Some(sentence)),
                    None => (Vec::new(), None),
                };
                self.shared.log_approved(id, sentence.as_deref());
                let approved = plan.map(|plan| Approved { plan, excluded });
                let cause = JudgeCause::Answered(approved);
                self.judge(id, waiting.granted(granted), cause, call);
            }
            (Some((Stage::Asking(..), call)), Err(error)) => self.answer(id, call, Err(error)),
            (other, _) => self.reinsert(id, other),
        }
    }
}

impl Drop for CallTable {
    /// Answers the open calls of a dying worker and audits their ends. None of them can begin an effect any more.
    fn drop(&mut self) {
        for (_, (_, call)) in std::mem::take(&mut self.calls) {
            call.info.stop.raise(StopReason::Cancelled);
            if let Some(job) = &call.job {
                // A job that has begun ends by itself; any other never runs.
                let _ = self.pool(job.pool).abandon(&job.ticket);
            }
            let error = call.info.stop.with_effect(unanswered(&self.shared));
            call.finish(&self.shared, Err(error));
        }
    }
}

/// Rejects a call that comes too soon after the previous one.
pub(super) fn check_interval(limits: &Limits, since: Option<Duration>) -> Result<(), CallError> {
    let least = Duration::from_millis(limits.min_interval_ms);
    let wait = since.and_then(|since| least.checked_sub(since));
    let Some(wait) = wait.filter(|wait| !wait.is_zero()) else {
        return Ok(());
    };
    let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
    let message = format!(
        "the policy requires at least {} ms between calls; try again later",
        limits.min_interval_ms
    );
    let error = CallError::new(Code::RateLimited, message);
    Err(error.with("retry_after_ms", wait))
}
