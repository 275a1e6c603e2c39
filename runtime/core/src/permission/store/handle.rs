//! The broker's handle of the grant store: collects changes and stores them in the background.

use std::sync::Arc;

use tokio::sync::{Mutex, oneshot, watch};
use tokio::task::{JoinHandle, spawn_blocking};

use super::super::{GrantHolder, GrantView, Lifetime, NewGrant};
use super::format::Contents;
use super::writer::{Replace, Writer};
use super::{GrantStore, GrantWriteError, StoredGrant};
use crate::audit::Audit;
use crate::id::GrantId;

/// Returns milliseconds since 1970.
pub(crate) type WallClock = Arc<dyn Fn() -> u64 + Send + Sync>;

type Outcome = Result<(), GrantWriteError>;
/// Reports grants that could not be stored; the receiver revokes them and then notifies the sender.
pub(crate) type ReportUnstored = Arc<dyn Fn(Vec<GrantId>, oneshot::Sender<()>) + Send + Sync>;

/// Pending result of storing a change; ready at once if there is nothing to store.
#[derive(Debug, Default)]
pub(crate) struct PendingSave(Option<JoinHandle<Outcome>>);

impl PendingSave {
    pub(crate) async fn done(self) -> Outcome {
        match self.0 {
            Some(task) => task.await.unwrap_or(Err(GrantWriteError::Closed)),
            None => Ok(()),
        }
    }
}

/// Handle of the store: collects the changes of one message and stores them in the background.
pub(crate) struct StoreHandle {
    /// `None` if grants are not stored.
    shared: Option<Arc<Shared>>,
    given: Vec<StoredGrant>,
    removed: bool,
    wall: WallClock,
    report: ReportUnstored,
    audit: Audit,
}

/// Shared by the handle and its tasks.
struct Shared {
    writer: Writer,
    /// Held during a write, so that tasks that wait for a slow disk occupy no threads.
    write_lock: Mutex<()>,
    /// Each task that stores something holds a receiver.
    tasks: watch::Sender<()>,
}

impl Shared {
    async fn run(
        self: &Arc<Self>,
        write: impl FnOnce(&Writer) -> Outcome + Send + 'static,
    ) -> Outcome {
        let _locked = self.write_lock.lock().await;
        let this = Arc::clone(self);
        let written = spawn_blocking(move || write(&this.writer)).await;
        written.unwrap_or(Err(GrantWriteError::Closed))
    }
}

impl StoreHandle {
    /// A handle of `store`, if there is one, and its content.
    pub(crate) fn new(
        store: Option<GrantStore>,
        audit: &Audit,
        wall: WallClock,
        report: ReportUnstored,
    ) -> (Self, Contents) {
        let mut handle = Self {
            shared: None,
            given: Vec::new(),
            removed: false,
            wall,
            report,
            audit: audit.clone(),
        };
        let Some(GrantStore { file, contents }) = store else {
            return (handle, Contents::default());
        };
        let replace: Replace = Box::new(move |bytes| file.replace(bytes));
        handle.shared = Some(Arc::new(Shared {
            writer: Writer::new(contents.clone(), replace),
            write_lock: Mutex::default(),
            tasks: watch::Sender::default(),
        }));
        (handle, contents)
    }

    /// Collects a grant; only permanent grants of agents are stored.
    pub(crate) fn added(&mut self, id: GrantId, new: &NewGrant) {
        if let (GrantHolder::Agent(agent), Lifetime::Agent) = (&new.holder, new.lifetime) {
            self.set(StoredGrant {
                id,
                agent: Arc::clone(agent),
                pattern: new.pattern.clone(),
                descendants: new.descendants,
                given_at_ms: (self.wall)(),
            });
        }
    }

    /// Collects a narrowed grant; it is removed if it now has a count or time limit.
    pub(crate) fn narrowed(&mut self, left: &GrantView) {
        let shared = self.shared.as_ref();
        let Some(given_at_ms) = shared.and_then(|shared| shared.writer.given_at_ms(left.id)) else {
            return;
        };
        match &left.holder {
            GrantHolder::Agent(agent) if left.uses_left.is_none() && left.expires_at.is_none() => {
                self.set(StoredGrant {
                    id: left.id,
                    agent: Arc::clone(agent),
                    pattern: left.pattern.clone(),
                    descendants: left.descendants,
                    given_at_ms,
                });
            }
            GrantHolder::Agent(_) | GrantHolder::Session { .. } | GrantHolder::Worker(_) => {
                self.removed(left.id);
            }
        }
    }

    fn set(&mut self, grant: StoredGrant) {
        if let Some(shared) = &self.shared {
            shared.writer.add(grant.clone());
            self.given.push(grant);
        }
    }

    /// Collects the removal of a grant.
    pub(crate) fn removed(&mut self, id: GrantId) {
        if let Some(shared) = &self.shared {
            self.removed |= shared.writer.remove(id);
        }
    }

    /// Starts storing the collected changes.
    pub(crate) fn save(&mut self) -> PendingSave {
        let removed = std::mem::take(&mut self.removed);
        let given = std::mem::take(&mut self.given);
        let Some(shared) = &self.shared else {
            return PendingSave::default();
        };
        if given.is_empty() && !removed {
            return PendingSave::default();
        }
        let (shared, audit) = (Arc::clone(shared), self.audit.clone());
        let (report, task) = (Arc::clone(&self.report), shared.tasks.subscribe());
        PendingSave(Some(tokio::spawn(async move {
            let _task = task;
            if given.is_empty() {
                return shared.run(Writer::write).await;
            }
            // A grant is stored after its audit record, so that a kill never leaves a grant without a record.
            let audited = audit.flush().await;
            let ids = given.iter().map(|grant| grant.id).collect();
            let store = move |writer: &Writer| writer.store(&given, audited);
            let stored = shared.run(store).await;
            if stored.is_err() {
                let (revoked_tx, revoked) = oneshot::channel();
                report(ids, revoked_tx);
                // A broker that has ended has no grants.
                let _ = revoked.await;
            }
            stored
        })))
    }

    /// Tries a failed write again.
    pub(crate) fn retry(&self) {
        if let Some(shared) = &self.shared
            && shared.writer.is_failing()
        {
            let shared = Arc::clone(shared);
            spawn_blocking(move || shared.writer.retry());
        }
    }

    /// Closes the file once everything is stored.
    pub(crate) fn close(&self) -> PendingSave {
        let close = |shared: &Arc<Shared>| {
            let shared = Arc::clone(shared);
            tokio::spawn(async move {
                shared.tasks.closed().await;
                shared.run(Writer::close).await
            })
        };
        PendingSave(self.shared.as_ref().map(close))
    }
}
