//! Starts and ends the actor of a worker.
//!
//! A worker has an actor from its first call on, until it has been idle for a while or its actor dies; the next call starts
//! another one. An actor of ractor occupies about 7 kB, more than the rest of a worker.

use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use foldhash::fast::FixedState;
use parking_lot::Mutex;
use ractor::{ActorId, ActorRef, ActorRuntime, MessagingErr};
use tokio::runtime::Handle;

use super::Shared;
use super::actor::{WorkerActor, WorkerMsg};
use super::deadline::DeadlineGuard;
use crate::audit::Step as AuditStep;
use crate::id::WorkerId;
use crate::supervisor::Core;

/// How long the actor of a worker without calls is kept at least; at most twice as long.
const KEEP_IDLE: Duration = Duration::from_secs(30);

/// The actors of all workers.
pub(crate) struct Actors {
    /// Those that run.
    pub(crate) running: DashMap<ActorId, WorkerId, FixedState>,
    pub(crate) executor: Handle,
    /// When to look for idle actors; `None` if none run.
    idle_timer: Mutex<Option<DeadlineGuard>>,
}

impl Actors {
    /// There are none yet; `executor` will run them.
    pub(crate) fn new(executor: Handle) -> Self {
        Self {
            running: DashMap::default(),
            executor,
            idle_timer: Mutex::default(),
        }
    }
}

/// The actor of a worker.
#[derive(Debug, Default)]
pub(super) enum ActorState {
    /// The next call starts one.
    #[default]
    NotRunning,
    Running(ActorRef<WorkerMsg>),
    /// The worker was revoked, and all its calls are answered.
    Ended,
}

impl ActorState {
    /// Sends a message, or returns it if that is not possible. The caller drops it after releasing the lock, since dropping a
    /// message may post others.
    fn send(&self, msg: WorkerMsg) -> Option<WorkerMsg> {
        match self {
            Self::Running(actor) => match actor.send_message(msg) {
                Err(MessagingErr::SendErr(msg)) => Some(msg),
                Err(MessagingErr::ChannelClosed | MessagingErr::InvalidActorType) | Ok(()) => None,
            },
            Self::NotRunning | Self::Ended => Some(msg),
        }
    }

    fn is(&self, id: ActorId) -> bool {
        matches!(self, Self::Running(actor) if actor.get_id() == id)
    }
}

impl Shared {
    /// Posts an admitted call, and starts the actor if there is none; false if the worker was revoked, or its actor has died
    /// and its supervisor does not know yet.
    pub(super) fn post_call(self: &Arc<Self>, msg: WorkerMsg) -> bool {
        let Some(msg) = self.actor.read().send(msg) else {
            return true;
        };
        let mut state = self.actor.write();
        // Another call may have started it meanwhile.
        if matches!(*state, ActorState::NotRunning)
            && !self.gate().is_closed()
            && let Some(actor) = self.start_actor()
        {
            *state = ActorState::Running(actor);
        }
        let unsent = state.send(msg);
        drop(state);
        unsent.is_none()
    }

    /// Posts a message about a call; false if the actor has ended, and so has the call.
    pub(super) fn post(&self, msg: WorkerMsg) -> bool {
        let unsent = self.actor.read().send(msg);
        unsent.is_none()
    }

    /// Starts the actor; `None` if the runtime has ended.
    fn start_actor(self: &Arc<Self>) -> Option<ActorRef<WorkerMsg>> {
        let supervisor = self.core.supervisor_of(self.id)?;
        // The caller may poll its call outside tokio.
        let _context = self.core.actors.executor.enter();
        let started =
            ActorRuntime::spawn_linked_instant(None, WorkerActor, Arc::clone(self), supervisor);
        let (actor, _) = started.ok()?;
        self.core.actors.running.insert(actor.get_id(), self.id);
        self.core.watch_idle_actors();
        Some(actor)
    }

    /// Lets the next call start another actor, unless there is a call that this one must answer. Returns whether the actor
    /// has to end.
    pub(super) fn detach_idle(&self, actor: ActorId) -> bool {
        let mut state = self.actor.write();
        // A call is counted before it is posted, and the gate is closed before `Close` is posted. So neither is in the
        // mailbox, and later ones find `NotRunning`.
        if !state.is(actor) || self.load.calls() > 0 || self.gate().is_closed() {
            return false;
        }
        *state = ActorState::NotRunning;
        // Its supervisor must not take its end for a failure.
        self.core.actors.running.remove(&actor);
        true
    }

    /// Lets the next call start another actor in place of one that has died.
    pub(crate) fn detach_dead(&self, actor: ActorId) {
        let mut state = self.actor.write();
        if state.is(actor) {
            *state = ActorState::NotRunning;
        }
    }

    /// Ends the actor once all calls are answered; those whose effect has begun are answered when it ends. The gate must be
    /// closed, so that no call starts another actor.
    pub(crate) fn close(&self) {
        if self.post(WorkerMsg::Close) {
            return;
        }
        let mut state = self.actor.write();
        // If its actor has died, the supervisor detaches the actor and closes the worker again.
        if matches!(*state, ActorState::NotRunning) {
            self.end(&mut state);
        }
    }

    /// Ends a revoked worker whose actor ends.
    pub(super) fn end_with_actor(&self, actor: ActorId) {
        let mut state = self.actor.write();
        if state.is(actor) {
            self.end(&mut state);
        }
    }

    /// Ends the worker. This is recorded while `state` is locked: the record must exist when another thread finds `Ended`.
    fn end(&self, state: &mut ActorState) {
        *state = ActorState::Ended;
        self.audit_best_effort(AuditStep::WorkerStopped);
    }

    /// Waits until the actor of a revoked worker has ended and its end was sent to the audit.
    pub(crate) async fn wait_until_stopped(&self) {
        let running = match &*self.actor.read() {
            ActorState::Running(actor) => Some(actor.clone()),
            ActorState::NotRunning | ActorState::Ended => None,
        };
        if let Some(actor) = running {
            // Without a timeout it cannot fail.
            let _ = actor.wait(None).await;
            // An actor that has died did not do this itself.
            self.end_with_actor(actor.get_id());
        }
    }

    /// How long it has been without calls; `None` if it has one, or had none yet.
    fn idle_for(&self) -> Option<Duration> {
        let last = *self.last_admitted.lock();
        last.filter(|_| self.load.calls() == 0)
            .map(|last| last.elapsed())
    }

    #[cfg(any(test, feature = "fixtures"))]
    pub(super) fn kill(&self) {
        if let ActorState::Running(actor) = &*self.actor.read() {
            actor.kill();
        }
    }
}

impl Core {
    /// Ends idle actors after a while, and looks again as long as actors run.
    fn watch_idle_actors(self: &Arc<Self>) {
        let mut timer = self.actors.idle_timer.lock();
        if timer.is_some() {
            return;
        }
        let core = Arc::downgrade(self);
        let look = move || {
            if let Some(core) = core.upgrade() {
                *core.actors.idle_timer.lock() = None;
                core.end_idle_actors(KEEP_IDLE);
                if !core.actors.running.is_empty() {
                    core.watch_idle_actors();
                }
            }
        };
        *timer = Some(self.deadlines.arm(KEEP_IDLE, look));
    }

    /// Asks actors to end whose workers have been idle for `least`.
    pub(crate) fn end_idle_actors(&self, least: Duration) {
        // Collected first, since starting an actor locks its worker before this map.
        let running: Vec<_> = self
            .actors
            .running
            .iter()
            .map(|entry| *entry.value())
            .collect();
        for id in running {
            let shared = self.registry.get(&id).map(|entry| Arc::clone(&entry));
            if let Some(shared) = shared
                && shared.idle_for().is_some_and(|idle| idle >= least)
            {
                shared.post(WorkerMsg::EndIfIdle);
            }
        }
    }
}

#[cfg(test)]
mod tests;
