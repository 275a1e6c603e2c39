//! Runs authorised calls: path locks, pool threads and results.

use super::{CallTable, Caller, PoolKind, Stage, Submitted};
use crate::capability::{Interrupt, StopReason};
use crate::error::{CallError, Code};
use crate::id::CallId;
use crate::pipeline::{Cleared, Mode, Step, Waiting};
use crate::worker::actor::WorkerMsg;
use crate::worker::admission::{Done, busy, tools_busy};
use crate::worker::blocking::{Full, Pool, Ticket};
use crate::worker::jobs::{Approved, Ended};
use crate::worker::{Shared, jobs};
use std::sync::Arc;

impl CallTable {
    /// Queues a cleared call: for its path locks if it changes something, otherwise for a thread.
    pub(super) fn enqueue(
        &mut self,
        id: CallId,
        step: Step<Cleared>,
        approved: Option<Approved>,
        mut caller: Caller,
    ) {
        if step.is_future() {
            self.restart_deadline(id, &mut caller);
            let task = self.shared.start(id, step);
            self.store(id, Stage::Future { _task: task }, caller);
            return;
        }
        let ordered = step.mutates() && caller.info.mode == Mode::Apply;
        caller.arm(id, &self.shared);
        self.store(id, Stage::Ready(step, approved), caller);
        if ordered {
            self.writes.push_back(id);
            if self.writes.len() == 1 {
                self.lock_first();
            }
        } else {
            self.wait_for_thread(id);
        }
    }

    /// Queues a call for a pool thread.
    pub(super) fn wait_for_thread(&mut self, id: CallId) {
        self.ready.push_back(id);
        self.start_ready();
    }

    /// Requests the path locks of the first queued write.
    fn lock_first(&mut self) {
        let first = self
            .writes
            .front()
            .and_then(|id| Some((*id, self.calls.get_mut(id)?)));
        if let Some((id, (Stage::Ready(step, _), caller))) = first {
            caller.path_lock = Some(self.shared.core.path_locks.lock(
                id,
                step.written(),
                &self.shared,
            ));
        }
    }

    pub(in crate::worker) fn paths_locked(&mut self, id: CallId) {
        if self.calls.contains_key(&id) {
            self.wait_for_thread(id);
        }
    }

    /// Submits ready calls to the pool, as many as this worker may run.
    pub(super) fn start_ready(&mut self) {
        while self.running.len() < self.max_jobs() {
            let Some(id) = self.ready.pop_front() else {
                return;
            };
            match self.calls.remove(&id) {
                Some((Stage::Planning(waiting), caller)) => {
                    self.start_planning(id, waiting, caller)
                }
                Some((Stage::Ready(step, approved), caller)) => {
                    self.start_running(id, step, approved, caller)
                }
                other => self.reinsert(id, other),
            }
        }
    }

    fn max_jobs(&self) -> usize {
        usize::try_from(self.shared.core.admission.jobs).unwrap_or(usize::MAX)
    }

    fn start_planning(&mut self, id: CallId, waiting: Step<Waiting>, caller: Caller) {
        let Some((job, permit)) = waiting.early_plan() else {
            return self.question(id, waiting, None, caller);
        };
        let (shared, info) = (Arc::clone(&self.shared), Arc::clone(&caller.info));
        let pool = self.pool_for(&caller);
        let work = move || {
            report_start(&shared, id, pool);
            let plan = || jobs::plan(&shared, &info, &*job, &permit);
            let plan = jobs::catch_panic(plan, |error| Err(Interrupt::Failed(error)));
            shared.post(WorkerMsg::Planned(id, Box::new(plan)));
        };
        let root = self.shared.root_of(waiting.needs());
        let handed = self.pool(pool).submit(root, &self.shared.lost, work);
        self.submitted(id, Stage::Planning(waiting), caller, pool, handed);
    }

    fn start_running(
        &mut self,
        id: CallId,
        step: Step<Cleared>,
        approved: Option<Approved>,
        mut caller: Caller,
    ) {
        let (shared, path_lock) = (Arc::clone(&self.shared), caller.path_lock.take());
        let root = self.shared.root_of(step.needs());
        let span = caller.span.clone();
        let pool = self.pool_for(&caller);
        let work = move || {
            report_start(&shared, id, pool);
            let run = || span.in_scope(|| jobs::run(&shared, step, approved));
            let ended = jobs::catch_panic(run, |error| Ended::Done(Err(error)));
            // The locks are released before the result is reported.
            drop(path_lock);
            shared.post(WorkerMsg::Ended(id, Box::new(ended)));
        };
        let handed = self.pool(pool).submit(root, &self.shared.lost, work);
        self.submitted(id, Stage::Running, caller, pool, handed);
    }

    /// The pool that runs the tool of a call.
    fn pool_for(&self, caller: &Caller) -> PoolKind {
        match self.shared.tool(caller.info.tool.as_str()) {
            Some(entry) if !entry.spec.for_files => PoolKind::Tools,
            Some(_) | None => PoolKind::Io,
        }
    }

    pub(super) fn pool(&self, kind: PoolKind) -> &Pool {
        match kind {
            PoolKind::Cpu => &self.shared.core.cpu,
            PoolKind::Io => &self.shared.core.io,
            PoolKind::Tools => &self.shared.core.tool_pool,
        }
    }

    /// The job of a call left the queue, so its time begins.
    pub(in crate::worker) fn started(&mut self, id: CallId) {
        if let Some((stage, mut caller)) = self.calls.remove(&id) {
            // Later jobs of the same call, such as those after an interrupt, share its time.
            if !std::mem::replace(&mut caller.started, true) {
                self.restart_deadline(id, &mut caller);
            }
            self.calls.insert(id, (stage, caller));
        }
    }

    /// Gives a call the time that its caller and its tool allow, from now on.
    fn restart_deadline(&self, id: CallId, caller: &mut Caller) {
        let entry = self.shared.tool(caller.info.tool.as_str());
        let timeout = entry.and_then(|entry| entry.spec.timeout);
        caller.limit = timeout.map_or(caller.limit, |timeout| caller.limit.min(timeout));
        caller.deadline_guard = None;
        caller.arm(id, &self.shared);
    }

    /// Stores a call whose job was submitted, or rejects it if the pool was full.
    pub(super) fn submitted(
        &mut self,
        id: CallId,
        stage: Stage,
        mut caller: Caller,
        pool: PoolKind,
        handed: Result<Arc<Ticket>, Full>,
    ) {
        match handed {
            Ok(ticket) => {
                self.running.insert(id);
                caller.job = Some(Submitted { pool, ticket });
                self.store(id, stage, caller);
            }
            Err(Full) if pool == PoolKind::Tools => {
                let error = tools_busy(&self.shared, false);
                self.answer(id, caller, Err(error));
            }
            Err(Full) => {
                let retry_after_ms = self.shared.core.admission.retry_after_ms;
                self.answer(id, caller, Err(busy(retry_after_ms)));
            }
        }
    }

    pub(in crate::worker) fn ended(&mut self, id: CallId, ended: Ended) {
        let call = self.take_finished(id);
        self.dequeue(id);
        match (call, ended) {
            (Some((_, caller)), Ended::Done(result)) => self.answer(id, caller, result),
            (Some((_, caller)), Ended::Interrupted(step, interrupt)) => {
                self.judge_or_answer(id, step.interrupted(interrupt), caller);
            }
            // The caller stopped waiting, and the effect has happened.
            (None, Ended::Done(Ok(done))) => self.shared.changed(done.changes()),
            (None, _) => {}
        }
        self.start_ready();
    }

    /// A call that runs as a future ended.
    pub(in crate::worker) fn future_ended(&mut self, id: CallId, ended: Ended) {
        match (self.calls.remove(&id), ended) {
            (Some((Stage::Future { .. }, caller)), Ended::Done(result)) => {
                self.answer(id, caller, result);
            }
            (Some((Stage::Future { .. }, mut caller)), Ended::Interrupted(step, interrupt)) => {
                caller.deadline_guard = None;
                self.judge_or_answer(id, step.interrupted(interrupt), caller);
            }
            (other, _) => self.reinsert(id, other),
        }
    }

    /// Suspends or restarts the deadline of a remote call, since waiting for a person does not count as work.
    pub(in crate::worker) fn suspend(&mut self, id: CallId, suspended: bool) {
        if let Some((Stage::Future { .. }, caller)) = self.calls.get_mut(&id) {
            caller.deadline_guard = None;
            if !suspended {
                caller.arm(id, &self.shared);
            }
        }
    }

    /// Answers a call before it has ended. If its thread hangs, it still counts as running until the thread returns.
    pub(in crate::worker) fn abort(&mut self, id: CallId, why: StopReason) {
        let Some((_, mut caller)) = self.calls.remove(&id) else {
            return;
        };
        caller.info.stop.raise(why);
        let (never_began, queued_for_tools) = match caller.job.take() {
            Some(job) if self.running.contains(&id) => {
                let never_began = self.pool(job.pool).abandon(&job.ticket);
                (never_began, never_began && job.pool == PoolKind::Tools)
            }
            Some(_) | None => (true, false),
        };
        self.ready.retain(|ready| *ready != id);
        if never_began {
            self.running.remove(&id);
            self.compiling.take_if(|compiling| *compiling == id);
            self.dequeue(id);
        }
        let error = if queued_for_tools && why == StopReason::Expired {
            tools_busy(&self.shared, true)
        } else {
            caller.info.stop.check().err().unwrap_or_else(begun)
        };
        // The server or tool may have carried out the call.
        let error = caller.info.stop.mark_sent(error);
        caller.finish(&self.shared, Err(error));
        self.compile_next();
        self.start_ready();
    }

    /// Aborts all calls except those whose effect has begun, which are answered when it ends.
    pub(in crate::worker) fn close(&mut self) {
        self.closing = true;
        let begun = |caller: &Caller| {
            caller.info.stop.raise(StopReason::Revoked);
            caller.info.stop.has_begun()
        };
        let calls = self.calls.iter();
        let ended: Vec<CallId> = calls
            .filter(|(_, (_, caller))| !begun(caller))
            .map(|(id, _)| *id)
            .collect();
        for id in ended {
            self.abort(id, StopReason::Revoked);
        }
    }

    pub(super) fn answer(&mut self, id: CallId, caller: Caller, result: Result<Done, CallError>) {
        self.dequeue(id);
        caller.finish(&self.shared, result);
    }

    /// Removes a call from the queue of writes; the next one requests its path locks.
    pub(super) fn dequeue(&mut self, id: CallId) {
        let first = self.writes.front() == Some(&id);
        self.writes.retain(|waiting| *waiting != id);
        if first {
            self.lock_first();
        }
    }

    /// A job ended. Returns its call, unless the caller stopped waiting or the call belongs to an earlier actor of this worker.
    pub(super) fn take_finished(&mut self, id: CallId) -> Option<(Stage, Caller)> {
        if !self.running.remove(&id) {
            return None;
        }
        let (stage, mut caller) = self.calls.remove(&id)?;
        caller.job = None;
        Some((stage, caller))
    }

    /// Puts a call back whose stage does not match the message.
    pub(super) fn reinsert(&mut self, id: CallId, call: Option<(Stage, Caller)>) {
        self.calls.extend(call.map(|call| (id, call)));
    }
}

/// Reports that a job left the queue of the threads for tools. Time in that queue does not count as time of the tool.
fn report_start(shared: &Shared, id: CallId, pool: PoolKind) {
    if pool == PoolKind::Tools {
        shared.post(WorkerMsg::Started(id));
    }
}

/// The error for a call whose effect has begun and may not have ended.
fn begun() -> CallError {
    let message = "the change had begun and may yet be made; look before you try again";
    CallError::new(Code::Deadline, message).with("begun", true)
}
