//! Workers come and go here: spawned under admitted policies, restarted when they die, revoked with their subtrees.

mod restart;
mod spawn;
mod tree;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use dashmap::DashMap;
use foldhash::fast::FixedState;
use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};

use crate::artifact::ArtifactStore;
use crate::audit::{Audit, Step as AuditStep};
use crate::capability::GRACE;
use crate::config::Namespace;
use crate::id::{CallId, WorkerId};
use crate::permission::Broker;
use crate::policy::Authority;
use crate::root::RootTable;
use crate::tool::Tools;
use crate::worker::{Admission, Deadlines, Pool, Shared, Turns, WorkerActor};
use restart::Restarts;
use tree::Tree;

pub use spawn::SpawnError;

/// What all workers of a runtime share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) tools: Tools,
    /// Told whenever the tools of other servers may be others.
    #[cfg_attr(
        not(feature = "mcp"),
        expect(dead_code, reason = "only clients of a gateway are told")
    )]
    pub(crate) changes: Option<tokio::sync::watch::Receiver<()>>,
    pub(crate) names: Namespace,
    pub(crate) authority: Authority,
    pub(crate) roots: RootTable,
    /// Files of the host that no root and no grant may hold.
    pub(crate) kept_out: Vec<PathBuf>,
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
        tokio::spawn(async move {
            core.revoke(id).await;
            shared.note(AuditStep::Stopped);
        });
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

    /// The supervisor that a worker is linked to; none once the runtime ends.
    pub(crate) fn supervisor_of(&self, id: WorkerId) -> Option<ActorCell> {
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

    /// Waits for effects that had begun and for the workers' ends, all together no longer than [`GRACE`]; returns how
    /// many workers have an effect left.
    async fn settle(&self, subtree: Vec<Arc<Shared>>) -> usize {
        let end = tokio::time::Instant::now() + GRACE;
        let mut unfinished = 0;
        for shared in &subtree {
            if tokio::time::timeout_at(end, shared.gate().idle())
                .await
                .is_err()
            {
                unfinished += 1;
            }
            self.broker.forget_worker(shared.id).await;
        }
        for shared in subtree {
            // The end of one that still answers somebody is recorded later.
            let _ = tokio::time::timeout_at(end, shared.ended()).await;
        }
        unfinished
    }

    /// Takes all authority from everybody at once, without waiting.
    pub(crate) fn close(&self) {
        self.admit_no_more();
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

    /// Starts no worker from now on.
    pub(crate) fn admit_no_more(&self) {
        self.tree.lock().close();
    }

    /// The workers that no worker delegated to.
    pub(crate) fn tops(&self) -> Vec<WorkerId> {
        self.tree.lock().tops()
    }
}

#[cfg(test)]
mod tests;
