//! Workers: they are spawned under admitted policies, survive the death of their actors, and are revoked with their subtrees.

mod restart;
mod spawn;
mod tree;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use dashmap::DashMap;
use foldhash::fast::FixedState;
use parking_lot::Mutex;
use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};

use crate::artifact::ArtifactStore;
use crate::audit::{Audit, Step as AuditStep};
use crate::capability::{CloseReason, GRACE};
use crate::config::Namespace;
use crate::id::{CallId, ToolName, WorkerId};
use crate::journal::Journal;
use crate::permission::{Broker, DecidedBy};
use crate::pipeline::PreviewKey;
use crate::policy::Authority;
use crate::root::RootTable;
use crate::tool::Tools;
use crate::worker::{
    Actors, Admission, Confinement, Deadlines, LayerStatus, PathLocks, Pool, Shared, ToolSlots,
};
use restart::Restarts;

pub(crate) use spawn::LastDirectory;
pub use spawn::SpawnError;
pub(crate) use tree::Tree;

/// State shared by all workers of a runtime.
pub(crate) struct Core {
    pub(crate) tools: Tools,
    /// Notifies of changes of the tools of third-party servers.
    pub(crate) changes: Option<tokio::sync::watch::Receiver<()>>,
    pub(crate) names: Namespace,
    pub(crate) authority: Authority,
    pub(crate) roots: Arc<RootTable>,
    /// Files of the host that no root and no grant may contain.
    pub(crate) kept_out: Vec<PathBuf>,
    pub(crate) audit: Audit,
    pub(crate) broker: Broker,
    pub(crate) journal: Option<Journal>,
    pub(crate) artifacts: ArtifactStore,
    /// Whether there is an approver.
    pub(crate) asks: bool,
    pub(crate) admission: Admission,
    /// Time limit of calls.
    pub(crate) call_limit: Duration,
    /// Maximum delegation depth.
    pub(crate) max_depth: usize,
    /// Runs file tools, confined to the roots.
    pub(crate) io: Arc<Pool>,
    /// Runs file tools of calls that were granted files outside the roots.
    pub(crate) io_outside: Arc<Pool>,
    /// What confines the threads of `io`.
    pub(crate) confinement: Arc<Confinement>,
    /// Runs tools that are not file tools.
    pub(crate) tool_pool: Arc<Pool>,
    pub(crate) cpu: Arc<Pool>,
    /// The slots of the tools that limit their concurrent calls.
    pub(crate) tool_slots: BTreeMap<ToolName, Arc<ToolSlots>>,
    pub(crate) deadlines: Deadlines,
    /// The key of preview tokens.
    pub(crate) preview_key: PreviewKey,
    pub(crate) path_locks: PathLocks,
    pub(crate) calls: AtomicU64,
    pub(crate) workers: AtomicU64,
    pub(crate) registry: DashMap<WorkerId, Arc<Shared>, FixedState>,
    pub(crate) actors: Actors,
    pub(crate) last_directory: LastDirectory,
    /// The delegation tree; locked when workers start and end, never on a call.
    pub(crate) tree: Mutex<Tree>,
    /// One supervisor per CPU core, so that a hundred thousand workers do not share one map and mailbox.
    pub(crate) supervisors: OnceLock<Vec<ActorRef<NoMessage>>>,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").finish_non_exhaustive()
    }
}

/// Result of a revocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Revoked {
    /// Workers that this call revoked, including the worker itself.
    pub workers: usize,
    /// Workers with an effect that had begun before and did not end in time. They cannot begin another one.
    pub unfinished: usize,
}

/// Supervisors receive no messages, only supervision events.
#[derive(Debug)]
pub(crate) enum NoMessage {}

// These messages never leave the process.
#[cfg(feature = "ractor-cluster")]
impl ractor::Message for NoMessage {}

/// Notices actors of workers that die.
#[derive(Debug)]
pub(crate) struct Supervisor;

/// State of a supervisor.
#[derive(Debug)]
pub(crate) struct SupervisorState {
    core: std::sync::Weak<Core>,
    began: Instant,
    restarts: HashMap<WorkerId, Restarts, FixedState>,
}

#[cfg_attr(feature = "ractor-async-trait", ractor::async_trait)]
impl Actor for Supervisor {
    type Msg = NoMessage;
    type State = SupervisorState;
    type Arguments = std::sync::Weak<Core>;

    async fn pre_start(
        &self,
        _: ActorRef<NoMessage>,
        core: Self::Arguments,
    ) -> Result<SupervisorState, ActorProcessingErr> {
        Ok(SupervisorState {
            core,
            began: Instant::now(),
            restarts: HashMap::default(),
        })
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<NoMessage>,
        event: SupervisionEvent,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorFailed(who, _) | SupervisionEvent::ActorTerminated(who, ..) => {
                state.actor_ended(who.get_id());
            }
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => {}
            #[cfg(feature = "ractor-cluster")]
            SupervisionEvent::PidLifecycleEvent(_) => {}
        }
        Ok(())
    }
}

impl SupervisorState {
    /// If the actor has died, lets the next call of its worker start another one, unless the worker was revoked or its actors die
    /// too often.
    fn actor_ended(&mut self, actor: ActorId) {
        let Some(core) = self.core.upgrade() else {
            return;
        };
        let Some((_, id)) = core.actors.running.remove(&actor) else {
            return;
        };
        let Some(shared) = core.registry.get(&id).map(|entry| Arc::clone(&entry)) else {
            self.restarts.remove(&id);
            return;
        };
        shared.detach_dead(actor);
        if shared.gate().is_closed() {
            self.restarts.remove(&id);
            // It was revoked meanwhile, and its actor could not be closed.
            return shared.close();
        }
        let restarts = self.restarts.entry(id).or_default();
        if restarts.allow(self.began.elapsed()) {
            return shared.audit_best_effort(AuditStep::Restarted);
        }
        self.restarts.remove(&id);
        // Not awaited: other workers of this supervisor may have died, too.
        tokio::spawn(async move {
            core.revoke(id, CloseReason::WorkerRevoked, DecidedBy::Host)
                .await;
        });
    }
}

impl Core {
    pub(crate) fn next_call(&self) -> CallId {
        CallId(self.calls.fetch_add(1, Ordering::Relaxed))
    }

    /// Time limit of a call: what its host requested, at most that of the runtime.
    pub(crate) fn limit(&self, asked: Option<Duration>) -> Duration {
        asked.map_or(self.call_limit, |asked| asked.min(self.call_limit))
    }

    /// The supervisor that the actor of a worker is linked to; `None` once the runtime has ended.
    pub(crate) fn supervisor_of(&self, id: WorkerId) -> Option<ActorCell> {
        let supervisors = self.supervisors.get()?;
        let index = usize::try_from(id.0)
            .unwrap_or_default()
            .checked_rem(supervisors.len())?;
        supervisors.get(index).map(ActorRef::get_cell)
    }

    /// The workers of `ids` that have not ended yet.
    fn registered(&self, ids: impl IntoIterator<Item = WorkerId>) -> Vec<Arc<Shared>> {
        ids.into_iter()
            .filter_map(|id| self.registry.get(&id).map(|entry| Arc::clone(&entry)))
            .collect()
    }

    /// A worker and its descendants.
    pub(crate) fn subtree(&self, id: WorkerId) -> Vec<Arc<Shared>> {
        let ids = self.tree.lock().subtree(id);
        self.registered(ids)
    }

    /// Revokes a worker and its descendants, as `by` decided. This continues if the caller stops waiting.
    pub(crate) async fn revoke(
        self: &Arc<Self>,
        id: WorkerId,
        why: CloseReason,
        by: DecidedBy,
    ) -> Revoked {
        let subtree = self.tree.lock().revoke(id, why);
        self.end(subtree, by).await
    }

    /// Revokes all workers, and starts none from now on.
    pub(crate) async fn revoke_all(self: &Arc<Self>) -> Revoked {
        let all = self.tree.lock().close();
        self.end(all, DecidedBy::Host).await
    }

    /// Ends workers whose gates are closed, as `by` decided.
    async fn end(self: &Arc<Self>, revoked: Vec<tree::Revoked>, by: DecidedBy) -> Revoked {
        let newly = revoked.iter().filter(|worker| worker.newly);
        let newly: Vec<WorkerId> = newly.map(|worker| worker.id).collect();
        for shared in self.registered(newly.iter().copied()) {
            // The audit counts missing records.
            let _ = shared.record_by(by.origin(), AuditStep::Revoked);
            shared.close();
        }
        let core = Arc::clone(self);
        let unfinished = tokio::spawn(async move { core.settle(revoked).await }).await;
        Revoked {
            workers: newly.len(),
            // The task fails only if the executor shuts down, which ends all effects.
            unfinished: unfinished.unwrap_or_default(),
        }
    }

    /// Waits at most [`GRACE`] until the effects and actors of revoked workers have ended; returns how many workers still
    /// have an effect.
    async fn settle(self: &Arc<Self>, revoked: Vec<tree::Revoked>) -> usize {
        let end = tokio::time::Instant::now() + GRACE;
        let mut unfinished = Vec::new();
        let mut ids = Vec::with_capacity(revoked.len());
        for tree::Revoked { id, gate, .. } in revoked {
            if tokio::time::timeout_at(end, gate.idle()).await.is_err() {
                unfinished.push((id, gate));
            }
            ids.push(id);
        }
        for shared in self.registered(ids.iter().copied()) {
            // A worker that has not ended by then is audited later.
            let _ = tokio::time::timeout_at(end, shared.wait_until_stopped()).await;
        }
        for id in ids {
            // Its actor asks no more questions.
            self.broker.forget_worker(id).await;
            self.registry.remove(&id);
            if unfinished.iter().all(|(other, _)| *other != id) {
                self.tree.lock().ended(id);
            }
        }
        let left = unfinished.len();
        for (id, gate) in unfinished {
            // It stays in the tree while its effect runs, so that a later revocation waits for it, too.
            let core = Arc::clone(self);
            tokio::spawn(async move {
                gate.idle().await;
                core.tree.lock().ended(id);
            });
        }
        left
    }

    /// What the operating system enforces.
    pub(crate) fn layers(&self) -> Vec<LayerStatus> {
        let mut layers = vec![self.confinement.status()];
        layers.extend(self.tools.layers().iter().cloned());
        layers
    }

    /// Revokes all workers without waiting.
    pub(crate) fn close(&self) {
        // The gates stay in the tree, so that a later revocation of one of these workers still waits for its effects.
        let all = self.tree.lock().close();
        for worker in all {
            if let Some((_, shared)) = self.registry.remove(&worker.id) {
                shared.close();
            }
        }
        for supervisor in self.supervisors.get().into_iter().flatten() {
            supervisor.stop(None);
        }
        self.broker.stop();
        self.io.close();
        self.io_outside.close();
        self.tool_pool.close();
        self.cpu.close();
        self.deadlines.close();
    }
}

#[cfg(test)]
pub(crate) mod tests;
