//! Messages in, steps of calls and answers out. `handle` moves them; the pipeline decides.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::FixedState;
use ractor::{Actor, ActorProcessingErr, ActorRef};

use super::Shared;
use super::asking::Asking;
use super::blocking::{Full, Ticket};
use super::deadline::Armed;
use super::inbox::{Admitted, Done, Incoming, Port, busy};
use super::jobs::{self, Ended};
use super::turns::Claim;
use crate::capability::{Halt, Halted};
use crate::effect::Preview;
use crate::error::{CallError, Code};
use crate::id::CallId;
use crate::permission::Redeemed;
use crate::pipeline::{Cleared, Facts, Judged, Mode, Parsed, Step, Waiting};
use crate::tool::AnyPlan;

/// What reaches a worker.
#[derive(Debug)]
pub(crate) enum WorkerMsg {
    /// A new call, already admitted.
    Call(Box<Incoming>),
    /// The policy that came with a call was compiled, or refused.
    Prepared(CallId, Box<Result<Step<Parsed>, CallError>>),
    /// Whether live grants cover what a call must ask for.
    Redeemed(CallId, Option<Redeemed>),
    /// The plan that is shown with the question.
    Looked(CallId, Box<Result<(AnyPlan, Preview), Halt>>),
    /// What a person said.
    Answered(CallId, Result<Redeemed, CallError>),
    /// A mutating call has its paths for itself now.
    Turn(CallId),
    /// A pool thread is done with a call.
    Ended(CallId, Box<Ended>),
    /// The time of a call is over.
    Expired(CallId),
    /// Nobody waits for a call any more.
    Cancel(CallId),
    /// The worker's authority is gone; it ends once everybody is answered.
    Close,
}

/// Where a call under way is.
#[derive(Debug)]
enum Stage {
    /// The policy that came with it is compiled.
    Preparing,
    /// Live grants are looked through.
    Redeeming(Step<Waiting>),
    /// A plan is made to show with the question.
    Looking(Step<Waiting>),
    /// A person was asked.
    Asking(Step<Waiting>, Option<AnyPlan>),
    /// It waits for its turn to write, or for a thread.
    Ready(Step<Cleared>, Option<AnyPlan>),
    /// A pool thread has it.
    Running,
}

/// Who waits for a call, and what it holds.
#[derive(Debug)]
struct Caller {
    facts: Arc<Facts>,
    port: Port,
    /// Whether its job may change something.
    changes: bool,
    /// How long its work may take; waiting for people is not work.
    limit: Duration,
    armed: Option<Armed>,
    /// Its job, from when the pool has it.
    ticket: Option<Arc<Ticket>>,
    /// Its paths, from when it is first in line to write until its job has them.
    claim: Option<Claim>,
    /// What it asked, from when it asked until it is answered.
    asking: Option<Asking>,
    _admitted: Admitted,
}

/// The actor; everything it needs is in [`Shared`].
#[derive(Debug)]
pub(crate) struct WorkerActor;

/// What one life of a worker knows; a restart begins with an empty docket.
#[derive(Debug)]
pub(crate) struct Docket {
    shared: Arc<Shared>,
    calls: HashMap<CallId, (Stage, Caller), FixedState>,
    /// Mutating calls in the order they became ready; only the first claims its paths.
    writes: VecDeque<CallId>,
    /// Calls that wait for one of this worker's places in the pool.
    ready: VecDeque<CallId>,
    /// Places taken in the pool, those of callers that gave up included.
    running: u32,
    closing: bool,
}

impl Actor for WorkerActor {
    type Msg = WorkerMsg;
    type State = Docket;
    type Arguments = Arc<Shared>;

    async fn pre_start(
        &self,
        me: ActorRef<WorkerMsg>,
        shared: Arc<Shared>,
    ) -> Result<Docket, ActorProcessingErr> {
        shared.attach(me);
        let calls = HashMap::with_hasher(FixedState::default());
        Ok(Docket {
            shared,
            calls,
            writes: VecDeque::new(),
            ready: VecDeque::new(),
            running: 0,
            closing: false,
        })
    }

    async fn handle(
        &self,
        me: ActorRef<WorkerMsg>,
        msg: WorkerMsg,
        docket: &mut Docket,
    ) -> Result<(), ActorProcessingErr> {
        match msg {
            WorkerMsg::Call(incoming) => docket.receive(*incoming),
            WorkerMsg::Prepared(call, step) => docket.prepared(call, *step),
            WorkerMsg::Redeemed(call, granted) => docket.redeemed(call, granted),
            WorkerMsg::Looked(call, plan) => docket.looked(call, *plan),
            WorkerMsg::Answered(call, answer) => docket.answered(call, answer),
            WorkerMsg::Turn(call) => docket.turn(call),
            WorkerMsg::Ended(call, ended) => docket.ended(call, *ended),
            WorkerMsg::Expired(call) => docket.give_up(call, Halted::Expired),
            WorkerMsg::Cancel(call) => docket.give_up(call, Halted::Cancelled),
            WorkerMsg::Close => docket.close(),
        }
        if docket.closing && docket.calls.is_empty() {
            me.stop(None);
        }
        Ok(())
    }
}

impl Docket {
    /// Begins a new call. A policy of its own is compiled on the CPU pool, never here.
    fn receive(&mut self, incoming: Incoming) {
        let Incoming {
            request,
            deadline,
            admitted,
            port,
        } = incoming;
        let (id, facts) = (request.facts.id, Arc::clone(&request.facts));
        let limit = self.shared.core.limit(deadline);
        let caller = Caller {
            facts,
            port,
            changes: false,
            limit,
            armed: None,
            ticket: None,
            claim: None,
            asking: None,
            _admitted: admitted,
        };
        if request.policy.is_none() {
            let step = request.prepare(&self.shared);
            return self.judge_or_answer(id, step, caller);
        }
        let shared = Arc::clone(&self.shared);
        let work = move || {
            let step = request.prepare(&shared);
            shared.post(WorkerMsg::Prepared(id, Box::new(step)));
        };
        let handed = self.shared.core.cpu.submit(None, work);
        self.handed_over(id, Stage::Preparing, caller, handed);
    }

    fn prepared(&mut self, id: CallId, step: Result<Step<Parsed>, CallError>) {
        self.returned(id);
        if let Some((Stage::Preparing, caller)) = self.calls.remove(&id) {
            self.judge_or_answer(id, step, caller);
        }
        self.start_ready();
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
    fn judge(&mut self, id: CallId, mut step: Step<Parsed>, caller: Caller) {
        loop {
            match self.shared.judge(step) {
                Judged::Refused(error) => return self.answer(id, caller, Err(error)),
                Judged::Ask(waiting) => return self.look_for_grants(id, waiting, caller),
                Judged::Run(cleared) => match jobs::read_now(&cleared) {
                    None => return self.line_up(id, cleared, None, caller),
                    Some(Ok(done)) => return self.answer(id, caller, Ok(done)),
                    Some(Err(halt)) => match cleared.halted(halt) {
                        Ok(again) => step = again,
                        Err(error) => return self.answer(id, caller, Err(error)),
                    },
                },
            }
        }
    }

    /// A preview of what may be read asks nobody: it changes nothing.
    fn look_for_grants(&mut self, id: CallId, mut waiting: Step<Waiting>, mut caller: Caller) {
        caller.armed = None;
        let shown = caller.facts.mode == Mode::Preview && waiting.look().is_some();
        if shown || !waiting.untried() {
            return self.look(id, waiting, caller);
        }
        caller.asking = Some(self.shared.redeem(id, &waiting));
        self.calls.insert(id, (Stage::Redeeming(waiting), caller));
    }

    fn redeemed(&mut self, id: CallId, granted: Option<Redeemed>) {
        match (self.calls.remove(&id), granted) {
            (Some((Stage::Redeeming(waiting), caller)), Some(granted)) => {
                self.judge(id, waiting.granted(granted), caller);
            }
            (Some((Stage::Redeeming(waiting), caller)), None) => self.look(id, waiting, caller),
            (other, _) => self.put_back(id, other),
        }
    }

    /// Plans a change before anybody is asked, if its targets may be read.
    fn look(&mut self, id: CallId, waiting: Step<Waiting>, mut caller: Caller) {
        let Some((job, permit)) = waiting.look() else {
            return self.question(id, waiting, None, caller);
        };
        caller.arm(id, &self.shared);
        let (shared, facts) = (Arc::clone(&self.shared), Arc::clone(&caller.facts));
        let work = move || {
            let plan = jobs::look(&shared, &facts, &*job, &permit);
            shared.post(WorkerMsg::Looked(id, Box::new(plan)));
        };
        let handed = self
            .shared
            .core
            .io
            .submit(self.shared.root_of(waiting.needs()), work);
        self.handed_over(id, Stage::Looking(waiting), caller, handed);
    }

    fn looked(&mut self, id: CallId, plan: Result<(AnyPlan, Preview), Halt>) {
        self.returned(id);
        match (self.calls.remove(&id), plan) {
            (Some((Stage::Looking(_), caller)), Ok((_, preview)))
                if caller.facts.mode == Mode::Preview =>
            {
                self.answer(id, caller, Ok(Done::Preview(preview)));
            }
            (Some((Stage::Looking(waiting), caller)), Ok(plan)) => {
                self.question(id, waiting, Some(plan), caller)
            }
            (Some((Stage::Looking(waiting), caller)), Err(halt)) => {
                self.judge_or_answer(id, waiting.halted(halt), caller);
            }
            (other, _) => self.put_back(id, other),
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
        caller.armed = None;
        let (plan, preview) = plan.unzip();
        match self.shared.question(id, &waiting, preview) {
            Ok(asking) => {
                caller.asking = Some(asking);
                self.calls
                    .insert(id, (Stage::Asking(waiting, plan), caller));
            }
            Err(error) => self.answer(id, caller, Err(error)),
        }
    }

    fn answered(&mut self, id: CallId, answer: Result<Redeemed, CallError>) {
        match (self.calls.remove(&id), answer) {
            (Some((Stage::Asking(waiting, plan), caller)), Ok(granted)) => {
                match self.shared.judge(waiting.granted(granted)) {
                    Judged::Run(cleared) => self.line_up(id, cleared, plan, caller),
                    // The answer was narrower than the need: asking again at once would be a trick.
                    Judged::Ask(waiting) => self.answer(id, caller, Err(waiting.unasked())),
                    Judged::Refused(error) => self.answer(id, caller, Err(error)),
                }
            }
            (Some((Stage::Asking(..), caller)), Err(error)) => self.answer(id, caller, Err(error)),
            (other, _) => self.put_back(id, other),
        }
    }

    /// Queues a cleared call: for its turn if it changes something, else for a thread.
    fn line_up(
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

    fn turn(&mut self, id: CallId) {
        if self.calls.contains_key(&id) {
            self.ready.push_back(id);
            self.start_ready();
        }
    }

    /// Hands ready calls to the pool while this worker has places there.
    fn start_ready(&mut self) {
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
    fn handed_over(
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

    fn ended(&mut self, id: CallId, ended: Ended) {
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
    fn give_up(&mut self, id: CallId, why: Halted) {
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
    fn close(&mut self) {
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

    fn answer(&mut self, id: CallId, caller: Caller, result: Result<Done, CallError>) {
        self.leave_line(id);
        self.shared.finished(&caller.facts, caller.port, result);
    }

    /// Takes a call out of the line of writes; the next one claims its paths.
    fn leave_line(&mut self, id: CallId) {
        let first = self.writes.front() == Some(&id);
        self.writes.retain(|waiting| *waiting != id);
        if first {
            self.claim_first();
        }
    }

    /// A pool thread is back; its caller may be gone.
    fn returned(&mut self, id: CallId) {
        self.running = self.running.saturating_sub(1);
        if !self.calls.contains_key(&id) {
            self.shared.regained_thread();
        }
    }

    /// A message came for a call that is elsewhere by now: it is not for this stage.
    fn put_back(&mut self, id: CallId, call: Option<(Stage, Caller)>) {
        self.calls.extend(call.map(|call| (id, call)));
    }
}

impl Caller {
    fn arm(&mut self, id: CallId, shared: &Arc<Shared>) {
        if self.armed.is_none() {
            let (worker, stop) = (Arc::clone(shared), Arc::clone(&self.facts.stop));
            self.armed = Some(shared.core.deadlines.arm(self.limit, move || {
                // The job sees the flag at its next checkpoint even while the mailbox is busy.
                stop.raise(Halted::Expired);
                worker.post(WorkerMsg::Expired(id));
            }));
        }
    }
}
