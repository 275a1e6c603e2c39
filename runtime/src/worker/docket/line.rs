//! Cleared calls in, their turns, threads and ends out.

use std::sync::Arc;

use super::{Caller, Docket, Stage};
use crate::capability::{Interrupt, StopReason};
use crate::error::{CallError, Code};
use crate::id::CallId;
use crate::pipeline::{Cleared, Mode, Step, Waiting};
use crate::worker::actor::WorkerMsg;
use crate::worker::blocking::{Full, Pool, Ticket};
use crate::worker::inbox::{Done, busy};
use crate::worker::jobs::{self, Approved, Ended};

impl Docket {
    /// Queues a cleared call: for its turn if it changes something, else for a thread.
    pub(super) fn line_up(
        &mut self,
        id: CallId,
        step: Step<Cleared>,
        approved: Option<Approved>,
        mut caller: Caller,
    ) {
        if step.is_remote() {
            caller.arm(id, &self.shared);
            let until = self.shared.send(id, step);
            self.calls
                .insert(id, (Stage::Sent { _until: until }, caller));
            return;
        }
        let ordered = step.mutates() && caller.facts.mode == Mode::Apply;
        caller.arm(id, &self.shared);
        self.calls
            .insert(id, (Stage::Ready(step, approved), caller));
        if ordered {
            self.writes.push_back(id);
            if self.writes.len() == 1 {
                self.claim_first();
            }
        } else {
            self.wait_for_thread(id);
        }
    }

    /// Queues a call for one of this worker's places in the pool.
    pub(super) fn wait_for_thread(&mut self, id: CallId) {
        self.ready.push_back(id);
        self.start_ready();
    }

    /// Claims the paths of the first write in line.
    fn claim_first(&mut self) {
        let first = self
            .writes
            .front()
            .and_then(|id| Some((*id, self.calls.get_mut(id)?)));
        if let Some((id, (Stage::Ready(step, _), caller))) = first {
            caller.claim = Some(
                self.shared
                    .core
                    .turns
                    .claim(id, step.written(), &self.shared),
            );
        }
    }

    pub(in crate::worker) fn turn(&mut self, id: CallId) {
        if self.calls.contains_key(&id) {
            self.wait_for_thread(id);
        }
    }

    /// Hands ready calls to the pool while this worker has places there.
    pub(super) fn start_ready(&mut self) {
        while self.running.len() < self.places() {
            let Some(id) = self.ready.pop_front() else {
                return;
            };
            match self.calls.remove(&id) {
                Some((Stage::Looking(waiting), caller)) => self.start_looking(id, waiting, caller),
                Some((Stage::Ready(step, approved), caller)) => {
                    self.start_running(id, step, approved, caller)
                }
                other => self.put_back(id, other),
            }
        }
    }

    fn places(&self) -> usize {
        usize::try_from(self.shared.core.admission.jobs).unwrap_or(usize::MAX)
    }

    fn start_looking(&mut self, id: CallId, waiting: Step<Waiting>, caller: Caller) {
        let Some((job, permit)) = waiting.look() else {
            return self.question(id, waiting, None, caller);
        };
        let (shared, facts) = (Arc::clone(&self.shared), Arc::clone(&caller.facts));
        let work = move || {
            let look = || jobs::look(&shared, &facts, &*job, &permit);
            let plan = jobs::whole(look, |error| Err(Interrupt::Failed(error)));
            shared.post(WorkerMsg::Looked(id, Box::new(plan)));
        };
        let root = self.shared.root_of(waiting.needs());
        let handed = self.shared.core.io.submit(root, &self.shared.lost, work);
        self.handed_over(id, Stage::Looking(waiting), caller, handed);
    }

    fn start_running(
        &mut self,
        id: CallId,
        step: Step<Cleared>,
        approved: Option<Approved>,
        mut caller: Caller,
    ) {
        let (shared, claim) = (Arc::clone(&self.shared), caller.claim.take());
        let root = self.shared.root_of(step.needs());
        let span = caller.span.clone();
        let work = move || {
            let run = || span.in_scope(|| jobs::run(&shared, step, approved));
            let ended = jobs::whole(run, |error| Ended::Done(Err(error)));
            // The paths are free before anybody hears of the result.
            drop(claim);
            shared.post(WorkerMsg::Ended(id, Box::new(ended)));
        };
        let handed = self.shared.core.io.submit(root, &self.shared.lost, work);
        self.handed_over(id, Stage::Running, caller, handed);
    }

    /// The pool that a call at this stage is in.
    pub(super) fn pool_of(&self, stage: &Stage) -> &Pool {
        match stage {
            Stage::Preparing(_) | Stage::Judging(..) => &self.shared.core.cpu,
            Stage::Redeeming(_)
            | Stage::Looking(_)
            | Stage::Asking(..)
            | Stage::Ready(..)
            | Stage::Running
            | Stage::Sent { .. } => &self.shared.core.io,
        }
    }

    /// Remembers a call whose job the pool took, or refuses it at once.
    pub(super) fn handed_over(
        &mut self,
        id: CallId,
        stage: Stage,
        mut caller: Caller,
        handed: Result<Arc<Ticket>, Full>,
    ) {
        match handed {
            Ok(ticket) => {
                self.running.insert(id);
                caller.ticket = Some(ticket);
                self.calls.insert(id, (stage, caller));
            }
            Err(Full) => {
                let retry_after_ms = self.shared.core.admission.retry_after_ms;
                self.answer(id, caller, Err(busy(retry_after_ms)));
            }
        }
    }

    pub(in crate::worker) fn ended(&mut self, id: CallId, ended: Ended) {
        let call = self.returned(id);
        self.leave_line(id);
        match (call, ended) {
            (Some((_, caller)), Ended::Done(result)) => self.answer(id, caller, result),
            (Some((_, caller)), Ended::Interrupted(step, interrupt)) => {
                self.judge_or_answer(id, step.interrupted(interrupt), caller);
            }
            (None, _) => {}
        }
        self.start_ready();
    }

    /// A server is done with a call.
    pub(in crate::worker) fn carried(&mut self, id: CallId, ended: Ended) {
        match (self.calls.remove(&id), ended) {
            (Some((Stage::Sent { .. }, caller)), Ended::Done(result)) => {
                self.answer(id, caller, result);
            }
            (Some((Stage::Sent { .. }, mut caller)), Ended::Interrupted(step, interrupt)) => {
                caller.armed = None;
                self.judge_or_answer(id, step.interrupted(interrupt), caller);
            }
            (other, _) => self.put_back(id, other),
        }
    }

    /// Waiting for a person is not work: the deadline of a call that is at its server is suspended, or set anew.
    pub(in crate::worker) fn suspend(&mut self, id: CallId, suspended: bool) {
        if let Some((Stage::Sent { .. }, caller)) = self.calls.get_mut(&id) {
            caller.armed = None;
            if !suspended {
                caller.arm(id, &self.shared);
            }
        }
    }

    /// Answers a call that is over before its end. If its thread hangs it keeps its place until it is back.
    pub(in crate::worker) fn give_up(&mut self, id: CallId, why: StopReason) {
        let Some((stage, mut caller)) = self.calls.remove(&id) else {
            return;
        };
        caller.facts.stop.raise(why);
        let never_began = match caller.ticket.take() {
            Some(ticket) if self.running.contains(&id) => self.pool_of(&stage).abandon(&ticket),
            Some(_) | None => true,
        };
        if never_began {
            self.running.remove(&id);
            self.compiling.take_if(|compiling| *compiling == id);
            self.leave_line(id);
        }
        let sent = matches!(stage, Stage::Sent { .. }) && caller.facts.stop.was_sent();
        let error = caller.facts.stop.check().err().unwrap_or_else(begun);
        // Nobody can tell how far the server came.
        let error = if sent {
            error.with("begun", true)
        } else {
            error
        };
        caller.told(&self.shared, Err(error));
        self.compile_next();
        self.start_ready();
    }

    /// Answers everybody but those whose effect has begun: these hear how it ended.
    pub(in crate::worker) fn close(&mut self) {
        self.closing = true;
        let begun = |caller: &Caller| {
            caller.facts.stop.raise(StopReason::Revoked);
            caller.facts.stop.has_begun()
        };
        let calls = self.calls.iter();
        let ended: Vec<CallId> = calls
            .filter(|(_, (_, caller))| !begun(caller))
            .map(|(id, _)| *id)
            .collect();
        for id in ended {
            self.give_up(id, StopReason::Revoked);
        }
    }

    pub(super) fn answer(&mut self, id: CallId, caller: Caller, result: Result<Done, CallError>) {
        self.leave_line(id);
        caller.told(&self.shared, result);
    }

    /// Takes a call out of the line of writes; the next one claims its paths.
    pub(super) fn leave_line(&mut self, id: CallId) {
        let first = self.writes.front() == Some(&id);
        self.writes.retain(|waiting| *waiting != id);
        if first {
            self.claim_first();
        }
    }

    /// A pool thread is back. Returns its call, unless its caller is gone or it is of a former life of this worker.
    pub(super) fn returned(&mut self, id: CallId) -> Option<(Stage, Caller)> {
        if !self.running.remove(&id) {
            return None;
        }
        let (stage, mut caller) = self.calls.remove(&id)?;
        caller.ticket = None;
        Some((stage, caller))
    }

    /// A message came for a call that is elsewhere by now: it is not for this stage.
    pub(super) fn put_back(&mut self, id: CallId, call: Option<(Stage, Caller)>) {
        self.calls.extend(call.map(|call| (id, call)));
    }
}

/// The answer where the effect has begun and its end cannot be waited for.
fn begun() -> CallError {
    let message = "the change had begun and may yet be made; look before you try again";
    CallError::new(Code::Deadline, message).with("begun", true)
}
