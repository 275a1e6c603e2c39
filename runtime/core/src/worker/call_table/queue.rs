//! Runs authorised calls: path locks, pool threads and results.

use super::{CallTable, OpenCall, PoolKind, Stage, Submitted};
use crate::call::Mode;
use crate::capability::{Interrupt, StopReason};
use crate::error::{CallError, Code};
use crate::id::CallId;
use crate::pipeline::{Cleared, Step, Waiting};
use crate::worker::actor::WorkerMsg;
use crate::worker::admission::{Done, policies_busy, threads_busy, tools_busy};
use crate::worker::blocking::{Full, Pool, Ticket};
use crate::worker::jobs::{Approved, Ended};
use crate::worker::{Shared, jobs};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of a result that counts as a job until it is passed on.
const LARGE_RESULT: u64 = 64 << 10;

/// Writes that a worker may submit beyond its limit. They wait in the pool, so that a thread that ends one of its jobs can
/// begin the next at once.
const WAITING_WRITES: usize = 2;

impl CallTable {
    /// Runs a cleared call once it has a slot of its tool; a write takes its slot when it is its turn.
    pub(super) fn enqueue(
        &mut self,
        id: CallId,
        step: Step<Cleared>,
        approved: Option<Approved>,
        mut call: Box<OpenCall>,
    ) {
        if step.mutates() && call.info.mode == Mode::Apply && !step.is_future() {
            call.start_deadline(id, &self.shared);
            self.store(id, Stage::Queued(step, approved), call);
            self.writes.push_back(id);
            return self.next_write();
        }
        match self.take_slot(id, &mut call) {
            Ok(true) => self.enqueue_running(id, step, approved, call),
            Ok(false) => self.store(id, Stage::Queued(step, approved), call),
            Err(error) => self.answer(id, call, Err(error)),
        }
    }

    /// Takes a slot of the call's tool, if the tool limits its concurrent calls; false if the call must wait for it.
    /// A slot is taken before path locks and threads, so a call that waits for it delays no calls of other tools.
    pub(super) fn take_slot(&self, id: CallId, call: &mut OpenCall) -> Result<bool, CallError> {
        let tool = call.info.tool.as_str();
        let Some(slots) = self.shared.core.tool_slots.get(tool) else {
            return Ok(true);
        };
        let slot = slots.request(id, &self.shared)?;
        let taken = slot.taken;
        call.slot = Some(slot);
        if !taken {
            // It may wait for as long as it may run afterwards.
            call.suspend_deadline();
            call.start_deadline(id, &self.shared);
        }
        Ok(taken)
    }

    /// A call has the slot that it waited for.
    pub(in crate::worker) fn slot_taken(&mut self, id: CallId) {
        let Some((stage, mut call)) = self.calls.remove(&id) else {
            return;
        };
        if let Some(slot) = &mut call.slot {
            slot.taken = true;
        }
        // Its time begins now.
        call.deadline_guard = None;
        match stage {
            Stage::Planning(waiting) => self.enqueue_planning(id, waiting, call),
            Stage::Queued(step, approved) if !self.writes.contains(&id) => {
                self.enqueue_running(id, step, approved, call);
            }
            Stage::Queued(..) => {
                call.start_deadline(id, &self.shared);
                self.store(id, stage, call);
                self.next_write();
            }
            other => self.store(id, other, call),
        }
    }

    pub(super) fn enqueue_planning(
        &mut self,
        id: CallId,
        waiting: Step<Waiting>,
        mut call: Box<OpenCall>,
    ) {
        call.start_deadline(id, &self.shared);
        self.store(id, Stage::Planning(waiting), call);
        self.wait_for_thread(id);
    }

    /// Starts a future at once, and queues any other call for a thread.
    fn enqueue_running(
        &mut self,
        id: CallId,
        step: Step<Cleared>,
        approved: Option<Approved>,
        mut call: Box<OpenCall>,
    ) {
        if step.is_future() {
            self.restart_deadline(id, &mut call);
            let task = self.shared.start(id, step, call.slot.take());
            self.store(id, Stage::Future { _task: task }, call);
            return;
        }
        call.start_deadline(id, &self.shared);
        self.store(id, Stage::Queued(step, approved), call);
        self.wait_for_thread(id);
    }

    /// Queues a call for a pool thread.
    pub(super) fn wait_for_thread(&mut self, id: CallId) {
        self.runnable.push_back(id);
        self.start_runnable();
    }

    /// Lets queued writes request their path locks, in order and as many as this worker may submit. A write that waits for
    /// a slot lets writes of other tools pass, but none of its own tool, so a worker has at most one slot of each tool
    /// for its queued writes.
    fn next_write(&mut self) {
        let (mut index, mut waiting) = (0, HashSet::new());
        while self.writing.len() < self.max_submitted()
            && self.writing_alone.is_none()
            && let Some(id) = self.writes.get(index).copied()
        {
            let (step, approved, mut call) = match self.calls.remove(&id) {
                Some((Stage::Queued(step, approved), call)) => (step, approved, call),
                other => {
                    self.reinsert(id, other);
                    self.writes.remove(index);
                    continue;
                }
            };
            let alone = self.writes_alone(&step, &call);
            let over =
                self.writing.len() >= self.max_jobs() && !self.may_wait_in_pool(&step, &call);
            if over || alone && !self.writing.is_empty() {
                self.calls.insert(id, (Stage::Queued(step, approved), call));
                return;
            }
            let slot = match &call.slot {
                _ if waiting.contains(&call.info.tool) => Ok(false),
                Some(slot) => Ok(slot.taken),
                None => self.take_slot(id, &mut call),
            };
            match slot {
                Ok(true) => {
                    self.writes.remove(index);
                    let path_locks = &self.shared.core.path_locks;
                    match path_locks.request(id, step.written(), &self.shared) {
                        Ok(lock) => call.path_lock = Some(lock),
                        Err(error) => {
                            call.finish(&self.shared, Err(error));
                            continue;
                        }
                    }
                    self.writing.insert(id);
                    self.writing_alone = alone.then_some(id);
                }
                Ok(false) => {
                    waiting.insert(call.info.tool.clone());
                    index += 1;
                }
                Err(error) => {
                    self.writes.remove(index);
                    call.finish(&self.shared, Err(error));
                    continue;
                }
            }
            self.calls.insert(id, (Stage::Queued(step, approved), call));
        }
    }

    /// Whether a write runs while no other write of its worker does: it may change more than the files that it names.
    fn writes_alone(&self, step: &Step<Cleared>, call: &OpenCall) -> bool {
        let tool = self.shared.tool(call.info.tool.as_str());
        !tool.is_some_and(|entry| entry.spec.for_files) || step.written().is_empty()
    }

    pub(in crate::worker) fn paths_locked(&mut self, id: CallId) {
        if self.calls.contains_key(&id) {
            self.wait_for_thread(id);
        }
    }

    /// Submits queued calls to the pools, as many as this worker may run, and a few writes ahead.
    pub(super) fn start_runnable(&mut self) {
        while let Some(id) = self.runnable.front().copied()
            && self.may_submit(id)
        {
            self.runnable.pop_front();
            match self.calls.remove(&id) {
                Some((Stage::Planning(waiting), call)) => self.start_planning(id, waiting, call),
                Some((Stage::Queued(step, approved), call)) => {
                    self.start_running(id, step, approved, call)
                }
                other => self.reinsert(id, other),
            }
        }
    }

    /// Whether the job of a call may be submitted.
    fn may_submit(&self, id: CallId) -> bool {
        let submitted = self.running.len() + self.undelivered.len();
        if submitted < self.max_jobs() {
            return true;
        }
        let ahead = submitted < self.max_submitted()
            && self.undelivered.is_empty()
            && self.running.values().all(|pool| *pool == PoolKind::Io);
        ahead
            && match self.calls.get(&id) {
                Some((Stage::Queued(step, _), call)) => self.may_wait_in_pool(step, call),
                _ => false,
            }
    }

    /// Whether a call may wait in the pool for other jobs of this worker: a write of a file tool without a limit on its
    /// calls. Its paths are locked while it waits, so nothing waits for threads that hang.
    fn may_wait_in_pool(&self, step: &Step<Cleared>, call: &OpenCall) -> bool {
        let core = &self.shared.core;
        let (_, room) = core.io.bounds();
        step.mutates()
            && self.pool_for(call, step.has_files_outside()) == PoolKind::Io
            && !core.tool_slots.contains_key(call.info.tool.as_str())
            && self.shared.lost.load(Ordering::Acquire) == 0
            && core.io.queued() < room / 2
    }

    /// How many jobs this worker may submit, with writes that wait in the pool.
    fn max_submitted(&self) -> usize {
        match self.max_jobs() {
            0 => 0,
            jobs => jobs.saturating_add(WAITING_WRITES),
        }
    }

    fn max_jobs(&self) -> usize {
        usize::try_from(self.shared.core.admission.jobs).unwrap_or(usize::MAX)
    }

    fn start_planning(&mut self, id: CallId, waiting: Step<Waiting>, mut call: Box<OpenCall>) {
        let Some((job, permit)) = waiting.early_plan() else {
            return self.question(id, waiting, None, call);
        };
        let (shared, info) = (Arc::clone(&self.shared), Arc::clone(&call.info));
        let pool = self.pool_for(&call, waiting.has_files_outside());
        let slot = call.slot.take();
        let work = move || {
            report_start(&shared, id, pool);
            let plan = || jobs::plan(&shared, &info, &*job, &permit);
            let plan = jobs::catch_panic(plan, |error| Err(Interrupt::Failed(error)));
            drop(slot);
            shared.post(WorkerMsg::Planned(id, Box::new(plan)));
        };
        let root = self.shared.root_of(waiting.needs());
        let handed = self.pool(pool).submit(root, &self.shared.lost, work);
        self.submitted(id, Stage::Planning(waiting), call, pool, handed);
    }

    fn start_running(
        &mut self,
        id: CallId,
        step: Step<Cleared>,
        approved: Option<Approved>,
        mut call: Box<OpenCall>,
    ) {
        let shared = Arc::clone(&self.shared);
        let guards = (call.path_lock.take(), call.slot.take());
        let root = self.shared.root_of(step.needs());
        let span = call.span.clone();
        let pool = self.pool_for(&call, step.has_files_outside());
        let work = move || {
            report_start(&shared, id, pool);
            let run = || span.in_scope(|| jobs::run(&shared, step, approved));
            let ended = jobs::catch_panic(run, |error| Ended::Done(Err(error)));
            // Path locks and the slot are released before the result is reported.
            drop(guards);
            shared.post(WorkerMsg::Ended(id, Box::new(ended)));
        };
        let handed = self.pool(pool).submit(root, &self.shared.lost, work);
        self.submitted(id, Stage::Running, call, pool, handed);
    }

    /// The pool that runs the tool of a call, which may have been granted files `outside` the roots.
    fn pool_for(&self, call: &OpenCall, outside: bool) -> PoolKind {
        match self.shared.tool(call.info.tool.as_str()) {
            Some(entry) if !entry.spec.for_files => PoolKind::Tools,
            Some(_) | None if outside => PoolKind::IoOutside,
            Some(_) | None => PoolKind::Io,
        }
    }

    pub(super) fn pool(&self, kind: PoolKind) -> &Arc<Pool> {
        match kind {
            PoolKind::Cpu => &self.shared.core.cpu,
            PoolKind::Io => &self.shared.core.io,
            PoolKind::IoOutside => &self.shared.core.io_outside,
            PoolKind::Tools => &self.shared.core.tool_pool,
        }
    }

    /// The job of a call left the queue, so its time begins.
    pub(in crate::worker) fn job_started(&mut self, id: CallId) {
        if let Some((stage, mut call)) = self.calls.remove(&id) {
            // Later jobs of the same call, such as those after an interrupt, share its time.
            if !std::mem::replace(&mut call.started, true) {
                self.restart_deadline(id, &mut call);
            }
            self.calls.insert(id, (stage, call));
        }
    }

    /// Gives a call the time that its caller and its tool allow, from now on.
    fn restart_deadline(&self, id: CallId, call: &mut OpenCall) {
        let entry = self.shared.tool(call.info.tool.as_str());
        let timeout = entry.and_then(|entry| entry.spec.timeout);
        call.limit = timeout.map_or(call.limit, |timeout| call.limit.min(timeout));
        call.deadline_guard = None;
        call.start_deadline(id, &self.shared);
    }

    /// Stores a call whose job was submitted, or rejects it if the pool was full.
    pub(super) fn submitted(
        &mut self,
        id: CallId,
        stage: Stage,
        mut call: Box<OpenCall>,
        pool: PoolKind,
        handed: Result<Arc<Ticket>, Full>,
    ) {
        match handed {
            Ok(ticket) => {
                self.running.insert(id, pool);
                call.job = Some(Submitted { pool, ticket });
                self.store(id, stage, call);
            }
            Err(Full) => {
                let error = match pool {
                    PoolKind::Tools => tools_busy(&self.shared, false),
                    PoolKind::Cpu => policies_busy(&self.shared),
                    PoolKind::Io | PoolKind::IoOutside => threads_busy(&self.shared),
                };
                self.answer(id, call, Err(error));
            }
        }
    }

    pub(in crate::worker) fn job_ended(&mut self, id: CallId, ended: Ended) {
        let call = self.take_finished(id);
        self.dequeue(id);
        match (call, ended) {
            (Some((_, call)), Ended::Done(result)) => {
                let bytes = result.as_ref().map_or(0, Done::bytes);
                if let Some(hold) = call.hold.as_ref().filter(|_| bytes >= LARGE_RESULT) {
                    hold.count(id);
                    self.undelivered.insert(id);
                }
                call.finish(&self.shared, result);
            }
            (Some((_, call)), Ended::Interrupted(step, interrupt)) => {
                self.judge_or_answer(id, step.interrupted(interrupt), call);
            }
            // The caller stopped waiting, and the effect has happened.
            (None, Ended::Done(Ok(done))) => {
                self.shared.changed(done.changes());
                self.shared.log_late_effect(id, &done);
            }
            (None, _) => {}
        }
        self.start_runnable();
    }

    /// The large result of a call was passed on.
    pub(in crate::worker) fn passed_on(&mut self, id: CallId) {
        self.undelivered.remove(&id);
        self.start_runnable();
    }

    /// A call that runs as a future ended.
    pub(in crate::worker) fn future_ended(&mut self, id: CallId, ended: Ended) {
        match (self.calls.remove(&id), ended) {
            (Some((Stage::Future { .. }, call)), Ended::Done(result)) => {
                self.answer(id, call, result);
            }
            (Some((Stage::Future { .. }, mut call)), Ended::Interrupted(step, interrupt)) => {
                call.suspend_deadline();
                self.judge_or_answer(id, step.interrupted(interrupt), call);
            }
            (other, _) => self.reinsert(id, other),
        }
    }

    /// Suspends or continues the deadline of a remote call, since waiting for a person does not count as work.
    pub(in crate::worker) fn suspend(&mut self, id: CallId, suspended: bool) {
        if let Some((Stage::Future { .. }, call)) = self.calls.get_mut(&id) {
            if suspended {
                call.suspend_deadline();
            } else {
                call.start_deadline(id, &self.shared);
            }
        }
    }

    /// Continues the deadline of a call whose question was answered.
    pub(in crate::worker) fn opening_granted(&mut self, id: CallId) {
        if let Some((Stage::Asking(..), call)) = self.calls.get_mut(&id) {
            call.start_deadline(id, &self.shared);
        }
    }

    /// Answers a call before it has ended. If its thread hangs, it still counts as running until the thread returns.
    pub(in crate::worker) fn abort(&mut self, id: CallId, why: StopReason) {
        let Some((stage, mut call)) = self.calls.remove(&id) else {
            return;
        };
        call.info.stop.raise(why);
        self.paused.retain(|paused| *paused != id);
        let (never_began, queued_for_tools) = match call.job.take() {
            Some(job) if self.running.contains_key(&id) => {
                let never_began = self.pool(job.pool).abandon(&job.ticket);
                (never_began, never_began && job.pool == PoolKind::Tools)
            }
            Some(_) | None => (true, false),
        };
        self.runnable.retain(|queued| *queued != id);
        if never_began {
            self.running.remove(&id);
            self.compiling.take_if(|compiling| *compiling == id);
            self.dequeue(id);
        }
        let waiting = call.slot.as_ref().filter(|slot| !slot.taken);
        let error = if matches!(stage, Stage::Paused(_)) && why == StopReason::Expired {
            paused_too_long()
        } else if let Some(slot) = waiting.filter(|_| why == StopReason::Expired) {
            slot.not_taken_in_time(&self.shared)
        } else if queued_for_tools && why == StopReason::Expired {
            tools_busy(&self.shared, true)
        } else if why == StopReason::Revoked && call.info.stop.reason() == Some(why) {
            self.shared.gate().error()
        } else {
            call.info.stop.check().err().unwrap_or_else(effect_begun)
        };
        // The server or tool may have carried out the call.
        let error = call.info.stop.with_effect(error);
        call.finish(&self.shared, Err(error));
        self.compile_next();
        self.start_runnable();
    }

    /// Aborts all calls except those whose effect has begun, which are answered when it ends.
    pub(in crate::worker) fn close(&mut self) {
        self.closing = true;
        let begun = |call: &OpenCall| {
            call.info.stop.raise(StopReason::Revoked);
            call.info.stop.has_begun()
        };
        let calls = self.calls.iter();
        let ended: Vec<CallId> = calls
            .filter(|(_, (_, call))| !begun(call))
            .map(|(id, _)| *id)
            .collect();
        for id in ended {
            self.abort(id, StopReason::Revoked);
        }
    }

    pub(super) fn answer(
        &mut self,
        id: CallId,
        call: Box<OpenCall>,
        result: Result<Done, CallError>,
    ) {
        self.dequeue(id);
        call.finish(&self.shared, result);
    }

    /// Removes a call from the writes; the next one starts.
    pub(super) fn dequeue(&mut self, id: CallId) {
        self.writing.remove(&id);
        self.writing_alone.take_if(|alone| *alone == id);
        self.writes.retain(|waiting| *waiting != id);
        self.next_write();
    }

    /// A job ended. Returns its call, unless the caller stopped waiting or the call belongs to an earlier actor of this worker.
    pub(super) fn take_finished(&mut self, id: CallId) -> Option<(Stage, Box<OpenCall>)> {
        self.running.remove(&id)?;
        let (stage, mut call) = self.calls.remove(&id)?;
        call.job = None;
        Some((stage, call))
    }

    /// Puts a call back whose stage does not match the message.
    pub(super) fn reinsert(&mut self, id: CallId, call: Option<(Stage, Box<OpenCall>)>) {
        self.calls.extend(call.map(|call| (id, call)));
    }
}

/// Reports that a job left the queue of the threads for tools. Time in that queue does not count as time of the tool.
fn report_start(shared: &Shared, id: CallId, pool: PoolKind) {
    if pool == PoolKind::Tools {
        shared.post(WorkerMsg::Started(id));
    }
}

/// The error for a call whose worker was paused for too long.
fn paused_too_long() -> CallError {
    let message = "this worker is paused, and the time limit of the call has passed; nothing was done. Try again later";
    CallError::new(Code::Deadline, message)
}

/// The error for a call whose effect has begun and may not have ended.
fn effect_begun() -> CallError {
    let message =
        "the change had begun and may still complete; check the current state before you try again";
    CallError::new(Code::Deadline, message).with("begun", true)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::call::Call;
    use crate::config::Namespace;
    use crate::host::Runtime;
    use crate::policy::Policy;
    use crate::tool::{Prepared, ReadPermit};
    use crate::worker::admission::Admission;
    use crate::worker::call_table::tests::admitted;
    use crate::worker::{CallEvent, CallState, Worker, WorkerSpec};
    use crate::{ReadTool, Reply, ToolSet, ToolSpec};

    /// Its reply has that many bytes.
    struct Look(usize);

    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Nothing {}

    impl ReadTool for Look {
        type Args = Nothing;
        type Output = ();
        type Job = ();

        fn spec(&self) -> ToolSpec {
            ToolSpec::new("look", "Look", "Looks at nothing.")
        }

        fn prepare(&self, _: Nothing, _: &Namespace) -> Result<Prepared<()>, CallError> {
            let (needs, job) = (Vec::new(), ());
            Ok(Prepared { needs, job })
        }

        fn read(&self, (): &(), _: &ReadPermit) -> Result<Reply, Interrupt> {
            Ok(Reply::text("x".repeat(self.0), ()))
        }
    }

    /// A worker that may run that many jobs at once, with its runtime.
    async fn worker(jobs: u32, look: Look) -> (Runtime, Worker) {
        let bounds = Admission {
            jobs,
            ..Admission::default()
        };
        let builder = Runtime::builder().admission(bounds);
        let built = builder.tools(ToolSet::new().reader(look)).build().await;
        let (runtime, _) = built.unwrap();
        let spec = WorkerSpec::new("main").policy(Policy::new());
        let worker = runtime.spawn(spec).await.unwrap();
        (runtime, worker)
    }

    #[tokio::test]
    async fn aborted_call_leaves_nothing_in_the_queue_for_threads() {
        // Its calls wait until they are stopped.
        let (_runtime, worker) = worker(0, Look(0)).await;
        let mut calls = CallTable::new(Arc::clone(&worker.shared));
        let (request, call, mut answer) = admitted(&worker, Call::new("look", json!({})));
        let id = request.info.id;
        calls.receive(request, call);
        assert_eq!(calls.runnable, [id]);
        calls.abort(id, StopReason::Cancelled);
        assert!(answer.try_recv().unwrap().is_err());
        assert!(calls.runnable.is_empty() && calls.calls.is_empty());
    }

    #[tokio::test]
    async fn actor_stays_until_a_large_result_is_passed_on() {
        let large = usize::try_from(LARGE_RESULT).unwrap();
        let (_runtime, worker) = worker(1, Look(large)).await;
        let start = || worker.start_call(Call::new("look", json!({})), Mode::Apply);
        let mut first = start();
        assert!(matches!(first.next().await, Ok(CallEvent::End(_))));
        worker.shared.core.end_idle_actors(Duration::ZERO);
        let mut second = start();
        let second = tokio::spawn(async move { second.next().await });
        while worker.activity().len() < 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(worker.activity()[0].state, CallState::Queued);
        drop(first.take_hold());
        assert!(matches!(second.await.unwrap(), Ok(CallEvent::End(_))));
    }

    #[tokio::test]
    async fn large_results_count_as_jobs_until_they_are_passed_on() {
        let large = usize::try_from(LARGE_RESULT).unwrap();
        for (bytes, waits) in [(large, true), (large - 1, false)] {
            let (_runtime, worker) = worker(1, Look(bytes)).await;
            let start = || worker.start_call(Call::new("look", json!({})), Mode::Apply);
            let (mut first, mut second) = (start(), start());
            assert!(matches!(first.next().await, Ok(CallEvent::End(_))));
            let second = tokio::spawn(async move { second.next().await });
            if waits {
                while worker.activity().len() < 2 {
                    tokio::task::yield_now().await;
                }
                // Open calls come before those that ended.
                assert_eq!(worker.activity()[0].state, CallState::Queued);
                drop(first.take_hold());
            }
            assert!(matches!(second.await.unwrap(), Ok(CallEvent::End(_))));
        }
    }
}
