//! Cleared calls in, their turns, threads and ends out.

use std::sync::Arc;

use super::{Caller, Docket, Stage};
use crate::capability::Halted;
use crate::error::{CallError, Code};
use crate::id::CallId;
use crate::pipeline::{Cleared, Mode, Step};
use crate::tool::AnyPlan;
use crate::worker::actor::WorkerMsg;
use crate::worker::blocking::{Full, Ticket};
use crate::worker::inbox::{Done, busy};
use crate::worker::jobs::{self, Ended};

impl Docket {
    /// Queues a cleared call: for its turn if it changes something, else for a thread.
    pub(super) fn line_up(
        &mut self,
        id: CallId,
        step: Step<Cleared>,
        plan: Option<AnyPlan>,
        mut caller: Caller,
    ) {
        let ordered = step.mutates() && caller.facts.mode == Mode::Apply;
        caller.changes = ordered;
        caller.arm(id, &self.shared);
        self.calls.insert(id, (Stage::Ready(step, plan), caller));
        if ordered {
            self.writes.push_back(id);
            if self.writes.len() == 1 {
                self.claim_first();
            }
        } else {
            self.ready.push_back(id);
            self.start_ready();
        }
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
            self.ready.push_back(id);
            self.start_ready();
        }
    }

    /// Hands ready calls to the pool while this worker has places there.
    pub(super) fn start_ready(&mut self) {
        while self.running < self.shared.core.admission.jobs {
            let Some(id) = self.ready.pop_front() else {
                return;
            };
            match self.calls.remove(&id) {
                Some((Stage::Ready(step, plan), mut caller)) => {
                    let (shared, claim) = (Arc::clone(&self.shared), caller.claim.take());
                    let root = self.shared.root_of(step.needs());
                    let work = move || {
                        let ended = jobs::run(&shared, step, plan);
                        // The paths are free before anybody hears of the result.
                        drop(claim);
                        shared.post(WorkerMsg::Ended(id, Box::new(ended)));
                    };
                    let handed = self.shared.core.io.submit(root, work);
                    self.handed_over(id, Stage::Running, caller, handed);
                }
                other => self.put_back(id, other),
            }
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
                self.running += 1;
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
        self.returned(id);
        self.leave_line(id);
        match (self.calls.remove(&id), ended) {
            (Some((_, caller)), Ended::Done(result)) => self.answer(id, caller, result),
            (Some((_, caller)), Ended::Halted(step, halt)) => {
                self.judge_or_answer(id, step.halted(halt), caller)
            }
            (None, _) => {}
        }
        self.start_ready();
    }

    /// Answers a call that is over before its end. If its thread hangs it keeps its place until it is back.
    pub(in crate::worker) fn give_up(&mut self, id: CallId, why: Halted) {
        let Some((stage, caller)) = self.calls.remove(&id) else {
            return;
        };
        caller.facts.stop.raise(why);
        let error = caller.facts.stop.check().err();
        match (stage, &caller.ticket) {
            (Stage::Preparing, Some(ticket)) => {
                if self.shared.core.cpu.abandon(ticket) {
                    self.running = self.running.saturating_sub(1);
                }
            }
            (Stage::Running | Stage::Looking(_), Some(ticket)) => {
                if self.shared.core.io.abandon(ticket) {
                    self.running = self.running.saturating_sub(1);
                    self.leave_line(id);
                } else {
                    self.shared.lost_thread();
                }
            }
            (_, _) => self.leave_line(id),
        }
        let error =
            error.unwrap_or_else(|| CallError::new(Code::Cancelled, "the call was cancelled"));
        self.shared.finished(&caller.facts, caller.port, Err(error));
        self.start_ready();
    }

    /// Answers everybody but those whose effect may have begun: these hear how it ended.
    pub(in crate::worker) fn close(&mut self) {
        self.closing = true;
        let begun = |(stage, caller): &(Stage, Caller)| {
            caller.facts.stop.raise(Halted::Revoked);
            matches!(stage, Stage::Running) && caller.changes
        };
        let ended: Vec<CallId> = self
            .calls
            .iter()
            .filter(|(_, call)| !begun(call))
            .map(|(id, _)| *id)
            .collect();
        for id in ended {
            self.give_up(id, Halted::Revoked);
        }
    }

    pub(super) fn answer(&mut self, id: CallId, caller: Caller, result: Result<Done, CallError>) {
        self.leave_line(id);
        self.shared.finished(&caller.facts, caller.port, result);
    }

    /// Takes a call out of the line of writes; the next one claims its paths.
    pub(super) fn leave_line(&mut self, id: CallId) {
        let first = self.writes.front() == Some(&id);
        self.writes.retain(|waiting| *waiting != id);
        if first {
            self.claim_first();
        }
    }

    /// A pool thread is back; its caller may be gone.
    pub(super) fn returned(&mut self, id: CallId) {
        self.running = self.running.saturating_sub(1);
        if !self.calls.contains_key(&id) {
            self.shared.regained_thread();
        }
    }

    /// A message came for a call that is elsewhere by now: it is not for this stage.
    pub(super) fn put_back(&mut self, id: CallId, call: Option<(Stage, Caller)>) {
        self.calls.extend(call.map(|call| (id, call)));
    }
}
