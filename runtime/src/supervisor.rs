//! Workers come and go here: spawned under admitted policies, restarted when they die, revoked with their subtrees.

mod restart;
mod tree;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use dashmap::DashMap;
use foldhash::fast::FixedState;
use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};

use crate::artifact::ArtifactStore;
use crate::audit::{Audit, AuditEvent, Step as AuditStep};
use crate::budget::Budget;
use crate::capability::{Gate, Meter};
use crate::config::Namespace;
use crate::error::{CallError, Code};
use crate::id::{CallId, WorkerId};
use crate::permission::Broker;
use crate::pipeline::Holder;
use crate::policy::{Authority, Policy, PolicyError};
use crate::root::RootTable;
use crate::tool::ToolSet;
use crate::worker::{Admission, Deadlines, Pool, Shared, Turns, WorkerActor, WorkerSpec};
use restart::Restarts;
use tree::Tree;

/// How long a revocation waits for effects that had begun.
const GRACE: Duration = Duration::from_secs(5);

/// What all workers of a runtime share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) tools: ToolSet,
    pub(crate) names: Namespace,
    pub(crate) authority: Authority,
    pub(crate) roots: RootTable,
    pub(crate) audit: Audit,
    pub(crate) broker: Broker,
    pub(crate) artifacts: ArtifactStore,
    /// Whether there is anybody to ask.
    pub(crate) asks: bool,
    pub(crate) admission: Admission,
    /// The longest a call may work.
    pub(crate) call_limit: Duration,
    /// The deepest a delegation may go.
    pub(crate) max_depth: usize,
    pub(crate) io: Pool,
    pub(crate) cpu: Pool,
    pub(crate) deadlines: Deadlines,
    pub(crate) turns: Turns,
    pub(crate) calls: AtomicU64,
    pub(crate) workers: AtomicU64,
    pub(crate) registry: DashMap<WorkerId, Arc<Shared>, FixedState>,
    pub(crate) actors: DashMap<ActorId, WorkerId, FixedState>,
    pub(crate) tree: TreeLock,
    /// One supervisor actor a core, so that a hundred thousand children share no map and no mailbox.
    pub(crate) supervisors: OnceLock<Vec<ActorRef<Never>>>,
}

/// The delegation tree behind its lock; taken when workers come and go, never on a call.
#[derive(Debug, Default)]
pub(crate) struct TreeLock(Mutex<Tree>);

impl TreeLock {
    fn lock(&self) -> MutexGuard<'_, Tree> {
        // Nothing that can panic runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a worker was not started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The policy asks for more than the parent holds, or cannot be understood.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The parent was revoked or stopped.
    #[error("the worker that was to delegate is gone")]
    Orphan,
    /// A budget of children is spent, or the delegation is too deep.
    #[error("{0}")]
    Budget(String),
    /// The name has control characters, `/`, or no characters at all.
    #[error("a worker's name is 1 to 64 visible characters without `/`")]
    Name,
    /// The audit log takes no more events.
    #[error(transparent)]
    Audit(#[from] crate::audit::AuditError),
    /// The actor did not start.
    #[error("the worker did not start")]
    Start(#[source] ractor::SpawnErr),
}

impl SpawnError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Policy(error) => error.code(),
            Self::Orphan => Code::Cancelled,
            Self::Audit(_) => Code::Busy,
            Self::Budget(_) => Code::Budget,
            Self::Name => Code::InvalidArguments,
            Self::Start(_) => Code::Internal,
        }
    }
}

impl From<SpawnError> for CallError {
    fn from(error: SpawnError) -> Self {
        match error {
            SpawnError::Policy(error) => error.into(),
            SpawnError::Audit(error) => error.into(),
            SpawnError::Orphan
            | SpawnError::Budget(_)
            | SpawnError::Name
            | SpawnError::Start(_) => Self::new(error.code(), error.to_string()),
        }
    }
}

/// What a revocation came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revoked {
    /// Workers that lost their authority, this one included.
    pub workers: usize,
    /// Workers with an effect that had begun before and did not end in time; nothing new begins there.
    pub unfinished: usize,
}

/// A supervisor is told nothing; it hears of deaths.
#[derive(Debug)]
pub(crate) enum Never {}

// These messages never leave the process.
#[cfg(feature = "ractor-cluster")]
impl ractor::Message for Never {}

/// Starts workers anew when they die.
#[derive(Debug)]
pub(crate) struct Supervisor;

/// What a supervisor remembers.
#[derive(Debug)]
pub(crate) struct Watch {
    core: std::sync::Weak<Core>,
    began: Instant,
    restarts: HashMap<WorkerId, Restarts, FixedState>,
}

#[cfg_attr(feature = "ractor-async-trait", ractor::async_trait)]
impl Actor for Supervisor {
    type Msg = Never;
    type State = Watch;
    type Arguments = std::sync::Weak<Core>;

    async fn pre_start(
        &self,
        _: ActorRef<Never>,
        core: Self::Arguments,
    ) -> Result<Watch, ActorProcessingErr> {
        Ok(Watch {
            core,
            began: Instant::now(),
            restarts: HashMap::default(),
        })
    }

    async fn handle_supervisor_evt(
        &self,
        me: ActorRef<Never>,
        event: SupervisionEvent,
        watch: &mut Watch,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorFailed(who, _) | SupervisionEvent::ActorTerminated(who, ..) => {
                watch.died(who.get_id(), me.get_cell()).await;
            }
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => {}
            #[cfg(feature = "ractor-cluster")]
            SupervisionEvent::PidLifecycleEvent(_) => {}
        }
        Ok(())
    }
}

impl Watch {
    /// Starts a worker anew with the same authority, unless its end was wanted or it dies too often.
    async fn died(&mut self, actor: ActorId, me: ActorCell) {
        let Some(core) = self.core.upgrade() else {
            return;
        };
        let Some((_, id)) = core.actors.remove(&actor) else {
            return;
        };
        let Some(shared) = core.registry.get(&id).map(|entry| Arc::clone(&entry)) else {
            self.restarts.remove(&id);
            return;
        };
        let again = self
            .restarts
            .entry(id)
            .or_default()
            .allow(self.began.elapsed());
        if again
            && Actor::spawn_linked(None, WorkerActor, Arc::clone(&shared), me)
                .await
                .is_ok()
        {
            if shared.gate().is_closed() {
                // It was revoked meanwhile, and its former life could not be told.
                shared.close();
            } else {
                shared.note(AuditStep::Restarted);
            }
            return;
        }
        self.restarts.remove(&id);
        // Not waited for: other workers of this supervisor may have died, too.
        tokio::spawn(async move { core.revoke(id).await });
    }
}

impl Core {
    pub(crate) fn next_call(&self) -> CallId {
        CallId(self.calls.fetch_add(1, Ordering::Relaxed))
    }

    /// How long a call may work: what its host asked for, within the runtime's bound.
    pub(crate) fn limit(&self, asked: Option<Duration>) -> Duration {
        asked.map_or(self.call_limit, |asked| asked.min(self.call_limit))
    }

    /// Starts a worker beneath `parent`, or beneath the configuration; a refusal is audited, too.
    pub(crate) async fn spawn(
        self: &Arc<Self>,
        parent: Option<&Arc<Shared>>,
        spec: WorkerSpec,
    ) -> Result<Arc<Shared>, SpawnError> {
        let origin = spec.origin;
        let spawned = self.admitted(parent, spec).await;
        if let Err(error) = &spawned {
            let event = AuditEvent {
                worker: parent.map(|parent| parent.id),
                agent: parent.map_or_else(|| Arc::from(""), |parent| Arc::clone(&parent.agent)),
                call: None,
                tool: None,
                origin,
                step: AuditStep::Refused {
                    code: error.code(),
                    message: error.to_string().into(),
                },
            };
            // The refusal stands whether or not the log has room; the log counts what it missed.
            let _ = self.audit.record(event);
        }
        spawned
    }

    async fn admitted(
        self: &Arc<Self>,
        parent: Option<&Arc<Shared>>,
        spec: WorkerSpec,
    ) -> Result<Arc<Shared>, SpawnError> {
        let WorkerSpec {
            name,
            session,
            policy,
            budget,
            origin,
        } = spec;
        let plain = !name.is_empty() && name.chars().count() <= 64 && !name.contains('/');
        if !plain || name.chars().any(crate::is_deceptive) {
            return Err(SpawnError::Name);
        }
        let issuer = parent.map_or(&self.authority, |parent| &parent.authority);
        let policy = policy.unwrap_or_else(Policy::ask_for_everything);
        let authority = issuer.narrow(&issuer.admit(&policy, origin)?);
        let depth = parent.map_or(0, |parent| parent.lineage.len() + 1);
        if depth > self.max_depth {
            return Err(SpawnError::Budget(format!(
                "delegation goes at most {} deep",
                self.max_depth
            )));
        }
        if let Some(parent) = parent {
            parent
                .meter
                .charge_child()
                .map_err(|spent| SpawnError::Budget(spent.to_string()))?;
        }
        let limits = authority.limits();
        let budget = budget.tighter(limits.budget).tighter(Budget {
            calls: Some(limits.max_calls),
            ..Budget::default()
        });
        let id = WorkerId(self.workers.fetch_add(1, Ordering::Relaxed));
        let meter = Meter::new(budget, parent.map(|parent| Arc::clone(&parent.meter)));
        let holder = Holder {
            roots: Arc::new(self.roots.reached_by(&authority)),
            gate: Arc::new(Gate::default()),
        };
        let shared = Arc::new(Shared::new(
            id, &name, session, parent, authority, holder, meter, self,
        ));
        self.start(shared, parent).await
    }

    async fn start(
        self: &Arc<Self>,
        shared: Arc<Shared>,
        parent: Option<&Arc<Shared>>,
    ) -> Result<Arc<Shared>, SpawnError> {
        let (id, parent) = (shared.id, parent.map(|parent| parent.id));
        // Known before it is in the tree: whoever takes it out of the tree must find it, to close its gate.
        self.registry.insert(id, Arc::clone(&shared));
        if self.tree.lock().insert(id, parent).is_err() {
            self.registry.remove(&id);
            return Err(SpawnError::Orphan);
        }
        match self.begin(&shared, parent).await {
            // It may have been revoked with its parent before it began.
            Ok(()) if shared.gate().is_closed() => {
                shared.close();
                Err(SpawnError::Orphan)
            }
            Ok(()) => {
                self.limit_life(&shared);
                Ok(shared)
            }
            Err(error) => {
                self.forget(id);
                Err(error)
            }
        }
    }

    async fn begin(
        &self,
        shared: &Arc<Shared>,
        parent: Option<WorkerId>,
    ) -> Result<(), SpawnError> {
        shared.record(AuditStep::Spawned {
            parent,
            policy: None,
        })?;
        let supervisor = self.supervisor_of(shared.id).ok_or(SpawnError::Orphan)?;
        let started = Actor::spawn_linked(None, WorkerActor, Arc::clone(shared), supervisor).await;
        started.map(drop).map_err(SpawnError::Start)
    }

    /// Revokes a worker when the time that its policy gives it is over.
    fn limit_life(self: &Arc<Self>, shared: &Shared) {
        let ttl_ms = shared.authority.limits().ttl_ms;
        if ttl_ms == u64::MAX {
            return;
        }
        let (core, id, executor) = (
            Arc::downgrade(self),
            shared.id,
            tokio::runtime::Handle::current(),
        );
        let end = move || {
            if let Some(core) = core.upgrade() {
                executor.spawn(async move { core.revoke(id).await });
            }
        };
        shared.end_with(self.deadlines.arm(Duration::from_millis(ttl_ms), end));
    }

    /// The supervisor that a worker is linked to; none once the runtime ends.
    fn supervisor_of(&self, id: WorkerId) -> Option<ActorCell> {
        let supervisors = self.supervisors.get()?;
        let index = usize::try_from(id.0)
            .unwrap_or_default()
            .checked_rem(supervisors.len())?;
        supervisors.get(index).map(ActorRef::get_cell)
    }

    fn forget(&self, id: WorkerId) -> Vec<Arc<Shared>> {
        let ids = self.tree.lock().remove_subtree(id);
        ids.iter()
            .filter_map(|id| self.registry.remove(id))
            .map(|(_, shared)| shared)
            .collect()
    }

    /// Takes all authority from a worker and everything beneath it. What follows is done even if nobody waits for it.
    pub(crate) async fn revoke(self: &Arc<Self>, id: WorkerId) -> Revoked {
        let subtree = self.forget(id);
        for shared in &subtree {
            shared.gate().close();
            shared.note(AuditStep::Revoked);
            shared.close();
        }
        let workers = subtree.len();
        let core = Arc::clone(self);
        let unfinished = tokio::spawn(async move { core.settle(subtree).await }).await;
        Revoked {
            workers,
            // The task ends early only with the executor, and every effect with it.
            unfinished: unfinished.unwrap_or_default(),
        }
    }

    /// Waits for effects that had begun, all together no longer than [`GRACE`]; returns how many workers have one left.
    async fn settle(&self, subtree: Vec<Arc<Shared>>) -> usize {
        let end = tokio::time::Instant::now() + GRACE;
        let mut unfinished = 0;
        for shared in subtree {
            if tokio::time::timeout_at(end, shared.gate().idle())
                .await
                .is_err()
            {
                unfinished += 1;
            }
            self.broker.forget_worker(shared.id).await;
        }
        unfinished
    }

    /// Takes all authority from everybody at once, without waiting.
    pub(crate) fn close(&self) {
        for shared in self.tops().into_iter().flat_map(|top| self.forget(top)) {
            shared.gate().close();
            shared.close();
        }
        for supervisor in self.supervisors.get().into_iter().flatten() {
            supervisor.stop(None);
        }
        self.broker.stop();
        self.io.close();
        self.cpu.close();
        self.deadlines.close();
    }

    /// The workers that no worker delegated to.
    pub(crate) fn tops(&self) -> Vec<WorkerId> {
        self.tree.lock().tops()
    }
}

#[cfg(test)]
mod tests;
